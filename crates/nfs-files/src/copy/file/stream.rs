//! Copies that are one stream of bytes: standard input and output, fifos, and from server to server.

use std::{cell::Cell, io, path::Path, time::Duration};

use nfs_wireless_client::{self as client, File, FileHandle, TransferError};
use tokio::{
    io::{AsyncReadExt, AsyncSeekExt, AsyncWrite, AsyncWriteExt},
    time::Instant,
};

use crate::{
    context::Context,
    copy::{
        Links, Overwrite, Run,
        file::{
            Patience, differ,
            verify::Digest,
            version::{Pieces, Since, Told, told},
        },
        plan::Output,
        resume::SMALL_BYTES,
        source::{Attributes, Kind, Node, Origin, RemoteFile},
    },
    error::{Error, ErrorKind, Result, ResultExt, local, output_error, remote_error},
    event::{Event, Name, Skip},
    find::{Found, find_again, follow},
    local::{close_copy, open_special},
};

/// Bytes moved at once: a pipe's capacity on Linux.
const CHUNK_BYTES: usize = 64 << 10;

/// Keeps streams below a rate, all of them together.
#[derive(Debug)]
pub(in crate::copy) struct Throttle {
    /// In bit/s.
    rate: Option<u64>,
    /// When the next chunk may go.
    next: Cell<Option<Instant>>,
}

impl Throttle {
    pub(in crate::copy) fn new(rate: Option<u64>) -> Self {
        Self { rate, next: Cell::new(None) }
    }

    /// Waits for as long as so many bytes take at the rate.
    async fn wait(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let now = Instant::now();
        // A timer that fires late must not cost rate.
        let earliest = now.checked_sub(Duration::from_millis(5)).unwrap_or(now);
        let start = self.next.get().map_or(now, |next| next.max(earliest));
        let seconds = bytes as f64 * 8.0 / rate as f64;
        self.next.set(Some(start + Duration::from_secs_f64(seconds)));
        tokio::time::sleep_until(start).await;
    }
}

/// What a stream failed at.
pub(in crate::copy) enum StreamError {
    Read(io::Error),
    Write(io::Error),
}

impl StreamError {
    /// Whether the source became shorter.
    fn is_of_a_change(&self) -> bool {
        let Self::Read(error) = self else { return false };
        let error = error.get_ref().and_then(|error| error.downcast_ref());
        matches!(error, Some(client::Error::Transfer(TransferError::SourceShrank { .. })))
    }
}

/// Does what may wait for long on a thread of its own.
pub(in crate::copy) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

/// What came of copying a stream to a server.
pub(in crate::copy) enum Filled {
    /// All of it is there, and this is what it was.
    Complete(Box<Digest>),
    /// The source changed meanwhile and is this now.
    Changed(Attributes),
}

/// Where a stream comes from.
pub(crate) enum Input<'a> {
    /// Standard input.
    Standard(tokio::io::Stdin),
    /// A file on this machine, or a fifo, which is read to its end.
    Local(tokio::fs::File),
    /// A file on a server.
    Remote(Box<Reading<'a>>),
}

impl Input<'_> {
    async fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Standard(input) => input.read(chunk).await,
            Self::Local(input) => input.read(chunk).await,
            Self::Remote(reading) => reading.read(chunk).await,
        }
    }
}

/// A file on a server that is read once, from its beginning to its end, under whatever handle it has.
pub(crate) struct Reading<'a> {
    context: Context<'a>,
    source: RemoteFile,
    attributes: Attributes,
    file: File,
    at: u64,
    /// Where it ends for us: what is behind was appended since.
    end: Option<u64>,
    patience: Patience,
}

impl<'a> Reading<'a> {
    /// Begins at the beginning of a file that has these attributes.
    fn new(context: Context<'a>, source: &RemoteFile, attributes: Attributes) -> Box<Self> {
        let file = File::new(source.client.clone(), source.handle);
        let source = source.clone();
        Box::new(Self { context, source, attributes, file, at: 0, end: None, patience: Patience::default() })
    }

