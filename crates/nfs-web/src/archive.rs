//! A folder as a zip file, made while it is sent.
//!
//! A thread walks the folder and compresses; a short queue is between it and the connection, so that a browser that takes nothing stops it.
//! Nothing is sent of the end of the archive after an error: the connection breaks, and the browser says that it did.

use std::{
    cell::Cell,
    io::{self, Write},
    rc::Rc,
    sync::Arc,
};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use jiff::Timestamp;
use nfs_wireless_server::{
    Vfs,
    nfs_wire::Status,
    nfs3_types::nfs3::{fattr3, nfstime3},
    vfs::{EndOfFile, NodeId},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, mpsc},
    time::timeout,
};
use zip::{
    CompressionMethod, DateTime, ZipWriter,
    write::{FullFileOptions, StreamWriter},
};

use crate::{
    body::{Body, PIECE_BYTES, boxed},
    folder::{What, batch},
    site::STALLED,
};

/// Pieces that wait.
const QUEUE: usize = 2;

/// Bytes that are read at once.
const READ_BYTES: u32 = 256 << 10;

/// Names in one archive: what is told at its end of all of them is in memory.
const MAX_NAMES: usize = 200_000;

/// How much is compressed: little, as the processor should not be slower than the network.
const LEVEL: i64 = 1;

/// Files of at least so many bytes need the wide numbers of zip64, and may, when they do not shrink.
const LARGE_BYTES: u64 = 0xff00_0000;

/// Bits of a mode that an archive keeps.
const MODE_BITS: u32 = 0o777;

/// The field of times since 1970 in the extra data of an entry (Info-ZIP's "UT").
const EXTENDED_TIMESTAMP: u16 = 0x5455;

/// Makes an archive of a folder, with its name before all paths in it. The permits are given back at the end.
pub(crate) fn body(
    files: Arc<dyn Vfs>,
    folder: NodeId,
    name: Vec<u8>,
    permits: [OwnedSemaphorePermit; 2],
) -> Body {
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    tokio::task::spawn_blocking(move || {
        let _permits = permits;
        if let Err(error) = write(&*files, folder, name, sender.clone()) {
            // Whoever went away does not need to hear it.
            let _ = sender.blocking_send(Err(error));
        }
    });
    let pieces = stream::poll_fn(move |context| receiver.poll_recv(context));
    boxed(StreamBody::new(futures_util::StreamExt::map(pieces, |piece| piece.map(Frame::data))))
}

/// What an archive is written to.
struct Sink {
    queue: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
    /// After an error, nothing is sent any more: an archive that is dropped writes an end all the same.
    has_failed: Rc<Cell<bool>>,
}

