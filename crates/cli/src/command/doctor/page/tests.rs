use std::net::Ipv4Addr;

use nfs_wire::mount::Export;

use super::*;
use crate::command::doctor::{
    advice::advice,
    findings::{Mounted, Names, Service},
};

fn answers(udp: Result<f64, &str>, tcp: Result<f64, &str>, port: u16) -> [Answer; 2] {
    [udp, tcp].map(|null| Answer {
        port: Some(port),
        null: null.map(Duration::from_secs_f64).map_err(str::to_owned),
    })
}

fn service(name: &'static str, version: u32, answers: [Answer; 2]) -> Service {
    Service { name, version, answers }
}

const LIMITS: Limits = Limits {
    read_max: 1 << 20,
    read_preferred: 1 << 20,
    write_max: 1 << 20,
    write_preferred: 64 << 10,
    listing_preferred: 4096,
    largest_file: u64::MAX >> 1,
    time_step: Duration::from_nanos(1),
    properties: 0x1b,
};

/// A server without trouble.
fn sound() -> Findings {
    let all = || answers(Ok(0.000_4), Ok(0.000_6), 2049);
    Findings {
        host: "nas".to_owned(),
        address: Ipv4Addr::new(192, 0, 2, 7).into(),
        uid: 1000,
        gid: 100,
        services: vec![
            service("port mapper", 2, answers(Ok(0.000_4), Ok(0.000_6), 111)),
            service("MOUNT", 3, all()),
            service("NFS", 3, all()),
        ],
        nfs_versions: vec![3, 4],
        exports: Some(Ok(vec![Export { directory: b"/srv".to_vec(), groups: vec![b"10.0.0.0/8".to_vec()] }])),
        mount: Some(Mounted {
            path: b"/srv".to_vec(),
            outcome: Ok(()),
            handle_bytes: 28,
            flavors: vec![1, 390_003],
        }),
        limits: [Some(Limits { read_max: 32 << 10, read_preferred: 32 << 10, ..LIMITS }), Some(LIMITS)],
        names: Some(Names {
            longest: 255,
            links: 32_000,
            truncates: false,
            ignores_case: false,
            keeps_case: true,
        }),
        tried: vec![("the user", "uid 1000 by AUTH_SYS is accepted".to_owned())],
        quirks: Vec::new(),
        advice: Vec::new(),
    }
}

#[test]
fn a_sound_server_has_a_page_that_fits_and_nothing_to_change() {
    let findings = sound();
    assert_eq!(advice(&findings), Vec::<String>::new());
    let page = page(&findings, Timestamp::UNIX_EPOCH);
    let expected = "\
NFS server nas (192.0.2.7), asked as uid 1000, gid 100
1970-01-01 00:00 UTC, by nfsw VERSION

SERVICES                   UDP                               TCP
  port mapper v2           port 111, 0.4 ms                  port 111, 0.6 ms
  MOUNT v3                 port 2049, 0.4 ms                 port 2049, 0.6 ms
  NFS v3                   port 2049, 0.4 ms                 port 2049, 0.6 ms
  registered NFS versions  3, 4

EXPORTS
  /srv                     10.0.0.0/8
  mounting /srv            root handle of 28 bytes; AUTH_SYS, krb5

LIMITS (FSINFO)            UDP                               TCP
  READ                     32 KiB                            1.0 MiB
  WRITE                    1.0 MiB, 64 KiB preferred         1.0 MiB, 64 KiB preferred
  READDIR                  4.0 KiB preferred                 4.0 KiB preferred
  largest file             8.0 EiB                           8.0 EiB
  steps of times           1 ns                              1 ns
  abilities                hard links, symbolic links, the same names and links everywhere,
                           times can be set
  names (PATHCONF)         up to 255 bytes, 32000 links to a file

TRIED
  the user                 uid 1000 by AUTH_SYS is accepted

WHAT TO CHANGE ON THE SERVER
  Nothing: all that nfsw can use is there.
";
    assert_eq!(page.replace(env!("CARGO_PKG_VERSION"), "VERSION"), expected);
}

#[test]
fn whatever_a_server_says_the_page_stays_narrow_and_harmless() {
    let mut findings = sound();
    findings.mount.as_mut().unwrap().outcome = Err("permission denied".to_owned());
    findings.exports = Some(Ok(vec![
        Export { directory: b"/with/a/rather/long/path/below/it".to_vec(), groups: vec![b"*".to_vec(); 40] },
        Export { directory: b"/\x1b[2J".to_vec(), groups: Vec::new() },
    ]));
    findings.odd("EXPORT lists itself. ".repeat(20));
    findings.odd("EXPORT lists itself. ".repeat(20));
    let page = page(&findings, Timestamp::UNIX_EPOCH);
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    assert!(!page.contains('\x1b') && page.contains("/\\u{1b}[2J"), "{page}");
    assert!(page.contains("refused: permission denied") && page.matches("  - EXPORT lists").count() == 1);
    for event in events(&findings) {
        assert!(event["event"].is_string());
    }
}

#[test]
fn what_is_missing_is_asked_for() {
    type Change = fn(&mut Findings);
    let rows: [(Change, &str); 8] = [
        (|it| it.services[2].answers[0].null = Err("refused".to_owned()), "udp=y below [nfsd]"),
        (
            |it| it.services[2].answers[0].null = Err("silent".to_owned()),
            "A firewall may also stand in the way",
        ),
        (|it| it.services[2].answers[1].null = Err("refused".to_owned()), "open port 2049/tcp"),
        (
            |it| it.services[2].answers = answers(Err("silent"), Err("silent"), 2049),
            "NFS does not answer, neither",
        ),
        (
            |it| {
                it.services[2].answers = answers(Err("not registered"), Err("not registered"), 2049);
                it.nfs_versions = vec![4];
            },
            "vers3=y below [nfsd]",
        ),
        (
            |it| it.services[0].answers = answers(Err("silent"), Err("refused"), 111),
            "nfs://nas:2049/PATH?mountport=2049",
        ),
        (|it| it.limits[1] = Some(Limits { write_max: 64 << 10, ..LIMITS }), "at most 64 KiB"),
        (|it| it.mount.as_mut().unwrap().flavors = vec![390_003], "sec=krb5:sys"),
    ];
    for (change, words) in rows {
        let mut findings = sound();
        change(&mut findings);
        let advice = advice(&findings);
        assert!(advice.len() == 1 && advice[0].contains(words), "{words}: {advice:?}");
    }
}
