//! What paths lead to, and what names look like.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, os::unix::fs::symlink};

use crate::Site;

#[test]
fn nothing_outside_of_the_folder_can_be_reached() {
    let site = Site::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "outside").unwrap();
    site.put("in/file", b"inside");
    symlink(outside.path(), site.folder.path().join("link")).unwrap();
    symlink(outside.path().join("secret"), site.folder.path().join("in/link")).unwrap();
    let out = outside.path().to_str().unwrap();
    let relative = format!("../{}/secret", outside.path().file_name().unwrap().to_str().unwrap());
    for path in [
        relative.clone(),
        relative.replace('.', "%2e"),
        relative.replace('/', "%2f"),
        format!("in/../../{}", &relative[3..]),
        format!("in/%2e%2e/{relative}"),
        format!("/{out}/secret"),
        format!("{}/secret", out.replace('/', "%2F")),
        "link/secret".to_owned(),
        "link/".to_owned(),
        "in/link".to_owned(),
        "in/file%00.jpg".to_owned(),
        "in/file/".to_owned(),
        "in//file".to_owned(),
        "./in/file".to_owned(),
        "in/..".to_owned(),
        "in\\..\\..\\secret".to_owned(),
        "x".repeat(300),
    ] {
        let reply = site.get(&format!("/files/{path}"));
        assert_eq!(reply.status, 404, "{path}: {}", reply.text());
        assert!(!reply.text().contains("outside"), "{path}");
    }
    assert_eq!(site.get("/files/in/file").text(), "inside");
    // Links are named, and lead nowhere.
    let page = site.get("/files/in/").text();
    assert!(page.contains(">link<") && !page.contains("href=\"link"), "{page}");
    for path in ["/", "/files", "/files/in"] {
        let reply = site.get(path);
        assert!([200, 308].contains(&reply.status), "{path}: {}", reply.status);
    }
    assert_eq!(site.get("/files/in?zip").header("location"), "/files/in/?zip");
    assert_eq!(site.get("/elsewhere").status, 404);
}

#[test]
fn names_of_any_bytes_lead_to_their_files() {
    let site = Site::new();
    let names: [&[u8]; 8] = [
        b"a b.txt",
        b"\"quoted\" & 'so'.txt",
        b"new\nline.txt",
        b"\xff\xfe.txt",
        b"<b>.txt",
        b"100%.txt",
        b"a?b#c;d.txt",
        "ä\u{202e}.txt".as_bytes(),
    ];
    for name in names {
        site.put(OsStr::from_bytes(name), name);
        site.put(OsStr::from_bytes(&[b"folder ", name].concat()).to_owned().to_string_lossy().as_ref(), b"");
    }
    let page = site.get("/files/").text();
    assert!(page.contains("Photos &amp; &lt;more&gt;") && !page.contains("<b>"), "{page}");
    let links: Vec<_> = page
        .split("<a class=\"entry\" href=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    let mut found: Vec<_> = links
        .iter()
        .map(|link| site.get(&format!("/files/{link}")))
        .map(|reply| {
            assert_eq!(reply.status, 200);
            reply.body
        })
        .filter(|body| !body.is_empty())
        .collect();
    let mut expected: Vec<_> = names.iter().map(|name| name.to_vec()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let said = site.get("/files/new%0Aline.txt");
    assert_eq!(
        said.header("content-disposition"),
        "inline; filename=\"new_line.txt\"; filename*=UTF-8''new%0Aline.txt"
    );
}

#[test]
fn files_that_could_run_scripts_are_kept_and_others_are_in_a_sandbox() {
    let site = Site::new();
    for name in ["evil.html", "evil.svg", "evil.xml", "a.jpg", "a.pdf", "a.js"] {
        site.put(name, b"<script>alert(1)</script>");
    }
    let told = |name: &str| {
        let reply = site.get(&format!("/files/{name}"));
        let header = |name| reply.header(name).split(';').next().unwrap_or_default().to_owned();
        (header("content-disposition"), header("content-security-policy"), header("content-type"))
    };
    let of = |how: &str, policy: &str, kind: &str| (how.to_owned(), policy.to_owned(), kind.to_owned());
    assert_eq!(told("evil.html"), of("attachment", "sandbox", "text/html"));
    assert_eq!(told("evil.svg"), of("attachment", "sandbox", "image/svg+xml"));
    assert_eq!(told("evil.xml"), of("attachment", "sandbox", "text/xml"));
    assert_eq!(told("a.jpg"), of("inline", "sandbox", "image/jpeg"));
    assert_eq!(told("a.js"), of("inline", "sandbox", "text/plain"));
    assert_eq!(told("a.pdf"), of("inline", "", "application/pdf"));
    let page = site.get("/files/");
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(
        !page.text().contains("<style") && page.text().matches("<script").count() == 1,
        "{}",
        page.text()
    );
    assert_eq!(page.header("cache-control"), "no-store");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
}
