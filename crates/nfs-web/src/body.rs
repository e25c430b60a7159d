//! Bodies of responses.

use std::{convert::Infallible, io};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full, combinators::UnsyncBoxBody};
use hyper::body::Body as Bodies;

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

/// Hides what a body is made of.
pub(crate) fn boxed(body: impl Bodies<Data = Bytes, Error = io::Error> + Send + 'static) -> Body {
    body.boxed_unsync()
}

fn never(never: Infallible) -> io::Error {
    match never {}
}
