//! Operations on a file, whatever its name.

use bytes::Bytes;
use nfs_proto::attr::{Metadata, SetAttributes, Time};
use nfs_wire::{
    FileHandle, Procedure, Status, encode,
    nfs3_types::nfs3::{
        ACCESS3args, ACCESS3resok, COMMIT3args, COMMIT3resok, FSINFO3args, FSINFO3resok, FSSTAT3args,
        FSSTAT3resok, GETATTR3args, GETATTR3resok, Nfs3Option, PATHCONF3args, PATHCONF3resok, READ3args,
        READLINK3args, READLINK3resok, SETATTR3args, SETATTR3resok, WRITE3resok, nfstime3, stable_how,
    },
    reply::ReadHead,
};

use super::{Client, Stability, Written, decode};
use crate::error::Error;

/// How often a size is set with a guard of a file that others change meanwhile.
const MOST_GUARDED: usize = 16;

impl Client {
    /// Returns the attributes of a file (GETATTR, RFC 1813 §3.3.1).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, file: FileHandle) -> Result<(), Error> {
    /// let bytes = client.metadata(file).await?.size;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error`]; [`Error::status`] tells why the server refused.
    pub async fn metadata(&self, file: FileHandle) -> Result<Metadata, Error> {
        let arguments = GETATTR3args { object: file.to_fh3() };
        let found: GETATTR3resok = self.call(Procedure::Getattr, &arguments).await?;
        Ok(Metadata::from(&found.obj_attributes))
    }

