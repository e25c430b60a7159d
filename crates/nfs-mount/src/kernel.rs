//! The kernel's FUSE protocol, as far as a read-only view needs it.
//!
//! [`Request`] is what the kernel asks, checked; [`Answer`] is the right to answer once. What an answer may say of a file is a type:
//! [`Entry`] is either complete (node, attributes, lifetime) or a bare name, so that neither a node that does not exist nor attributes
//! that nobody told can be sent. [`device::mount`] puts a directory into the file tree, [`Session`] reads its requests.

pub(crate) mod device;
mod interrupt;
mod notify;
mod reply;
mod request;
mod session;

pub(crate) use self::{
    interrupt::is_interrupted,
    notify::Notifier,
    reply::{Answer, Attributes, Complete, Entry, FileNumber, Listing, Name, Space, UNKNOWN_NUMBER, is_name},
    request::{Operation, Request},
    session::Session,
};
