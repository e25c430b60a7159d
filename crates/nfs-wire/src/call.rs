//! NFSv3 arguments, decoded within bounds (RFC 1813 §3.3).

use nfs3_types::{
    nfs3::{
        ACCESS3args, COMMIT3args, CREATE3args, FSINFO3args, FSSTAT3args, GETATTR3args, LINK3args,
        LOOKUP3args, MKDIR3args, MKNOD3args, Nfs3Option, PATHCONF3args, READ3args, READDIR3args,
        READDIRPLUS3args, READLINK3args, REMOVE3args, RENAME3args, RMDIR3args, SETATTR3args, SYMLINK3args,
        WRITE3args, cookieverf3, createhow3, createverf3, devicedata3, diropargs3, filename3, mknoddata3,
        nfs_fh3, nfspath3, nfstime3, sattr3, sattrguard3, set_atime, set_mtime, specdata3, stable_how,
        symlinkdata3,
    },
    xdr_codec::Opaque,
};

use crate::{
    handle::FileHandle,
    xdr::{DecodeError, Reader},
};

type Decoded<T> = Result<T, DecodeError>;

/// Longest name or symbolic link target accepted off the wire, in bytes; longer ones are garbage.
const MAX_PATH_BYTES: usize = 65_536;

/// The arguments of one procedure.
pub trait Arguments<'a>: Sized {
    /// Reads the arguments, which are all that is left of the call.
    ///
    /// # Errors
    /// [`DecodeError`] when they are malformed.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

/// Reads the arguments of a procedure to the end of the call.
///
/// # Errors
/// [`DecodeError`] when they are malformed or followed by more bytes; a server answers `GARBAGE_ARGS`.
pub fn decode<'a, T: Arguments<'a>>(mut reader: Reader<'a>) -> Result<T, DecodeError> {
    let arguments = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(arguments)
}

macro_rules! arguments {
    ($($type:ty { $($field:ident: $decode:expr),* $(,)? })*) => {
        $(impl<'a> Arguments<'a> for $type {
            fn decode(reader: &mut Reader<'a>) -> Decoded<Self> {
                Ok(Self { $($field: $decode(reader)?),* })
            }
        })*
    };
}

arguments! {
    GETATTR3args { object: handle }
    SETATTR3args { object: handle, new_attributes: sattr, guard: guard }
    LOOKUP3args<'a> { what: place }
    ACCESS3args { object: handle, access: word }
    READLINK3args { symlink: handle }
    READ3args { file: handle, offset: hyper, count: word }
    CREATE3args<'a> { where_: place, how: create_how }
    MKDIR3args<'a> { where_: place, attributes: sattr }
    SYMLINK3args<'a> { where_: place, symlink: symlink_data }
    MKNOD3args<'a> { where_: place, what: mknod_data }
    REMOVE3args<'a> { object: place }
    RMDIR3args<'a> { object: place }
    RENAME3args<'a, 'a> { from: place, to: place }
    LINK3args<'a> { file: handle, link: place }
    READDIR3args { dir: handle, cookie: hyper, cookieverf: cookie_verifier, count: word }
    READDIRPLUS3args {
        dir: handle, cookie: hyper, cookieverf: cookie_verifier, dircount: word, maxcount: word,
    }
    FSSTAT3args { fsroot: handle }
    FSINFO3args { fsroot: handle }
    PATHCONF3args { object: handle }
    COMMIT3args { file: handle, offset: hyper, count: word }
}

impl<'a> Arguments<'a> for () {
    fn decode(_: &mut Reader<'a>) -> Decoded<Self> {
        Ok(())
    }
}

impl<'a> Arguments<'a> for WRITE3args<'a> {
    fn decode(reader: &mut Reader<'a>) -> Decoded<Self> {
        let file = handle(reader)?;
        let offset = reader.u64("offset")?;
        let count = reader.u32("count")?;
        let stable = stable(reader)?;
        let limit = reader.rest().len();
        let data = reader.opaque("data", limit)?;
        if data.len() != count as usize {
            return Err(DecodeError::Inconsistent { field: "count" });
        }
        Ok(Self { file, offset, count, stable, data: Opaque::borrowed(data) })
    }
}

fn word(reader: &mut Reader<'_>) -> Decoded<u32> {
    reader.u32("arguments")
}

