use nfs_wire::{
    Status, call,
    nfs3_types::{
        nfs3::{READ3args, READ3resok},
        xdr_codec::Opaque,
    },
};

use super::{
    super::replies::{attributes, failure, handle, post_op, success},
    *,
};

const EFFORT: Effort = Effort { attempts: 1, elapsed: Duration::ZERO };

fn range(start: u64, end: u64) -> Range {
    Range { start, end }
}

/// Makes the next READ of at most `block` bytes; returns its part and the range that it asks for.
fn read(download: &mut Download, block: u32) -> Option<(u32, Range)> {
    let limits = Limits { read_block: block, write_block: 1, ..Limits::default() };
    let has_room = |class, bytes| {
        assert_eq!((class, bytes), (Class::Read, block));
        true
    };
    let next = download.next_call(limits, &has_room)?;
    let mut arguments = Vec::new();
    download.encode(&next, &mut arguments);
    let READ3args { file, offset, count } = call::decode(Reader::new(&arguments)).unwrap();
    assert_eq!(file, handle(7).to_fh3());
    let expected = NextCall {
        part: next.part,
        procedure: Procedure::Read,
        class: Class::Read,
        repeat: Repeat::Idempotent,
        payload: None,
        bytes: count,
        delay: Duration::ZERO,
    };
    assert_eq!(next, expected);
    Some((next.part, range(offset, offset + u64::from(count))))
}

/// The results of a READ; the file's attributes are 84 bytes of them.
fn results(count: u32, eof: bool) -> Vec<u8> {
    let file_attributes = post_op(Some(attributes(1, 10)));
    success(&READ3resok { file_attributes, count, eof, data: Opaque::owned(vec![9; count as usize]) })
}

/// Delivers complete results of a READ, and reports its data as stored.
fn answer(download: &mut Download, part: u32, count: u32, eof: bool) -> Result<(), TransferError> {
    let step = download.handle_results(part, EFFORT, &results(count, eof), true)?;
    assert!(matches!(step, Step::Data { length, .. } if length == count));
    download.handle_payload_done(part);
    Ok(())
}

#[test]
fn a_file_is_read_in_blocks_whose_replies_may_come_in_any_order() {
    let mut download = Download::new(&handle(7), 10);
    assert!(!download.is_done());
    let limits = Limits { read_block: 4, write_block: 1, ..Limits::default() };
    assert_eq!(download.next_call(limits, &|_, _| false), None, "no room in the window");
    let calls: Vec<_> = std::iter::from_fn(|| read(&mut download, 4)).collect();
    assert_eq!(calls, [(0, range(0, 4)), (1, range(4, 8)), (2, range(8, 10))]);
    for (part, received) in [(2, 2), (0, 6), (1, 10)] {
        assert!(!download.is_done());
        answer(&mut download, part, if part == 2 { 2 } else { 4 }, part == 2).unwrap();
        assert_eq!(download.received(), received);
    }
    assert!(download.is_done());
    assert!(Download::new(&handle(7), 0).is_done());
}

#[test]
fn the_place_of_the_data_is_known_as_soon_as_the_head_of_a_reply_has_arrived() {
    let mut download = Download::new(&handle(7), 10);
    read(&mut download, 4);
    let (part, asked) = read(&mut download, 4).unwrap();
    let results = results(3, false);
    // Status, attributes, count, end of file and length.
    let data_at = 4 + 4 + 84 + 4 + 4 + 4;
    assert_eq!(results.len(), data_at + 4, "with a byte of padding");
    for cut in 0..data_at {
        let step = download.handle_results(part, EFFORT, &results[..cut], false);
        assert_eq!(step, Ok(Step::NeedMore), "{cut} bytes");
    }
    let data = Step::Data {
        offset: asked.start,
        length: 3,
        asked: 4,
        attributes: Some(Metadata::from(&attributes(1, 10))),
        data_at,
    };
    for (cut, complete) in [(data_at, false), (data_at + 2, false), (data_at + 3, true), (data_at + 4, true)]
    {
        assert_eq!(download.handle_results(part, EFFORT, &results[..cut], complete), Ok(data));
    }
    assert_eq!(download.received(), 0, "the data is not stored yet");
}

