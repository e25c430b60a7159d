//! A directory served by the library nfsserve: `private-nfsserve ADDRESS:PORT DIRECTORY`.
//!
//! The library has RPC, MOUNT and NFS; what is here is the file system that it asks for.

#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, symlink},
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use nfsserve::{
    fs_util::{metadata_to_fattr3, path_setattr},
    nfs::{fattr3, fileid3, filename3, nfspath3, nfsstat3, sattr3},
    tcp::{NFSTcp as _, NFSTcpListener},
    vfs::{DirEntry, NFSFileSystem, ReadDirResult, VFSCapabilities},
};

/// A directory of this machine; inode numbers are file ids.
#[derive(Debug)]
struct Directory {
    root: fileid3,
    path: PathBuf,
    /// Where each file was last seen: its directory, and its name there.
    places: Mutex<BTreeMap<fileid3, (fileid3, Vec<u8>)>>,
}

impl Directory {
    fn path(&self, id: fileid3) -> Result<PathBuf, nfsstat3> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut id, mut names) = (id, Vec::new());
        while id != self.root {
            let (parent, name) = places.get(&id).ok_or(nfsstat3::NFS3ERR_STALE)?;
            names.push(OsStr::from_bytes(name));
            id = *parent;
        }
        Ok(names.iter().rev().fold(self.path.clone(), |path, name| path.join(name)))
    }

    fn entry(&self, directory: fileid3, name: &filename3) -> Result<PathBuf, nfsstat3> {
        Ok(self.path(directory)?.join(OsStr::from_bytes(name)))
    }

    /// Notes where a file is, and returns what it is.
    fn seen(&self, directory: fileid3, name: &[u8], path: &Path) -> Result<(fileid3, fattr3), nfsstat3> {
        let metadata = fs::symlink_metadata(path).map_err(status)?;
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.insert(metadata.ino(), (directory, name.to_owned()));
        Ok((metadata.ino(), metadata_to_fattr3(metadata.ino(), &metadata)))
    }
}

#[async_trait]
impl NFSFileSystem for Directory {
    fn capabilities(&self) -> VFSCapabilities {
        VFSCapabilities::ReadWrite
    }

    fn root_dir(&self) -> fileid3 {
        self.root
    }

    async fn lookup(&self, directory: fileid3, name: &filename3) -> Result<fileid3, nfsstat3> {
        Ok(self.seen(directory, name, &self.entry(directory, name)?)?.0)
    }

    async fn getattr(&self, id: fileid3) -> Result<fattr3, nfsstat3> {
        let metadata = fs::symlink_metadata(self.path(id)?).map_err(status)?;
        Ok(metadata_to_fattr3(id, &metadata))
    }

    async fn setattr(&self, id: fileid3, attributes: sattr3) -> Result<fattr3, nfsstat3> {
        path_setattr(&self.path(id)?, &attributes).await?;
        self.getattr(id).await
    }

    async fn read(&self, id: fileid3, offset: u64, count: u32) -> Result<(Vec<u8>, bool), nfsstat3> {
        let file = File::open(self.path(id)?).map_err(status)?;
        let size = file.metadata().map_err(status)?.len();
        let count = u64::from(count).min(size.saturating_sub(offset));
        let mut data = vec![0; usize::try_from(count).map_err(|_| nfsstat3::NFS3ERR_INVAL)?];
        file.read_exact_at(&mut data, offset).map_err(status)?;
        Ok((data, offset + count >= size))
    }

    async fn write(&self, id: fileid3, offset: u64, data: &[u8]) -> Result<fattr3, nfsstat3> {
        let file = File::options().write(true).open(self.path(id)?).map_err(status)?;
        file.write_all_at(data, offset).map_err(status)?;
        self.getattr(id).await
    }

    async fn create(
        &self,
        directory: fileid3,
        name: &filename3,
        attributes: sattr3,
    ) -> Result<(fileid3, fattr3), nfsstat3> {
        let path = self.entry(directory, name)?;
        File::options().write(true).create(true).truncate(false).open(&path).map_err(status)?;
        path_setattr(&path, &attributes).await?;
        self.seen(directory, name, &path)
    }

