use nfs_wire::{
    Procedure::{Readdir, Readdirplus},
    Reader, call,
    nfs3_types::{
        nfs3::{dirlist3, dirlistplus3, entry3, entryplus3},
        xdr_codec::List,
    },
};

use super::{
    super::replies::{attributes, failure, handle, post_op, success},
    *,
};

const PAGE_BYTES: u32 = 8000;

/// Arguments of a call: cookie, the byte its verifier consists of, and the sizes that it asks for.
#[derive(Debug, PartialEq, Eq)]
struct Call(Procedure, u64, u8, Vec<u32>);

fn next_call(listing: &Listing) -> Call {
    let mut bytes = Vec::new();
    listing.encode(&mut bytes);
    let (dir, cookie, verifier, sizes) = match listing.procedure() {
        Readdirplus => {
            let READDIRPLUS3args { dir, cookie, cookieverf, dircount, maxcount } =
                call::decode(Reader::new(&bytes)).unwrap();
            (dir, cookie, cookieverf, vec![dircount, maxcount])
        }
        Readdir => {
            let READDIR3args { dir, cookie, cookieverf, count } = call::decode(Reader::new(&bytes)).unwrap();
            (dir, cookie, cookieverf, vec![count])
        }
        other => panic!("{other} lists nothing"),
    };
    assert_eq!(dir, handle(7).to_fh3());
    assert_eq!(verifier.0, [verifier.0[0]; 8]);
    Call(listing.procedure(), cookie, verifier.0[0], sizes)
}

/// What the server answers.
#[derive(Clone, Copy, Debug)]
enum Answer<'a> {
    /// Verifier, cookies and names, and whether the directory ends.
    Page(u8, &'a [(u64, &'a str)], bool),
    Failure(Status),
    Rejection(Rejection),
}
use Answer::{Failure, Page};

/// Gives an answer to the call that the listing makes; returns the names that it finds.
fn answer(listing: &mut Listing, answer: Answer<'_>) -> Result<Vec<String>, TransferError> {
    let results = match answer {
        Answer::Rejection(rejection) => return listing.handle_rejection(rejection).map(|()| Vec::new()),
        Failure(status) => failure(status),
        Page(verifier, entries, eof) if listing.procedure() == Readdirplus => {
            let entries = entries.iter().map(|&(cookie, name)| entryplus3 {
                fileid: cookie,
                name: name.as_bytes().into(),
                cookie,
                name_attributes: post_op(None),
                name_handle: Nfs3Option::None,
            });
            success(&READDIRPLUS3resok {
                dir_attributes: post_op(None),
                cookieverf: cookieverf3([verifier; 8]),
                reply: dirlistplus3 { entries: List(entries.collect()), eof },
            })
        }
        Page(verifier, entries, eof) => {
            let entries = entries.iter().map(|&(cookie, name)| entry3 {
                fileid: cookie,
                name: name.as_bytes().into(),
                cookie,
            });
            success(&READDIR3resok {
                dir_attributes: post_op(None),
                cookieverf: cookieverf3([verifier; 8]),
                reply: dirlist3 { entries: List(entries.collect()), eof },
            })
        }
    };
    let entries = listing.handle_results(&results)?;
    Ok(entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect())
}

