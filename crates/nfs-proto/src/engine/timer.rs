//! One optional deadline per call slot, and the earliest of them.

use std::time::Instant;

const ABSENT: usize = usize::MAX;

/// A binary heap of deadlines that knows where each slot's entry lies, so that it can be moved.
#[derive(Debug, Default)]
pub(super) struct TimerTable {
    heap: Vec<(Instant, u64, u32)>,
    position: Vec<usize>,
    sequence: u64,
}

impl TimerTable {
    /// Sets or moves the deadline of `slot`. Equal deadlines fire in the order they were set.
    pub(super) fn set(&mut self, slot: u32, deadline: Instant) {
        self.clear(slot);
        let index = slot as usize;
        if index >= self.position.len() {
            self.position.resize(index + 1, ABSENT);
        }
        self.sequence += 1;
        self.heap.push((deadline, self.sequence, slot));
        self.position[index] = self.heap.len() - 1;
        self.rise(self.heap.len() - 1);
    }

    /// Removes the deadline of `slot`, if it has one.
    pub(super) fn clear(&mut self, slot: u32) {
        let Some(&at) = self.position.get(slot as usize).filter(|&&at| at != ABSENT) else {
            return;
        };
        let last = self.heap.len() - 1;
        self.swap(at, last);
        self.heap.pop();
        self.position[slot as usize] = ABSENT;
        if at < last {
            self.rise(at);
            self.sink(at);
        }
    }

    /// Returns the earliest deadline and its slot.
    pub(super) fn earliest(&self) -> Option<(Instant, u32)> {
        self.heap.first().map(|&(deadline, _, slot)| (deadline, slot))
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.key(at) < self.key((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2];
            let least = children.into_iter().filter(|&c| c < self.heap.len()).min_by_key(|&c| self.key(c));
            match least {
                Some(child) if self.key(child) < self.key(at) => {
                    self.swap(at, child);
                    at = child;
                }
                _ => return,
            }
        }
    }

    fn key(&self, at: usize) -> (Instant, u64) {
        (self.heap[at].0, self.heap[at].1)
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.position[self.heap[a].2 as usize] = a;
        self.position[self.heap[b].2 as usize] = b;
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_deadlines_fire_in_the_order_they_were_set() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let epoch = Instant::now();
        let mut table = TimerTable::default();
        let slots = [5, 3, 9, 1, 7];
        slots.iter().for_each(|&slot| table.set(slot, epoch));
        let fired = slots.map(|_| {
            let (_, slot) = table.earliest().unwrap();
            table.clear(slot);
            slot
        });
        assert_eq!(fired, slots);
    }

    proptest! {
        #[test]
        fn earliest_is_always_the_smallest_deadline_set(
            operations in prop::collection::vec((0_u32..20, prop::option::of(0_u64..50)), 0..200),
        ) {
            #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
            let epoch = Instant::now();
            let mut table = TimerTable::default();
            let mut model = BTreeMap::new();
            for (slot, millis) in operations {
                match millis.map(|millis| epoch + Duration::from_millis(millis)) {
                    Some(deadline) => {
                        table.set(slot, deadline);
                        model.insert(slot, deadline);
                    }
                    None => {
                        table.clear(slot);
                        model.remove(&slot);
                    }
                }
                let earliest = table.earliest();
                prop_assert_eq!(earliest.map(|(deadline, _)| deadline), model.values().min().copied());
                if let Some((deadline, slot)) = earliest {
                    prop_assert_eq!(model.get(&slot), Some(&deadline));
                }
            }
        }
    }
}
