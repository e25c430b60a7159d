//! The client against servers in this process, on real sockets.

#[path = "../support/embedded.rs"]
mod embedded;

mod ambiguous_outcomes;
mod any_duration;
mod embedded_server;
mod file_model;
mod given_names;
mod given_up;
mod late_copies;
mod many_calls;
mod path_table;
mod paths;
mod public_futures;
mod slow_storage;
mod transports;
