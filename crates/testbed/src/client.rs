//! The client of a mobile: the session that all of them have.

use std::time::Instant;

use nfs_proto::{
    config::SessionOptions,
    engine::PathEstimate,
    session::{Session, SessionConfig},
};
use nfs_wire::{
    auth::{AuthSys, Credential},
    portmap::Protocol,
};

use crate::{Error, Plan, server::server_address};

/// Bytes of the client's receive buffer, as Linux grants to who asks for more than its default.
const RECEIVE_BUFFER: usize = 8 << 20;

/// The client of mobile `number`.
pub(crate) fn session(
    plan: &Plan,
    protocol: Protocol,
    seed: u64,
    number: u16,
    now: Instant,
) -> Result<Session, Error> {
    session_after(plan, protocol, seed, number, now, None)
}

/// The client of a mobile whose path an earlier connection has measured.
pub(crate) fn session_after(
    plan: &Plan,
    protocol: Protocol,
    seed: u64,
    number: u16,
    now: Instant,
    prior: Option<PathEstimate>,
) -> Result<Session, Error> {
    let mobile = AuthSys { machine_name: b"shivalik".to_vec(), uid: 1000, gid: 100, gids: vec![100] };
    let options = SessionOptions {
        credential: Credential::Sys(mobile),
        retry: plan.policy,
        read_block: plan.block,
        write_block: plan.block,
        window: plan.window,
        prior,
        ..SessionOptions::default()
    };
    options.check()?;
    let mut settings = SessionConfig::new(&options, server_address(), protocol, RECEIVE_BUFFER);
    settings.engine.tuning = plan.tuning;
    Ok(Session::new(settings, server_address(), seed ^ u64::from(number) << 48, now))
}
