//! An object store on servers: its promises, the tests of object_store, and a Parquet file.

mod common;

mod integration;
mod parquet;
mod promises;
