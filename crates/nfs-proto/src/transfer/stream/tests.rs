mod rules;
mod world;

use rand_chacha::{ChaCha8Rng, rand_core::Rng, rand_core::SeedableRng};

use self::world::{World, put};
use super::*;

/// Sequences of random operations; each takes a quarter of a millisecond.
const SEQUENCES: u64 = 12_000;

/// Operations of a sequence.
const OPERATIONS: u32 = 40;

/// Bytes of the file, about.
const SIZE: u64 = 20_000;

#[test]
fn a_stream_is_a_vector_of_bytes_whatever_server_and_network_do() {
    let given = std::env::var("NFSW_SEED").ok().map(|seed| seed.parse().unwrap());
    let mut counts = Counts::default();
    for seed in given.map_or(1..=SEQUENCES, |seed| seed..=seed) {
        let mut sequence = Sequence::new(seed);
        (0..OPERATIONS).for_each(|_| sequence.operate());
        sequence.flush();
        counts.add(&sequence.counts);
    }
    // The test would be worth little if these did not happen.
    let Counts { flushes, failures, lost, reads } = counts;
    let plenty = [flushes, failures, lost, reads].iter().all(|&it| it >= SEQUENCES / 50);
    assert!(plenty || given.is_some(), "{counts:?}");
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    flushes: u64,
    failures: u64,
    lost: u64,
    reads: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.flushes += other.flushes;
        self.failures += other.failures;
        self.lost += other.lost;
        self.reads += other.reads;
    }
}

struct Sequence {
    seed: u64,
    random: ChaCha8Rng,
    world: World,
    /// What the file is to hold.
    model: Vec<u8>,
    position: u64,
    /// What the file held when it was flushed last, and what was written since.
    flushed: Vec<u8>,
    since: RangeSet,
    done: Vec<String>,
    counts: Counts,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            random: ChaCha8Rng::seed_from_u64(seed),
            world: World::new(seed),
            model: Vec::new(),
            position: 0,
            flushed: Vec::new(),
            since: RangeSet::default(),
            done: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn operate(&mut self) {
        let length = match self.below(4) {
            0 => 1 + self.below(6_000),
            _ => 1 + self.below(600),
        };
        match self.below(20) {
            0..4 => self.seek(),
            4..9 => self.write(length),
            9..14 => self.read(length),
            14 => self.flush(),
            15..18 => self.cancelled(length),
            18 => self.world.change_blocks(),
            _ if self.below(2) == 0 => {
                self.done.push("restart of the server".into());
                self.counts.lost += u64::from(self.world.server.after_restart(|| false) != self.model);
                self.world.restart();
                self.check_flushed();
            }
            _ => self.reopen(),
        }
    }

    fn seek(&mut self) {
        // Often to where something is.
        let bound = if self.below(2) == 0 { SIZE } else { self.model.len() as u64 + 1 };
        let target = self.below(bound);
        self.done.push(format!("seek to {target}"));
        if target != self.position {
            self.position = target;
            self.world.stream.seek();
        }
    }

    fn write(&mut self, length: u64) {
        self.done.push(format!("write {length} at {}", self.position));
        let mut data = vec![0; length as usize];
        self.random.fill_bytes(&mut data);
        let mut rest = &data[..];
        while !rest.is_empty() {
            let position = self.position;
            let written = self.world.until(|world| match world.stream.write(position, rest) {
                Ok(0) => None,
                other => Some(other),
            });
            match written {
                Ok(count) => {
                    self.written(&rest[..count]);
                    rest = &rest[count..];
                    self.world.send();
                }
                Err(error) => return self.failed(error),
            }
        }
    }

    /// Does to the model what was done to the file.
    fn written(&mut self, data: &[u8]) {
        let start = self.position;
        put(&mut self.model, start, data);
        self.position += data.len() as u64;
        self.since.insert(Range { start, end: self.position });
    }

