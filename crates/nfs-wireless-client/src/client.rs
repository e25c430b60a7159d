//! The asynchronous client.

mod files;
mod give;
mod inner;
mod names;
mod pinger;
mod roaming;

pub(crate) use self::names::{BUSY_PAUSES, place};
pub use self::{give::is_reservation, names::SpecialFile, pinger::Pinger};
use self::{inner::InnerExports, names::Marks};

use std::{
    fmt, mem,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicU8},
    time::{Duration, Instant},
};

use bytes::Bytes;
use nfs_proto::{
    attr::Metadata,
    endpoint::{ListingPlan, Reason},
    engine::{PathEstimate, Stats},
    transfer::{Limits, Listing, Placement, RangeSet, Upload, UploadSpec, Uploaded},
};
use nfs_wire::{
    FileHandle, Procedure, Status as NfsStatus, encode,
    mount::Export,
    nfs3_types::xdr_codec::Pack,
    portmap::Protocol,
    reply::{self, Results},
};

use tokio::sync::Notify;

use crate::{
    config::{ClientConfig, TransportChoice},
    connect::{Finder, Found, Mounted, Offer, Root, listed_export},
    driver::{Answer, CallFailure, Observer, Reactor, Sink, Source},
    endpoint::{Endpoint, Path},
    error::Error,
    known::{KnownServer, LookedUp},
    read_dir::ReadDir,
    shown::shown,
    url::NfsUrl,
};

/// A mounted export on a server: cheap to clone, safe to share, usable from many tasks at once.
///
/// Every method may be cancelled by dropping its future. The call is then forgotten, and its place free. The server may still run it, once:
/// after a call that changes something look before doing it again.
///
/// Its connections are tasks of the runtime that it connects on, or run on a thread of its own ([`ClientConfig::own_thread`]).
/// They end when the last clone is dropped.
///
/// At most 1,024 calls of a connection are outstanding at once, and as many of its transfers. Further ones wait, in the
/// order in which they were made; the call timeout counts from then.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    /// Where another server was found under its name.
    elsewhere: OnceLock<SocketAddr>,
    /// Rings when a link has changed.
    bell: Arc<Notify>,
    host: String,
    export: Vec<u8>,
    root: FileHandle,
    mount: Found,
    /// What the server exports; empty where it does not tell.
    listed: Vec<Export>,
    inner_exports: InnerExports,
    /// What the server does with marks: one of [`Marks`].
    marks: AtomicU8,
    looked_up: Mutex<LookedUp>,
}

/// A file: its handle and its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The server's name for the file.
    pub handle: FileHandle,
    /// Its attributes.
    pub metadata: Metadata,
}

/// What a client has seen so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Counters of the RPC engine.
    pub stats: Stats,
    /// Bytes per READ in use now.
    pub read_block: u32,
    /// Bytes per WRITE in use now.
    pub write_block: u32,
    /// Calls that wait for a reply, and transfers that the server has asked to come back later.
    pub outstanding: usize,
    /// When the server was last heard of.
    pub last_heard: Option<Instant>,
    /// What the adaptive policy has measured of the path, once something was delivered over UDP.
    pub path_estimate: Option<PathEstimate>,
}

/// Whether data is to be on stable storage when WRITE returns (RFC 1813 §3.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// It may be in the server's memory until COMMIT.
    Unstable,
    /// Data and attributes are stable.
    Stable,
}

/// What WRITE did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes accepted, from the first on; may be fewer than given.
    pub count: u32,
    /// What the server promises about them.
    pub stability: Stability,
    /// Changes when the server may have lost unstable data.
    pub verifier: [u8; 8],
}