/// Plays a conversation: each call, the answer to it, and the names that it brings.
fn converse(page_bytes: u32, rounds: &[(Call, Answer<'_>, &[&str])]) -> Listing {
    let mut listing = Listing::new(handle(7), page_bytes);
    for (number, (call, given, names)) in rounds.iter().enumerate() {
        assert!(!listing.is_done(), "before round {number}");
        assert_eq!(next_call(&listing), *call, "round {number}");
        let found = answer(&mut listing, *given).unwrap();
        assert_eq!(found, *names, "round {number}");
    }
    listing
}

/// READDIRPLUS of a page of [`PAGE_BYTES`].
fn plus(cookie: u64, verifier: u8) -> Call {
    Call(Readdirplus, cookie, verifier, vec![PAGE_BYTES, PAGE_BYTES])
}

/// READDIR of such a page.
fn simple(cookie: u64, verifier: u8) -> Call {
    Call(Readdir, cookie, verifier, vec![PAGE_BYTES])
}

#[test]
fn each_page_continues_after_the_last_cookie_under_the_latest_verifier() {
    let listing = converse(
        PAGE_BYTES,
        &[
            (plus(0, 0), Page(5, &[(1, "."), (2, ".."), (3, "a")], false), &["a"]),
            (plus(3, 5), Page(5, &[(9, "..."), (4, ".b")], false), &["...", ".b"]),
            (plus(4, 5), Page(6, &[], false), &[]),
            (plus(4, 6), Page(6, &[(8, "c")], true), &["c"]),
        ],
    );
    assert!(listing.is_done());
}

#[test]
fn a_directory_ends_where_the_server_says_so() {
    for last in [&[][..], &[(3, "a")], &[(0, "a")]] {
        // The cookie of the last entry of all is never used, so it may be any number.
        let names: Vec<_> = last.iter().map(|&(_, name)| name).collect();
        let first = (plus(0, 0), Page(5, &[(3, "b")], false), &["b"][..]);
        let listing = converse(PAGE_BYTES, &[first, (plus(3, 5), Page(5, last, true), &names)]);
        assert!(listing.is_done(), "{last:?}");
    }
}

#[test]
fn entries_have_the_attributes_and_handles_that_the_server_sends() {
    let entry = |fileid, name_attributes, name_handle| entryplus3 {
        fileid,
        name: b"\xff/"[..].into(),
        cookie: fileid,
        name_attributes,
        name_handle,
    };
    let results = success(&READDIRPLUS3resok {
        dir_attributes: post_op(Some(attributes(1, 2))),
        cookieverf: cookieverf3::default(),
        reply: dirlistplus3 {
            entries: List(vec![
                entry(4, post_op(Some(attributes(4, 5))), Nfs3Option::Some(handle(6).to_fh3())),
                entry(7, post_op(None), Nfs3Option::None),
            ]),
            eof: true,
        },
    });
    let known = DirEntry {
        name: b"\xff/".to_vec(),
        fileid: 4,
        metadata: Some(Metadata::from(&attributes(4, 5))),
        handle: Some(handle(6)),
    };
    let unknown = DirEntry { fileid: 7, metadata: None, handle: None, ..known.clone() };
    let mut listing = Listing::new(handle(7), PAGE_BYTES);
    assert_eq!(listing.handle_results(&results), Ok(vec![known, unknown.clone()]));

    let mut listing = Listing::new(handle(7), PAGE_BYTES);
    listing.handle_rejection(Rejection::ProcedureUnavailable).unwrap();
    let entries = vec![entry3 { fileid: 7, name: b"\xff/"[..].into(), cookie: 1 }];
    let results = success(&READDIR3resok {
        dir_attributes: post_op(None),
        cookieverf: cookieverf3::default(),
        reply: dirlist3 { entries: List(entries), eof: true },
    });
    assert_eq!(listing.handle_results(&results), Ok(vec![unknown]));
}

#[test]
fn readdir_replaces_readdirplus_where_that_is_not_offered() {
    for refusal in [Failure(Status::NOTSUPP), Answer::Rejection(Rejection::ProcedureUnavailable)] {
        let mut listing = converse(
            PAGE_BYTES,
            &[
                (plus(0, 0), Page(5, &[(3, "a")], false), &["a"]),
                (plus(3, 5), refusal, &[]),
                (simple(3, 5), Page(6, &[(1, "."), (4, "b"), (5, "..")], false), &["b"]),
                (simple(5, 6), Page(6, &[], false), &[]),
            ],
        );
        let error = match refusal {
            Answer::Rejection(rejection) => TransferError::Rejected { procedure: Readdir, rejection },
            _ => TransferError::Status { procedure: Readdir, status: Status::NOTSUPP },
        };
        assert_eq!(answer(&mut listing, refusal), Err(error), "there is no other procedure");
        assert!(!listing.is_done());
    }
}

#[test]
fn a_page_too_small_for_one_entry_doubles_up_to_64_kib() {
    let sizes = |page_bytes| {
        let mut listing = Listing::new(handle(7), page_bytes);
        let mut sizes = Vec::new();
        for _ in 0..100 {
            let Call(_, 0, 0, size) = next_call(&listing) else { panic!("starts elsewhere") };
            sizes.push((size[0], size[1]));
            match answer(&mut listing, Failure(Status::TOOSMALL)) {
                Ok(names) => assert!(names.is_empty()),
                Err(error) => {
                    let (procedure, status) = (Readdirplus, Status::TOOSMALL);
                    assert_eq!(error, TransferError::Status { procedure, status });
                    return sizes;
                }
            }
        }
        panic!("the page size has no limit: {sizes:?}");
    };
    // Only `maxcount` bounds the page.
    assert_eq!(sizes(10_001), [(10_001, 10_001), (20_002, 20_002), (40_004, 40_004), (65_536, 65_536)]);
    assert_eq!(sizes(2048), [2048, 4096, 8192, 16_384, 32_768, 65_536].map(|size| (size, size)));
    assert_eq!(sizes(65_536), [(65_536, 65_536)]);
    assert_eq!(sizes(100_000), [(100_000, 100_000)]);
}

#[test]
fn refusals_and_broken_replies_name_the_call() {
    for procedure in [Readdirplus, Readdir] {
        let mut listing = Listing::new(handle(7), PAGE_BYTES);
        if procedure == Readdir {
            listing.handle_rejection(Rejection::ProcedureUnavailable).unwrap();
        }
        for status in [Status::ACCES, Status::BAD_COOKIE] {
            let error = TransferError::Status { procedure, status };
            assert_eq!(answer(&mut listing, Failure(status)), Err(error));
        }
        let rejection = Rejection::SystemError;
        let error = TransferError::Rejected { procedure, rejection };
        assert_eq!(answer(&mut listing, Answer::Rejection(rejection)), Err(error));
        let error = nfs_wire::DecodeError::Truncated { field: "attributes follow" };
        assert_eq!(listing.handle_results(&[0; 7]), Err(TransferError::Protocol { procedure, error }));
        assert_eq!(listing.procedure(), procedure, "only an unavailable READDIRPLUS is replaced");
        assert!(!listing.is_done());
    }
}

#[test]
fn a_listing_fails_at_the_ninth_empty_page() {
    let error = TransferError::NoProgress { procedure: Readdirplus, reason: "pages are empty" };
    for (eof, outcome) in [(false, Err(error)), (true, Ok(Vec::new()))] {
        let mut listing = Listing::new(handle(7), PAGE_BYTES);
        for number in 1..=8 {
            assert_eq!(answer(&mut listing, Page(1, &[], false)), Ok(Vec::new()));
            assert!(!listing.is_done());
            // Pages with entries in between do not reset the count.
            assert!(answer(&mut listing, Page(1, &[(number, "a")], false)).is_ok());
        }
        assert_eq!(answer(&mut listing, Page(1, &[], eof)), outcome);
        assert_eq!(listing.is_done(), eof);
    }
}

/// The page at which a cycle of `length` pages, after `before` other pages, is found (Brent 1980):
/// the cookie of page 1, 3, 7, 15 and so on is stored until the next of these pages.
fn found_at(before: u64, length: u64) -> u64 {
    let stored = (1..60).map(|it| (1_u64 << it) - 1).find(|&it| it > before && it + 1 >= length);
    stored.expect("a short cycle") + length
}

#[test]
fn a_listing_fails_when_its_cookies_repeat() {
    let reason = "the directory's cookies go in circles";
    for before in 0..20 {
        for length in 1..40 {
            let mut listing = Listing::new(handle(7), PAGE_BYTES);
            let cookie = |page: u64| {
                if page <= before { page } else { 1000 - (page - before) % length }
            };
            let mut names = Vec::new();
            let error = (1..200).find_map(|page| {
                match answer(&mut listing, Page(1, &[(2000 + page, "a"), (cookie(page), "b")], false)) {
                    Ok(found) => {
                        names.extend(found);
                        None
                    }
                    Err(error) => Some(error),
                }
            });
            assert_eq!(error, Some(TransferError::NoProgress { procedure: Readdirplus, reason }));
            // The cookie of the previous page is always compared as well.
            let page = if length == 1 { before + 2 } else { found_at(before, length) };
            assert_eq!(names.len() as u64, 2 * (page - 1), "{before} pages before a cycle of {length}");
            assert!(page > before + length && (before > 0 || page <= 3 * length));
        }
    }
    let mut listing = Listing::new(handle(7), PAGE_BYTES);
    let start = answer(&mut listing, Page(1, &[(0, "a")], false));
    assert_eq!(
        start,
        Err(TransferError::NoProgress { procedure: Readdirplus, reason }),
        "the listing starts at cookie 0"
    );
}