#[test]
fn the_rest_of_a_short_read_and_a_read_taken_back_are_read_again() {
    for take_back in [Download::take_back, Download::put_off] {
        let mut ranges = RangeSet::new();
        [range(100, 108), range(200, 204)].into_iter().for_each(|it| ranges.insert(it));
        let mut download = Download::ranges(&handle(7), ranges);
        let (first, second) = (read(&mut download, 4).unwrap(), read(&mut download, 4).unwrap());
        assert_eq!((first.1, second.1), (range(100, 104), range(104, 108)));
        answer(&mut download, first.0, 1, false).unwrap();
        take_back(&mut download, second.0);
        assert_eq!(download.received(), 1);
        // Both parts are free again, the latest one first. The blocks are smaller now.
        let expected =
            [(1, range(101, 104)), (0, range(104, 107)), (2, range(107, 108)), (3, range(200, 203))];
        for call in expected {
            assert_eq!(read(&mut download, 3), Some(call));
        }
        for (part, asked) in expected {
            answer(&mut download, part, u32::try_from(asked.length()).unwrap(), false).unwrap();
        }
        assert!(!download.is_done());
        assert_eq!(read(&mut download, 3), Some((3, range(203, 204))));
        assert!(!download.is_done());
        answer(&mut download, 3, 1, true).unwrap();
        assert_eq!((download.received(), download.is_done()), (12, true));
        assert_eq!(read(&mut download, 3), None);
    }
}

#[test]
fn a_file_that_ends_before_its_size_has_shrunk() {
    for (size, count, found) in [(10, 3, Some(7)), (10, 0, Some(4)), (10, 4, None), (8, 4, None)] {
        let mut download = Download::new(&handle(7), size);
        read(&mut download, 4);
        let (part, _) = read(&mut download, 4).unwrap();
        let outcome = answer(&mut download, part, count, true);
        let error = found.map(|found| TransferError::SourceShrank { expected: size, found });
        assert_eq!(outcome.err(), error, "{count} bytes of {size}");
    }
}

#[test]
fn a_download_fails_at_the_ninth_empty_read() {
    let mut download = Download::new(&handle(7), 100);
    for number in 0..8 {
        assert_eq!(read(&mut download, 4), Some((0, range(number, number + 4))));
        answer(&mut download, 0, 0, false).unwrap();
        assert_eq!(read(&mut download, 4), Some((0, range(number, number + 4))), "the same range again");
        // READs with data in between do not reset the count.
        answer(&mut download, 0, 1, false).unwrap();
    }
    read(&mut download, 4);
    let reason = "READ returns neither data nor end of file";
    let error = TransferError::NoProgress { procedure: Procedure::Read, reason };
    assert_eq!(answer(&mut download, 0, 0, false), Err(error));
}

#[test]
fn a_download_fails_at_a_refusal_or_a_broken_reply() {
    let procedure = Procedure::Read;
    let protocol = |error| TransferError::Protocol { procedure, error };
    let cut = |length: usize| results(3, false)[..length].to_vec();
    let table = [
        (failure(Status::STALE), TransferError::Status { procedure, status: Status::STALE }),
        (cut(103), protocol(DecodeError::Truncated { field: "data" })),
        (cut(106), protocol(DecodeError::Truncated { field: "data" })),
        (results(5, false), protocol(DecodeError::TooLong { field: "data", length: 5, limit: 4 })),
    ];
    for (results, error) in table {
        let mut download = Download::new(&handle(7), 4);
        read(&mut download, 4);
        assert_eq!(download.handle_results(0, EFFORT, &results, true), Err(error));
        let rejection = Rejection::SystemError;
        let error = TransferError::Rejected { procedure, rejection };
        assert_eq!(download.handle_rejection(0, rejection), Err(error));
    }
    // An error that more bytes cannot mend is returned at once.
    let mut download = Download::new(&handle(7), 4);
    read(&mut download, 4);
    let error = protocol(DecodeError::TooLong { field: "data", length: 5, limit: 4 });
    assert_eq!(download.handle_results(0, EFFORT, &results(5, false)[..104], false), Err(error));
}
