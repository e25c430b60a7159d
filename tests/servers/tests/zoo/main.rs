//! The matrix of steps on every kind of server.

mod lanes;
