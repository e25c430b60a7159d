//! RPC call and reply messages (RFC 5531 §9).

use thiserror::Error;

use crate::{
    auth::{Credential, MAX_AUTH_BYTES},
    xdr::{DecodeError, Reader},
};

/// A transaction identifier: names one call, and any reply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub u32);

/// A program and version, such as NFS version 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program {
    /// Program number.
    pub number: u32,
    /// Version of the program.
    pub version: u32,
}

impl Program {
    /// NFS version 3 (RFC 1813 §3.2).
    pub const NFS: Self = Self { number: 100_003, version: 3 };
    /// MOUNT version 3 (RFC 1813 §5.1).
    pub const MOUNT: Self = Self { number: 100_005, version: 3 };
    /// The port mapper, version 2 (RFC 1833 §3).
    pub const PORTMAP: Self = Self { number: 100_000, version: 2 };
    /// rpcbind, version 3 (RFC 1833 §2).
    pub const RPCBIND3: Self = Self { number: 100_000, version: 3 };
    /// rpcbind, version 4 (RFC 1833 §2).
    pub const RPCBIND4: Self = Self { number: 100_000, version: 4 };
}

/// Why a server did not run a call.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// `PROG_UNAVAIL`.
    #[error("the server does not offer this program")]
    ProgramUnavailable,
    /// `PROG_MISMATCH` without the versions that the server offers instead, as go-nfs and rclone answer a procedure that they do not have.
    #[error("the server does not offer this version of the program, or not the procedure")]
    VersionUnavailable,
    /// `PROG_MISMATCH`: the version range the server offers instead.
    #[error("the server offers versions {low} to {high} of this program")]
    ProgramMismatch {
        /// Lowest version offered.
        low: u32,
        /// Highest version offered.
        high: u32,
    },
    /// `PROC_UNAVAIL`.
    #[error("the server does not offer this procedure")]
    ProcedureUnavailable,
    /// `GARBAGE_ARGS`.
    #[error("the server could not decode the arguments")]
    GarbageArguments,
    /// `SYSTEM_ERR`.
    #[error("the server ran out of a resource")]
    SystemError,
    /// `RPC_MISMATCH`: the RPC versions the server speaks.
    #[error("the server speaks RPC versions {low} to {high}")]
    RpcMismatch {
        /// Lowest version spoken.
        low: u32,
        /// Highest version spoken.
        high: u32,
    },
    /// `AUTH_ERROR` with its `auth_stat` (RFC 5531 §9).
    #[error(
        "the server refused the credential (auth status {0}); AUTH_SYS or a privileged port may be needed"
    )]
    Authentication(u32),
}

/// Appends the header of a call up to its arguments (RFC 5531 §9); `credential` is already encoded.
pub fn encode_call_header(
    buffer: &mut Vec<u8>,
    xid: Xid,
    program: Program,
    procedure: u32,
    credential: &[u8],
) {
    for word in [xid.0, CALL, RPC_VERSION, program.number, program.version, procedure] {
        buffer.extend_from_slice(&word.to_be_bytes());
    }
    buffer.extend_from_slice(credential);
    buffer.extend_from_slice(&[0; 8]); // the verifier: AUTH_NONE, no body
}

/// Overwrites the XID of an encoded call or reply.
///
/// # Panics
/// If `message` has fewer than four bytes; every encoded message has more.
pub fn set_xid(message: &mut [u8], xid: Xid) {
    message[..4].copy_from_slice(&xid.0.to_be_bytes());
}

/// A reply's header; the results follow in the reader it was decoded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The call that is answered.
    pub xid: Xid,
    /// Whether results follow, or why not.
    pub outcome: Result<(), Rejection>,
}

impl ReplyHeader {
    /// Reads the header of a reply and leaves the reader at the results.
    ///
    /// # Errors
    /// [`DecodeError`] when the message is not a reply or is malformed.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let xid = Xid(reader.u32("xid")?);
        match reader.u32("message type")? {
            REPLY => {}
            value => {
                return Err(DecodeError::Unknown { field: "message type", value });
            }
        }
        let outcome = match reader.u32("reply status")? {
            MSG_ACCEPTED => {
                reader.u32("verifier flavor")?;
                reader.opaque("verifier", MAX_AUTH_BYTES)?;
                match reader.u32("accept status")? {
                    0 => Ok(()),
                    1 => Err(Rejection::ProgramUnavailable),
                    2 if reader.rest().is_empty() => Err(Rejection::VersionUnavailable),
                    2 => {
                        Err(Rejection::ProgramMismatch { low: reader.u32("low")?, high: reader.u32("high")? })
                    }
                    3 => Err(Rejection::ProcedureUnavailable),
                    4 => Err(Rejection::GarbageArguments),
                    5 => Err(Rejection::SystemError),
                    value => {
                        return Err(DecodeError::Unknown { field: "accept status", value });
                    }
                }
            }
            MSG_DENIED => match reader.u32("reject status")? {
                0 => Err(Rejection::RpcMismatch { low: reader.u32("low")?, high: reader.u32("high")? }),
                1 => Err(Rejection::Authentication(reader.u32("auth status")?)),
                value => {
                    return Err(DecodeError::Unknown { field: "reject status", value });
                }
            },
            value => {
                return Err(DecodeError::Unknown { field: "reply status", value });
            }
        };
        Ok(Self { xid, outcome })
    }

    /// Appends the header of a reply; results are appended by the caller when the outcome is `Ok`.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        let mut put = |words: &[u32]| {
            for word in words {
                buffer.extend_from_slice(&word.to_be_bytes());
            }
        };
        put(&[self.xid.0, REPLY]);
        match self.outcome {
            Ok(()) => put(&[MSG_ACCEPTED, 0, 0, 0]),
            Err(Rejection::ProgramUnavailable) => put(&[MSG_ACCEPTED, 0, 0, 1]),
            Err(Rejection::VersionUnavailable) => put(&[MSG_ACCEPTED, 0, 0, 2]),
            Err(Rejection::ProgramMismatch { low, high }) => put(&[MSG_ACCEPTED, 0, 0, 2, low, high]),
            Err(Rejection::ProcedureUnavailable) => put(&[MSG_ACCEPTED, 0, 0, 3]),
            Err(Rejection::GarbageArguments) => put(&[MSG_ACCEPTED, 0, 0, 4]),
            Err(Rejection::SystemError) => put(&[MSG_ACCEPTED, 0, 0, 5]),
            Err(Rejection::RpcMismatch { low, high }) => put(&[MSG_DENIED, 0, low, high]),
            Err(Rejection::Authentication(status)) => put(&[MSG_DENIED, 1, status]),
        }
    }
}

