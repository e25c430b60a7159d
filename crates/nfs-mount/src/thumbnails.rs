//! Thumbnails of photos below a mount point, where file managers look for them (Thumbnail Managing Standard 0.9): they need not read the photos.
//!
//! What a camera has put into the head of a photo is written by a thread of its own, so that neither the kernel nor calls wait for it.

pub(crate) mod picture;
#[cfg(test)]
mod tests;

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs::{self, File},
    io::{BufReader, Write as _},
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use bytes::Bytes;
use md5::{Digest, Md5};
use nfs_files::local::Own;

use self::picture::Picture;

/// Extensions, in lower case, of files that may have an Exif thumbnail in their head.
pub(crate) const PHOTOS: [&str; 3] = ["jpg", "jpeg", "heic"];

/// Heads that wait for the thread, at most, of 64 KiB each. Further ones have no thumbnail until they are seen by a later mount.
const QUEUED: usize = 64;

/// Longest side of a thumbnail in the directory `normal`.
pub(crate) const SIDE: usize = 128;

/// Bytes of a thumbnail that are looked at to tell what it is of.
const PROLOGUE_BYTES: usize = 1 << 20;

/// When the photo changed, in seconds since 1970.
const CHANGED: &str = "Thumb::MTime";

/// The beginning of a file.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Where the file is below the mount point.
    pub(crate) path: Vec<u8>,
    /// When it changed, in seconds since 1970.
    pub(crate) changed: u32,
    pub(crate) size: u64,
    pub(crate) data: Bytes,
}

/// Takes heads of files, and writes their thumbnails.
#[derive(Debug)]
pub(crate) struct Thumbnails(SyncSender<Head>);

impl Thumbnails {
    /// Starts the thread for a mount point; it ends when this is dropped. `None` if there is no place for thumbnails.
    pub(crate) fn start(point: &Path) -> Option<Self> {
        let place = Own::shared("XDG_CACHE_HOME", ".cache", "thumbnails/normal")?;
        if let Err(error) = place.check() {
            tracing::debug!(%error, "no thumbnails");
            return None;
        }
        let place = place.path();
        let (sender, heads) = sync_channel(QUEUED);
        let point = point.to_owned();
        let thread = thread::Builder::new().name("thumbnails".to_owned());
        match thread.spawn(move || write_all(&place, &point, &heads)) {
            Ok(_) => Some(Self(sender)),
            Err(error) => {
                tracing::debug!(%error, "no thread for thumbnails");
                None
            }
        }
    }

    /// Queues the head of a file. Does not wait.
    pub(super) fn offer(&self, head: Head) {
        if self.0.try_send(head).is_err() {
            tracing::debug!("no thumbnail: too many photos wait");
        }
    }
}

fn write_all(place: &Path, point: &Path, heads: &Receiver<Head>) {
    for head in heads {
        let path = point.join(OsStr::from_bytes(&head.path));
        if let Err(error) = write(place, &path, &head) {
            tracing::debug!(path = %path.display(), "no thumbnail: {error:#}");
        }
    }
}

/// Writes the thumbnail of the file at a path, unless there is one of this version.
fn write(place: &Path, path: &Path, head: &Head) -> anyhow::Result<()> {
    let uri = uri(path);
    let thumbnail = file(place, &uri);
    let changed = head.changed.to_string();
    if is_of(&thumbnail, &changed) {
        return Ok(());
    }
    let picture = Picture::embedded(&head.data)?.at_most(SIDE);
    let size = head.size.to_string();
    let texts = [("Thumb::URI", &*uri), (CHANGED, &changed), ("Thumb::Size", &size), ("Software", "nfsw")];
    let png = encode(&picture, &texts)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(place)?;
    // Readable by its owner alone.
    let mut temporary = tempfile::NamedTempFile::new_in(place)?;
    temporary.write_all(&png)?;
    temporary.persist(&thumbnail)?;
    Ok(())
}

/// Returns the URI of a local file, with the escapes of GLib's `g_filename_to_uri`: the names of thumbnails depend on them.
fn uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"!$&'()*+,-./:=@_~".contains(&byte) {
            uri.push(byte.into());
        } else {
            write!(uri, "%{byte:02X}").expect("strings take everything");
        }
    }
    uri
}

/// Returns where the thumbnail of a file is.
fn file(place: &Path, uri: &str) -> PathBuf {
    place.join(format!("{:x}.png", Md5::digest(uri)))
}

/// Whether there is a thumbnail of a file that changed at this time.
fn is_of(thumbnail: &Path, changed: &str) -> bool {
    let Ok(file) = File::open(thumbnail) else { return false };
    let limits = png::Limits { bytes: PROLOGUE_BYTES };
    let Ok(reader) = png::Decoder::new_with_limits(BufReader::new(file), limits).read_info() else {
        return false;
    };
    reader.info().uncompressed_latin1_text.iter().any(|it| it.keyword == CHANGED && it.text == changed)
}

pub(crate) fn encode(picture: &Picture, texts: &[(&str, &str)]) -> anyhow::Result<Vec<u8>> {
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, picture.width.try_into()?, picture.height.try_into()?);
    encoder.set_color(png::ColorType::Rgb);
    for &(key, text) in texts {
        encoder.add_text_chunk(key.to_owned(), text.to_owned())?;
    }
    encoder.write_header()?.write_image_data(picture.pixels.as_flattened())?;
    Ok(png)
}
