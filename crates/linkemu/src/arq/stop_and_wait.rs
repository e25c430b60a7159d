//! Stop and wait: `DATA, ACK` for each frame; after a failure an RTS must get through before the frame is repeated.
//!
//! The RTS keeps long frames out of bad periods: a fade costs 0.5 ms of air time every retry pause, not a frame's.
//! With [`Probe::Off`] the frame itself is repeated.

use super::{
    End, Parameters,
    exchange::{Exchange, Reservation},
};
use crate::Probe;

/// An end that speaks stop-and-wait.
pub(super) fn end(parameters: Parameters, probe: Probe) -> Box<dyn End> {
    let reservation = match probe {
        Probe::Rts => Reservation::AfterFailure,
        Probe::Off => Reservation::Never,
    };
    Box::new(Exchange::new(parameters, reservation))
}
