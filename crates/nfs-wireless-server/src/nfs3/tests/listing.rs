use std::collections::BTreeSet;

use nfs_wire::{
    Procedure, Status,
    nfs3_types::nfs3::{
        READDIR3args, READDIR3resok, READDIRPLUS3args, READDIRPLUS3resok, REMOVE3args, REMOVE3resok,
        cookieverf3, nfs_fh3,
    },
    reply::decode,
};

use crate::testing::{Bench, at, on_both, some_attributes, some_handle};

struct Page {
    names: Vec<(Vec<u8>, u64)>,
    verifier: cookieverf3,
    eof: bool,
    bytes: usize,
}

fn readdir(
    bench: &mut Bench,
    dir: &nfs_fh3,
    cookie: u64,
    cookieverf: cookieverf3,
    count: u32,
) -> Result<Page, Status> {
    let arguments = READDIR3args { dir: dir.clone(), cookie, cookieverf, count };
    let results = bench.raw(Procedure::Readdir.number(), &arguments).unwrap();
    let page = decode::<READDIR3resok<'_>>(&results).unwrap()?;
    let name = |entry: &nfs_wire::nfs3_types::nfs3::entry3<'_>| (entry.name.as_ref().to_vec(), entry.cookie);
    Ok(Page {
        names: page.reply.entries.0.iter().map(name).collect(),
        verifier: page.cookieverf,
        eof: page.reply.eof,
        bytes: results.len() - 4,
    })
}

fn readdirplus(
    bench: &mut Bench,
    dir: &nfs_fh3,
    cookie: u64,
    cookieverf: cookieverf3,
    (dircount, maxcount): (u32, u32),
) -> Result<(Page, Vec<nfs_fh3>), Status> {
    let arguments = READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount, maxcount };
    let results = bench.raw(Procedure::Readdirplus.number(), &arguments).unwrap();
    let page = decode::<READDIRPLUS3resok<'_>>(&results).unwrap()?;
    let (mut names, mut handles) = (Vec::new(), Vec::new());
    for entry in page.reply.entries.0 {
        names.push((entry.name.as_ref().to_vec(), entry.cookie));
        assert_eq!(some_attributes(entry.name_attributes).fileid, entry.fileid);
        handles.push(some_handle(entry.name_handle));
    }
    let page = Page { names, verifier: page.cookieverf, eof: page.reply.eof, bytes: results.len() - 4 };
    Ok((page, handles))
}

/// Lists a directory page by page, with something done between the pages.
fn all(
    bench: &mut Bench,
    dir: &nfs_fh3,
    count: u32,
    mut between: impl FnMut(&mut Bench, &Page),
) -> Vec<Vec<u8>> {
    let (mut cookie, mut verifier) = (0, cookieverf3::default());
    let mut names = Vec::new();
    loop {
        let page = readdir(bench, dir, cookie, verifier, count).unwrap();
        assert!(page.bytes <= count as usize, "{} of {count} bytes", page.bytes);
        between(bench, &page);
        cookie = page.names.last().map_or(cookie, |(_, cookie)| *cookie);
        verifier = page.verifier;
        names.extend(page.names.into_iter().map(|(name, _)| name));
        if page.eof {
            return names;
        }
    }
}

fn fill(bench: &mut Bench, count: usize) -> (nfs_fh3, BTreeSet<Vec<u8>>) {
    let root = bench.root();
    let directory = bench.mkdir(&root, b"dir").unwrap();
    let names: BTreeSet<_> = (0..count).map(|i| format!("file {i}").into_bytes()).collect();
    for name in &names {
        bench.create(&directory, name);
    }
    (directory, names)
}

fn without_dots(names: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    assert_eq!(names.iter().filter(|name| matches!(&name[..], b"." | b"..")).count(), 2);
    names.into_iter().filter(|name| !matches!(&name[..], b"." | b"..")).collect()
}

#[test]
fn every_page_size_lists_every_entry_once() {
    on_both(|bench| {
        let (directory, expected) = fill(bench, 50);
        for count in [150, 151, 200, 512, 4096, u32::MAX] {
            let names = without_dots(all(bench, &directory, count, |_, _| {}));
            assert_eq!(names.len(), 50);
            assert_eq!(BTreeSet::from_iter(names), expected);
        }
    });
}

