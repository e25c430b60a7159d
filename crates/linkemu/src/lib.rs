//! A seeded link emulator: burst errors in time, IP fragments, queues and link-level retransmission.
