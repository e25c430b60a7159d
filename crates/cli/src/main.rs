//! The `nfsw` command.

fn main() {}