impl Client {
    /// Mounts the export of `host` that holds the absolute path `path`.
    ///
    /// `host` is a name or an address. The export is found by asking the server. Dropping the future closes every connection.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, ClientConfig, Error};
    /// # async fn example() -> Result<(), Error> {
    /// let client = Client::connect("nas", b"/srv/music", ClientConfig::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error`] says what could not be found or reached, or who refused; [`Error::Local`] that there is no thread for
    /// [`ClientConfig::own_thread`].
    ///
    /// # Panics
    /// Outside a tokio runtime, and on one without I/O or time.
    pub async fn connect(host: &str, path: &[u8], mut config: ClientConfig) -> Result<Self, Error> {
        config.check()?;
        let host = &open_channel(host, &mut config).await?;
        let reactor = Reactor::start(config.own_thread).await?;
        let finder = Finder { reactor: &reactor, config: &config, host };
        let mounting = async {
            let Mounted { mut reached, offer } = finder.mount(path).await?;
            let mut looked_up = mem::take(&mut reached.path.looked_up);
            if let Some(other) = &mut reached.other {
                looked_up.add(mem::take(&mut other.looked_up));
            }
            let root = offer.candidates.settle(&reached.path).await?;
            if looked_up.found.is_empty() {
                // A server may refuse all handles of an export that was not mounted yet.
                looked_up.refused.clear();
            }
            // A name that leads back is refused where it is looked up again.
            looked_up.found.retain(|((directory, _), entry)| {
                entry.as_ref().is_ok_and(|it| ![*directory, root.handle].contains(&it.handle))
            });
            Ok((reached, offer, root, Mutex::new(looked_up)))
        };
        let (reached, offer, root, looked_up) = within(&config, host, mounting).await?;
        let (Offer { mount, listed, .. }, Root { export, handle: root }) = (offer, root);
        // Where the server has moved, it is looked for again.
        config.known = None;
        let (elsewhere, bell, marks) = (OnceLock::new(), Arc::default(), AtomicU8::new(Marks::UNKNOWN));
        let endpoint = Endpoint::new(reached, root, config, reactor);
        let host = host.to_owned();
        let inner_exports = InnerExports::new(&listed, &export, root);
        if !inner_exports.is_empty() {
            // These names were looked up without a look at where other exports are.
            looked_up.lock().unwrap_or_else(PoisonError::into_inner).found.clear();
        }
        let inner = Inner {
            endpoint,
            elsewhere,
            bell,
            host,
            export,
            root,
            mount,
            listed,
            inner_exports,
            marks,
            looked_up,
        };
        let inner = Arc::new(inner);
        let client = Arc::downgrade(&inner);
        inner.endpoint.reactor.spawn(roaming::follow(client));
        Ok(Self { inner })
    }

    /// As [`Client::connect`], to a URL with the options of libnfs: `nfs://HOST[:PORT]/PATH?mountport=...&uid=...&gid=...`. What it asks for
    /// outweighs `config`. An option that is unknown, or cannot be granted, is a warning in the log (`tracing`); [`NfsUrl`] has the same
    /// warnings for programs, in `options.warnings`.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, ClientConfig, Error};
    /// # async fn example() -> Result<(), Error> {
    /// let client = Client::connect_url("nfs://nas:2049/srv/music?mountport=20048", ClientConfig::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect`]; [`Error::Url`].
    ///
    /// # Panics
    /// As [`Client::connect`].
    pub async fn connect_url(url: &str, config: ClientConfig) -> Result<Self, Error> {
        let (url, config) = configured(url, config)?;
        Self::connect(&url.host, &url.path, config).await
    }

