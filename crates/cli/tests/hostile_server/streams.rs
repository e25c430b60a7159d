//! TCP connections that break protocol.

use super::*;

misbehaviours! {
    nonsense_for_every_read: FILE_PATIENT, Wire(|c, r, line| if c.is(P::Read) { line.raw(&[0xff; 64]) } else { line.send(r) }), Say(5, NO_NFS);
    nonsense_for_every_write: UPLOAD_PATIENT, Wire(|c, r, line| if c.is(P::Write) { line.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n") } else { line.send(r) }), Say(5, NO_NFS);
    nonsense_for_every_listing: LIST_PATIENT, Wire(|c, r, line| if c.is(P::Readdirplus) { line.send(&[7; 64]) } else { line.send(r) }), Say(5, NO_NFS);
    nonsense_for_everything_after_mount: TREE_PATIENT, Wire(|c, r, line| {
        if c.program == Program::NFS && c.procedure > 1 { line.raw(&[0xff; 4]) } else { line.send(r) }
    }), Say(5, NO_NFS);
    nonsense_from_the_start: LIST_PATIENT, Wire(|_, _, line| line.raw(&[0xff; 64])), Say(3, "service: record of more than 1114112 bytes");
    every_record_cut_short: FILE_PATIENT, Wire(|c, r, line| if c.is(P::Read) {
        line.raw(&[&mark(r.len()), &r[..r.len() / 2]].concat());
        line.close();
    } else { line.send(r) }), Say(5, "ends inside a record");
    records_cut_short_now_and_then: TREE_PATIENT, Wire(|c, r, line| if c.before % 3 == 1 {
        line.raw(&[&mark(r.len()), &r[..r.len() / 2]].concat());
        line.close();
    } else { line.send(r) }), BeRight;
    connections_that_end_after_every_reply: TREE_PATIENT, Wire(|c, r, line| {
        line.send(r);
        if c.program == Program::NFS { line.close() }
    }), BeRight;
    connections_that_end_without_a_word: FILE_TCP, Wire(|c, r, line| if c.is(P::Read) { line.close() } else { line.send(r) }), Say(5, "no progress");
    a_record_of_2_gib: FILE_PATIENT, Wire(|c, r, line| if c.is(P::Read) { line.raw(&[0xff; 64]) } else { line.send(r) }), Say(5, "record of more than 1114112 bytes");
    empty_fragments_for_ever: FILE_PATIENT, Wire(|c, r, line| if c.is(P::Read) { line.raw(&[0; 64 << 10]) } else { line.send(r) }), Say(5, "record of more than 4096 fragments");
    a_record_that_never_ends: FILE_TCP, Wire(|c, r, line| {
        if c.is(P::Read) { line.raw(&[&[0, 1, 0, 0][..], &r[..24]].concat()) } else { line.send(r) }
    }), Say(5, "over TCP: no progress");
    fragments_for_ever: FILE_PATIENT, Wire(|c, r, line| {
        if c.is(P::Read) { (0..100).for_each(|_| line.raw(&[&[0, 1, 0, 0][..], &[7; 65_536]].concat())) } else { line.send(r) }
    }), Say(5, NO_NFS);
    fragments_of_one_byte: TREE_TCP, Wire(|_, r, line| {
        let (last, most) = r.split_last().unwrap();
        let start = most.len().saturating_sub(2000);
        let mut bytes = [&(start as u32).to_be_bytes()[..], &most[..start]].concat();
        most[start..].iter().for_each(|&byte| bytes.extend_from_slice(&[0, 0, 0, 1, byte]));
        bytes.extend_from_slice(&[0x80, 0, 0, 1, *last]);
        line.raw(&bytes);
    }), BeRight;
    a_byte_at_a_time: TREE_TCP, Wire(|_, r, line| {
        let bytes = [&mark(r.len())[..], r].concat();
        let (slow, rest) = bytes.split_at(150.min(bytes.len()));
        slow.iter().for_each(|&byte| {
            line.raw(&[byte]);
            std::thread::sleep(std::time::Duration::from_micros(100));
        });
        line.raw(rest);
    }), BeRight;
    a_connection_for_every_call: TREE_TCP, Wire(|c, r, line| { line.send(r); if c.before % 3 == 1 { line.close() } }), BeRight;
    a_connection_that_ends_inside_data: FILE_TCP, Wire(|c, r, line| {
        if c.is(P::Read) && c.before < 3 {
            line.raw(&[&mark(r.len())[..], &r[..r.len() / 2]].concat());
            line.close();
        } else {
            line.send(r);
        }
    }), BeRight;
    noise_between_records: FILE_PATIENT, Wire(|c, r, line| { if c.is(P::Read) { line.raw(b"GET / HTTP/1.1\r\n\r\n") } line.send(r) }), Say(5, "record of more than 1114112 bytes");
    records_that_are_no_replies: FILE_TCP, Wire(|c, r, line| { if c.is(P::Read) && c.before == 0 { line.send(b"hello") } line.send(r) }), BeRight;
}
