//! Bodies of responses.

use std::{convert::Infallible, io, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Body as Bodies, Frame};
use tokio::sync::OwnedSemaphorePermit;

use crate::{members::Member, site::Caller};

/// Bytes of a long text, or of an archive, that are sent at once.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// The body of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Returns a body without bytes.
pub(crate) fn empty() -> Body {
    Empty::new().map_err(never).boxed_unsync()
}

/// Returns a body of a text.
pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(never).boxed_unsync()
}

/// Returns a body of a long text, piece by piece. The permits are given back once all of it was taken.
pub(crate) fn pieces(text: String, permits: [OwnedSemaphorePermit; 2]) -> Body {
    let mut rest = Bytes::from(text);
    let next = move || {
        let _held = &permits;
        (!rest.is_empty()).then(|| Ok(Frame::data(rest.split_to(rest.len().min(PIECE_BYTES)))))
    };
    boxed(StreamBody::new(stream::iter(std::iter::from_fn(next))))
}

/// Notes what is taken of a body, and by whom.
pub(crate) fn noted(body: Body, caller: &Arc<Caller>, member: Option<Arc<Member>>) -> Body {
    let sending = caller.send();
    let note = move |frame: Frame<Bytes>| {
        sending.note();
        if let (Some(member), Some(data)) = (&member, frame.data_ref()) {
            member.note(data.len());
        }
        frame
    };
    body.map_frame(note).boxed_unsync()
}

/// Hides what a body is made of.
pub(crate) fn boxed(body: impl Bodies<Data = Bytes, Error = io::Error> + Send + 'static) -> Body {
    body.boxed_unsync()
}

fn never(never: Infallible) -> io::Error {
    match never {}
}