    /// Tells the server that the export is no longer used (UMNT, RFC 1813 §5.2.3).
    ///
    /// Servers only keep a list of it for people to read: the client goes on working, and nothing is lost when this
    /// is left out.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// client.unmount().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn unmount(&self) -> Result<(), Error> {
        let Inner { endpoint: Endpoint { reactor, config, .. }, mount, export, .. } = &*self.inner;
        let finder = Finder { reactor, config, host: "" };
        within(config, "the MOUNT service", finder.unmount(*mount, export)).await
    }

    /// Returns the path of the export that holds `path`, which may lie inside this client's, and which this one does not reach then.
    ///
    /// Where the list of exports says it, which was read when the client connected, this asks nobody.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let export = client.export_of(b"/srv/music/new").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn export_of(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        let Inner { endpoint, mount, listed, host, .. } = &*self.inner;
        let config = &endpoint.config;
        if listed_export(listed, path) == Some(self.export()) {
            return Ok(self.export().to_vec());
        }
        let finder = Finder { reactor: &endpoint.reactor, config, host };
        let search = async {
            let candidates = finder.mount_again(*mount, path, listed).await?;
            candidates.settle(endpoint.first()).await
        };
        Ok(within(config, host, search).await?.export)
    }

    /// Lists what `host` exports, without mounting anything.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, ClientConfig, Error};
    /// # async fn example() -> Result<(), Error> {
    /// for export in Client::exports("nas", ClientConfig::default()).await? {
    ///     println!("{}", export.directory.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn exports(host: &str, mut config: ClientConfig) -> Result<Vec<Export>, Error> {
        config.check()?;
        let host = &open_channel(host, &mut config).await?;
        let reactor = Reactor::start(config.own_thread).await?;
        let finder = Finder { reactor: &reactor, config: &config, host };
        within(&config, host, finder.exports()).await
    }

    /// Returns the address of the NFS service.
    pub fn address(&self) -> SocketAddr {
        self.inner.endpoint.first().address()
    }

    /// Returns what a later client of this server may begin with ([`ClientConfig::known`]).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, ClientConfig, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let mut config = ClientConfig::default();
    /// config.known = Some(client.known());
    /// let next = Client::connect("nas", client.export(), config).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn known(&self) -> KnownServer {
        let Inner { mount, export, .. } = &*self.inner;
        KnownServer::new(self.address().port(), (mount.protocol, mount.address.port()), export.clone())
    }

    /// Returns the replies to the LOOKUPs of [`KnownServer::names`] that the server answered while the client connected, once. They are as
    /// new as the client. A name that was refused is looked up when its turn comes.
    pub fn take_looked_up(&self) -> LookedUp {
        mem::take(&mut *self.inner.looked_up.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns how long the NFS service took to answer when it was reached.
    pub fn round_trip(&self) -> Duration {
        self.inner.endpoint.first().round_trip
    }

    /// Returns why nothing will be answered any more, as soon as the [channel](ClientConfig::channel) has ended; never without one.
    pub fn channel_ended(&self) -> impl Future<Output = Arc<std::io::Error>> + Send + use<> {
        let channel = self.inner.endpoint.config.channel.clone();
        async move {
            match channel {
                Some(channel) => channel.ended().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns the transport in use for READs.
    pub fn protocol(&self) -> Protocol {
        self.transports()[0].0
    }

    /// Returns the transports in use for READs and for WRITEs, and why each.
    pub fn transports(&self) -> [(Protocol, Reason); 2] {
        self.inner.endpoint.verdicts()
    }

    /// Returns the path of the mounted export.
    pub fn export(&self) -> &[u8] {
        &self.inner.export
    }

    /// Returns the handle of the export's root directory.
    pub fn root(&self) -> FileHandle {
        self.inner.root
    }

    /// Returns what the client has seen so far.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// println!("{} calls wait", client.status().outstanding);
    /// # Ok(())
    /// # }
    /// ```
    pub fn status(&self) -> Status {
        let snapshot = self.inner.endpoint.snapshot();
        let limits = self.limits();
        Status {
            stats: snapshot.stats,
            read_block: limits.read_block,
            write_block: limits.write_block,
            outstanding: snapshot.outstanding + snapshot.put_off,
            last_heard: snapshot.last_heard,
            path_estimate: snapshot.path_estimate,
        }
    }

    /// Returns the bytes that a READ asks for now at most; [`Client::status`] tells more, and takes longer.
    pub fn read_block(&self) -> u32 {
        self.limits().read_block
    }

    /// Whether so many UDP datagrams were fragmented within the 30 s that receivers keep fragments that their 16-bit
    /// identifications may have been used twice: then fragments of different datagrams may have been put together, and one
    /// time in 65,536 the checksum does not notice (RFC 4963). What was copied should be read again and compared.
    ///
    /// Never over TCP or IPv6, nor with the default block size, which keeps datagrams short enough or few enough.
    pub fn identifications_may_have_wrapped(&self) -> bool {
        self.inner.endpoint.identifications_may_have_wrapped()
    }

    /// Returns the bytes per READ and WRITE in use now, without the counters.
    pub(crate) fn limits(&self) -> Limits {
        self.inner.endpoint.limits()
    }

    /// Calls NULL, which does nothing, and returns how long that took.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// println!("{} ms", client.null().await?.as_millis());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Silent`] when the configured call timeout passes.
    pub async fn null(&self) -> Result<Duration, Error> {
        let start = tokio::time::Instant::now();
        self.call_raw(Procedure::Null, Vec::new()).await?;
        Ok(start.elapsed())
    }

    /// Lists a directory.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let mut entries = client.read_dir(client.root());
    /// while let Some(entry) = entries.next_complete().await? {
    ///     println!("{}", entry.name.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_dir(&self, directory: FileHandle) -> ReadDir {
        ReadDir::new(self.clone(), directory, self.inner.endpoint.listing_plan())
    }

    /// Copies the first `size` bytes of a file into `sink`, with many READs in flight.
    ///
    /// Returns the file's attributes if the server told them with every reply, all of one version, and over UDP, where replies leave
    /// at once: the same as before the copy mean that the file has not changed meanwhile. `None` may mean anything.
    ///
    /// When the future is dropped, what was written is in the sink; a write that runs at that moment ends, none begins, and the sink is
    /// dropped.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::Client;
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let song = client.resolve(b"/srv/music/song.ogg").await?;
    /// let target = std::fs::File::create("song.ogg")?;
    /// client.download(song.handle, song.metadata.size, target, None).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error`]; what has arrived until then is in the sink.
    pub async fn download(
        &self,
        file: FileHandle,
        size: u64,
        sink: impl Sink + 'static,
        observer: Option<Observer>,
    ) -> Result<Option<Metadata>, Error> {
        self.download_ranges(file, RangeSet::new().missing(size), sink, observer).await
    }

    /// Copies some ranges of a file into `sink`, each to its own offset, with many READs in flight.
    ///
    /// Returns what [`Client::download`] does.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Range, RangeSet};
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let film = client.resolve(b"/srv/film.mkv").await?;
    /// let mut ranges = RangeSet::new();
    /// ranges.insert(Range { start: 0, end: 4096 });
    /// let target = std::fs::File::create("film.mkv")?;
    /// client.download_ranges(film.handle, ranges, target, None).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::download`].
    pub async fn download_ranges(
        &self,
        file: FileHandle,
        ranges: RangeSet,
        sink: impl Sink + 'static,
        observer: Option<Observer>,
    ) -> Result<Option<Metadata>, Error> {
        let done = self.inner.endpoint.download(&file, ranges, Box::new(sink), observer).await;
        done.map_err(|error| self.inner.explain(error))
    }

    /// Makes a file of the bytes of `source`, with many WRITEs in flight; it is on stable storage when this returns. Returns the file: a
    /// name may lead to another one by then.
    ///
    /// When the upload fails after a temporary file was made, that file is removed again if the server still
    /// answers, unless the placement is resumable.
    ///
    /// When the future is dropped, a temporary file stays, and the target is as it was, unless the placement was in place or the RENAME had
    /// left. WRITEs in flight may still be run. A read that runs at that moment ends, and the source is dropped.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Placement, UploadSpec};
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let song = std::fs::File::open("song.ogg")?;
    /// let size = song.metadata()?.len();
    /// let placement = Placement::Temporary(b".song.ogg.part".to_vec());
    /// let spec = UploadSpec::new(client.root(), b"song.ogg".to_vec(), placement, size);
    /// client.upload(spec, song, None).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error`]; the target is then as it was before, unless the placement was in place.
    pub async fn upload(
        &self,
        mut spec: UploadSpec,
        source: impl Source + 'static,
        observer: Option<Observer>,
    ) -> Result<Uploaded, Error> {
        spec.directory = self.inside(spec.directory)?;
        let temporary = match &spec.placement {
            Placement::Temporary(name) => Some((spec.directory, name.clone())),
            Placement::Resumable { .. } | Placement::InPlace | Placement::Existing(_) => None,
        };
        let size = spec.size;
        let result = self.inner.endpoint.upload(Upload::new(spec), size, Box::new(source), observer).await;
        let result = result.map_err(|error| self.inner.explain(error));
        if let (Err(error), Some((directory, name))) = (&result, temporary)
            && !error.is_silence()
        {
            let clean_up = self.remove(directory, &name);
            let _ = tokio::time::timeout(CLEAN_UP_TIME, clean_up).await;
        }
        result?.ok_or(Error::Closed)
    }

    /// Makes a call with arguments and results in the RFC's own terms.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, Procedure, nfs3_types::nfs3::{GETATTR3args, GETATTR3resok}};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let arguments = GETATTR3args { object: client.root().to_fh3() };
    /// let found: GETATTR3resok = client.call(Procedure::Getattr, &arguments).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn call<T>(&self, procedure: Procedure, arguments: &impl Pack) -> Result<T, Error>
    where
        T: for<'a> Results<'a>,
    {
        Ok(self.call_counted(procedure, arguments).await?.0)
    }

    /// As [`Client::call`], and returns how often the call was sent.
    async fn call_counted<T>(
        &self,
        procedure: Procedure,
        arguments: &impl Pack,
    ) -> Result<(T, u32), CountedError>
    where
        T: for<'a> Results<'a>,
    {
        let (results, attempts) = self
            .call_raw_counted(procedure, packed(arguments))
            .await
            .map_err(|error| CountedError { error, attempts: 1 })?;
        decode(procedure, &results)
            .map(|value| (value, attempts))
            .map_err(|error| CountedError { error, attempts })
    }

    async fn call_packed(&self, procedure: Procedure, arguments: &impl Pack) -> Result<Bytes, Error> {
        self.call_raw(procedure, packed(arguments)).await
    }

    /// Makes a call with encoded arguments and returns the encoded results.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, Procedure};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let results = client.call_raw(Procedure::Null, Vec::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Silent`] and [`Error::Rejected`]; the results' own status is not looked at.
    pub async fn call_raw(&self, procedure: Procedure, arguments: Vec<u8>) -> Result<Bytes, Error> {
        self.call_raw_counted(procedure, arguments).await.map(|(results, _)| results)
    }

    async fn call_raw_counted(
        &self,
        procedure: Procedure,
        arguments: Vec<u8>,
    ) -> Result<(Bytes, u32), Error> {
        let Inner { endpoint, .. } = &*self.inner;
        let answer = endpoint.call(procedure, endpoint.config.call_timeout, arguments).await;
        self.answered(procedure, answer)
    }

    /// Makes the call for the next page of a listing.
    pub(crate) async fn call_page(&self, plan: &mut ListingPlan, listing: &Listing) -> Result<Bytes, Error> {
        let Inner { endpoint, .. } = &*self.inner;
        let (procedure, timeout) = (listing.procedure(), endpoint.config.call_timeout);
        let arguments = |page_bytes| {
            let mut arguments = Vec::with_capacity(128);
            listing.encode_page(&mut arguments, page_bytes);
            arguments
        };
        let answer = endpoint.call_page(plan, procedure, timeout, arguments).await;
        self.answered(procedure, answer).map(|(results, _)| results)
    }

    /// Returns the results of a call, and how often it was sent.
    fn answered(
        &self,
        procedure: Procedure,
        answer: Result<Answer, CallFailure>,
    ) -> Result<(Bytes, u32), Error> {
        let (what, endpoint) = (procedure.name(), &self.inner.endpoint);
        let answer = answer.map_err(|failure| match failure {
            CallFailure::Expired { attempts, elapsed } => Error::Silent { what, attempts, elapsed },
            CallFailure::Unreachable(source) => Error::Unreachable {
                what: "the NFSv3 service",
                address: endpoint.first().address(),
                protocol: endpoint.first().protocol,
                source,
            },
            CallFailure::Broken(reason) => Error::Broken { address: endpoint.first().address(), reason },
            CallFailure::Closed => self.inner.explain(Error::Closed),
        })?;
        answer.outcome.map_err(|rejection| Error::Rejected { what, rejection })?;
        Ok((answer.results, answer.attempts))
    }
}

/// How long a failed upload tries to remove its temporary file.
const CLEAN_UP_TIME: Duration = Duration::from_secs(2);

/// A failure, and how often the call was sent: above one it may have been carried out.
struct CountedError {
    error: Error,
    attempts: u32,
}

impl CountedError {
    /// Whether an earlier attempt of ours would explain the refusal.
    fn may_be_done(&self, status: NfsStatus) -> bool {
        self.attempts > 1 && self.error.status() == Some(status)
    }

    /// The refusal as what it is when looking did not help.
    fn in_doubt(&self) -> Error {
        match self.error {
            Error::Status { procedure, status } => Error::Ambiguous { procedure, status },
            ref other => other.clone(),
        }
    }
}

impl From<CountedError> for Error {
    fn from(counted: CountedError) -> Self {
        counted.error
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Path { protocol, .. } = self.inner.endpoint.first();
        let export = shown(&self.inner.export);
        formatter
            .debug_struct("Client")
            .field("address", &self.address())
            .field("protocol", protocol)
            .field("export", &export)
            .finish_non_exhaustive()
    }
}

/// Returns what a URL leads to, and how it is to be asked.
pub(crate) fn configured(url: &str, mut config: ClientConfig) -> Result<(NfsUrl, ClientConfig), Error> {
    let mut url: NfsUrl = url.parse()?;
    for warning in &url.options.warnings {
        tracing::warn!("{warning}");
    }
    url.options.configure(&mut config);
    if url.path.is_empty() {
        url.path.push(b'/');
    }
    Ok((url, config))
}

/// Opens the channel, if there is one, and fixes what it decides. Returns the host to connect to.
async fn open_channel(host: &str, config: &mut ClientConfig) -> Result<String, Error> {
    let Some(channel) = config.channel.clone() else { return Ok(host.to_owned()) };
    let opening = async { channel.open().await.map_err(|source| Error::Channel(Arc::new(source))) };
    let address = within(config, host, opening).await?;
    config.transport = TransportChoice::Udp;
    set_port(config, address);
    (config.reserved_port, config.known) = (false, None);
    Ok(match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        address => address.ip().to_string(),
    })
}

/// Fixes the port of all services: a channel leads to them together.
const fn set_port(config: &mut ClientConfig, address: SocketAddr) {
    (config.nfs_port, config.mount_port) = (Some(address.port()), Some(address.port()));
}

/// Runs `attempt` within the configured time to reach a server.
async fn within<T>(
    config: &ClientConfig,
    host: &str,
    attempt: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match config.connect_timeout {
        None => attempt.await,
        Some(elapsed) => tokio::time::timeout(elapsed, attempt)
            .await
            .unwrap_or_else(|_| Err(Error::ConnectTimeout { host: host.into(), elapsed })),
    }
}

pub(crate) fn packed(arguments: &impl Pack) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(arguments.packed_size());
    encode(&mut buffer, arguments);
    buffer
}

fn decode<'a, T: Results<'a>>(procedure: Procedure, results: &'a [u8]) -> Result<T, Error> {
    reply::decode(results)
        .map_err(|source| Error::Protocol { what: procedure.name(), source })?
        .map_err(|status| Error::refused(procedure, status))
}
