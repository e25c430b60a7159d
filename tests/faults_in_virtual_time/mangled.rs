//! Datagrams that come twice, late, out of order, cut short, or with a bit flipped that no checksum shows.

use std::collections::BTreeMap;

use nfs_proto::{
    config::RetryPolicy,
    transfer::{RangeSet, TransferError},
};
use nfs_wireless_server::{Faults, ServiceConfig};

use crate::{
    trouble::{LATE, Mangler},
    world::{World, contents, resumable, temporary},
};

const BLOCK: u32 = 32 << 10;

/// Copies that fail are gone on with, this often.
const TRIES: u32 = 100_000;

/// What came of copies both ways.
#[derive(Debug, Default)]
struct Report {
    bytes: u64,
    /// Copies that ended with an error, and were gone on with.
    failed: u32,
    /// Copies that ended well and are wrong, there or here.
    wrong: u32,
    /// Copies that ended well and differ when they are read again; where bits flip all the time, more than are wrong.
    noticed: u32,
    /// Something that befell a datagram.
    mangled: u64,
}

/// Runs of a copy until one says that it is complete: each goes on from where the one before it ended.
fn complete(
    world: &mut World,
    report: &mut Report,
    mut copy: impl FnMut(&mut World) -> Result<(), TransferError>,
) {
    for _ in 0..TRIES {
        if copy(world).is_ok() {
            return;
        }
        report.failed += 1;
    }
    panic!("failed {TRIES} times: {report:?}");
}

/// Size of the file on the server: a flipped bit may have made it very long.
fn size(world: &mut World) -> u64 {
    let node = world.service.backend().resolve(b"/file").unwrap();
    world.service.backend().attributes(node).unwrap().size
}

fn upload(world: &mut World, report: &mut Report, data: &[u8]) {
    world.checkpoint = None;
    complete(world, report, |world| {
        let earlier = world.checkpoint.clone();
        world.upload(data, resumable(earlier))
    });
}

fn download(world: &mut World, report: &mut Report, size: usize) {
    (world.sink, world.had) = (vec![0; size], RangeSet::default());
    complete(world, report, |world| world.go_on_with_download(size));
}

/// Copies files there and back. Each copy is verified as `nfsw cp --verify` does it, by reading again over the same network.
fn copy(policy: RetryPolicy, files: usize, bytes: usize, damages: bool) -> Report {
    let mut world = World::with_policy(ServiceConfig::default(), Faults::default(), BLOCK, policy);
    world.trouble.mangler = Some(Mangler::new(7, damages));
    let mut report = Report::default();
    for number in 0..files {
        let data = contents(bytes + number);
        upload(&mut world, &mut report, &data);
        let stored = (size(&mut world) == data.len() as u64).then(|| world.file());
        let is_right = stored.as_ref() == Some(&data);
        download(&mut world, &mut report, data.len());
        let is_verified = world.sink == data && stored.is_some();
        assert!(is_right || !is_verified, "the copy there is wrong, and reading it again shows nothing");
        report.wrong += u32::from(!is_right);
        report.noticed += u32::from(!is_verified);

        // What was read last is the copy here. Its source is what the server has.
        let copied = std::mem::take(&mut world.sink);
        let is_right = stored.as_ref() == Some(&copied);
        download(&mut world, &mut report, data.len());
        let is_verified = world.sink == copied;
        assert!(
            is_right || !is_verified,
            "the copy here is wrong, and reading its source again shows nothing"
        );
        report.wrong += u32::from(!is_right && stored.is_some());
        report.noticed += u32::from(!is_verified);
        report.bytes += 3 * bytes as u64;
    }
    report.mangled = world.trouble.mangler.map_or(0, |mangler| mangler.mangled);
    println!("{policy:?}, damage: {damages}: {report:?}");
    report
}

fn mangle(files: usize, bytes: usize) {
    for policy in [RetryPolicy::Adaptive, RetryPolicy::hybrid()] {
        let report = copy(policy, files, bytes, false);
        assert_eq!((report.failed, report.wrong, report.noticed), (0, 0, 0), "no damage, no harm");
        let report = copy(policy, files, bytes, true);
        assert!(report.wrong > 0, "nothing was there to be noticed: {report:?}");
        assert!(report.noticed >= report.wrong);
    }
}

#[test]
fn mangled_datagrams_do_no_harm_that_verification_does_not_show() {
    mangle(2, 2 << 20);
}

#[test]
#[ignore = "takes minutes"]
fn a_gigabyte_of_mangled_datagrams_does_no_harm_that_verification_does_not_show() {
    // Four times (policies, with damage and without) 64 files of 1.5 MB, each of which crosses the link three times.
    mangle(64, 1_500_000);
}

/// Names that are made, replaced and moved while duplicates of earlier calls are up to 30 s late.
fn name(files: usize) {
    for policy in [RetryPolicy::Adaptive, RetryPolicy::hybrid()] {
        let mut world = World::with_policy(ServiceConfig::default(), Faults::default(), BLOCK, policy);
        world.trouble.mangler = Some(Mangler::new(9, false));
        let mut expected = BTreeMap::new();
        for number in 0..files {
            // A third of them are replaced.
            let name = format!("file {:04}", number % (files * 2 / 3));
            world.name = name.clone().into_bytes();
            // All by way of one temporary name: a late RENAME of an earlier one would give the next its name too early.
            world.upload(&contents(50_000 + number), temporary()).unwrap();
            expected.insert(name, contents(50_000 + number));
        }
        let end = world.now + 2 * LATE;
        world.run(|world| world.now > end || world.to_client.is_empty() && world.to_server.is_empty());
        world.trouble.mangler = None;
        let mut names = world.list().unwrap();
        names.sort();
        assert_eq!(names, expected.keys().map(|name| name.clone().into_bytes()).collect::<Vec<_>>());
        for (name, data) in expected {
            assert!(
                world.service.backend().read_file(format!("/{name}").as_bytes()).unwrap() == data,
                "{name}"
            );
        }
        println!("{policy:?}: {files} files, {:?} replayed", world.service.stats().replayed);
    }
}

#[test]
fn late_duplicates_have_no_second_effect() {
    name(60);
}

#[test]
#[ignore = "takes minutes"]
fn late_duplicates_of_1000_uploads_have_no_second_effect() {
    name(1000);
}