    /// Changes the attributes of a file (SETATTR, RFC 1813 §3.3.2).
    ///
    /// A size is set with the guard of SETATTR, which takes a GETATTR before: a copy of the call that the network delivers late, or that a
    /// server without a duplicate request cache runs again, does not cut what was written after it. Where others change the file in
    /// every round trip, or the server refuses every guard, it is set without in the end. Servers compare times as finely as they keep
    /// them.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle, SetAttributes};
    /// # async fn example(client: Client, file: FileHandle) -> Result<(), Error> {
    /// client.set_attributes(file, SetAttributes { mode: Some(0o600), ..Default::default() }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn set_attributes(&self, file: FileHandle, attributes: SetAttributes) -> Result<(), Error> {
        if attributes.size.is_some() {
            let ctime = self.metadata(self.inside(file)?).await?.ctime;
            return self.set_size(file, attributes, ctime).await;
        }
        self.set_unguarded(file, attributes).await
    }

    /// As [`Client::set_attributes`] for attributes with a size, of a file that had this `ctime` a moment ago.
    pub(crate) async fn set_size(
        &self,
        file: FileHandle,
        attributes: SetAttributes,
        mut ctime: Time,
    ) -> Result<(), Error> {
        for _ in 0..MOST_GUARDED {
            match self.set_attributes_if(file, attributes, ctime).await {
                Err(
                    Error::Status { status: Status::NOT_SYNC, .. }
                    | Error::Ambiguous { status: Status::NOT_SYNC, .. },
                ) => {}
                set => return set,
            }
            let now = self.metadata(file).await?.ctime;
            if now == ctime {
                // The server refuses what is so.
                break;
            }
            ctime = now;
        }
        self.set_unguarded(file, attributes).await
    }

    async fn set_unguarded(&self, file: FileHandle, attributes: SetAttributes) -> Result<(), Error> {
        let file = self.inside(file)?;
        let arguments = SETATTR3args {
            object: file.to_fh3(),
            new_attributes: attributes.to_wire(),
            guard: Nfs3Option::<nfstime3>::None,
        };
        self.call::<SETATTR3resok>(Procedure::Setattr, &arguments).await.map(drop)
    }

    /// As [`Client::set_attributes`], if the file has not changed since it had this `ctime` (the guard of SETATTR).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle, SetAttributes};
    /// # async fn example(client: Client, file: FileHandle) -> Result<(), Error> {
    /// let ctime = client.metadata(file).await?.ctime;
    /// client.set_attributes_if(file, SetAttributes { size: Some(0), ..Default::default() }, ctime).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`]; `NOT_SYNC` when it has changed; [`Error::Ambiguous`] when a repeated call finds it
    /// changed, and it cannot be seen whether by us, because only the server's time was to be set.
    pub async fn set_attributes_if(
        &self,
        file: FileHandle,
        attributes: SetAttributes,
        ctime: Time,
    ) -> Result<(), Error> {
        let file = self.inside(file)?;
        let guard = nfstime3 { seconds: ctime.seconds, nseconds: ctime.nanoseconds };
        let arguments = SETATTR3args {
            object: file.to_fh3(),
            new_attributes: attributes.to_wire(),
            guard: Nfs3Option::Some(guard),
        };
        match self.call_counted::<SETATTR3resok>(Procedure::Setattr, &arguments).await {
            Ok(_) => Ok(()),
            Err(counted) if counted.may_be_done(Status::NOT_SYNC) => {
                match attributes.are_those_of(&self.metadata(file).await?) {
                    Some(true) => Ok(()),
                    Some(false) => Err(counted.error),
                    None => Err(counted.in_doubt()),
                }
            }
            Err(counted) => Err(counted.error),
        }
    }

    /// Asks which of the rights in `access` the caller has (ACCESS, RFC 1813 §3.3.4).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, file: FileHandle) -> Result<(), Error> {
    /// let may_read = client.access(file, 1).await? == 1;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn access(&self, file: FileHandle, access: u32) -> Result<u32, Error> {
        let arguments = ACCESS3args { object: file.to_fh3(), access };
        self.call::<ACCESS3resok>(Procedure::Access, &arguments).await.map(|granted| granted.access)
    }

    /// Returns the target of a symbolic link (READLINK, RFC 1813 §3.3.5).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, file: FileHandle) -> Result<(), Error> {
    /// let target = client.read_link(file).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn read_link(&self, link: FileHandle) -> Result<Vec<u8>, Error> {
        let arguments = READLINK3args { symlink: link.to_fh3() };
        let results = self.call_packed(Procedure::Readlink, &arguments).await?;
        let found: READLINK3resok<'_> = decode(Procedure::Readlink, &results)?;
        Ok(found.data.as_ref().to_vec())
    }

    /// Reads up to `count` bytes at `offset`, and whether the file ends there (READ, RFC 1813 §3.3.6).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, file: FileHandle) -> Result<(), Error> {
    /// let (bytes, is_end) = client.read(file, 4096, 512).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn read(&self, file: FileHandle, offset: u64, count: u32) -> Result<(Bytes, bool), Error> {
        const READ: Procedure = Procedure::Read;
        let results = self.call_packed(READ, &READ3args { file: file.to_fh3(), offset, count }).await?;
        let mut reader = nfs_wire::Reader::new(&results);
        let broken = |source| Error::Protocol { what: READ.name(), source };
        let head = ReadHead::decode(&mut reader, count).map_err(broken)?;
        let head = head.map_err(|status| Error::refused(READ, status))?;
        let start = results.len() - reader.rest().len();
        let end = start + head.count as usize;
        if results.len() < end {
            return Err(broken(nfs_wire::DecodeError::Truncated { field: "data" }));
        }
        Ok((results.slice(start..end), head.eof))
    }

    /// Writes `data` at `offset` (WRITE, RFC 1813 §3.3.7).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle, Stability};
    /// # async fn example(client: Client, file: FileHandle) -> Result<(), Error> {
    /// let written = client.write(file, 4096, b"bytes", Stability::Stable).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn write(
        &self,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<Written, Error> {
        self.write_counted(file, offset, data, stability).await.map(|(written, _)| written)
    }

    /// As [`Client::write`], and returns how often the call was sent.
    pub(crate) async fn write_counted(
        &self,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<(Written, u32), Error> {
        const WRITE: Procedure = Procedure::Write;
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let data = &data[..count as usize];
        let mut arguments = Vec::with_capacity(data.len() + 96);
        encode(&mut arguments, &file);
        encode(&mut arguments, &offset);
        encode(&mut arguments, &count);
        encode(
            &mut arguments,
            &match stability {
                Stability::Unstable => stable_how::UNSTABLE,
                Stability::Stable => stable_how::FILE_SYNC,
            },
        );
        encode(&mut arguments, &count);
        arguments.extend_from_slice(data);
        arguments.resize(arguments.len() + nfs_wire::padding(data.len()), 0);
        let (results, attempts) = self.call_raw_counted(WRITE, arguments).await?;
        let done: WRITE3resok = decode(WRITE, &results)?;
        if done.count > count {
            let source = nfs_wire::DecodeError::Inconsistent { field: "count" };
            return Err(Error::Protocol { what: WRITE.name(), source });
        }
        let stability = match done.committed {
            stable_how::UNSTABLE => Stability::Unstable,
            stable_how::DATA_SYNC | stable_how::FILE_SYNC => Stability::Stable,
        };
        Ok((Written { count: done.count, stability, verifier: done.verf.0 }, attempts))
    }

    /// Brings unstable data to stable storage and returns the write verifier (COMMIT, RFC 1813 §3.3.21).
    ///
    /// A `count` of zero means: to the end of the file.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, file: FileHandle) -> Result<(), Error> {
    /// let verifier = client.commit(file, 0, 0).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn commit(&self, file: FileHandle, offset: u64, count: u32) -> Result<[u8; 8], Error> {
        let arguments = COMMIT3args { file: file.to_fh3(), offset, count };
        self.call::<COMMIT3resok>(Procedure::Commit, &arguments).await.map(|done| done.verf.0)
    }

    /// Returns how full the file system is (FSSTAT, RFC 1813 §3.3.18).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let free = client.fs_stat(client.root()).await?.abytes;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn fs_stat(&self, file: FileHandle) -> Result<FSSTAT3resok, Error> {
        self.call(Procedure::Fsstat, &FSSTAT3args { fsroot: file.to_fh3() }).await
    }

    /// Returns what the file system can do (FSINFO, RFC 1813 §3.3.19).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let most = client.fs_info(client.root()).await?.rtmax;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn fs_info(&self, file: FileHandle) -> Result<FSINFO3resok, Error> {
        self.call(Procedure::Fsinfo, &FSINFO3args { fsroot: file.to_fh3() }).await
    }

    /// Returns the limits on names and links (PATHCONF, RFC 1813 §3.3.20).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let longest = client.path_conf(client.root()).await?.name_max;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn path_conf(&self, file: FileHandle) -> Result<PATHCONF3resok, Error> {
        self.call(Procedure::Pathconf, &PATHCONF3args { object: file.to_fh3() }).await
    }
}
