//! Messages about what is long or drives a terminal.

use super::*;

#[test]
fn messages_have_an_end_whatever_they_are_about() {
    // The server makes up a name of 100 KB.
    let Outcome { code, stderr, .. } =
        Trial::new(Reply(|c, r| rename(c, r, &[&[b'x'; 100_000][..], b"end"].concat()))).run(TREE_TCP);
    assert_eq!(code, Some(7), "{stderr}");
    assert!(stderr.contains("xxx...xxx") && stderr.contains("xend: "), "{stderr}");
    // The user names something long.
    let path = format!("{{tree/{}/end}}", "y".repeat(4000));
    let Outcome { code, stderr, .. } = Trial::new(HONEST).run(&["stat", "--timeout", "1s", &path]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("yyy...yyy") && stderr.contains("y/end: "), "{stderr}");
    // The deadline passes while the server looks for it.
    let silent = Wire(|c, r, line| {
        if !c.is(P::Lookup) {
            line.send(r)
        }
    });
    let command = ["cp", "--transport", "tcp", "--deadline", "500ms", &path, "copy"];
    let Outcome { code, stderr, .. } = Trial::new(silent).run(&command);
    assert_eq!(code, Some(5), "{stderr}");
    assert!(!stderr.contains("run again: "), "{stderr}");
}

#[test]
fn a_terminal_gets_names_escaped() {
    let trial = Trial::new(Reply(|call, reply| rename(call, reply, b"\x1b[31mred\x07")));
    for options in ["-1", "-l"] {
        let command = env!("CARGO_BIN_EXE_nfsw");
        let line = format!("{command} ls --color never {options} '{}'", trial.url("tree"));
        let output =
            std::process::Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("\\u{1b}[31mred\\u{7}"), "{text:?}");
        assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
    }
}
