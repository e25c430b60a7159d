//! Reservation: `RTS, CTS, DATA, ACK` for each frame, as in MACAW (Bharghavan et al. 1994) and IEEE 802.11.

use super::{
    End, Parameters,
    exchange::{Exchange, Reservation},
};

/// An end that reserves the medium for every frame.
pub(super) fn end(parameters: Parameters) -> Box<dyn End> {
    Box::new(Exchange::new(parameters, Reservation::Always))
}
