//! Encrypted datagrams, each of which is taken once.
//!
//! ```text
//! session (8) | counter (8) | message, encrypted, with its tag (16)
//! ```
//!
//! The counter is the nonce, and differs for each datagram of a direction. Its highest bit says that the message is for the
//! session itself ([`Control`]) and not for who uses it, the next one that it is compressed (RFC 1951).

use std::{
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

#[cfg(feature = "sharer")]
use crate::compression::Compressor;
use crate::{
    ids::{HEAD_BYTES, SessionId},
    lock,
    noise::{Keys, TAG_BYTES},
};

/// Bytes that a datagram has beside the message.
pub const OVERHEAD_BYTES: usize = HEAD_BYTES + TAG_BYTES;

/// Bit of the counter that says that a message is for the session itself.
const CONTROL: u64 = 1 << 63;

/// Bit of the counter that says that a message is compressed.
const COMPRESSED: u64 = 1 << 62;

/// What one end says to the other about the session itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The sharer has ended the session; nothing more is answered.
    Goodbye,
    /// The session ends after this time.
    Remaining(Duration),
}

impl Control {
    /// Returns what says the same so much later.
    pub(crate) fn after(self, pause: Duration) -> Self {
        match self {
            Self::Goodbye => Self::Goodbye,
            Self::Remaining(time) => Self::Remaining(time.saturating_sub(pause)),
        }
    }

    fn encode(self) -> Vec<u8> {
        match self {
            Self::Goodbye => vec![1],
            Self::Remaining(time) => {
                let mut bytes = vec![2];
                bytes.extend_from_slice(&millis(time).to_be_bytes());
                bytes
            }
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [1] => Some(Self::Goodbye),
            [2, time @ ..] => {
                Some(Self::Remaining(Duration::from_millis(u64::from_be_bytes(time.try_into().ok()?))))
            }
            _ => None,
        }
    }
}

/// Times on the wire are in milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a datagram was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// A message for who uses the session.
    Message,
    /// The same, compressed (RFC 1951). Only receivers take them: a member is not to let a sharer keep what it takes to inflate them.
    Compressed,
    /// One for the session itself.
    Control(Control),
}

/// One end of a session. Several threads may use it at once; it is zeroed when dropped.
pub struct Session {
    id: SessionId,
    keys: Keys,
    /// Of the next datagram that leaves.
    counter: AtomicU64,
    taken: Mutex<Window>,
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Session({:?})", self.id)
    }
}

impl Session {
    pub(crate) fn new(id: SessionId, keys: Keys) -> Self {
        Self { id, keys, counter: AtomicU64::new(0), taken: Mutex::default() }
    }

    /// Returns its name.
    pub const fn id(&self) -> SessionId {
        self.id
    }

    /// Appends the datagram that carries a message.
    ///
    /// # Panics
    /// With more than 65,519 bytes, which fit into no datagram.
    pub fn seal(&self, message: &[u8], datagram: &mut Vec<u8>) {
        self.encrypt(0, message, datagram);
    }

    /// As [`Session::seal`], compressed where that is worth it.
    #[cfg(feature = "sharer")]
    pub(crate) fn seal_compressed(
        &self,
        compressor: &mut Compressor,
        message: &[u8],
        datagram: &mut Vec<u8>,
    ) {
        match compressor.compress(message) {
            Some(compressed) => self.encrypt(COMPRESSED, compressed, datagram),
            None => self.seal(message, datagram),
        }
    }

    /// Appends the datagram that says something about the session itself.
    pub fn seal_control(&self, control: Control, datagram: &mut Vec<u8>) {
        self.encrypt(CONTROL, &control.encode(), datagram);
    }

    /// Opens a datagram, and leaves its message in `message`. `None`, if it is not of the other end, was taken before, or is
    /// older than 4,032 others.
    pub fn open(&self, datagram: &[u8], message: &mut Vec<u8>) -> Option<Opened> {
        let (head, sealed) = datagram.split_at_checked(HEAD_BYTES)?;
        let (id, counter) = head.split_at(8);
        let marked = u64::from_be_bytes(counter.try_into().ok()?);
        let counter = marked & !(CONTROL | COMPRESSED);
        if id != self.id.0 || !self.window().is_new(counter) {
            return None;
        }
        message.resize(sealed.len(), 0);
        let length = self.keys.read_message(marked, sealed, message).ok()?;
        message.truncate(length);
        // Another thread may have taken it meanwhile.
        if !self.window().take(counter) {
            return None;
        }
        match marked & (CONTROL | COMPRESSED) {
            0 => Some(Opened::Message),
            COMPRESSED => Some(Opened::Compressed),
            _ => Control::decode(message).map(Opened::Control),
        }
    }

    fn encrypt(&self, mark: u64, message: &[u8], datagram: &mut Vec<u8>) {
        // 2^62 datagrams take longer than anything lasts.
        let counter = self.counter.fetch_add(1, Ordering::Relaxed) | mark;
        datagram.extend_from_slice(&self.id.0);
        datagram.extend_from_slice(&counter.to_be_bytes());
        let start = datagram.len();
        datagram.resize(start + message.len() + TAG_BYTES, 0);
        let sealed = self.keys.write_message(counter, message, &mut datagram[start..]);
        sealed.expect("it fits into a datagram, and its counter is below the last nonce");
    }

    fn window(&self) -> std::sync::MutexGuard<'_, Window> {
        lock(&self.taken)
    }
}