    async fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        let size = self.attributes.size;
        loop {
            // First to where its size says that it ends.
            let end = if self.at < size { size } else { self.end.unwrap_or(u64::MAX) };
            let room = usize::try_from(end - self.at).unwrap_or(usize::MAX).min(chunk.len());
            if room == 0 {
                return Ok(0);
            }
            let error = match self.file.read(&mut chunk[..room]).await {
                // It ends there, whatever its size says, or has become shorter.
                Ok(0) if self.at < size && self.lies_on_no_disk().await? => return Ok(0),
                Ok(0) if self.at < size => {
                    let shrank = TransferError::SourceShrank { expected: size, found: self.at };
                    return Err(io::Error::other(client::Error::from(shrank)));
                }
                // It is longer than its size says, or has become so.
                Ok(1..) if self.at == size && !self.is_as_long().await? => {
                    self.end = Some(size);
                    return Ok(0);
                }
                Ok(count) => {
                    self.at += count as u64;
                    return Ok(count);
                }
                Err(error) => error,
            };
            let is_stale =
                error.get_ref().and_then(|it| it.downcast_ref()).is_some_and(client::Error::is_stale);
            if !is_stale
                || !self.patience.allows(self.attributes.size.saturating_sub(self.at))
                || !self.find_again().await?
            {
                return Err(error);
            }
        }
    }

    /// Whether it has the size that it had, and no bytes on a disk: the size of such files is a guess (`/sys`). Of others that end before
    /// their size a part is missing.
    async fn lies_on_no_disk(&self) -> io::Result<bool> {
        let now = self.source.client.metadata(self.source.handle).await.map_err(io::Error::other)?;
        Ok(now.size == self.attributes.size && now.used == 0)
    }

    /// Whether it has the size that it had.
    async fn is_as_long(&self) -> io::Result<bool> {
        let now = self.source.client.metadata(self.source.handle).await.map_err(io::Error::other)?;
        Ok(now.size == self.attributes.size)
    }

    /// Returns what has become of the file, and its attributes now; `copy` has what was read.
    async fn since(&mut self, copy: &Pieces<'_>) -> Result<(Since, Attributes), client::Error> {
        let now = self.source.client.metadata(self.source.handle).await;
        if now.as_ref().is_err_and(client::Error::is_stale) && matches!(self.find_again().await, Ok(true)) {
            return Ok((Since::Same, self.attributes));
        }
        let now = Attributes::from(&now?);
        let since = match told(&now, &self.attributes) {
            Told::Is(since) => since,
            Told::IfSame(since) => {
                let there = Pieces::Remote(&self.source.client, self.source.handle);
                if copy.are_same(&there, self.attributes.size).await? { since } else { Since::Changed }
            }
        };
        Ok((since, now))
    }

    /// Looks for the file by its path, after the server has forgotten its handle; whether it is still the same.
    async fn find_again(&mut self) -> io::Result<bool> {
        self.context.servers.forget(&self.source.client);
        let found =
            async { follow(self.context, find_again(self.context, &self.source.remote).await?).await };
        let Ok(Found { client, handle, metadata, .. }) = found.await else { return Ok(false) };
        if differ(&Attributes::from(&metadata), &self.attributes) {
            return Ok(false);
        }
        self.file = File::new(client.clone(), handle);
        self.file.seek(io::SeekFrom::Start(self.at)).await?;
        (self.source.client, self.source.handle) = (client, handle);
        Ok(true)
    }
}

/// Moves everything from one side to the other; `see` is shown the bytes. The writer is not flushed.
pub(in crate::copy) async fn pump(
    source: &mut Input<'_>,
    sink: &mut (impl AsyncWrite + Unpin),
    context: Context<'_>,
    throttle: &Throttle,
    mut see: impl FnMut(&[u8]),
) -> Result<(), StreamError> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = source.read(&mut chunk).await.map_err(StreamError::Read)?;
        if count == 0 {
            return Ok(());
        }
        see(&chunk[..count]);
        throttle.wait(count).await;
        sink.write_all(&chunk[..count]).await.map_err(StreamError::Write)?;
        context.servers.activity().add_bytes(count as u64);
    }
}

