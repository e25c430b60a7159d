//! Client, link and server in virtual time: the figures of the papers, curves, limits, and the choice of a transport.

mod curves;
mod figures;
mod limit;
mod transports;
