//! What a person or a script is told: help, configuration, completion, progress, JSON, errors and exit statuses.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/terminal.rs"]
mod terminal;

mod closed_output;
mod completions;
mod config;
mod curve;
mod doctor;
mod exit_status;
mod json;
mod progress;
mod sessions;
mod words;