/// Which counters were taken: a sliding window as in RFC 6479.
#[derive(Debug)]
struct Window {
    /// One more than the highest that was taken.
    end: u64,
    bits: [u64; Self::WORDS],
}

impl Default for Window {
    fn default() -> Self {
        Self { end: 0, bits: [0; Self::WORDS] }
    }
}

impl Window {
    const WORDS: usize = 64;

    /// How many counters below the highest one may still come: a megabyte of frames behind the newest on the largest paths.
    const COUNTERS: u64 = (Self::WORDS as u64 - 1) * 64;

    fn is_new(&self, counter: u64) -> bool {
        if counter >= self.end {
            return true;
        }
        self.end - counter <= Self::COUNTERS && self.bits[Self::word(counter)] & Self::bit(counter) == 0
    }

    /// Takes a counter; false if it was taken before.
    fn take(&mut self, counter: u64) -> bool {
        if !self.is_new(counter) {
            return false;
        }
        if counter >= self.end {
            // Words that come into use again hold what is long out of the window.
            let (used, first) = (self.end.div_ceil(64), counter / 64);
            for word in used.max((first + 1).saturating_sub(Self::WORDS as u64))..=first {
                self.bits[(word % Self::WORDS as u64) as usize] = 0;
            }
            self.end = counter + 1;
        }
        self.bits[Self::word(counter)] |= Self::bit(counter);
        true
    }

    const fn word(counter: u64) -> usize {
        (counter / 64 % Self::WORDS as u64) as usize
    }

    const fn bit(counter: u64) -> u64 {
        1 << (counter % 64)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::noise::{Handshake, Identity};

    /// Two ends of a session.
    pub(crate) fn pair() -> (Session, Session) {
        let (ours, theirs) = (Identity::draw(), Identity::draw());
        let mut receiver = Handshake::among_members(&ours, theirs.public(), b"");
        let mut sharer = Handshake::answer_member(&theirs, ours.public(), b"");
        let mut message = Vec::new();
        receiver.write(b"one", &mut message).unwrap();
        assert_eq!(sharer.read(&message).unwrap()[..], *b"one");
        message.clear();
        sharer.write(b"two", &mut message).unwrap();
        assert_eq!(receiver.read(&message).unwrap()[..], *b"two");
        let id = SessionId::draw();
        (Session::new(id, receiver.finish().unwrap()), Session::new(id, sharer.finish().unwrap()))
    }

    #[test]
    fn a_datagram_is_opened_once_at_the_other_end_and_changed_nowhere() {
        let (receiver, sharer) = pair();
        let (mut datagram, mut message) = (Vec::new(), Vec::new());
        receiver.seal(b"call", &mut datagram);
        assert_eq!(datagram.len(), 4 + OVERHEAD_BYTES);
        for changed in 0..datagram.len() {
            let mut wrong = datagram.clone();
            wrong[changed] ^= 1;
            assert_eq!(sharer.open(&wrong, &mut message), None, "byte {changed}");
        }
        for length in 0..datagram.len() {
            assert_eq!(sharer.open(&datagram[..length], &mut message), None);
        }
        assert_eq!(receiver.open(&datagram, &mut message), None, "it is our own");
        assert_eq!(sharer.open(&datagram, &mut message), Some(Opened::Message));
        assert_eq!(message, b"call");
        assert_eq!(sharer.open(&datagram, &mut message), None, "taken before");
    }

    #[cfg(all(feature = "receiver", feature = "sharer"))]
    #[test]
    fn a_compressed_message_is_shorter_on_the_wire_and_the_same_at_the_other_end() {
        let (receiver, sharer) = pair();
        let text = include_bytes!("session.rs");
        let (mut datagram, mut message) = (Vec::new(), Vec::new());
        sharer.seal_compressed(&mut Compressor::default(), text, &mut datagram);
        assert!(datagram.len() < text.len() / 2, "{}", datagram.len());
        assert_eq!(receiver.open(&datagram, &mut message), Some(Opened::Compressed));
        assert_eq!(crate::compression::Decompressor::default().decompress(&message), Some(&text[..]));
        assert_eq!(receiver.open(&datagram, &mut message), None, "taken before");
        datagram[8] ^= (COMPRESSED >> 56) as u8;
        assert_eq!(receiver.open(&datagram, &mut message), None, "what it says of itself is a part of it");
    }

    #[test]
    fn what_is_said_about_the_session_is_no_message() {
        let (receiver, sharer) = pair();
        for control in [Control::Goodbye, Control::Remaining(Duration::from_secs(1800))] {
            let (mut datagram, mut message) = (Vec::new(), Vec::new());
            sharer.seal_control(control, &mut datagram);
            assert_eq!(receiver.open(&datagram, &mut message), Some(Opened::Control(control)));
        }
    }

    proptest! {
        #[test]
        fn no_counter_is_taken_twice_and_all_of_the_window_are_taken_once(
            steps in prop::collection::vec((0_u64..6000, 0_u64..6000), 1..200)
        ) {
            let (mut window, mut model, mut end) = (Window::default(), BTreeSet::new(), 0_u64);
            for (ahead, back) in steps {
                let counter = (end + ahead % 500 * (ahead % 13)).saturating_sub(back);
                let fits = end.saturating_sub(counter) <= Window::COUNTERS;
                prop_assert_eq!(window.take(counter), fits && model.insert(counter), "{}", counter);
                end = end.max(counter + 1);
            }
        }
    }
}