fn hyper(reader: &mut Reader<'_>) -> Decoded<u64> {
    reader.u64("arguments")
}

fn handle(reader: &mut Reader<'_>) -> Decoded<nfs_fh3> {
    FileHandle::decode(reader).map(|handle| handle.to_fh3())
}

fn place<'a>(reader: &mut Reader<'a>) -> Decoded<diropargs3<'a>> {
    let dir = handle(reader)?;
    let name = filename3::from(reader.opaque("name", MAX_PATH_BYTES)?);
    Ok(diropargs3 { dir, name })
}

fn stable(reader: &mut Reader<'_>) -> Decoded<stable_how> {
    match reader.u32("stable")? {
        0 => Ok(stable_how::UNSTABLE),
        1 => Ok(stable_how::DATA_SYNC),
        2 => Ok(stable_how::FILE_SYNC),
        value => Err(DecodeError::Unknown { field: "stable", value }),
    }
}

fn time(reader: &mut Reader<'_>) -> Decoded<nfstime3> {
    Ok(nfstime3 { seconds: reader.u32("time")?, nseconds: reader.u32("time")? })
}

fn cookie_verifier(reader: &mut Reader<'_>) -> Decoded<cookieverf3> {
    reader.fixed("cookie verifier").map(cookieverf3)
}

fn option32(reader: &mut Reader<'_>) -> Decoded<Nfs3Option<u32>> {
    Ok(reader.option("set it", |reader| reader.u32("attribute"))?.map_or(Nfs3Option::None, Nfs3Option::Some))
}

fn sattr(reader: &mut Reader<'_>) -> Decoded<sattr3> {
    Ok(sattr3 {
        mode: option32(reader)?,
        uid: option32(reader)?,
        gid: option32(reader)?,
        size: reader
            .option("set it", |reader| reader.u64("size"))?
            .map_or(Nfs3Option::None, Nfs3Option::Some),
        atime: match reader.u32("set atime")? {
            0 => set_atime::DONT_CHANGE,
            1 => set_atime::SET_TO_SERVER_TIME,
            2 => set_atime::SET_TO_CLIENT_TIME(time(reader)?),
            value => {
                return Err(DecodeError::Unknown { field: "set atime", value });
            }
        },
        mtime: match reader.u32("set mtime")? {
            0 => set_mtime::DONT_CHANGE,
            1 => set_mtime::SET_TO_SERVER_TIME,
            2 => set_mtime::SET_TO_CLIENT_TIME(time(reader)?),
            value => {
                return Err(DecodeError::Unknown { field: "set mtime", value });
            }
        },
    })
}

fn guard(reader: &mut Reader<'_>) -> Decoded<sattrguard3> {
    Ok(reader.option("check", time)?.map_or(Nfs3Option::None, Nfs3Option::Some))
}

fn create_how(reader: &mut Reader<'_>) -> Decoded<createhow3> {
    match reader.u32("create mode")? {
        0 => sattr(reader).map(createhow3::UNCHECKED),
        1 => sattr(reader).map(createhow3::GUARDED),
        2 => reader.fixed("create verifier").map(|verifier| createhow3::EXCLUSIVE(createverf3(verifier))),
        value => Err(DecodeError::Unknown { field: "create mode", value }),
    }
}

fn symlink_data<'a>(reader: &mut Reader<'a>) -> Decoded<symlinkdata3<'a>> {
    let symlink_attributes = sattr(reader)?;
    let symlink_data = nfspath3::from(reader.opaque("link target", MAX_PATH_BYTES)?);
    Ok(symlinkdata3 { symlink_attributes, symlink_data })
}

fn mknod_data(reader: &mut Reader<'_>) -> Decoded<mknoddata3> {
    let device = |reader: &mut Reader<'_>| {
        let dev_attributes = sattr(reader)?;
        let spec = specdata3 { specdata1: reader.u32("device")?, specdata2: reader.u32("device")? };
        Ok(devicedata3 { dev_attributes, spec })
    };
    match reader.u32("file type")? {
        3 => device(reader).map(mknoddata3::NF3BLK),
        4 => device(reader).map(mknoddata3::NF3CHR),
        6 => sattr(reader).map(mknoddata3::NF3SOCK),
        7 => sattr(reader).map(mknoddata3::NF3FIFO),
        // Types that MKNOD does not make carry no data; a server answers them with BADTYPE (RFC 1813 §3.3.11).
        1 | 2 | 5 => Ok(mknoddata3::default),
        value => Err(DecodeError::Unknown { field: "file type", value }),
    }
}

