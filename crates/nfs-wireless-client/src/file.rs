//! A remote file as a tokio stream: reads ahead, writes behind.

use std::{
    future::Future,
    io::{self, ErrorKind, SeekFrom},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use nfs_proto::{
    attr::{Metadata, SetAttributes},
    transfer::{Available, Effort, Stream, StreamAction, StreamCall, WriteResult},
};
use nfs_wire::{
    FileHandle,
    nfs3_types::nfs3::{stable_how, writeverf3},
    rpc::Rejection,
};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::{
    client::{Client, Stability, Written},
    driver::clock,
    error::Error,
};

/// An open file on the server: [`AsyncRead`], [`AsyncWrite`] and [`AsyncSeek`].
///
/// Reads keep several READs in flight. Writes are gathered into blocks, several WRITEs are in
/// flight, and their bytes are kept until a COMMIT with the same write verifier has been answered
/// (RFC 1813 §4.8).
///
/// # What is promised
///
/// - A read returns what was last written through this handle, flushed or not. Beyond the end of
///   the file, a write leaves zeros before it.
/// - When `flush` or `shutdown` returns `Ok`, every byte written before is on stable storage. What
///   a server loses in a restart before that is written again, with the newest bytes.
/// - The first error of the server or of the network ends the handle: every later operation returns
///   it, until the file is opened again with [`File::new`]. What was not flushed before may or may
///   not have been written, and may still be for as long as a datagram lives.
/// - Every operation may be cancelled at any time by dropping its future. What a write has taken in
///   stays written, and a flush begun again waits for the rest.
/// - No two WRITEs in flight overlap, and those that are sent again keep their XID, so that a
///   server's duplicate request cache matches them. Where one was sent more than once, nothing is written over
///   it for as long as its answer took (between 100 ms and 1 s): a server without a duplicate request cache may
///   run the other copy that late.
/// - At most 8 MiB wait to become stable: then a write waits. At most 2 MiB are read ahead, less
///   after a seek.
///
/// # What is not
///
/// - A file that is dropped without `flush` may lose what was written last.
/// - What others write to the same file is seen when it is read from the server. Some of what was
///   read ahead may be older; a seek to another place forgets that. Two handles on one file, also
///   of one client, are two strangers to each other.
/// - Calls are sent, and their results taken in, while an operation is waited for: in between
///   nothing but the calls in flight goes on.
pub struct File {
    client: Client,
    handle: FileHandle,
    position: u64,
    can_read: bool,
    can_write: bool,
    /// Where writes go, wherever the position is, if they append.
    append_at: Option<u64>,
    /// A seek from the end, which has to be asked for.
    seeking: Option<FromEnd>,
    stream: Stream<Error>,
    calls: Vec<(u32, Call)>,
    bell: Arc<Bell>,
}

/// A seek by so much from the end of the file.
struct FromEnd {
    delta: i64,
    /// Asks for the size, once all is written.
    asking: Option<Asking>,
}

type Asking = Exclusive<Result<Metadata, Error>>;

/// A call in flight.
type Call = Exclusive<Outcome>;

/// A future that nobody locks: only who has all of the file polls it, and the lock makes the file `Sync`.
type Exclusive<T> = Mutex<Pin<Box<dyn Future<Output = T> + Send>>>;

/// What became of a call.
enum Outcome {
    Read(Bytes, bool),
    Written(Written, Effort),
    Committed([u8; 8]),
    NoCommit,
    Failed(Error),
}

impl File {
    /// Opens a file for reading and writing from its beginning.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, File};
    /// # use std::io::SeekFrom;
    /// # use tokio::io::{AsyncReadExt, AsyncSeekExt};
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let song = client.resolve(b"/srv/music/song.ogg").await?;
    /// let mut file = File::new(client, song.handle);
    /// file.seek(SeekFrom::End(-128)).await?;
    /// let mut tag = [0; 128];
    /// file.read_exact(&mut tag).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: Client, handle: FileHandle) -> Self {
        Self::with_access(client, handle, true, true)
    }

    /// Opens a file that may be read, or written, or both.
    pub(crate) fn with_access(client: Client, handle: FileHandle, can_read: bool, can_write: bool) -> Self {
        Self {
            client,
            handle,
            position: 0,
            can_read,
            can_write,
            append_at: None,
            seeking: None,
            stream: Stream::default(),
            calls: Vec::new(),
            bell: Arc::default(),
        }
    }

    /// Has everything written at the end, where that is now.
    pub(crate) const fn append_at(&mut self, end: u64) {
        self.append_at = Some(end);
    }

    /// Returns the handle of the file.
    pub const fn handle(&self) -> FileHandle {
        self.handle
    }

    /// Returns the attributes that the server has for the file: what was not flushed may not be counted.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, File};
    /// # async fn example(file: File) -> Result<(), Error> {
    /// let bytes = file.metadata().await?.size;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn metadata(&self) -> Result<Metadata, Error> {
        self.client.metadata(self.handle).await
    }

    /// Brings everything that was written to the server's stable storage (COMMIT, RFC 1813 §3.3.21), as a flush does.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::File;
    /// # use tokio::io::AsyncWriteExt;
    /// # async fn example(mut file: File) -> Result<(), Box<dyn std::error::Error>> {
    /// file.write_all(b"a line\n").await?;
    /// file.sync_all().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::commit`].
    pub async fn sync_all(&mut self) -> Result<(), Error> {
        Ok(self.flush().await?)
    }

    /// As [`File::sync_all`]: NFSv3 has no COMMIT of data alone.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub async fn sync_data(&mut self) -> Result<(), Error> {
        self.sync_all().await
    }

    /// Cuts the file, or extends it with zeros. What was written before is on stable storage then; the position stays.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, File};
    /// # async fn example(mut file: File) -> Result<(), Error> {
    /// file.set_len(1 << 20).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::set_attributes`], and those of a flush; `InvalidInput` where the file was not opened for writing.
    pub async fn set_len(&mut self, size: u64) -> Result<(), Error> {
        if !self.can_write {
            let why = "the file was not opened for writing";
            return Err(io::Error::new(ErrorKind::InvalidInput, why).into());
        }
        self.flush().await?;
        let attributes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.client.set_attributes(self.handle, attributes).await?;
        // What was read ahead may be of what was cut.
        self.stream.seek();
        self.append_at = self.append_at.map(|_| size);
        Ok(())
    }

    /// Makes the calls that are due and takes in what has arrived; whether anything has.
    fn drive(&mut self, listener: Listener) -> bool {
        let mut progress = false;
        loop {
            self.stream.cancel_unwanted();
            self.calls.retain(|(part, _)| self.stream.is_in_flight(*part));
            let known = self.calls.len();
            while let Some(StreamCall { part, delay, action }) =
                self.stream.next_call(clock(), self.client.limits())
            {
                let call = make(self.client.clone(), self.handle, delay, action);
                self.calls.push((part, Mutex::new(Box::pin(call))));
            }
            // Those known before can only have moved if one of them has rung.
            let first = if self.bell.has_rung() { 0 } else { known };
            if !self.poll_calls(first) {
                break;
            }
            progress = true;
        }
        if progress {
            // It may be what the other one waits for.
            self.bell.wake_other(listener);
        }
        progress
    }

    /// Moves to a position, if it is one.
    fn go_to(&mut self, target: Option<u64>) -> io::Result<()> {
        let target = target.ok_or(ErrorKind::InvalidInput)?;
        if target != self.position {
            self.position = target;
            self.stream.seek();
        }
        Ok(())
    }

    /// Polls the calls from the one with this index on; whether any has ended.
    fn poll_calls(&mut self, first: usize) -> bool {
        let waker = Waker::from(Arc::clone(&self.bell));
        let mut cx = Context::from_waker(&waker);
        let (stream, mut index, mut any) = (&mut self.stream, 0, false);
        self.calls.retain_mut(|(part, call)| {
            index += 1;
            if index <= first {
                return true;
            }
            let call = call.get_mut().unwrap_or_else(PoisonError::into_inner);
            let Poll::Ready(outcome) = call.as_mut().poll(&mut cx) else { return true };
            any = true;
            match outcome {
                Outcome::Read(data, end) => stream.handle_read(*part, data, end),
                Outcome::Written(Written { count, stability, verifier }, effort) => {
                    let (committed, verifier) = (to_wire(stability), writeverf3(verifier));
                    stream.handle_write(clock(), *part, effort, WriteResult { count, committed, verifier });
                }
                Outcome::Committed(verifier) => stream.handle_commit(*part, writeverf3(verifier)),
                Outcome::NoCommit => stream.handle_no_commit(*part),
                Outcome::Failed(error) => stream.handle_failure(*part, error),
            }
            false
        });
        any
    }
}

