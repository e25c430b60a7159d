//! The cache in virtual time: programs, a server that changes its files, and a store (`model`), without a socket or a clock.

mod model;

mod again;
mod blocks;
mod consistency;
mod ended;
mod long_reads;
mod pins;
mod prefetch;
mod promises;
mod prompt;
mod queue;
mod refresh;
mod restart;
mod versions;
