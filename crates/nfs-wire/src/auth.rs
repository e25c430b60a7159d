//! AUTH_NONE and AUTH_SYS credentials (RFC 5531 §10.1 and Appendix A).

use nfs3_types::{
    rpc::{auth_unix, opaque_auth},
    xdr_codec::Opaque,
};

use crate::xdr::{DecodeError, Reader, encode};

/// Largest body of a credential or verifier, in bytes (RFC 5531 §8.2).
pub const MAX_AUTH_BYTES: usize = 400;

/// Most supplementary groups that AUTH_SYS carries (RFC 5531 Appendix A).
pub const MAX_GROUPS: usize = 16;

/// Longest machine name that AUTH_SYS carries, in bytes (RFC 5531 Appendix A).
pub const MAX_MACHINE_NAME_BYTES: usize = 255;

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// Who the caller claims to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE: nobody in particular.
    #[default]
    None,
    /// AUTH_SYS: a user and groups, believed without proof.
    Sys(AuthSys),
}

/// The body of an AUTH_SYS credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSys {
    /// Name of the calling machine; only its first 255 bytes are sent.
    pub machine_name: Vec<u8>,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups; only the first 16 are sent.
    pub gids: Vec<u32>,
}

impl Credential {
    /// Changes the user and the group, as far as they are given. Supplementary groups belong to the user: another one has none.
    pub fn act_as(&mut self, uid: Option<u32>, gid: Option<u32>) {
        let Self::Sys(user) = self else { return };
        if uid.is_some() || gid.is_some() {
            user.gids.clear();
        }
        user.uid = uid.unwrap_or(user.uid);
        user.gid = gid.unwrap_or(user.gid);
    }

    /// Appends the credential as `opaque_auth` to `buffer`.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::None => encode(buffer, &opaque_auth::default()),
            Self::Sys(sys) => {
                let name = &sys.machine_name[..sys.machine_name.len().min(MAX_MACHINE_NAME_BYTES)];
                let gids = &sys.gids[..sys.gids.len().min(MAX_GROUPS)];
                encode(
                    buffer,
                    &opaque_auth::auth_unix(&auth_unix {
                        stamp: 0,
                        machinename: Opaque::owned(name.to_vec()),
                        uid: sys.uid,
                        gid: sys.gid,
                        gids: gids.to_vec(),
                    }),
                );
            }
        }
    }

    /// Reads a credential; a flavour other than AUTH_NONE and AUTH_SYS is returned as its number.
    ///
    /// # Errors
    /// [`DecodeError`] when the credential is malformed.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Result<Self, u32>, DecodeError> {
        let flavor = reader.u32("credential")?;
        let body = reader.opaque("credential", MAX_AUTH_BYTES)?;
        match flavor {
            AUTH_NONE => Ok(Ok(Self::None)),
            AUTH_SYS => {
                let mut reader = Reader::new(body);
                reader.u32("AUTH_SYS stamp")?;
                let machine_name = reader.opaque("machine name", MAX_MACHINE_NAME_BYTES)?.to_vec();
                let uid = reader.u32("uid")?;
                let gid = reader.u32("gid")?;
                let count = reader.length("groups", MAX_GROUPS)?;
                let gids = (0..count).map(|_| reader.u32("groups")).collect::<Result<_, _>>()?;
                reader.finish()?;
                Ok(Ok(Self::Sys(AuthSys { machine_name, uid, gid, gids })))
            }
            other => Ok(Err(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_sys_survives_a_round_trip_and_is_cut_to_its_limits() {
        let long = AuthSys { machine_name: vec![b'm'; 300], uid: 7, gid: 8, gids: (0..20).collect() };
        let mut buffer = Vec::new();
        Credential::Sys(long).encode(&mut buffer);
        let Ok(Credential::Sys(sys)) = Credential::decode(&mut Reader::new(&buffer)).unwrap() else {
            panic!("AUTH_SYS expected");
        };
        assert_eq!((sys.machine_name.len(), sys.uid, sys.gid, sys.gids.len()), (255, 7, 8, 16));
    }
}
