//! The page for people, and the same for programs.

use std::{fmt::Write as _, time::Duration};

use jiff::Timestamp;
use nfs_wire::portmap::Protocol;
use serde_json::{Value, json};

use super::findings::{Answer, Findings, Limits, PROTOCOLS, index, name};
use crate::{
    report::event,
    text::escape,
    units::{self, nanoseconds},
};

/// Columns of the page, at most; names that are longer stand alone.
const WIDTH: usize = 96;
/// Where the second and the third column begin.
const COLUMNS: [usize; 2] = [26, 60];

/// Exports that are listed; JSON has all.
const MAX_EXPORTS: usize = 30;

/// What FSINFO's bits mean (RFC 1813 §3.3.19).
const PROPERTIES: [(u32, &str); 4] = [
    (0x1, "hard links"),
    (0x2, "symbolic links"),
    (0x8, "the same names and links everywhere"),
    (0x10, "times can be set"),
];

/// Returns the page.
pub(super) fn page(findings: &Findings, now: Timestamp) -> String {
    let mut page = String::new();
    let Findings { host, address, uid, gid, .. } = findings;
    let shown = if *host == address.to_string() { host.clone() } else { format!("{host} ({address})") };
    let _ = writeln!(page, "NFS server {shown}, asked as uid {uid}, gid {gid}");
    let when = now.strftime("%Y-%m-%d %H:%M UTC");
    let _ = writeln!(page, "{when}, by nfsw {}\n", env!("CARGO_PKG_VERSION"));
    services(findings, &mut page);
    exports(findings, &mut page);
    limits(findings, &mut page);
    if !findings.tried.is_empty() {
        page.push_str("\nTRIED\n");
        for (what, came) in &findings.tried {
            entry(&mut page, what, came);
        }
    }
    for (heading, sentences, none) in [
        ("ODD", &findings.quirks, None),
        ("WHAT TO CHANGE ON THE SERVER", &findings.advice, Some("Nothing: all that nfsw can use is there.")),
    ] {
        if sentences.is_empty() && none.is_none() {
            continue;
        }
        let _ = writeln!(page, "\n{heading}");
        for sentence in sentences {
            wrap(&mut page, "  - ", 4, sentence);
        }
        if let Some(none) = none.filter(|_| sentences.is_empty()) {
            let _ = writeln!(page, "  {none}");
        }
    }
    page
}

fn services(findings: &Findings, page: &mut String) {
    row(page, "SERVICES", ["UDP", "TCP"].map(str::to_owned));
    for service in &findings.services {
        let words = |answer: &Answer| match (&answer.null, answer.port) {
            (Ok(took), Some(port)) => format!("port {port}, {}", milliseconds(*took)),
            (Err(words), Some(port)) => format!("port {port}, {words}"),
            (Err(words), None) => words.clone(),
            (Ok(took), None) => milliseconds(*took),
        };
        row(page, &format!("  {} v{}", service.name, service.version), service.answers.each_ref().map(words));
    }
    if !findings.nfs_versions.is_empty() {
        let versions: Vec<_> = findings.nfs_versions.iter().map(u32::to_string).collect();
        entry(page, "registered NFS versions", &versions.join(", "));
    }
}

fn exports(findings: &Findings, page: &mut String) {
    let Some(exports) = &findings.exports else { return };
    page.push_str("\nEXPORTS\n");
    match exports {
        Err(words) => entry(page, "the list", words),
        Ok(exports) => {
            for export in exports.iter().take(MAX_EXPORTS) {
                let groups: Vec<_> = export.groups.iter().map(|group| escape(group)).collect();
                let groups = if groups.is_empty() { "everyone".to_owned() } else { groups.join(", ") };
                entry(page, &escape(&export.directory), &groups);
            }
            match exports.len().saturating_sub(MAX_EXPORTS) {
                0 if exports.is_empty() => page.push_str("  none\n"),
                0 => {}
                more => {
                    let _ = writeln!(page, "  and {more} more");
                }
            }
        }
    }
    let Some(mounted) = &findings.mount else { return };
    let came = match &mounted.outcome {
        Err(words) => format!("refused: {words}"),
        Ok(()) => {
            let flavors: Vec<String> = mounted.flavors.iter().map(|&number| flavor(number)).collect();
            let flavors = if flavors.is_empty() { "no flavour named".to_owned() } else { flavors.join(", ") };
            format!("root handle of {} bytes; {flavors}", mounted.handle_bytes)
        }
    };
    entry(page, &format!("mounting {}", escape(&mounted.path)), &came);
}

fn limits(findings: &Findings, page: &mut String) {
    if findings.limits.iter().all(Option::is_none) {
        return;
    }
    page.push('\n');
    row(page, "LIMITS (FSINFO)", ["UDP", "TCP"].map(str::to_owned));
    let mut put = |label: &str, words: &dyn Fn(&Limits) -> String| {
        row(
            page,
            label,
            findings.limits.each_ref().map(|it| it.as_ref().map_or_else(|| "-".to_owned(), words)),
        );
    };
    let block = |most: u32, preferred: u32| {
        let most_words = units::bytes(most.into());
        match most == preferred {
            true => most_words,
            false => format!("{most_words}, {} preferred", units::bytes(preferred.into())),
        }
    };
    put("  READ", &|it| block(it.read_max, it.read_preferred));
    put("  WRITE", &|it| block(it.write_max, it.write_preferred));
    put("  READDIR", &|it| format!("{} preferred", units::bytes(it.listing_preferred.into())));
    put("  largest file", &|it| units::bytes(it.largest_file));
    put("  steps of times", &|it| step(it.time_step));
    if let Some(limits) = findings.limits.iter().flatten().next() {
        let named: Vec<_> = PROPERTIES
            .iter()
            .filter(|(bit, _)| limits.properties & bit != 0)
            .map(|&(_, words)| words)
            .collect();
        entry(page, "abilities", &if named.is_empty() { "none named".to_owned() } else { named.join(", ") });
    }
    if let Some(names) = findings.names {
        let mut words = format!("up to {} bytes, {} links to a file", names.longest, names.links);
        if names.ignores_case {
            words += if names.keeps_case { ", case is kept and does not matter" } else { ", case is lost" };
        }
        entry(page, "names (PATHCONF)", &words);
    }
}