    async fn create_exclusive(&self, directory: fileid3, name: &filename3) -> Result<fileid3, nfsstat3> {
        let path = self.entry(directory, name)?;
        File::create_new(&path).map_err(status)?;
        Ok(self.seen(directory, name, &path)?.0)
    }

    async fn mkdir(&self, directory: fileid3, name: &filename3) -> Result<(fileid3, fattr3), nfsstat3> {
        let path = self.entry(directory, name)?;
        fs::create_dir(&path).map_err(status)?;
        self.seen(directory, name, &path)
    }

    async fn remove(&self, directory: fileid3, name: &filename3) -> Result<(), nfsstat3> {
        let path = self.entry(directory, name)?;
        let is_directory = fs::symlink_metadata(&path).map_err(status)?.is_dir();
        if is_directory { fs::remove_dir(path) } else { fs::remove_file(path) }.map_err(status)
    }

    async fn rename(
        &self,
        directory: fileid3,
        name: &filename3,
        to: fileid3,
        to_name: &filename3,
    ) -> Result<(), nfsstat3> {
        let path = self.entry(to, to_name)?;
        fs::rename(self.entry(directory, name)?, &path).map_err(status)?;
        self.seen(to, to_name, &path).map(drop)
    }

    async fn readdir(
        &self,
        directory: fileid3,
        after: fileid3,
        most: usize,
    ) -> Result<ReadDirResult, nfsstat3> {
        let path = self.path(directory)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(status)? {
            names.push(entry.map_err(status)?.file_name());
        }
        names.sort();
        let mut entries = Vec::new();
        for name in names {
            let (fileid, attr) = self.seen(directory, name.as_bytes(), &path.join(&name))?;
            entries.push(DirEntry { fileid, name: name.as_bytes().into(), attr });
        }
        if after > 0 {
            let place = entries.iter().position(|entry| entry.fileid == after);
            entries.drain(..=place.ok_or(nfsstat3::NFS3ERR_BAD_COOKIE)?);
        }
        let end = entries.len() <= most;
        entries.truncate(most);
        Ok(ReadDirResult { entries, end })
    }

    async fn symlink(
        &self,
        directory: fileid3,
        name: &filename3,
        target: &nfspath3,
        _attributes: &sattr3,
    ) -> Result<(fileid3, fattr3), nfsstat3> {
        let path = self.entry(directory, name)?;
        symlink(OsStr::from_bytes(target), &path).map_err(status)?;
        self.seen(directory, name, &path)
    }

    async fn readlink(&self, id: fileid3) -> Result<nfspath3, nfsstat3> {
        let target = fs::read_link(self.path(id)?).map_err(status)?;
        Ok(target.as_os_str().as_bytes().into())
    }
}

fn status(error: io::Error) -> nfsstat3 {
    match error.kind() {
        ErrorKind::NotFound => nfsstat3::NFS3ERR_NOENT,
        ErrorKind::AlreadyExists => nfsstat3::NFS3ERR_EXIST,
        ErrorKind::PermissionDenied => nfsstat3::NFS3ERR_ACCES,
        ErrorKind::DirectoryNotEmpty => nfsstat3::NFS3ERR_NOTEMPTY,
        ErrorKind::NotADirectory => nfsstat3::NFS3ERR_NOTDIR,
        ErrorKind::IsADirectory => nfsstat3::NFS3ERR_ISDIR,
        ErrorKind::InvalidInput | ErrorKind::InvalidFilename => nfsstat3::NFS3ERR_INVAL,
        _ => nfsstat3::NFS3ERR_IO,
    }
}

fn main() -> io::Result<()> {
    let usage = || io::Error::new(ErrorKind::InvalidInput, "usage: private-nfsserve ADDRESS:PORT DIRECTORY");
    let mut arguments = std::env::args_os().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else { return Err(usage()) };
    let address = address.into_string().map_err(|_| usage())?;
    let path = PathBuf::from(path);
    let root = fs::metadata(&path)?.ino();
    let directory = Directory { root, path, places: Mutex::default() };
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async { NFSTcpListener::bind(&address, directory).await?.handle_forever().await })
}
