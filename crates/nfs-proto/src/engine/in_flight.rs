//! Limit on READs and WRITEs in flight, in calls and in bytes.

use std::time::Duration;

use super::{Class, Engine, MAX_CALLS, calls::State};

/// The widest window. At least one call is always admitted, however large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// READs and WRITEs in flight at once.
    pub calls: u32,
    /// Bytes asked for by READs in flight: what our own receive buffer holds.
    pub read_bytes: u64,
    /// Bytes carried by WRITEs in flight: what the server's receive buffer holds.
    pub write_bytes: u64,
}

/// How blocks leave; zero where no policy paces them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Bytes that leave in a round trip.
    pub bytes: u64,
    /// Time between two blocks.
    pub spacing: Duration,
}

/// WRITEs that are about to be queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// How many.
    pub calls: u32,
    /// Bytes that they carry together.
    pub bytes: u64,
}

/// What is in flight, and whether more may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    limits: WindowLimits,
    calls: u32,
    read_bytes: u64,
    write_bytes: u64,
}

impl InFlight {
    pub(super) const fn new(limits: WindowLimits) -> Self {
        Self { limits, calls: 0, read_bytes: 0, write_bytes: 0 }
    }

    /// Returns the configured limits.
    pub(super) const fn limits(&self) -> WindowLimits {
        self.limits
    }

    /// Returns the bytes in flight.
    pub(super) const fn bytes(&self) -> u64 {
        self.read_bytes + self.write_bytes
    }

    /// Returns this with further WRITEs in flight.
    pub(super) const fn with(self, Writes { calls, bytes }: Writes) -> Self {
        Self { calls: self.calls + calls, write_bytes: self.write_bytes + bytes, ..self }
    }

    /// Whether a call of `class` that moves `bytes` may be sent now.
    pub(super) const fn admits(&self, limits: &WindowLimits, class: Class, bytes: u32) -> bool {
        match class {
            Class::Control => true,
            _ if self.calls == 0 => true,
            _ if self.calls >= limits.calls => false,
            Class::Read => self.read_bytes + bytes as u64 <= limits.read_bytes,
            Class::Write => self.write_bytes + bytes as u64 <= limits.write_bytes,
        }
    }

    pub(super) fn enter(&mut self, class: Class, bytes: u32) {
        match class {
            Class::Control => return,
            Class::Read => self.read_bytes += u64::from(bytes),
            Class::Write => self.write_bytes += u64::from(bytes),
        }
        self.calls += 1;
    }

    pub(super) fn leave(&mut self, class: Class, bytes: u32) {
        match class {
            Class::Control => return,
            Class::Read => self.read_bytes -= u64::from(bytes),
            Class::Write => self.write_bytes -= u64::from(bytes),
        }
        self.calls -= 1;
    }
}

impl Engine {
    /// Whether another READ or WRITE of `bytes` would be sent at once.
    pub fn has_room(&self, class: Class, bytes: u32) -> bool {
        self.has_room_beside(Writes::default(), class, bytes)
    }

    /// As [`Engine::has_room`], if these WRITEs were in flight as well.
    pub fn has_room_beside(&self, writes: Writes, class: Class, bytes: u32) -> bool {
        let in_flight = self.in_flight.with(writes);
        // Calls that were answered meanwhile are still in the queues, and wait for nothing.
        !self.bulk.iter().any(|&id| self.calls.is_in(id, State::Queued))
            && !self.resend.iter().any(|resend| self.calls.is_in(resend.id, State::Resending))
            && self.admits(&in_flight, &self.recovery.limits(in_flight.limits()), class, bytes)
            && self.calls.outstanding() < MAX_CALLS
    }

    /// As [`InFlight::admits`]. Records if something has to wait.
    fn admits(&self, in_flight: &InFlight, limits: &WindowLimits, class: Class, bytes: u32) -> bool {
        let admits = in_flight.admits(limits, class, bytes);
        if !admits {
            self.is_window_limited.set(true);
        }
        admits
    }

    /// Whether a READ or WRITE has to wait for the window or for its turn.
    pub(super) fn must_wait(&mut self, limits: &WindowLimits, class: Class, bytes: u32) -> bool {
        if !self.admits(&self.in_flight, limits, class, bytes) {
            return true;
        }
        self.paced_until = self.wait_until(class);
        self.paced_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_full_at_its_calls_or_its_bytes_but_never_for_the_first() {
        let limits = WindowLimits { calls: 3, read_bytes: 100, write_bytes: 50 };
        let mut window = InFlight::new(limits);
        assert!(window.admits(&limits, Class::Write, 4096), "one call is always admitted");
        window.enter(Class::Read, 60);
        assert!(window.admits(&limits, Class::Read, 40) && !window.admits(&limits, Class::Read, 41));
        window.enter(Class::Write, 50);
        assert!(!window.admits(&limits, Class::Write, 1) && window.admits(&limits, Class::Read, 40));
        window.enter(Class::Read, 1);
        assert!(!window.admits(&limits, Class::Read, 0) && window.admits(&limits, Class::Control, 0));
        window.leave(Class::Write, 50);
        assert!(window.admits(&limits, Class::Write, 50));
    }

    #[test]
    fn bytes_of_reads_and_writes_are_in_flight_together_and_small_calls_are_not_counted() {
        let limits = WindowLimits { calls: 2, read_bytes: 100, write_bytes: 50 };
        let mut window = InFlight::new(limits);
        assert_eq!(window.bytes(), 0);
        window.enter(Class::Read, 60);
        window.enter(Class::Write, 50);
        window.enter(Class::Control, 10);
        assert_eq!(window.bytes(), 110);
        window.leave(Class::Read, 60);
        window.leave(Class::Control, 10);
        assert_eq!(window.bytes(), 50);
        assert!(window.admits(&limits, Class::Read, 100) && !window.admits(&limits, Class::Read, 101));
        window.leave(Class::Write, 50);
        assert_eq!(window.bytes(), 0);
        assert!(window.admits(&limits, Class::Read, 4096), "it would be the first again");
    }
}
