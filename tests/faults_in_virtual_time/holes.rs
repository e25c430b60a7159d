//! Uploads of files with holes.

use nfs_proto::transfer::{Placement, Range, RangeSet};
use nfs_wire::{Procedure, Status, nfs3_types::nfs3::nfstime3};
use nfs_wireless_server::{Action, Calls, Faults, Rule, When};
use proptest::prelude::*;

use crate::world::{World, contents, resumable, rule, temporary};

const SIZE: u64 = 300_000;

/// Bytes with zeros in these ranges.
fn with_zeros(holes: &RangeSet) -> Vec<u8> {
    let mut data: Vec<u8> = contents(SIZE as usize).iter().map(|&byte| byte | 1).collect();
    for hole in holes.iter() {
        data[hole.start as usize..hole.end as usize].fill(0);
    }
    data
}

fn holes(ranges: &[(u64, u64)]) -> RangeSet {
    let mut holes = RangeSet::new();
    ranges.iter().for_each(|&(start, end)| holes.insert(Range { start, end }));
    holes
}

/// At the beginning, inside and at the end; and nothing else.
fn layouts() -> [RangeSet; 3] {
    [holes(&[(0, 50_000), (100_000, 150_000)]), holes(&[(200_000, SIZE)]), holes(&[(0, SIZE)])]
}

#[test]
fn holes_cost_no_write_and_are_zeros() {
    for holes in layouts() {
        for placement in [temporary(), resumable(None)] {
            let mut world = World::new(Faults::default());
            let data = with_zeros(&holes);
            world.holes = holes.clone();
            world.upload(&data, placement).unwrap();
            assert_eq!(world.progress, SIZE - holes.bytes());
            world.service.crash();
            assert!(world.file() == data, "{holes:?}");
        }
    }
}

#[test]
fn zeros_are_written_over_what_a_file_has() {
    for holes in layouts() {
        let mut world = World::new(Faults::default());
        let time = nfstime3 { seconds: 1, nseconds: 0 };
        world.service.backend().write_file(time, b"/file", &contents(SIZE as usize + 1)).unwrap();
        let data = with_zeros(&holes);
        world.holes = holes;
        world.upload(&data, Placement::InPlace).unwrap();
        assert_eq!(world.progress, SIZE);
        assert!(world.file() == data);
    }
}

#[test]
fn a_new_file_that_has_bytes_gets_zeros_for_holes() {
    // CREATE GUARDED finds the name taken, REMOVE says that nothing has it, and CREATE UNCHECKED takes the file as it is.
    for holes in layouts() {
        let mut world = World::new(Faults::from(vec![
            rule(Calls::GuardedCreate, When::Always, Action::Fail(Status::EXIST)),
            Rule::always(Procedure::Remove, Action::Fail(Status::NOENT)),
        ]));
        let time = nfstime3 { seconds: 1, nseconds: 0 };
        let leftover = contents(SIZE as usize + 5);
        world.service.backend().write_file(time, b"/.file.part", &leftover).unwrap();
        let data = with_zeros(&holes);
        world.holes = holes;
        world.upload(&data, resumable(None)).unwrap();
        assert!(world.file() == data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn interruptions_and_restarts_fill_no_hole(
        ranges in prop::collection::vec((0..SIZE, 1..80_000_u64), 0..6),
        steps in prop::collection::vec((1_u64..60_000, any::<bool>()), 0..4),
        loss in 0.0..0.2,
    ) {
        let ends = |(start, length): (u64, u64)| (start, (start + length).min(SIZE));
        let holes = holes(&ranges.into_iter().map(ends).collect::<Vec<_>>());
        let data = with_zeros(&holes);
        let chance = rule(Calls::Program(100_003), When::Chance(loss), Action::DropReply);
        let mut world = World::new(Faults::from(vec![chance]));
        world.holes = holes;
        let mut earlier = None;
        for (bytes, crashes) in steps {
            let upload = world.new_upload(&data, resumable(earlier.take()));
            (world.outcome, world.progress) = (None, 0);
            let id = world.session.start(world.now, upload);
            world.run(|world| world.progress >= bytes || world.outcome.is_some());
            earlier = world.session.upload(id).and_then(|upload| upload.checkpoint());
            world.session.stop(world.now, id);
            if crashes {
                world.service.crash();
            }
        }
        world.upload(&data, resumable(earlier)).unwrap();
        world.service.crash();
        prop_assert!(world.file() == data);
        prop_assert_eq!(world.list().unwrap(), [b"file"]);
    }
}