/// Makes a call of the stream.
async fn make(client: Client, file: FileHandle, delay: Duration, action: StreamAction) -> Outcome {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let result = match action {
        StreamAction::Read { offset, count } => {
            client.read(file, offset, count).await.map(|(data, end)| Outcome::Read(data, end))
        }
        StreamAction::Write { offset, data, stable } => {
            let stability = match stable {
                stable_how::UNSTABLE => Stability::Unstable,
                stable_how::DATA_SYNC | stable_how::FILE_SYNC => Stability::Stable,
            };
            let started = clock();
            let done = client.write_counted(file, offset, &data, stability).await;
            done.map(|(written, attempts)| {
                let elapsed = clock().saturating_duration_since(started);
                Outcome::Written(written, Effort { attempts, elapsed })
            })
        }
        StreamAction::Commit => match client.commit(file, 0, 0).await {
            Err(Error::Rejected { rejection: Rejection::ProcedureUnavailable, .. }) => Ok(Outcome::NoCommit),
            done => done.map(Outcome::Committed),
        },
    };
    result.unwrap_or_else(Outcome::Failed)
}

const fn to_wire(stability: Stability) -> stable_how {
    match stability {
        Stability::Unstable => stable_how::UNSTABLE,
        Stability::Stable => stable_how::FILE_SYNC,
    }
}