/// A call's header; the arguments follow in the reader it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHeader {
    /// Identifier that the reply must carry.
    pub xid: Xid,
    /// Program and version called.
    pub program: Program,
    /// Number of the procedure called.
    pub procedure: u32,
    /// The caller's credential, or the number of a flavour we do not know.
    pub credential: Result<Credential, u32>,
}

/// A call that a server cannot even attribute to a program.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CallError {
    /// The bytes are no call; a server drops them.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The call is of another RPC version; a server denies it.
    #[error("RPC version {version} is not spoken here")]
    RpcVersion {
        /// Identifier that the denial must carry.
        xid: Xid,
        /// The version asked for.
        version: u32,
    },
}

impl CallHeader {
    /// Reads the header of a call and leaves the reader at the arguments.
    ///
    /// # Errors
    /// [`CallError`] when the message is no call of RPC version 2.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, CallError> {
        let xid = Xid(reader.u32("xid")?);
        match reader.u32("message type")? {
            CALL => {}
            value => {
                return Err(DecodeError::Unknown { field: "message type", value }.into());
            }
        }
        match reader.u32("RPC version")? {
            RPC_VERSION => {}
            version => return Err(CallError::RpcVersion { xid, version }),
        }
        let program = Program { number: reader.u32("program")?, version: reader.u32("version")? };
        let procedure = reader.u32("procedure")?;
        let credential = Credential::decode(reader)?;
        reader.u32("verifier flavor")?;
        reader.opaque("verifier", MAX_AUTH_BYTES)?;
        Ok(Self { xid, program, procedure, credential })
    }
}

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;

#[cfg(test)]
mod tests {
    use nfs3_types::{rpc::rpc_msg, xdr_codec::Unpack};

    use super::*;

    const OUTCOMES: [Result<(), Rejection>; 9] = [
        Ok(()),
        Err(Rejection::ProgramUnavailable),
        Err(Rejection::VersionUnavailable),
        Err(Rejection::ProgramMismatch { low: 2, high: 4 }),
        Err(Rejection::ProcedureUnavailable),
        Err(Rejection::GarbageArguments),
        Err(Rejection::SystemError),
        Err(Rejection::RpcMismatch { low: 2, high: 2 }),
        Err(Rejection::Authentication(5)),
    ];

    #[test]
    fn every_reply_header_survives_a_round_trip_and_satisfies_the_oracle() {
        for outcome in OUTCOMES {
            let header = ReplyHeader { xid: Xid(0xdead_beef), outcome };
            let mut buffer = Vec::new();
            header.encode(&mut buffer);
            let mut reader = Reader::new(&buffer);
            assert_eq!(ReplyHeader::decode(&mut reader).unwrap(), header);
            reader.finish().unwrap();
            // The versions are not optional (RFC 5531 §9), but some servers leave them out.
            let left_out = outcome == Err(Rejection::VersionUnavailable);
            let oracle = rpc_msg::unpack(&mut &buffer[..]).map(|(oracle, length)| (oracle.xid, length));
            assert_eq!(oracle.ok(), (!left_out).then_some((0xdead_beef, buffer.len())));
            for cut in 0..buffer.len() {
                let versions =
                    matches!(outcome, Err(Rejection::ProgramMismatch { .. })) && cut + 8 == buffer.len();
                assert_eq!(ReplyHeader::decode(&mut Reader::new(&buffer[..cut])).is_ok(), versions);
            }
        }
    }

    #[test]
    fn call_header_survives_a_round_trip() {
        let mut credential = Vec::new();
        Credential::None.encode(&mut credential);
        let mut buffer = Vec::new();
        encode_call_header(&mut buffer, Xid(9), Program::NFS, 6, &credential);
        set_xid(&mut buffer, Xid(10));
        let mut reader = Reader::new(&buffer);
        let header = CallHeader::decode(&mut reader).unwrap();
        reader.finish().unwrap();
        assert_eq!((header.xid, header.program, header.procedure), (Xid(10), Program::NFS, 6));
        assert_eq!(header.credential, Ok(Credential::None));
        for cut in 0..buffer.len() {
            assert!(CallHeader::decode(&mut Reader::new(&buffer[..cut])).is_err());
        }
    }

    #[test]
    fn a_hostile_verifier_length_is_refused() {
        let mut bytes = Vec::new();
        for word in [1_u32, REPLY, MSG_ACCEPTED, 6, u32::MAX] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        let error = ReplyHeader::decode(&mut Reader::new(&bytes)).unwrap_err();
        assert!(matches!(error, DecodeError::TooLong { field: "verifier", .. }));
    }
}
