use nfs3_types::xdr_codec::{Pack, Unpack};
use proptest::prelude::*;

use super::*;
use crate::xdr::encode;

fn packed(item: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, item);
    bytes
}

/// Ours and the oracle's decoder agree on `bytes`: what we accept re-encodes to the same bytes, and is accepted
/// by the oracle; a truncation is refused by us, and what follows is ignored.
fn agrees<T>(results: &T)
where
    T: Pack + Unpack + for<'a> Results<'a>,
{
    let body = packed(results);
    let mut bytes = 0_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&body);
    let ours: T = decode(&bytes).expect("valid results").expect("success");
    assert_eq!(packed(&ours), body);
    let (theirs, length) = T::unpack(&mut &body[..]).expect("the oracle accepts its own encoding");
    assert_eq!((packed(&theirs), length), (body.clone(), body.len()));
    for cut in 0..bytes.len() {
        assert!(decode::<T>(&bytes[..cut]).is_err(), "truncated to {cut} of {} bytes", bytes.len());
    }
    bytes.extend_from_slice(&[9; 4]);
    let followed: T = decode(&bytes).expect("what follows is not looked at").expect("success");
    assert_eq!(packed(&followed), body);
}

fn times() -> impl Strategy<Value = nfstime3> {
    any::<(u32, u32)>().prop_map(|(seconds, nseconds)| nfstime3 { seconds, nseconds })
}

fn attributes() -> impl Strategy<Value = fattr3> {
    let kinds = prop::sample::select(vec![ftype3::NF3REG, ftype3::NF3DIR, ftype3::NF3LNK, ftype3::NF3FIFO]);
    let numbers = any::<([u32; 6], [u64; 4])>();
    (kinds, numbers, times(), times(), times()).prop_map(|(type_, (small, large), atime, mtime, ctime)| {
        fattr3 {
            type_,
            mode: small[0],
            nlink: small[1],
            uid: small[2],
            gid: small[3],
            size: large[0],
            used: large[1],
            rdev: specdata3 { specdata1: small[4], specdata2: small[5] },
            fsid: large[2],
            fileid: large[3],
            atime,
            mtime,
            ctime,
        }
    })
}

/// Without the function that is tested.
fn option<T: Pack + Unpack>(value: Option<T>) -> Nfs3Option<T> {
    match value {
        Some(value) => Nfs3Option::Some(value),
        None => Nfs3Option::None,
    }
}

fn maybe_attributes() -> impl Strategy<Value = post_op_attr> {
    prop::option::of(attributes()).prop_map(option)
}

fn maybe_handle() -> impl Strategy<Value = post_op_fh3> {
    prop::option::of(handles()).prop_map(option)
}

fn handles() -> impl Strategy<Value = nfs_fh3> {
    prop::collection::vec(any::<u8>(), 1..=64).prop_map(|bytes| nfs_fh3 { data: Opaque::owned(bytes) })
}

