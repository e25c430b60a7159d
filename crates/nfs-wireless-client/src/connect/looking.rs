//! LOOKUP and GETATTR before there is a client: they tell whether the names of a path lead to what was mounted.

use nfs_proto::attr::{Metadata, optional};
use nfs_wire::{
    DecodeError, FileHandle, Procedure, encode,
    nfs3_types::{
        nfs3::{GETATTR3args, GETATTR3resok, LOOKUP3args, LOOKUP3resok, diropargs3, filename3},
        xdr_codec::{Opaque, Pack},
    },
    reply::{self, Results},
    rpc::Program,
};

use super::{Found, call, search::Looking};
use crate::{endpoint::Path, error::Error};

impl Looking for Path {
    async fn look_up(&self, directory: FileHandle, name: &[u8]) -> Result<(FileHandle, Metadata), Error> {
        let what = diropargs3 { dir: directory.to_fh3(), name: filename3(Opaque::borrowed(name)) };
        let found: LOOKUP3resok = ask(self, Procedure::Lookup, &LOOKUP3args { what }).await?;
        let source = DecodeError::Inconsistent { field: "file handle" };
        let handle = FileHandle::try_from(&found.object)
            .map_err(|_| Error::Protocol { what: Procedure::Lookup.name(), source })?;
        match optional(&found.obj_attributes) {
            Some(metadata) => Ok((handle, metadata)),
            None => Ok((handle, self.attributes(handle).await?)),
        }
    }

    async fn attributes(&self, file: FileHandle) -> Result<Metadata, Error> {
        let arguments = GETATTR3args { object: file.to_fh3() };
        let found: GETATTR3resok = ask(self, Procedure::Getattr, &arguments).await?;
        Ok(Metadata::from(&found.obj_attributes))
    }
}

async fn ask<T>(path: &Path, procedure: Procedure, arguments: &impl Pack) -> Result<T, Error>
where
    T: for<'a> Results<'a>,
{
    let what = procedure.name();
    let mut bytes = Vec::with_capacity(arguments.packed_size());
    encode(&mut bytes, arguments);
    let found = Found { protocol: path.protocol, address: path.address() };
    let answer = call(&path.connection, Program::NFS, procedure.number(), bytes, found).await?;
    answer.outcome.map_err(|rejection| Error::Rejected { what, rejection })?;
    reply::decode(&answer.results)
        .map_err(|source| Error::Protocol { what, source })?
        .map_err(|status| Error::refused(procedure, status))
}
