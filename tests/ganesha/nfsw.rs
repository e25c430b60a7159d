//! Runs the command as a person would.

use std::{
    ffi::OsStr,
    io::Write,
    process::{Command, Output, Stdio},
};

pub(crate) use private_servers::nfsw as binary;

/// Runs `nfsw` with these arguments; two minutes are its limit.
pub(crate) fn run<Argument: AsRef<OsStr>>(arguments: impl IntoIterator<Item = Argument>) -> Output {
    run_with_input(arguments, b"")
}

/// Runs `nfsw` and gives it standard input.
pub(crate) fn run_with_input<Argument: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = Argument>,
    input: &[u8],
) -> Output {
    let mut child = Command::new("timeout")
        .arg("120")
        .arg(binary())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nfsw starts");
    let mut stdin = child.stdin.take().expect("piped above");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It may end without reading.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().expect("nfsw ends")
    })
}

/// Panics with what was said unless the exit status is `code`.
pub(crate) fn expect(output: &Output, code: i32) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        output.status.code(),
        Some(code),
        "stdout: {}\nstderr: {}",
        text(&output.stdout[..output.stdout.len().min(2000)]),
        text(&output.stderr)
    );
}