#[cfg(test)]
mod tests {
    use nfs3_types::xdr_codec::Pack;

    use super::*;
    use crate::xdr::encode;

    fn check<T: Pack + for<'a> Arguments<'a>>(arguments: &T) {
        let mut bytes = Vec::new();
        encode(&mut bytes, arguments);
        let decoded: T = decode(Reader::new(&bytes)).unwrap();
        let mut again = Vec::new();
        encode(&mut again, &decoded);
        assert_eq!(again, bytes, "decoding loses nothing");
        for cut in 0..bytes.len() {
            assert!(decode::<T>(Reader::new(&bytes[..cut])).is_err(), "cut at {cut} of {}", bytes.len());
        }
        bytes.push(0);
        assert!(decode::<T>(Reader::new(&bytes)).is_err(), "trailing byte");
    }

    fn fh() -> nfs_fh3 {
        FileHandle::try_from(&[1, 2, 3, 4, 5][..]).unwrap().to_fh3()
    }

    fn attributes() -> sattr3 {
        sattr3 {
            mode: Nfs3Option::Some(0o644),
            uid: Nfs3Option::None,
            gid: Nfs3Option::Some(3),
            size: Nfs3Option::Some(1 << 40),
            atime: set_atime::SET_TO_SERVER_TIME,
            mtime: set_mtime::SET_TO_CLIENT_TIME(nfstime3 { seconds: 5, nseconds: 6 }),
        }
    }

    #[test]
    fn arguments_survive_a_round_trip_and_no_truncation() {
        check(&GETATTR3args { object: fh() });
        check(&READ3args { file: fh(), offset: u64::MAX, count: 8 });
        check(&ACCESS3args { object: fh(), access: 0x3f });
        check(&COMMIT3args { file: fh(), offset: 1, count: 2 });
        check(&FSINFO3args { fsroot: fh() });
        check(&READDIRPLUS3args {
            dir: fh(),
            cookie: 9,
            cookieverf: cookieverf3([8; 8]),
            dircount: 10,
            maxcount: 11,
        });
        check(&SETATTR3args {
            object: fh(),
            new_attributes: attributes(),
            guard: Nfs3Option::Some(nfstime3 { seconds: 1, nseconds: 2 }),
        });
    }

    #[test]
    fn arguments_with_names_survive_a_round_trip() {
        let place = || diropargs3 { dir: fh(), name: filename3::from(&b"na me"[..]) };
        let mut bytes = Vec::new();
        encode(&mut bytes, &CREATE3args { where_: place(), how: createhow3::EXCLUSIVE(createverf3([7; 8])) });
        let create: CREATE3args<'_> = decode(Reader::new(&bytes)).unwrap();
        assert_eq!(create.where_.name.as_ref(), b"na me");
        assert!(matches!(create.how, createhow3::EXCLUSIVE(createverf3([7, ..]))));

        bytes.clear();
        let what = mknoddata3::NF3CHR(devicedata3 {
            dev_attributes: attributes(),
            spec: specdata3 { specdata1: 1, specdata2: 2 },
        });
        encode(&mut bytes, &MKNOD3args { where_: place(), what });
        assert!(decode::<MKNOD3args<'_>>(Reader::new(&bytes)).is_ok());

        bytes.clear();
        let data = Opaque::borrowed(b"abcde");
        encode(
            &mut bytes,
            &WRITE3args { file: fh(), offset: 3, count: 5, stable: stable_how::DATA_SYNC, data },
        );
        let write: WRITE3args<'_> = decode(Reader::new(&bytes)).unwrap();
        assert_eq!(write.data.as_ref(), b"abcde");
    }

    #[test]
    fn a_write_whose_count_is_not_its_length_is_garbage() {
        let mut bytes = Vec::new();
        let data = Opaque::borrowed(b"abcd");
        encode(
            &mut bytes,
            &WRITE3args { file: fh(), offset: 3, count: 5, stable: stable_how::UNSTABLE, data },
        );
        let error = decode::<WRITE3args<'_>>(Reader::new(&bytes)).unwrap_err();
        assert_eq!(error, DecodeError::Inconsistent { field: "count" });
    }
}