fn weak() -> impl Strategy<Value = wcc_data> {
    let before = prop::option::of((any::<u64>(), times(), times()));
    (before, maybe_attributes()).prop_map(|(before, after)| wcc_data {
        before: option(before.map(|(size, mtime, ctime)| wcc_attr { size, mtime, ctime })),
        after,
    })
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn fixed_results_agree_with_the_oracle(
        fattr in attributes(), post in maybe_attributes(), fh in handles(), wcc in weak(),
        small in any::<[u32; 7]>(), large in any::<[u64; 6]>(), time_delta in times(),
    ) {
        agrees(&GETATTR3resok { obj_attributes: fattr });
        agrees(&ACCESS3resok { obj_attributes: post.clone(), access: small[0] });
        agrees(&LOOKUP3resok { object: fh, obj_attributes: post.clone(), dir_attributes: post.clone() });
        agrees(&FSSTAT3resok {
            obj_attributes: post.clone(), tbytes: large[0], fbytes: large[1], abytes: large[2],
            tfiles: large[3], ffiles: large[4], afiles: large[5], invarsec: small[0],
        });
        agrees(&FSINFO3resok {
            obj_attributes: post.clone(), rtmax: small[0], rtpref: small[1], rtmult: small[2],
            wtmax: small[3], wtpref: small[4], wtmult: small[5], dtpref: small[6], maxfilesize: large[0],
            time_delta, properties: small[0],
        });
        agrees(&PATHCONF3resok {
            obj_attributes: post, linkmax: small[0], name_max: small[1], no_trunc: true,
            chown_restricted: false, case_insensitive: true, case_preserving: false,
        });
        agrees(&WRITE3resok {
            file_wcc: wcc, count: small[0], committed: stable_how::DATA_SYNC,
            verf: writeverf3(large[0].to_be_bytes()),
        });
    }

    #[test]
    fn results_with_handles_agree_with_the_oracle(
        one in (maybe_handle(), maybe_attributes(), weak()), two in (weak(), weak()),
        verf in any::<[u8; 8]>(), post in maybe_attributes(),
    ) {
        let (obj, obj_attributes, dir_wcc) = one;
        agrees(&CREATE3resok { obj, obj_attributes, dir_wcc });
        agrees(&COMMIT3resok { file_wcc: two.0, verf: writeverf3(verf) });
        agrees(&LINK3resok { file_attributes: post, linkdir_wcc: two.1 });
    }

    #[test]
    fn listings_agree_with_the_oracle(
        entries in prop::collection::vec((any::<u64>(), names(), any::<u64>(), maybe_attributes(), maybe_handle()), 0..6),
        dir_attributes in maybe_attributes(), verf in any::<[u8; 8]>(), eof: bool,
    ) {
        let plain = entries.iter().map(|(fileid, name, cookie, ..)| entry3 {
            fileid: *fileid, name: filename3::from(&name[..]), cookie: *cookie,
        });
        let bytes = packed(&READDIR3resok {
            dir_attributes: dir_attributes.clone(),
            cookieverf: cookieverf3(verf),
            reply: dirlist3 { entries: List(plain.collect()), eof },
        });
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(packed(&READDIR3resok::decode(&mut reader).unwrap()), bytes.clone());
        for cut in 0..bytes.len() {
            prop_assert!(READDIR3resok::decode(&mut Reader::new(&bytes[..cut])).is_err());
        }
        let plus = entries.into_iter().map(|(fileid, name, cookie, name_attributes, name_handle)| entryplus3 {
            fileid, name: filename3::from(name), cookie, name_attributes, name_handle,
        });
        let bytes = packed(&READDIRPLUS3resok {
            dir_attributes,
            cookieverf: cookieverf3(verf),
            reply: dirlistplus3 { entries: List(plus.collect()), eof },
        });
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(packed(&READDIRPLUS3resok::decode(&mut reader).unwrap()), bytes.clone());
        for cut in 0..bytes.len() {
            prop_assert!(READDIRPLUS3resok::decode(&mut Reader::new(&bytes[..cut])).is_err());
        }
    }

    #[test]
    fn read_head_stops_at_the_data(data in prop::collection::vec(any::<u8>(), 0..100), post in maybe_attributes(), eof: bool) {
        let count = data.len() as u32;
        let attributes = match &post { Nfs3Option::Some(attributes) => Some(attributes.clone()), Nfs3Option::None => None };
        let mut bytes = 0_u32.to_be_bytes().to_vec();
        encode(&mut bytes, &READ3resok { file_attributes: post, count, eof, data: Opaque::borrowed(&data) });
        let mut reader = Reader::new(&bytes);
        let head = ReadHead::decode(&mut reader, count).unwrap().unwrap();
        prop_assert_eq!((head.attributes.as_ref().map(packed), head.count, head.eof), (attributes.as_ref().map(packed), count, eof));
        prop_assert_eq!(&reader.rest()[..data.len()], &data[..]);
        let head_bytes = bytes.len() - reader.rest().len();
        for cut in 0..head_bytes {
            let error = ReadHead::decode(&mut Reader::new(&bytes[..cut]), count).unwrap_err();
            let truncated = matches!(error, DecodeError::Truncated { .. });
            prop_assert!(truncated);
        }
        if count > 0 {
            let error = ReadHead::decode(&mut Reader::new(&bytes), count - 1).unwrap_err();
            let too_long = matches!(error, DecodeError::TooLong { field: "data", .. });
            prop_assert!(too_long);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_never_decode_to_more_than_they_are(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode::<GETATTR3resok>(&bytes);
        let _ = decode::<LOOKUP3resok>(&bytes);
        let _ = decode::<READ3resok<'_>>(&bytes);
        let _ = decode::<WRITE3resok>(&bytes);
        let _ = ReadHead::decode(&mut Reader::new(&bytes), u32::MAX);
        if let Ok(Ok(listing)) = decode::<READDIRPLUS3resok<'_>>(&bytes) {
            prop_assert!(listing.reply.entries.0.len() * 24 <= bytes.len());
        }
    }
}

#[test]
fn an_unknown_status_is_an_error_with_a_number() {
    let status = decode::<GETATTR3resok>(&4711_u32.to_be_bytes()).unwrap().unwrap_err();
    assert_eq!(status.to_string(), "server error 4711");
}

#[test]
fn a_failure_needs_no_more_than_its_status() {
    let status = decode::<LOOKUP3resok>(&2_u32.to_be_bytes()).unwrap().unwrap_err();
    assert_eq!(status, Status::NOENT);
}

#[test]
fn read_data_must_match_its_count() {
    let mut bytes = 0_u32.to_be_bytes().to_vec();
    for word in [0_u32, 5, 0, 4, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    let error = ReadHead::decode(&mut Reader::new(&bytes), 100).unwrap_err();
    assert_eq!(error, DecodeError::Inconsistent { field: "count" });
    assert_eq!(decode::<READ3resok<'_>>(&bytes).unwrap_err(), DecodeError::Inconsistent { field: "count" });
}