#[test]
fn an_empty_directory_has_two_entries() {
    on_both(|bench| {
        let (directory, _) = fill(bench, 0);
        let page = readdir(bench, &directory, 0, cookieverf3::default(), 4096).unwrap();
        assert_eq!(page.names[0].0, b".");
        assert_eq!(page.names[1].0, b"..");
        assert!(page.eof);
        let cookie = page.names[1].1;
        let rest = readdir(bench, &directory, cookie, page.verifier, 4096).unwrap();
        assert!(rest.names.is_empty() && rest.eof);
    });
}

#[test]
fn a_listing_survives_removals_and_creations_meanwhile() {
    on_both(|bench| {
        let (directory, expected) = fill(bench, 200);
        let mut made = 0;
        let names = without_dots(all(bench, &directory, 512, |bench, page| {
            for (name, _) in &page.names {
                if !matches!(&name[..], b"." | b"..") {
                    let object = at(&directory, name);
                    let _: REMOVE3resok = bench.call(Procedure::Remove, &REMOVE3args { object }).unwrap();
                }
            }
            if made < 20 {
                made += 1;
                bench.create(&directory, format!("new {made}").as_bytes());
            }
        }));
        let old: Vec<_> = names.iter().filter(|name| name.starts_with(b"file")).cloned().collect();
        assert_eq!(old.len(), 200, "each once");
        assert_eq!(BTreeSet::from_iter(old), expected);
    });
}

#[test]
fn readdirplus_heeds_both_counts_and_returns_usable_handles() {
    on_both(|bench| {
        let (directory, expected) = fill(bench, 40);
        let (mut cookie, mut verifier) = (0, cookieverf3::default());
        let mut names = Vec::new();
        loop {
            let (page, handles) = readdirplus(bench, &directory, cookie, verifier, (200, 1500)).unwrap();
            assert!(page.bytes <= 1500, "{}", page.bytes);
            let of_names: usize =
                page.names.iter().map(|(name, _)| 20 + name.len().next_multiple_of(4)).sum();
            assert!(of_names <= 200, "{of_names}");
            for ((name, _), handle) in page.names.iter().zip(&handles) {
                assert_eq!(bench.lookup(&directory, name), Ok(handle.clone()));
            }
            cookie = page.names.last().map_or(cookie, |(_, cookie)| *cookie);
            verifier = page.verifier;
            names.extend(page.names.into_iter().map(|(name, _)| name));
            if page.eof {
                break;
            }
        }
        assert_eq!(BTreeSet::from_iter(without_dots(names)), expected);
    });
}

#[test]
fn a_page_without_room_for_one_entry_is_too_small() {
    on_both(|bench| {
        let (directory, _) = fill(bench, 1);
        let verifier = cookieverf3::default();
        for count in [0, 100, 120] {
            let error = readdir(bench, &directory, 0, verifier, count).err();
            assert_eq!(error, Some(Status::TOOSMALL));
            let error = readdirplus(bench, &directory, 0, verifier, (count, count)).err();
            assert_eq!(error, Some(Status::TOOSMALL));
        }
        // A small dircount alone still makes progress.
        let (page, _) = readdirplus(bench, &directory, 0, verifier, (1, 4096)).unwrap();
        assert_eq!(page.names.len(), 1);
    });
}

#[test]
fn a_listing_needs_a_directory_and_its_own_verifier() {
    on_both(|bench| {
        let (directory, _) = fill(bench, 1);
        let file = bench.lookup(&directory, b"file 0").unwrap();
        let verifier = cookieverf3::default();
        assert_eq!(readdir(bench, &file, 0, verifier, 4096).err(), Some(Status::NOTDIR));
        assert_eq!(readdir(bench, &directory, 2, cookieverf3([9; 8]), 4096).err(), Some(Status::BAD_COOKIE));
    });
}

#[test]
fn ten_thousand_entries_are_listed_quickly() {
    on_both(|bench| {
        let (directory, expected) = fill(bench, 10_000);
        let names = without_dots(all(bench, &directory, 8192, |_, _| {}));
        assert_eq!(names.len(), expected.len());
    });
}