/// A label and words for both transports.
fn row(page: &mut String, label: &str, [udp, tcp]: [String; 2]) {
    let [first, second] = COLUMNS;
    let line = format!("{label:<first$} {udp:<width$} {tcp}", width = second - first - 1);
    page.push_str(line.trim_end());
    page.push('\n');
}

/// A label and words, as long as they are.
fn entry(page: &mut String, label: &str, words: &str) {
    let indent = COLUMNS[0] + 1;
    if label.chars().count() + 3 > indent {
        let _ = writeln!(page, "  {label}");
        wrap(page, &" ".repeat(indent), indent, words);
    } else {
        wrap(page, &format!("  {label:<width$}", width = indent - 2), indent, words);
    }
}

/// Appends words, broken into lines; the first begins with `start`, the others are indented.
fn wrap(page: &mut String, start: &str, indent: usize, words: &str) {
    let mut line = start.to_owned();
    let mut is_empty = true;
    for word in words.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(page, "{line}");
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(page, "{}", line.trim_end());
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn step(time: Duration) -> String {
    match time.as_nanos() {
        0 => "not told".to_owned(),
        nanoseconds if nanoseconds < 1_000 => format!("{nanoseconds} ns"),
        nanoseconds if nanoseconds < 1_000_000 => format!("{} us", nanoseconds / 1_000),
        nanoseconds if nanoseconds < 1_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        nanoseconds => format!("{} s", nanoseconds / 1_000_000_000),
    }
}

/// Returns the name of a flavour of authentication (RFC 5531 §8.2, RFC 2623 §2.2.1).
fn flavor(number: u32) -> String {
    match number {
        0 => "AUTH_NONE".to_owned(),
        1 => "AUTH_SYS".to_owned(),
        390_003 => "krb5".to_owned(),
        390_004 => "krb5i".to_owned(),
        390_005 => "krb5p".to_owned(),
        other => format!("flavour {other}"),
    }
}

/// Returns the findings as events.
pub(super) fn events(findings: &Findings) -> Vec<Value> {
    let Findings { host, address, uid, gid, nfs_versions, .. } = findings;
    let mut events = vec![json!({
        "event": "server", "host": host, "address": address.to_string(), "uid": uid, "gid": gid,
        "registered_nfs_versions": nfs_versions,
    })];
    for service in &findings.services {
        let mut found = json!({"event": "service", "name": service.name, "version": service.version});
        for protocol in PROTOCOLS {
            let Answer { port, null } = &service.answers[index(protocol)];
            let answers = null.is_ok();
            let rtt = null.as_ref().ok().map(|took| nanoseconds(*took));
            let trouble = null.as_ref().err();
            found[key(protocol)] =
                json!({"port": port, "answers": answers, "rtt_ns": rtt, "trouble": trouble});
        }
        events.push(found);
    }
    for export in findings.exports.iter().flatten().flatten() {
        let mut found = event("export", &[("path", &export.directory)]);
        found["groups"] = export.groups.iter().map(|group| String::from_utf8_lossy(group)).collect();
        events.push(found);
    }
    if let Some(mounted) = &findings.mount {
        let mut found = event("mount", &[("path", &mounted.path)]);
        found["trouble"] = json!(mounted.outcome.as_ref().err());
        found["handle_bytes"] = mounted.handle_bytes.into();
        found["flavors"] = json!(mounted.flavors);
        events.push(found);
    }
    for protocol in PROTOCOLS {
        let Some(limits) = &findings.limits[index(protocol)] else { continue };
        events.push(json!({
            "event": "limits", "transport": key(protocol),
            "rtmax": limits.read_max, "rtpref": limits.read_preferred,
            "wtmax": limits.write_max, "wtpref": limits.write_preferred,
            "dtpref": limits.listing_preferred, "maxfilesize": limits.largest_file,
            "time_delta_ns": u64::try_from(limits.time_step.as_nanos()).unwrap_or(u64::MAX),
            "properties": limits.properties,
        }));
    }
    if let Some(names) = findings.names {
        events.push(json!({
            "event": "names", "name_max": names.longest, "linkmax": names.links, "no_trunc": !names.truncates,
            "case_insensitive": names.ignores_case, "case_preserving": names.keeps_case,
        }));
    }
    events.extend(
        findings.tried.iter().map(|(what, came)| json!({"event": "test", "what": what, "came": came})),
    );
    for (kind, sentences) in [("quirk", &findings.quirks), ("advice", &findings.advice)] {
        events.extend(sentences.iter().map(|text| json!({"event": kind, "text": text})));
    }
    events
}

fn key(protocol: Protocol) -> &'static str {
    match name(protocol) {
        "UDP" => "udp",
        _ => "tcp",
    }
}

#[cfg(test)]
mod tests;