    fn read(&mut self, length: u64) {
        self.done.push(format!("read {length} at {}", self.position));
        let mut buffer = vec![0; length as usize];
        let mut left = length as usize;
        while left > 0 {
            let position = self.position;
            let read = self.world.until(|world| match world.stream.read(position, &mut buffer[..left]) {
                Ok(Available::Wait) => None,
                other => Some(other),
            });
            match read {
                Ok(Available::Bytes(count)) => {
                    self.have_read(&buffer[..count]);
                    left -= count;
                    self.world.send();
                }
                Ok(Available::End) => {
                    assert!(self.position >= self.model.len() as u64, "{self} ends at {}", self.position);
                    return;
                }
                Ok(Available::Wait) => unreachable!("waited for"),
                Err(error) => return self.failed(error),
            }
        }
    }

    fn have_read(&mut self, found: &[u8]) {
        let rest = self.model.get(self.position as usize..).unwrap_or_default();
        assert!(
            !found.is_empty() && found.len() <= rest.len(),
            "{self}: too many bytes at {}",
            self.position
        );
        let wrong = found.iter().zip(rest).position(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "{self}: wrong bytes after {}", self.position);
        self.position += found.len() as u64;
        self.counts.reads += 1;
    }

    fn flush(&mut self) {
        self.done.push("flush".into());
        let flushed = self.world.until(|world| {
            world.stream.flush();
            world.stream.check().map(|()| world.stream.is_stable().then_some(())).transpose()
        });
        match flushed {
            Ok(()) => {
                let mut random = self.random.clone();
                let worst = self.world.server.after_restart(|| false);
                let any = self.world.server.after_restart(|| random.next_u32().is_multiple_of(2));
                assert!(worst == self.model && any == self.model, "{self}: is not stable");
                self.flushed.clone_from(&self.model);
                self.since = RangeSet::default();
                self.counts.flushes += 1;
            }
            Err(error) => self.failed(error),
        }
    }

    /// Begins something and gives it up, at once or later.
    fn cancelled(&mut self, length: u64) {
        let steps = self.below(8);
        self.done.push(format!("something given up after {steps} steps, at {}", self.position));
        let mut buffer = vec![0; length as usize];
        match self.below(3) {
            0 => self.world.stream.flush(),
            1 => match self.world.stream.read(self.position, &mut buffer) {
                Ok(Available::Bytes(count)) => self.have_read(&buffer[..count]),
                Ok(Available::End) => assert!(self.position >= self.model.len() as u64, "{self}"),
                Ok(Available::Wait) => {}
                Err(error) => return self.failed(error),
            },
            _ => {
                self.random.fill_bytes(&mut buffer);
                match self.world.stream.write(self.position, &buffer) {
                    Ok(count) => self.written(&buffer[..count]),
                    Err(error) => return self.failed(error),
                }
            }
        }
        for _ in 0..steps {
            self.world.step();
        }
    }

    /// An error that the server has told is told by every operation, until the file is opened
    /// again.
    fn failed(&mut self, error: TransferError) {
        assert!(self.world.errors > 0, "{self}: {error}");
        let stream = &mut self.world.stream;
        for _ in 0..3 {
            assert_eq!(stream.check(), Err(error));
            assert_eq!(stream.write(0, &[1]), Err(error));
            assert_eq!(stream.read(0, &mut [0]), Err(error));
            stream.flush();
            stream.seek();
            assert_eq!(
                stream.next_call(self.world.now, Limits { write_block: 1, ..Limits::default() }),
                None
            );
        }
        self.counts.failures += 1;
        self.reopen();
    }

    /// What was not flushed may be lost, and nothing else.
    fn reopen(&mut self) {
        self.done.push("open again".into());
        self.world.reopen();
        self.check_flushed();
        self.model.clone_from(&self.world.server.current);
        self.position = 0;
    }

    fn check_flushed(&self) {
        for found in [&self.world.server.current, &self.world.server.after_restart(|| false)] {
            assert!(found.len() >= self.flushed.len(), "{self}: flushed bytes are lost");
            for kept in self.since.gaps(Range { start: 0, end: self.flushed.len() as u64 }).iter() {
                let kept = kept.start as usize..kept.end as usize;
                assert!(found[kept.clone()] == self.flushed[kept], "{self}: flushed bytes are lost");
            }
        }
    }
}

impl std::fmt::Display for Sequence {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "NFSW_SEED={} after:\n  {}\n", self.seed, self.done.join("\n  "))
    }
}
