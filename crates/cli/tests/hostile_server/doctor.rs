//! What `nfsw doctor` makes of servers that do a thing wrong.

use super::*;

/// What `doctor` prints about a server that does a thing wrong; it ends by itself, with this status.
fn doctor(status: i32, lie: Lie) -> String {
    let Outcome { code, stdout, stderr } =
        Trial::new(lie).run(&["doctor", "--write-test", "--wait", "200ms", "{tree}"]);
    assert_eq!(code, Some(status), "{stderr}");
    let page = String::from_utf8(stdout).unwrap();
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    assert!(!page.chars().any(|it| it.is_control() && it != '\n'), "{page:?}");
    page
}

#[test]
fn doctor_tells_what_is_odd() {
    type Row = (i32, Lie, &'static str);
    let rows: [Row; 13] = [
        (0, HONEST, "is answered from the duplicate request cache"),
        (
            3,
            Wire(|c, r, line| {
                if c.program != Program::NFS {
                    line.send(r)
                }
            }),
            "NFS does not answer, neither over UDP nor",
        ),
        (
            0,
            Wire(|c, r, line| {
                if c.program != Program::NFS || !matches!(line, liar::Line::Datagrams(..)) {
                    line.send(r)
                }
            }),
            "udp=y",
        ),
        (0, Reply(|c, r| mount(c, 5, r, &[1, u32::MAX])), "EXPORT: cannot be understood"),
        (
            0,
            Reply(|c, r| {
                if c.program == Program::MOUNT && c.procedure == 5 {
                    message(r, &[1, 0, 0, 0, 2])
                }
            }),
            "EXPORT: not offered",
        ),
        (3, Reply(|c, r| mount(c, 1, r, &[13])), "refused: permission denied"),
        (3, Reply(|c, r| mount(c, 1, r, &[0, 4, 0, u32::MAX])), "cannot be understood"),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Fsstat) {
                    r.extend([0; 4])
                }
            }),
            "FSSTAT: 4 bytes follow the results",
        ),
        (0, Reply(|c, r| results(c, r, P::Readdirplus, &[10_004])), "READDIRPLUS: "),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Commit) {
                    message(r, &[1, 0, 0, 0, 3])
                }
            }),
            "COMMIT: not offered",
        ),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Create) && c.before == 0 {
                    results(c, r, P::Create, &[22])
                }
            }),
            "CREATE takes a mode and no times",
        ),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Mkdir) && c.before % 2 == 1 {
                    results(c, r, P::Mkdir, &[17])
                }
            }),
            "is run again: no duplicate request cache",
        ),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Fsinfo) {
                    edit::<FSINFO3resok>(r, |it| (it.rtmax, it.wtmax) = (32 << 10, 32 << 10));
                }
            }),
            "Blocks over TCP have at most 32 KiB",
        ),
    ];
    for (status, lie, words) in rows {
        // Words may be broken into lines.
        let page = doctor(status, lie).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(words), "{words:?} is not in {page}");
    }
}

#[test]
fn doctor_survives_nonsense() {
    let lies: [Lie; 7] = [
        Wire(|_, _, line| line.raw(&[0xff; 64])),
        Wire(|_, _, line| line.raw(&[0; 64 << 10])),
        Wire(|_, r, line| line.raw(&[&mark(r.len()), &r[..r.len() / 2]].concat())),
        Wire(|_, r, line| {
            (0..200).for_each(|_| line.raw(&[&[0, 1, 0, 0][..], &r[..4], &[7; 65_532]].concat()))
        }),
        Wire(|_, _, line| line.close()),
        Reply(|_, r| r.truncate(28)),
        Reply(|_, r| r.extend([0xff; 40_000])),
    ];
    let status = |lie| Trial::new(lie).run(&["doctor", "--write-test", "--wait", "100ms", "{tree}"]).code;
    // 0 where the page could be filled, 3 where there was nothing to ask.
    assert_eq!(lies.map(status), [3, 3, 3, 3, 3, 3, 0].map(Some));
}
