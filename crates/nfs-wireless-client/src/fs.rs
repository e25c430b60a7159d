//! Files by path.

mod find;
mod listing;
mod options;
mod removal;

use std::io;

use nfs_proto::attr::{FileType, Metadata, SetAttributes};
use nfs_wire::Status;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::find::Last;
pub use self::{
    listing::{FsDirEntry, FsReadDir, is_plain_name},
    options::OpenOptions,
};
use crate::{
    client::{Client, Entry, configured},
    config::ClientConfig,
    error::Error,
    file::File,
};

/// What is made has these permission bits, unless it is asked for others.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// The files of an export by path, with the names that `tokio::fs` has for the same things.
///
/// ```no_run
/// use nfs_wireless_client::{ClientConfig, Fs};
/// use tokio::io::AsyncReadExt;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let music = Fs::connect("nas", "/srv/music", ClientConfig::default()).await?;
/// let mut song = music.open("song.ogg").await?;
/// let mut head = [0; 4];
/// song.read_exact(&mut head).await?;
/// music.create_dir_all("new/2026").await?;
/// music.rename("song.ogg", "new/2026/song.ogg").await?;
/// # Ok(())
/// # }
/// ```
///
/// Paths are bytes, as they are on the server. A relative path lies below the directory that was connected to, an absolute one is a path
/// on the server. Symbolic links are followed, 40 at most, where `tokio::fs` follows them; their targets are paths on the server. What lies
/// outside the export is not found.
///
/// Each path costs one LOOKUP for each of its names. Nothing is remembered between calls.
#[derive(Clone, Debug)]
pub struct Fs {
    client: Client,
    base: Vec<u8>,
}

impl Fs {
    /// Connects to the export of `host` that holds the directory `path`.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{ClientConfig, Error, Fs};
    /// # async fn example() -> Result<(), Error> {
    /// let music = Fs::connect("nas", "/srv/music", ClientConfig::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect`].
    ///
    /// # Panics
    /// As [`Client::connect`].
    pub async fn connect(host: &str, path: impl AsRef<[u8]>, config: ClientConfig) -> Result<Self, Error> {
        let client = Client::connect(host, path.as_ref(), config).await?;
        Ok(Self::new(client, path))
    }

    /// As [`Fs::connect`], to a URL: see [`Client::connect_url`].
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{ClientConfig, Error, Fs};
    /// # async fn example() -> Result<(), Error> {
    /// let music = Fs::connect_url("nfs://nas/srv/music?uid=1000", ClientConfig::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect_url`].
    ///
    /// # Panics
    /// As [`Client::connect`].
    pub async fn connect_url(url: &str, config: ClientConfig) -> Result<Self, Error> {
        let (url, config) = configured(url, config)?;
        Self::connect(&url.host, url.path, config).await
    }