impl Sink {
    fn send(&mut self) -> io::Result<()> {
        if self.has_failed.get() {
            self.piece.clear();
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        // Whoever takes nothing for long keeps a processor from others.
        let sent = Handle::current().block_on(timeout(STALLED, self.queue.send(Ok(piece.into()))));
        if !matches!(sent, Ok(Ok(()))) {
            self.has_failed.set(true);
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        if self.piece.len() == PIECE_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder that is being walked.
struct Level {
    node: NodeId,
    path: Vec<u8>,
    entries: std::vec::IntoIter<(Vec<u8>, NodeId, fattr3)>,
    /// Where the next entries begin, if there are any.
    next: Option<u64>,
}

impl Level {
    fn new(node: NodeId, path: Vec<u8>) -> Self {
        Self { node, path, entries: Vec::new().into_iter(), next: Some(0) }
    }

    fn entry(&mut self, files: &dyn Vfs) -> Result<Option<(Vec<u8>, NodeId, fattr3)>, Status> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            let Some(after) = self.next else { return Ok(None) };
            let (entries, next) = batch(files, self.node, after)?;
            (self.entries, self.next) = (entries.into_iter(), next);
        }
    }
}

type Archive = ZipWriter<StreamWriter<Sink>>;

fn write(
    files: &dyn Vfs,
    folder: NodeId,
    mut name: Vec<u8>,
    queue: mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let has_failed = Rc::new(Cell::new(false));
    let sink = Sink { queue, piece: Vec::with_capacity(PIECE_BYTES), has_failed: Rc::clone(&has_failed) };
    let mut archive = ZipWriter::new_stream(sink);
    let result = (|| {
        name.push(b'/');
        add_folder(&mut archive, &name, &files.attributes(folder).map_err(error)?)?;
        walk(files, Level::new(folder, name), &mut archive)
    })();
    match result {
        Ok(()) => archive.finish()?.into_inner().send(),
        Err(error) => {
            has_failed.set(true);
            Err(error)
        }
    }
}

fn walk(files: &dyn Vfs, top: Level, archive: &mut Archive) -> io::Result<()> {
    let (mut levels, mut names) = (vec![top], 0);
    while let Some(level) = levels.last_mut() {
        let Some((name, node, attributes)) = level.entry(files).map_err(error)? else {
            levels.pop();
            continue;
        };
        names += 1;
        if names > MAX_NAMES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut path = [&*level.path, &name].concat();
        match What::of(&attributes) {
            What::Folder => {
                path.push(b'/');
                add_folder(archive, &path, &attributes)?;
                levels.push(Level::new(node, path));
            }
            What::File(_) => add_file(archive, files, node, &path, &attributes)?,
            What::Other => {}
        }
    }
    Ok(())
}

fn add_folder(archive: &mut Archive, path: &[u8], attributes: &fattr3) -> io::Result<()> {
    const FOLDER: u32 = 0o040_000;
    let options = options(path, attributes)?.compression_method(CompressionMethod::Stored);
    Ok(archive.start_file_with_options(options.unix_permissions(FOLDER | attributes.mode & MODE_BITS))?)
}

fn add_file(
    archive: &mut Archive,
    files: &dyn Vfs,
    node: NodeId,
    path: &[u8],
    attributes: &fattr3,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut end = match files.read(nfstime3::default(), node, 0, READ_BYTES, &mut bytes) {
        // It was removed since the folder was listed.
        Err(Status::NOENT | Status::STALE) => return Ok(()),
        read => read.map_err(error)?,
    };
    // Files that do not shrink, too: programs that unpack while they receive see where such a file ends.
    let options = options(path, attributes)?
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(LEVEL))
        .large_file(attributes.size >= LARGE_BYTES)
        .unix_permissions(attributes.mode & MODE_BITS);
    archive.start_file_with_options(options)?;
    // What is appended meanwhile is not taken: it might have no end.
    let mut rest = attributes.size.max(bytes.len() as u64);
    loop {
        let taken = rest.min(bytes.len() as u64);
        archive.write_all(bytes.get(..taken as usize).unwrap_or_default())?;
        rest -= taken;
        if rest == 0 {
            return Ok(());
        }
        if end == EndOfFile::Reached {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.clear();
        let offset = attributes.size - rest;
        end = files.read(nfstime3::default(), node, offset, READ_BYTES, &mut bytes).map_err(error)?;
    }
}

/// Describes an entry: its time is in UTC for old programs, and since 1970 for the others.
fn options<'name>(path: &'name [u8], attributes: &fattr3) -> io::Result<FullFileOptions<'static, 'name>> {
    let seconds = attributes.mtime.seconds;
    let time = Timestamp::from_second(seconds.into()).map(|time| jiff::tz::TimeZone::UTC.to_datetime(time));
    let time = time.ok().and_then(|time| {
        let [month, day, hour, minute, second] =
            [time.month(), time.day(), time.hour(), time.minute(), time.second()].map(i8::unsigned_abs);
        DateTime::from_date_and_time(time.year().unsigned_abs(), month, day, hour, minute, second).ok()
    });
    let mut options = FullFileOptions::default().name(path).last_modified_time(time.unwrap_or_default());
    // Only programs that take it for a signed number read times after 2038 wrongly.
    let extra = [&[1][..], &seconds.to_le_bytes()].concat();
    options.add_extra_field(EXTENDED_TIMESTAMP, extra, false)?;
    Ok(options)
}

fn error(status: Status) -> io::Error {
    io::Error::other(format!("{status:?}"))
}