impl AsyncRead for File {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let file = &mut *self;
        file.bell.listen(Listener::Reader, cx);
        file.stream.check()?;
        allowed(file.can_read, "the file was not opened for reading")?;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            match file.stream.read(file.position, buffer.initialize_unfilled())? {
                Available::Bytes(count) => {
                    buffer.advance(count);
                    file.position += count as u64;
                    // What is behind it is asked for in time.
                    file.drive(Listener::Reader);
                    return Poll::Ready(Ok(()));
                }
                Available::End => return Poll::Ready(Ok(())),
                Available::Wait if file.drive(Listener::Reader) => {}
                Available::Wait => return Poll::Pending,
            }
        }
    }
}

impl AsyncWrite for File {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let file = &mut *self;
        file.bell.listen(Listener::Writer, cx);
        file.stream.check()?;
        allowed(file.can_write, "the file was not opened for writing")?;
        if let Some(end) = file.append_at {
            file.go_to(Some(end))?;
        }
        // The last byte of a file has the offset 2⁶⁴ - 2 at most.
        let room = usize::try_from(u64::MAX - file.position).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            match file.stream.write(file.position, data)? {
                0 if file.drive(Listener::Writer) => {}
                0 => return Poll::Pending,
                count => {
                    file.position += count as u64;
                    file.append_at = file.append_at.map(|_| file.position);
                    file.drive(Listener::Writer);
                    return Poll::Ready(Ok(count));
                }
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let file = &mut *self;
        file.bell.listen(Listener::Writer, cx);
        loop {
            file.stream.check()?;
            if file.stream.is_stable() {
                return Poll::Ready(Ok(()));
            }
            file.stream.flush();
            if !file.drive(Listener::Writer) {
                return Poll::Pending;
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl AsyncSeek for File {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        let file = &mut *self;
        file.stream.check()?;
        file.seeking = None;
        match position {
            SeekFrom::Start(offset) => file.go_to(Some(offset)),
            SeekFrom::Current(delta) => file.go_to(file.position.checked_add_signed(delta)),
            SeekFrom::End(delta) => {
                file.seeking = Some(FromEnd { delta, asking: None });
                Ok(())
            }
        }
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        self.stream.check()?;
        let Some(delta) = self.seeking.as_ref().map(|seeking| seeking.delta) else {
            return Poll::Ready(Ok(self.position));
        };
        // What is to be written may move the end.
        ready!(self.as_mut().poll_flush(cx))?;
        let (client, handle) = (self.client.clone(), self.handle);
        let Some(seeking) = &mut self.seeking else { return Poll::Ready(Ok(self.position)) };
        let asking = seeking
            .asking
            .get_or_insert_with(|| Mutex::new(Box::pin(async move { client.metadata(handle).await })));
        let asking = asking.get_mut().unwrap_or_else(PoisonError::into_inner);
        let size = ready!(asking.as_mut().poll(cx)).map(|metadata| metadata.size);
        self.seeking = None;
        self.go_to(size?.checked_add_signed(delta))?;
        Poll::Ready(Ok(self.position))
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("File")
            .field("handle", &self.handle)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

fn allowed(is_allowed: bool, otherwise: &'static str) -> io::Result<()> {
    if is_allowed { Ok(()) } else { Err(io::Error::new(ErrorKind::PermissionDenied, otherwise)) }
}

/// Who waits for a file.
#[derive(Clone, Copy)]
enum Listener {
    Reader,
    Writer,
}

/// Wakes the tasks that wait for a file when one of its calls has something to tell: the halves of
/// [`tokio::io::split`] are two tasks, and a call does not know which of them needs it.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    listeners: Mutex<[Option<Waker>; 2]>,
}

impl Bell {
    fn listen(&self, listener: Listener, cx: &Context<'_>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut listeners[listener as usize] {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn wake_other(&self, listener: Listener) {
        let other = match listener {
            Listener::Reader => Listener::Writer,
            Listener::Writer => Listener::Reader,
        };
        let waker = self.listeners.lock().unwrap_or_else(PoisonError::into_inner)[other as usize].take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Whether it has rung since this was asked last.
    fn has_rung(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        let listeners = {
            let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *listeners)
        };
        listeners.into_iter().flatten().for_each(Waker::wake);
    }
}
