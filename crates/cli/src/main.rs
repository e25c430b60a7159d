//! The `nfsw` command.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    nfsw::main()
}