/// Writes a file on a server to standard output.
///
/// # Errors
/// A quiet one when nobody reads any more.
pub async fn to_stdout(found: Found, context: Context<'_>) -> Result<()> {
    let throttle = Throttle::new(None);
    let mut stdout = tokio::io::stdout();
    let (name, attributes) = (found.remote.clone(), Attributes::from(&found.metadata));
    let Found { client, handle, remote, .. } = found;
    let mut source = Input::Remote(Reading::new(context, &RemoteFile { client, handle, remote }, attributes));
    let moved = pump(&mut source, &mut stdout, context, &throttle, |_| {}).await;
    moved.map_err(|error| match error {
        StreamError::Read(error) => remote_error(error, name),
        StreamError::Write(error) => output_error(error),
    })?;
    stdout.flush().await.map_err(output_error)?;
    close_copy(&io::stdout()).map_err(output_error)
}

impl Run<'_> {
    /// Writes a source to something that takes bytes in order.
    pub(in crate::copy) async fn to_output(&self, node: &Node, output: &Output) -> Result<()> {
        let Origin::Remote(file) = &node.origin else {
            return Err(Error::usage(format!("{node}: is not on a server")));
        };
        let target = match output {
            Output::Standard => Name::standard_output(),
            Output::Special(path, _) | Output::Descriptor(path, _) => Name::local(path),
        };
        if matches!(output, Output::Special(..)) && self.copy.overwrite != Overwrite::Always {
            return self.skip(node, &target, Skip::Exists);
        }
        if self.copy.dry_run {
            return self.say(node, &target, None);
        }
        self.context.servers.activity().expect(node.attributes.size);
        let mut source = Input::Remote(Reading::new(self.context, file, node.attributes));
        let mut digest = Digest::default();
        let see = |bytes: &[u8]| digest.update(bytes);
        match output {
            Output::Standard => {
                let mut stdout = tokio::io::stdout();
                let moved = pump(&mut source, &mut stdout, self.context, &self.throttle, see).await;
                moved.map_err(|error| match error {
                    StreamError::Read(error) => remote_error(error, node),
                    StreamError::Write(error) => output_error(error),
                })?;
                stdout.flush().await.map_err(output_error)?;
                close_copy(&io::stdout()).map_err(output_error)?;
                self.context.servers.activity().file_done();
                self.context.events.tell(&Event::Written)?;
                if self.is_to_be_verified(node, None) {
                    self.verify_output(node, &digest, &Name::standard_output()).await?;
                }
                Ok(())
            }
            Output::Special(path, seen) => {
                // Opening a fifo waits for its reader.
                let (opened, seen) = (path.clone(), *seen);
                let sink = on_thread(move || open_special(&opened, seen)).await;
                let sink = sink.map_err(|error| local(path, &error))?;
                self.to_file(node, source, (sink, path), &target).await
            }
            Output::Descriptor(path, file) => {
                let sink = file.try_clone().map_err(|error| local(path, &error))?;
                self.to_file(node, source, (sink, path), &target).await
            }
        }
    }

    /// Writes a source to an open file of this machine, in order.
    async fn to_file(
        &self,
        node: &Node,
        mut source: Input<'_>,
        (sink, path): (std::fs::File, &Path),
        target: &Name,
    ) -> Result<()> {
        let mut digest = Digest::default();
        let see = |bytes: &[u8]| digest.update(bytes);
        let mut sink = tokio::fs::File::from_std(sink);
        let moved = pump(&mut source, &mut sink, self.context, &self.throttle, see).await;
        moved.map_err(|error| match error {
            StreamError::Read(error) => remote_error(error, node),
            StreamError::Write(error) => local(path, &error),
        })?;
        sink.flush().await.map_err(|error| local(path, &error))?;
        close_copy(&sink).map_err(|error| local(path, &error))?;
        self.context.servers.activity().file_done();
        if self.is_to_be_verified(node, None) {
            self.verify_output(node, &digest, target).await?;
        }
        self.say(node, target, None)
    }

    /// Fills a new file on a server from a stream that had these `attributes` when it was begun; the bytes are on stable storage
    /// then.
    pub(in crate::copy) async fn fill(
        &self,
        node: &Node,
        attributes: Attributes,
        client: &client::Client,
        file: FileHandle,
        target: &str,
    ) -> Result<Filled> {
        let mut digest = Digest::default();
        let see = |bytes: &[u8]| digest.update(bytes);
        let mut sink = File::new(client.clone(), file);
        let mut source = match &node.origin {
            Origin::Remote(source) => Input::Remote(Reading::new(self.context, source, attributes)),
            Origin::Standard => Input::Standard(tokio::io::stdin()),
            Origin::Local(path) => {
                let (opened, follow) = (path.clone(), self.copy.links != Links::Never);
                let file = match node.kind {
                    Kind::File => opened.open(follow).await,
                    // Opening a fifo waits for its writer.
                    _ => on_thread(move || opened.open_stream(follow)).await,
                };
                let file = file.map_err(|error| local(path, &error))?;
                Input::Local(tokio::fs::File::from_std(file))
            }
        };
        let moved = pump(&mut source, &mut sink, self.context, &self.throttle, see).await;
        let has_changed = moved.as_ref().err().is_some_and(StreamError::is_of_a_change);
        let written = match moved {
            Ok(()) => sink.shutdown().await.map_err(StreamError::Write),
            Err(error) => Err(error),
        };
        if let Input::Remote(reading) = &mut source
            && (has_changed || written.is_ok())
        {
            // Its listing may be long ago, and a short copy is soon made again.
            let is_short_listed = attributes.size <= SMALL_BYTES && attributes == node.attributes;
            match reading.since(&Pieces::Remote(client, file)).await.at(node)? {
                // It is the same, and it ended early if it `has_changed`; but fewer may be allowed to read it now.
                (Since::Same, now) if now.rights() == attributes.rights() => {}
                (Since::Grew, _) if !has_changed && !is_short_listed => self.say_grew(node, attributes.size),
                (_, now) => return Ok(Filled::Changed(now)),
            }
        }
        written.map_err(|error| match (error, &node.origin) {
            (StreamError::Read(error), Origin::Standard) => {
                Error::new(ErrorKind::LocalIo, format!("standard input: {}", crate::error::io_text(&error)))
            }
            (StreamError::Read(error), Origin::Local(path)) => local(path, &error),
            (StreamError::Read(error), Origin::Remote(_)) => remote_error(error, node),
            (StreamError::Write(error), _) => remote_error(error, target),
        })?;
        Ok(Filled::Complete(Box::new(digest)))
    }

    /// Reads a file on a server to its end, wherever that is, into a local one.
    pub(in crate::copy) async fn drain(
        &self,
        node: &Node,
        attributes: Attributes,
        source: &RemoteFile,
        sink: &mut tokio::fs::File,
    ) -> Result<Filled> {
        let mut digest = Digest::default();
        let see = |bytes: &[u8]| digest.update(bytes);
        let reading = Reading::new(self.context, source, attributes);
        let mut input = Input::Remote(reading);
        match pump(&mut input, sink, self.context, &self.throttle, see).await {
            Ok(()) => Ok(Filled::Complete(Box::new(digest))),
            Err(error) if error.is_of_a_change() => {
                let now = source.client.metadata(source.handle).await.at(node)?;
                Ok(Filled::Changed(Attributes::of_source(&source.remote, &now)))
            }
            Err(StreamError::Read(error)) => Err(remote_error(error, node)),
            Err(StreamError::Write(error)) => {
                Err(Error::new(ErrorKind::LocalIo, format!("{node}: {}", crate::error::io_text(&error))))
            }
        }
    }
}
