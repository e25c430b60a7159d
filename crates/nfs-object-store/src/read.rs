//! Reading objects.

use std::{
    io,
    mem::take,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Bytes, BytesMut};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use nfs_wireless_client::{Client, Entry, Metadata, Range as ByteRange, RangeSet, Sink};
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, Result, path::Path};

use crate::{
    NfsObjectStore, STORE,
    error::{Refusal, explain_read},
    locate::describe,
};

/// Bytes of the first piece of a stream. It is there soon on a slow link: after 0.5 s at 1 Mbit/s.
const FIRST_PIECE_BYTES: u64 = 64 << 10;

/// Bytes of a piece at most: each is twice as long as the one before.
const MAX_PIECE_BYTES: u64 = 1 << 20;

/// Pieces that are read at the same time: the next one fills the link while the last one ends.
const PIECES: usize = 2;

impl NfsObjectStore {
    pub(crate) async fn get_object(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            return Err(self.not_implemented("`get_opts` with a version"));
        }
        let (_, entry) = self.object(location).await?;
        let meta = describe(location.clone(), &entry.metadata);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => checked(range, meta.size)?,
            None => 0..meta.size,
        };
        let stream = if options.head {
            stream::empty().boxed()
        } else {
            pieces(self.client.clone(), location.clone(), entry, range.clone())
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream),
            meta,
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }

    pub(crate) async fn read_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let (_, entry) = self.object(location).await?;
        let checked = |range: &Range<u64>| checked(&GetRange::Bounded(range.clone()), entry.metadata.size);
        let ranges: Vec<_> = ranges.iter().map(checked).collect::<Result<_>>()?;
        fetch(&self.client, location, &entry, &ranges).await
    }
}

/// The bytes of a range that an object of this size has.
fn checked(range: &GetRange, size: u64) -> Result<Range<u64>> {
    let range = range.as_range(size);
    range.map_err(|source| object_store::Error::Generic { store: STORE, source: source.into() })
}

/// Reads a range of one version in order, as it is taken.
pub(crate) fn pieces(
    client: Client,
    location: Path,
    entry: Entry,
    range: Range<u64>,
) -> BoxStream<'static, Result<Bytes>> {
    let (mut start, mut length) = (range.start, FIRST_PIECE_BYTES);
    let cuts = std::iter::from_fn(move || {
        let piece = start..range.end.min(start.saturating_add(length));
        (start, length) = (piece.end, MAX_PIECE_BYTES.min(2 * length));
        (!piece.is_empty()).then_some(piece)
    });
    let read = move |piece: Range<u64>| {
        let (client, location) = (client.clone(), location.clone());
        async move { Ok(fetch(&client, &location, &entry, &[piece]).await?.remove(0)) }
    };
    stream::iter(cuts).map(read).buffered(PIECES).boxed()
}

/// Reads ranges of a file, all at the same time, and no byte twice.
async fn fetch(client: &Client, location: &Path, entry: &Entry, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let mut set = RangeSet::new();
    for range in ranges {
        set.insert(ByteRange { start: range.start, end: range.end });
    }
    let runs = set.iter().map(|run| Extent::new(run, location)).collect::<Result<Vec<_>>>()?;
    let runs = Arc::new(Mutex::new(runs));
    let sink = Gather { runs: Arc::clone(&runs), version: entry.metadata, changed: false };
    let done = client.download_ranges(entry.handle, set, sink, None).await;
    done.map_err(|error| explain_read(error, location))?;
    let runs = take(&mut *runs.lock().unwrap_or_else(PoisonError::into_inner));
    let runs: Vec<_> = runs.into_iter().map(|run| (run.start, run.bytes.freeze())).collect();
    let cut = |range: &Range<u64>| {
        // The run that it was joined to is the last one that begins before it.
        let (start, bytes) = &runs[runs.partition_point(|(start, _)| *start <= range.start) - 1];
        // They fit into memory, as the runs do.
        bytes.slice((range.start - start) as usize..(range.end - start) as usize)
    };
    Ok(ranges.iter().map(cut).collect())
}

/// Bytes of a file that follow each other.
struct Extent {
    start: u64,
    bytes: BytesMut,
}

impl Extent {
    fn new(range: ByteRange, location: &Path) -> Result<Self> {
        let length = usize::try_from(range.end - range.start);
        let length = length.map_err(|_| Refusal::TooLong.at(location))?;
        Ok(Self { start: range.start, bytes: BytesMut::zeroed(length) })
    }
}

/// Takes the bytes of a download into memory, as long as they are of one version of the file.
struct Gather {
    runs: Arc<Mutex<Vec<Extent>>>,
    version: Metadata,
    changed: bool,
}

impl Sink for Gather {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.changed {
            return Err(io::Error::other(Refusal::Changed));
        }
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let index = runs.partition_point(|run| run.start <= offset).checked_sub(1);
        let run = index.and_then(|index| runs.get_mut(index)).ok_or(io::ErrorKind::InvalidInput)?;
        let start = (offset - run.start) as usize;
        let place = run.bytes.get_mut(start..start + bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    fn told(&mut self, attributes: Option<Metadata>) {
        let Some(now) = attributes else { return };
        let version = |it: &Metadata| (it.fileid, it.size, it.mtime);
        if version(&now) != version(&self.version) {
            self.changed = true;
        }
    }
}