    /// Shows what a client has connected to; relative paths lie below `base`, a path on the server.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, ClientConfig, Error, Fs};
    /// # async fn example() -> Result<(), Error> {
    /// let client = Client::connect("nas", b"/srv", ClientConfig::default()).await?;
    /// let (music, photos) = (Fs::new(client.clone(), "/srv/music"), Fs::new(client, "/srv/photos"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: Client, base: impl AsRef<[u8]>) -> Self {
        Self { client, base: base.as_ref().to_vec() }
    }

    /// Returns the client, for what has no path.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// println!("{:?}", nas.client().status());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Opens a file to read it.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::Fs;
    /// # use tokio::io::AsyncReadExt;
    /// # async fn example(nas: Fs) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut head = [0; 4];
    /// nas.open("song.ogg").await?.read_exact(&mut head).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error`]; [`Error::kind`] tells what `std::fs` would have called it. The same goes for every method here.
    pub async fn open(&self, path: impl AsRef<[u8]>) -> Result<File, Error> {
        OpenOptions::new().read(true).open(self, path).await
    }

    /// Opens a file to write it; it is made if it is not there, and empty otherwise.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::Fs;
    /// # use tokio::io::AsyncWriteExt;
    /// # async fn example(nas: Fs) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut list = nas.create("list").await?;
    /// list.write_all(b"song.ogg\n").await?;
    /// list.flush().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn create(&self, path: impl AsRef<[u8]>) -> Result<File, Error> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self, path).await
    }

    /// Returns the contents of a file.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// let bytes = nas.read("song.ogg").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        let mut contents = Vec::new();
        self.open(path).await?.read_to_end(&mut contents).await?;
        Ok(contents)
    }

    /// Returns the contents of a file that is UTF-8.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// let text = nas.read_to_string("notes/today.txt").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`]; `InvalidData` where it is not.
    pub async fn read_to_string(&self, path: impl AsRef<[u8]>) -> Result<String, Error> {
        let text = String::from_utf8(self.read(path).await?);
        text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error).into())
    }

    /// Writes a file in place, which is on stable storage when this returns. Whoever reads it meanwhile, and who reads it after an error,
    /// sees a part: [`Client::upload`] gives a file its name when it is complete.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.write("notes/today.txt", "buy milk").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn write(&self, path: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut file = self.create(path).await?;
        file.write_all(contents.as_ref()).await?;
        Ok(file.flush().await?)
    }

    /// Returns the attributes of what a path leads to.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// let bytes = nas.metadata("song.ogg").await?.size;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata, Error> {
        Ok(self.entry(path).await?.metadata)
    }

    /// Returns the attributes of what has a path, also of a symbolic link.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// let is_link = nas.symlink_metadata("latest").await?.is_symlink();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata, Error> {
        Ok(self.find(path.as_ref(), Last::Itself).await?.there()?.metadata)
    }

    /// Whether a path leads to something.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// if !nas.try_exists("song.ogg").await? {
    ///     println!("no song");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`], where that is not known.
    pub async fn try_exists(&self, path: impl AsRef<[u8]>) -> Result<bool, Error> {
        match self.metadata(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists a directory.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// let mut entries = nas.read_dir("music").await?;
    /// while let Some(entry) = entries.next_entry().await? {
    ///     println!("{}", entry.file_name().escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<FsReadDir, Error> {
        let path = path.as_ref();
        let Entry { handle, metadata } = self.entry(path).await?;
        match metadata.file_type {
            FileType::Directory => Ok(FsReadDir::new(self.client.read_dir(handle), path)),
            _ => Err(find::refused(Status::NOTDIR)),
        }
    }

    /// Returns the target of a symbolic link.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// let target = nas.read_link("latest").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        let found = self.find(path.as_ref(), Last::Itself).await?;
        self.client.read_link(found.there()?.handle).await
    }

    /// Makes a directory.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.create_dir("music").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`]; `AlreadyExists` where something has the path.
    pub async fn create_dir(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let found = self.find(path.as_ref(), Last::Name).await?;
        let (directory, name) = found.free_for(FileType::Directory)?;
        self.client.mkdir(directory, name, mode(DIRECTORY_MODE)).await.map(drop)
    }

    /// Makes a directory, and those above it that are missing.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.create_dir_all("music/2026/new").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`]; `AlreadyExists` or `NotADirectory` where something else is in the way.
    pub async fn create_dir_all(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        // Each lies in the one after it, which is to be made before it.
        let (mut wanted, mut shortest) = (vec![path.as_ref()], usize::MAX);
        while let Some(&path) = wanted.last() {
            let error = self.create_dir(path).await.err();
            let above = path.iter().rposition(|&byte| byte == b'/').filter(|&at| at > 0);
            match (error, above) {
                // Once for each: a server may say so though the directory above is there.
                (Some(error), Some(at)) if error.kind() == io::ErrorKind::NotFound && at < shortest => {
                    shortest = at;
                    wanted.push(&path[..at]);
                }
                (Some(error), _) if !self.is_dir(path).await => return Err(error),
                _ => _ = wanted.pop(),
            }
        }
        Ok(())
    }

    async fn is_dir(&self, path: &[u8]) -> bool {
        self.metadata(path).await.is_ok_and(|it| it.file_type == FileType::Directory)
    }

    /// Removes a file that is no directory, or a symbolic link.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.remove_file("song.ogg").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let found = self.find(path.as_ref(), Last::Name).await?;
        // A server may let root remove a directory like this.
        if found.there()?.metadata.file_type == FileType::Directory {
            return Err(find::refused(Status::ISDIR));
        }
        let (directory, name, _) = found.named()?;
        self.client.remove(directory, name).await
    }

    /// Removes an empty directory.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.remove_dir("empty").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let found = self.find(path.as_ref(), Last::Name).await?;
        let (directory, name, _) = found.named()?;
        self.client.rmdir(directory, name).await
    }

    /// Removes a directory and everything in it; of a symbolic link, the link: none is followed. What is mounted below it on the server,
    /// an export of its own or another file system, stays, and so does what is above that. At most 2 MiB of names are kept, however many
    /// there are.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.remove_dir_all("old").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`]; a part may have been removed then.
    pub async fn remove_dir_all(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let found = self.find(path.as_ref(), Last::Name).await?;
        let (directory, name, entry) = found.named()?;
        match entry.metadata.file_type {
            FileType::Directory => removal::remove_tree(&self.client, (directory, name), &entry).await,
            FileType::Symlink => self.client.remove(directory, name).await,
            _ => Err(find::refused(Status::NOTDIR)),
        }
    }

    /// Gives a file another path; what has that is replaced (RENAME, RFC 1813 §3.3.14).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.rename("song.ogg", "music/song.ogg").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), Error> {
        let from = self.find(from.as_ref(), Last::Name).await?;
        let to = self.find(to.as_ref(), Last::Name).await?;
        let (directory, name, entry) = from.named()?;
        let (new_directory, new_name) = to.place_for(entry.metadata.file_type)?;
        self.client.rename(entry.handle, (directory, name), (new_directory, new_name)).await
    }

    /// Gives a file one more path.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.hard_link("song.ogg", "again.ogg").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn hard_link(&self, original: impl AsRef<[u8]>, link: impl AsRef<[u8]>) -> Result<(), Error> {
        let original = self.find(original.as_ref(), Last::Itself).await?.there()?;
        let link = self.find(link.as_ref(), Last::Name).await?;
        let (directory, name) = link.free_for(FileType::Regular)?;
        // Servers have several words for it.
        if original.metadata.file_type == FileType::Directory {
            return Err(find::refused(Status::PERM));
        }
        let file = (original.handle, original.metadata.links);
        self.client.hard_link_of(file, directory, name).await
    }

    /// Makes a symbolic link to `target`, whatever that is.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.symlink("2026-11-27", "latest").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn symlink(&self, target: impl AsRef<[u8]>, link: impl AsRef<[u8]>) -> Result<(), Error> {
        let link = self.find(link.as_ref(), Last::Name).await?;
        let (directory, name) = link.free_for(FileType::Symlink)?;
        self.client.symlink(directory, name, target.as_ref()).await.map(drop)
    }

    /// Sets the permission bits of what a path leads to.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.set_permissions("notes", 0o700).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn set_permissions(&self, path: impl AsRef<[u8]>, bits: u32) -> Result<(), Error> {
        self.set_attributes(path, mode(bits)).await
    }

    /// Changes attributes of what a path leads to.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Fs, SetAttributes};
    /// # async fn example(nas: Fs) -> Result<(), Error> {
    /// nas.set_attributes("notes", SetAttributes { gid: Some(100), ..Default::default() }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn set_attributes(
        &self,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<(), Error> {
        let Entry { handle, .. } = self.entry(path).await?;
        self.client.set_attributes(handle, attributes).await
    }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}
