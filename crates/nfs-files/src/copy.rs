//! Copying files and trees between this machine and servers.

mod compare;
mod decision;
mod destination;
mod file;
pub mod filter;
mod listing;
mod plan;
mod resume;
mod schedule;
mod shard;
mod source;
mod sync;
mod tags;
mod written;

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::BTreeMap,
    fmt::Display,
    io,
    rc::Rc,
    time::Duration,
};

use self::{
    decision::MOST_DECISIONS,
    destination::{Location, directory::TargetDirectory, marker},
    file::{Item, Version, changes_all_the_time, stream::Throttle},
    resume::{completed::Done, state},
    schedule::{Begun, Class, JOBS, Limits, Load, Loads, Queue},
    source::{FIFO, Kind, Node, Rest, leads_out},
    sync::{Alone, Syncing},
    written::Written,
};
pub use self::{
    file::stream,
    filter::Filter,
    shard::Shard,
    sync::{Compare, Sync},
    tags::Tags,
};
use crate::{
    context::{Context, Counting},
    descriptors,
    error::{Error, ErrorKind, Result},
    escape::escape,
    event::{Change, Counts, Event, Name, Skip, Warning},
    local::{self, Key, StateHome},
    progress::Share,
    url::{Target, components},
};
use futures_util::{
    FutureExt, StreamExt,
    future::{LocalBoxFuture, poll_fn},
    stream::FuturesUnordered,
};

/// What is to be copied where, and how.
#[derive(Debug)]
pub struct Options {
    /// What to copy.
    pub sources: Vec<Target>,
    /// Where to.
    pub destination: Target,
    /// Whether directories are copied.
    pub recursive: bool,
    /// Which links stand for what they point to.
    pub links: Links,
    /// Whether the destination is what the source becomes, also if it is a directory that exists.
    pub is_whole_target: bool,
    /// Whether modes, times and owners are kept.
    pub preserve: bool,
    /// Which files that are there may be replaced.
    pub overwrite: Overwrite,
    /// Whether files are written under their own name from the start.
    pub inplace: bool,
    /// When zeros become holes.
    pub sparse: local::Sparse,
    /// Whether to go on from what an interrupted run has left.
    pub resume: bool,
    /// Whether copies are read back and compared.
    pub verify: bool,
    /// Whether nothing is to be done but told.
    pub dry_run: bool,
    /// Which files are taken.
    pub filter: Filter,
    /// What of directories is to be copied and how much deleted, where the user has seen that before.
    pub accepted: Option<Accepted>,
    /// What makes it a sync, if it is one.
    pub sync: Option<Sync>,
    /// Which part of the files is copied, if others copy the rest; with [`Sync::delete`] that is an error. Several runs that differ in
    /// nothing else, at once or one after the other, do together what one run without it does. What differs: without
    /// [`Options::preserve`] directories stay writable for their owner. Unless [`Options::is_whole_target`], the destination of a copy must
    /// exist.
    pub shard: Option<Shard>,
    /// Files in flight at once.
    pub jobs: usize,
    /// Upper bound in bit/s for what does not pass through the client's own transfers.
    pub rate_limit: Option<u64>,
    /// Where it is kept what an interrupted run has copied.
    pub state: StateHome,
}

/// What a dry run has told, and its user has accepted: nothing else is copied or deleted, whatever the source becomes meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// Files and links by their paths below SRC, with their bytes.
    pub files: BTreeMap<Vec<u8>, u64>,
    /// Files and directories that are deleted, at most.
    pub deleted: u64,
}

impl Accepted {
    /// Whether a file may be copied.
    fn has(&self, path: &[u8], node: &Node) -> bool {
        self.files.get(path).is_some_and(|&bytes| node.attributes.size <= bytes)
    }
}

/// Which files that are there may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// All.
    Always,
    /// None.
    Never,
    /// Those that are older than their source.
    Older,
}

/// Which symbolic links stand for what they point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// None: links are copied as links.
    Never,
    /// Those that the user named.
    Named,
    /// All.
    All,
}

/// How long to wait, one time after the other, for other programs to let go of what this machine has no more of: 12 s in all.
const SCARCITY_PAUSES: [Duration; 7] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
    Duration::from_millis(3200),
    Duration::from_millis(6400),
];

/// One thing to copy, and where to.
#[derive(Debug)]
struct Work {
    node: Node,
    target_directory: Rc<TargetDirectory>,
    /// Its name there; `None` when its contents go right there.
    name: Option<Vec<u8>>,
    /// Whether the user named it, and not only a directory above it.
    is_named: bool,
    /// What is left of a directory whose beginning was copied.
    rest: Option<Rest>,
}

/// What became of a [`Work`].
struct Processed {
    /// The work, where it may work later.
    again: Option<Work>,
    /// What it was counted as.
    load: Load,
    /// Directories it held: the one it went to, and the one it made.
    target_directories: Vec<Rc<TargetDirectory>>,
    result: Result<Vec<Work>>,
}

/// How far a run is.
struct Progress {
    queue: Queue<Work>,
    /// How the run ends: what is under way may still end well, and one error for all is enough.
    end: Result<()>,
    /// How often it was waited in vain for what this machine has no more of.
    waits: usize,
}

impl Default for Progress {
    fn default() -> Self {
        Self { queue: Queue::default(), end: Ok(()), waits: 0 }
    }
}

impl Progress {
    /// Begins nothing else.
    fn end_with(&mut self, error: Error) {
        self.queue = Queue::default();
        if self.end.is_ok() {
            self.end = Err(error);
        }
    }
}

/// One run of `nfsw cp` or `nfsw sync`.
struct Run<'a> {
    copy: &'a Options,
    context: Context<'a>,
    told: &'a Counting<'a>,
    throttle: Throttle,
    tags: Tags,
    /// What an interrupted run of a whole tree has copied.
    done: Option<Done>,
    sync: Option<Syncing>,
    /// How often a server has refused to keep modes and times.
    refusals: Cell<u32>,
    /// With what journals are sealed; none where it cannot be kept, which was said.
    key: OnceCell<Option<Key>>,
    /// What it writes that was there before.
    written: Written,
    /// The directories that sources become, while they have the mark of an unfinished copy.
    marked: RefCell<Vec<Rc<TargetDirectory>>>,
    /// What is done at once at most, as this machine allows.
    most: Cell<usize>,
    /// Looks whether directories on servers are still where they were when they were filled, which nothing waits for.
    looks: RefCell<FuturesUnordered<LocalBoxFuture<'a, Result<()>>>>,
    /// Where a sync keeps others out.
    alone: RefCell<Option<Alone>>,
}

/// Copies everything asked for.
///
/// # Errors
/// What ended the run; failures of single files are reported and the rest is copied.
pub async fn run(copy: &Options, context: Context<'_>) -> Result<Counts> {
    let told = Counting::new(context.events);
    // It is large.
    Box::pin(copy_all(copy, Context { events: &told, ..context }, &told)).await?;
    Ok(told.counts())
}

async fn copy_all<'a>(copy: &'a Options, context: Context<'a>, told: &'a Counting<'a>) -> Result<()> {
    let throttle = Throttle::new(copy.rate_limit);
    let tags = Tags::new(&copy.state);
    let plan = plan::plan(copy, &tags, context).await?;
    let done = match &plan {
        plan::Plan::Files { key, works, .. } if copy.keeps_list() => match copy.shard {
            None => open_done(copy, context, key, works)?,
            // Each has a list of its own.
            Some(shard) => {
                let key = state::key([&key[..], shard.to_string().as_bytes()]);
                open_done(copy, context, &key, works)?
            }
        },
        plan::Plan::Files { .. } | plan::Plan::Stream(..) => None,
    };
    let sync = copy.sync.map(|options| {
        let root = match &plan {
            plan::Plan::Files { works, .. } => works.first().map(|work| work.node.clone()),
            plan::Plan::Stream(..) => None,
        };
        Syncing::new(options, root)
    });
    context.events.tell(&Event::Planned { is_sync: sync.is_some(), is_dry_run: copy.dry_run })?;
    let (refusals, key, marked, looks) = Default::default();
    let most = Cell::new(descriptors::at_once());
    let run = Run {
        copy,
        context,
        told,
        throttle,
        tags,
        done,
        sync,
        refusals,
        key,
        written: Written::default(),
        marked,
        most,
        looks,
        alone: RefCell::default(),
    };
    let ended = match plan {
        plan::Plan::Stream(node, output) => run.to_output(&node, &output).await,
        plan::Plan::Files { works, clean_up, .. } => {
            let ended = run.files(works).await;
            if let Some(clean_up) = clean_up {
                drop(clean_up.await);
            }
            ended
        }
    };
    context.events.tell(&Event::Done { is_verified: copy.verify })?;
    ended?;
    if let Some(done) = run.done.filter(|_| !told.has_failures()) {
        done.finish();
    }
    Ok(())
}

impl Options {
    /// Returns what copies these files to that place, into it if it is a directory: no directories, with the modes of new files, over
    /// what is there; an interrupted copy is resumed.
    pub fn new(sources: impl IntoIterator<Item = Target>, destination: Target) -> Self {
        Self {
            sources: sources.into_iter().collect(),
            destination,
            recursive: false,
            links: Links::Named,
            is_whole_target: false,
            preserve: false,
            overwrite: Overwrite::Always,
            inplace: false,
            sparse: local::Sparse::Auto,
            resume: true,
            verify: false,
            dry_run: false,
            filter: Filter::default(),
            accepted: None,
            sync: None,
            shard: None,
            jobs: JOBS,
            rate_limit: None,
            state: StateHome::of_user(),
        }
    }

    /// Returns what makes the contents of one directory those of another, with modes and times; what only the destination has, and
    /// what is newer there, stays.
    pub fn sync(source: Target, destination: Target) -> Self {
        let sync = Sync { compare: Compare::SizeAndTime, force: false, delete: false, max_delete: None };
        Self { recursive: true, preserve: true, sync: Some(sync), ..Self::new([source], destination) }
    }

    /// Whether there may be so many files that it is kept which of them are complete.
    fn keeps_list(&self) -> bool {
        let are_many =
            self.recursive || self.sources.len() > 1 || self.sources.iter().any(Target::is_pattern);
        // A sync sees what is complete.
        are_many && self.resume && !self.dry_run && self.sync.is_none()
    }
}

/// Opens the list of what an interrupted run has copied from the same sources to the same target;
/// `None` where none is kept.
fn open_done(copy: &Options, context: Context<'_>, key: &[u8], works: &[Work]) -> Result<Option<Done>> {
    let Some(Work { target_directory, .. }) = works.first() else { return Ok(None) };
    let (session, server) = match &target_directory.location {
        Location::Remote(location) => ([0; 16], Some(location.client.address())),
        Location::Local { directory, .. } if directory.session() != [0; 16] => (directory.session(), None),
        Location::Local { .. } | Location::Planned(_) => return Ok(None),
    };
    match Done::open(&copy.state, key, server, session, copy.preserve) {
        Ok(None) => {
            context.events.tell(&Event::Warning(Warning::NotResumableBesideAnother))?;
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let text = "another nfsw is copying the same to the same place; wait for it, or stop it";
            Err(Error::other(text))
        }
        Err(error) => {
            context.events.tell(&Event::Warning(Warning::NotResumable(&error)))?;
            Ok(None)
        }
        Ok(done) => Ok(done),
    }
}

impl Run<'_> {
    /// Returns with what journals are sealed.
    fn key(&self) -> Option<Key> {
        let find = || self.copy.state.key().map_err(|error| self.warn(Warning::NotResumable(&error))).ok();
        *self.key.get_or_init(find)
    }

    /// Reports what `--files-from` lists and no source has.
    fn tell_missing(&self) -> Result<()> {
        let [source, others @ ..] = &self.copy.sources[..] else { return Ok(()) };
        for path in self.copy.filter.missing() {
            if !self.says_directory(&path) {
                continue;
            }
            let path = escape(&path);
            let there = if others.is_empty() { format!("{source}/{path}") } else { path.into_owned() };
            let text = format!("{there}: listed in --files-from, but not there");
            self.context.events.fail(Error::new(ErrorKind::SourceMissing, text))?;
        }
        Ok(())
    }

    /// Copies files and directories, and does what follows when all of it is there.
    async fn files(&self, mut works: Vec<Work>) -> Result<()> {
        self.keep_own(&mut works);
        // Of what goes into one directory and does not always replace what is there, the order decides which file is left.
        let is_ordered = self.copy.overwrite != Overwrite::Always
            && works.first().is_some_and(|work| work.target_directory.given().are_merged());
        match is_ordered {
            false => self.work_off(works).await?,
            true => {
                for work in works {
                    self.work_off(vec![work]).await?;
                }
            }
        }
        self.tell_missing()?;
        if let Some(sync) = &self.sync {
            self.follow_up(sync).await?;
        }
        self.end_looks().await?;
        for target in self.marked.take() {
            if !self.told.has_failures() {
                target.location.remove_mark(self.context).await?;
            }
            self.release(target).await?;
        }
        self.end_looks().await
    }

    async fn work_off(&self, works: Vec<Work>) -> Result<()> {
        let mut progress = Progress::default();
        if let Err(error) = self.enqueue(works, &mut progress.queue).await {
            self.context.events.fail(error)?;
        }
        let mut running = FuturesUnordered::new();
        let mut loads = Loads::default();
        loop {
            while let Some(Begun { work, load, is_again }) = progress.queue.next(loads, self.limits()) {
                loads.add(load);
                running.push(self.process(work, load, is_again));
            }
            let looked = poll_fn(|context| self.looks.borrow_mut().poll_next_unpin(context));
            let processed = tokio::select! {
                biased;
                processed = running.next() => processed,
                Some(looked) = looked => {
                    if let Err(error) = looked {
                        progress.end_with(error);
                    }
                    continue;
                }
            };
            let Some(Processed { again, load, target_directories, result }) = processed else {
                return progress.end;
            };
            loads.remove(load);
            let result = match (result, again) {
                (Err(error), Some(work)) if progress.end.is_ok() => {
                    self.try_later(work, error, running.len(), &mut progress).await
                }
                (result, _) => {
                    if result.is_ok() {
                        progress.waits = 0;
                    }
                    result
                }
            };
            let enqueued = match result {
                Ok(children) => self.enqueue(children, &mut progress.queue).await,
                Err(error) => Err(error),
            };
            let mut results = vec![enqueued];
            for target_directory in target_directories {
                results.push(self.release(target_directory).await);
            }
            for error in results.into_iter().filter_map(Result::err) {
                if error.ends_run() {
                    progress.end_with(error);
                } else if progress.end.is_ok() {
                    self.context.events.fail(error)?;
                }
            }
        }
    }

    /// Keeps work that failed as this machine has no more of something, until other work lets go of it. Where there is none, other programs
    /// may: that is waited for, for some time.
    async fn try_later(
        &self,
        work: Work,
        error: Error,
        running: usize,
        progress: &mut Progress,
    ) -> Result<Vec<Work>> {
        if running == 0 {
            let Some(pause) = SCARCITY_PAUSES.get(progress.waits) else { return Err(error) };
            progress.waits += 1;
            tokio::time::sleep(*pause).await;
        }
        self.most.set(running.clamp(1, self.most.get()));
        progress.queue.again.push(work);
        Ok(Vec::new())
    }

    /// Adds work to what is to be done.
    ///
    /// # Errors
    /// There are too many directories: some are left out.
    async fn enqueue(&self, works: Vec<Work>, queue: &mut Queue<Work>) -> Result<()> {
        let refused = queue.add(works.into_iter().map(|work| {
            let bytes = work.node.expected_bytes();
            if work.node.kind == Kind::Directory {
                let names = work.node.to_bytes().len() + work.name.as_ref().map_or(0, Vec::len);
                return (work, Class::Directory(names));
            }
            self.context.servers.activity().expect(bytes);
            (work, Class::File(bytes))
        }));
        let Some(first) = refused.last() else { return Ok(()) };
        let (first, more) = (first.node.to_string(), refused.len() - 1);
        for work in refused {
            self.release(work.target_directory).await?;
        }
        let text = format!(
            "{first}: not copied, and {more} more beside it: there are too many directories; copy those above it one by one"
        );
        Err(Error::other(text))
    }

    /// Returns what may be under way at once.
    fn limits(&self) -> Limits {
        Limits { jobs: self.copy.jobs, most: self.most.get(), lists_ahead: self.sync.is_some() }
    }

    /// Lets go of a directory, and of those above it that are complete with it.
    async fn release(&self, target_directory: Rc<TargetDirectory>) -> Result<()> {
        let look = |target_directory: &TargetDirectory| self.look(target_directory);
        TargetDirectory::release(target_directory, self.context, self.copy.preserve, look).await
    }

    /// Whether more than one file may be copied.
    fn are_several(&self) -> bool {
        self.copy.recursive || self.copy.sources.len() > 1
    }

    /// Looks whether the name of a directory that something was copied into still leads to it, and says if not.
    fn look(&self, target_directory: &TargetDirectory) -> Result<()> {
        // A round trip for a single file would be too much.
        if target_directory.is_top()
            && !self.are_several()
            && matches!(target_directory.location, Location::Remote(_))
        {
            return Ok(());
        }
        match &target_directory.location {
            Location::Local { .. } if target_directory.is_at_its_name() => Ok(()),
            Location::Local { .. } => Err(moved(&target_directory.location.own_name().shown)),
            Location::Planned(_) => Ok(()),
            Location::Remote(location) => {
                let context = self.context;
                let Some(entry) = location.entry() else { return Ok(()) };
                let look = async move {
                    match entry.holds(context).await {
                        Ok(true) => Ok(()),
                        Ok(false) => context.events.fail(moved(&entry.remote)),
                        Err(error) => context.events.fail(error),
                    }
                };
                self.looks.borrow().push(look.boxed_local());
                Ok(())
            }
        }
    }

    /// Waits for the looks that are under way.
    async fn end_looks(&self) -> Result<()> {
        loop {
            match poll_fn(|context| self.looks.borrow_mut().poll_next_unpin(context)).await {
                Some(looked) => looked?,
                None => return Ok(()),
            }
        }
    }

    async fn process(&self, work: Work, load: Load, is_again: bool) -> Processed {
        let mut target_directories = vec![Rc::clone(&work.target_directory)];
        let begun = if is_again { Ok(Some(work)) } else { self.set_aside(work).await };
        let work = match begun {
            Ok(Some(work)) => work,
            Ok(None) => return Processed { again: None, load, target_directories, result: Ok(Vec::new()) },
            Err(error) => return Processed { again: None, load, target_directories, result: Err(error) },
        };
        let Work { node, target_directory, name, is_named, rest } = work;
        let again = rest.is_none().then(|| (node.clone(), Rc::clone(&target_directory), name.clone()));
        let result = match (&node.kind, name) {
            (Kind::Directory, name) => {
                let below = name.as_deref().map(|name| filter::below(target_directory.relative(), name));
                let make = async || self.directory(&node, &target_directory, name.as_deref(), is_named).await;
                let result = match self.in_open(&target_directory, make).await {
                    Ok(made) => {
                        target_directories.push(Rc::clone(&made));
                        self.children(node, &made, rest).await
                    }
                    Err(error) => Err(error),
                };
                if let Some(path) = below.filter(|_| result.is_err()) {
                    self.copy.filter.leave(&path);
                }
                result
            }
            (_, None) => Err(Error::other(format!("{node}: is not a directory"))),
            // A fifo that the user named is read to its end, as cp does it.
            (Kind::File, Some(name)) | (Kind::Special(FIFO), Some(name))
                if node.kind == Kind::File || is_named && node.is_local() && !self.copy.recursive =>
            {
                let share = Share::new(self.context.servers.activity(), node.expected_bytes());
                self.context.servers.activity().set_current(escape(&name).into_owned());
                let item =
                    Item { node: &node, target_directory: &target_directory, name: &name, share: &share };
                self.in_open(&target_directory, async || self.file(item).await).await.map(|()| Vec::new())
            }
            (Kind::File | Kind::Symlink, Some(name)) => {
                let link = async || self.link(&node, &target_directory, &name).await;
                self.in_open(&target_directory, link).await.map(|()| Vec::new())
            }
            (Kind::Special(what), Some(_)) if is_named => {
                let text = format!("{node}: is a {what}, which cannot be copied; for standard input, use -");
                Err(Error::other(text))
            }
            (Kind::Special(what), Some(name)) => {
                self.warn(Warning::Special(&node.name(), what));
                self.skip(&node, &target_directory.location.name(&name), Skip::Special).map(|()| Vec::new())
            }
        };
        if result.is_err() && !self.are_several() {
            // There is no copy that could be elsewhere.
            target_directory.set_filled(false);
        }
        drop(target_directory);
        let again = again.filter(|_| result.as_ref().is_err_and(Error::is_scarce));
        let again = again.map(|(node, target_directory, name)| Work {
            node,
            target_directory,
            name,
            is_named,
            rest: None,
        });
        Processed { again, load, target_directories, result }
    }

    /// Creates the directory that takes what is in a source directory.
    async fn directory(
        &self,
        node: &Node,
        target_directory: &Rc<TargetDirectory>,
        name: Option<&[u8]>,
        is_named: bool,
    ) -> Result<Rc<TargetDirectory>> {
        if !self.copy.recursive {
            return Err(Error::other(format!("{node}: is a directory (-r copies it)")));
        }
        if target_directory.is_inside(node).await? {
            let text = format!("{node}: cannot copy a directory into itself");
            return Err(Error::other(text));
        }
        let Some(name) = name else {
            self.enter_alone(&target_directory.location, is_named)?;
            return Ok(Rc::clone(target_directory));
        };
        let _turn = self.turn(target_directory, name).await?;
        let created_mode = match node.attributes.mode & 0o777 {
            // Until it has its group, that of the directory above may do no more in it than all may.
            mode if self.copy.preserve => file::for_any_group(mode),
            mode => mode,
        };
        let created_mode = (created_mode & !local::umask()) | 0o700;
        let was = target_directory.location.present(self.context, name).await?;
        if was.is_none() && !self.copy.dry_run {
            target_directory.touch(self.context).await;
        }
        let path = filter::below(target_directory.relative(), name);
        let says = self.says_directory(&path);
        let mark = target_directory.marks().then(|| marker::sealed(&marker::of(node), self.key()));
        let dry_run = self.copy.dry_run;
        let mut location = target_directory
            .location
            .directory(self.context, (name, &self.tags), created_mode, dry_run, mark.as_deref())
            .await?;
        self.enter_alone(&location, is_named)?;
        let is_new_here = self.claim_directory(target_directory, &location)?;
        let is_changed =
            !self.copy.dry_run && location.remove_left(&self.copy.state, &self.tags, is_new_here).await;
        let is_new = location.was_created() || matches!(location, Location::Planned(_));
        let says_new = is_new && (says || location.was_created());
        let has_other_mode =
            || was.is_some_and(|was| was.attributes.mode & 0o7777 != node.attributes.mode & 0o7777);
        match &self.sync {
            None if says => self.say(node, &location.own_name(), None)?,
            // Each shard would make what none does make.
            Some(_) if says_new => self.say_change(node, target_directory, name, Change::New)?,
            None | Some(_) => {}
        }
        let says_attributes = self.sync.is_some() && !is_new && says && has_other_mode();
        let changes = !self.copy.dry_run;
        // An interrupted run may have made it under its own name.
        let mut is_marked = changes && target_directory.marks();
        if is_named
            && !target_directory.marks()
            && self.copy.shard.is_none()
            && let Some(mark) = location.mark(self.context).await?
        {
            marker::check(location.own_name().shown, &mark, &marker::of(node), "")?;
            is_marked = changes;
        }
        let (below, was) = ((!is_named).then_some(name), was.map(|was| was.attributes));
        let last = self.last(is_named);
        let made = TargetDirectory::below(target_directory, location, below, node.attributes, was, last);
        let made = Rc::new(made);
        if !self.copy.dry_run {
            made.narrow(self.context).await?;
        }
        if says_attributes {
            self.say_change(node, target_directory, name, Change::Attributes)?;
        }
        if is_changed {
            made.note_change();
        }
        if is_marked {
            self.marked.borrow_mut().push(Rc::clone(&made));
        }
        Ok(made)
    }

    /// Keeps other syncs of this user out of the destination of a sync, if it is on this machine: there they would write the same files.
    fn enter_alone(&self, location: &Location, is_named: bool) -> Result<()> {
        let (true, Location::Local { directory, .. }) = (is_named && self.sync.is_some(), location) else {
            return Ok(());
        };
        if self.copy.shard.is_some() || self.copy.dry_run {
            return Ok(());
        }
        match Alone::enter(&self.copy.state, directory) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let text = "another nfsw is copying into this directory; wait for it, or stop it";
                Err(Error::other(format!("{}: {text}", location.own_name().shown)).that_ends_run())
            }
            // Nobody is kept out where this user has no place for that.
            entered => {
                self.alone.replace(entered.ok());
                Ok(())
            }
        }
    }

    /// Refuses a directory that was there, and is filled under another name already. Whether this run enters it for the first time.
    fn claim_directory(&self, above: &TargetDirectory, location: &Location) -> Result<bool> {
        let claim = |location: &Location| {
            let which = location.which();
            which.map_or(Ok(false), |which| self.written.claim(which, &location.own_name().shown))
        };
        // Of the others that has been seen to when they were entered.
        if above.is_top() && !above.location.was_created() {
            claim(&above.location)?;
        }
        if location.was_created() {
            // The next source that fills it is not the first.
            if let Some(which) = location.which() {
                self.written.note(which, &location.own_name().shown);
            }
            return Ok(false);
        }
        claim(location)
    }

    async fn link(&self, node: &Node, target_directory: &TargetDirectory, name: &[u8]) -> Result<()> {
        let _turn = self.turn(target_directory, name).await?;
        self.claim(target_directory, name, node)?;
        let location = &target_directory.location;
        let mut present = location.present(self.context, name).await?;
        for _ in 0..MOST_DECISIONS {
            let Some(change) = self.wants(node, target_directory, name, present.as_ref()).await? else {
                return Ok(());
            };
            if self.copy.dry_run && !node.is_in_share() {
                return self.say_change(node, target_directory, name, change);
            }
            let target = node.read_link().await?;
            if node.is_in_share() && leads_out(&target, components(target_directory.relative()).len()) {
                self.warn(Warning::LeadsOut(&node.name()));
                return self.skip(node, &location.name(name), Skip::LeadsOut);
            }
            if self.copy.dry_run {
                return self.say_change(node, target_directory, name, change);
            }
            target_directory.touch(self.context).await;
            let kept = self.copy.preserve.then_some(node.attributes);
            let replaces = self.replaces(present.as_ref().map(Version::from));
            if location.symlink(self.context, (name, &self.tags), (&target, kept), replaces).await? {
                return self.say_change(node, target_directory, name, change);
            }
            // Something else has got the name.
            present = location.look_up(self.context, name).await?;
        }
        Err(changes_all_the_time(location.show(name)))
    }

    fn skip(&self, node: &Node, target: &Name, reason: Skip) -> Result<()> {
        self.context.servers.activity().file_done();
        self.context.events.tell(&Event::Skipped { source: &node.name(), target, reason })
    }

    /// Says what was copied, or would be.
    fn say_change(
        &self,
        node: &Node,
        target_directory: &TargetDirectory,
        name: &[u8],
        change: Change,
    ) -> Result<()> {
        if self.sync.is_none() || node.kind != Kind::Directory {
            self.context.servers.activity().file_done();
        }
        let path = filter::below(target_directory.relative(), name);
        self.say(node, &target_directory.location.name(name), Some((&path, change)))
    }

    fn say(&self, node: &Node, target: &Name, change: Option<(&[u8], Change)>) -> Result<()> {
        let what = node.kind.into();
        // That of a directory is how its file system keeps it.
        let bytes = if node.kind == Kind::File { node.attributes.size } else { 0 };
        self.context.events.tell(&Event::Copied { what, source: &node.name(), target, bytes, change })
    }

    fn warn(&self, warning: Warning<'_>) {
        // A reader who left is noticed at the next line that matters.
        let _ = self.context.events.tell(&Event::Warning(warning));
    }
}

/// Returns the failure of a directory that something was copied into.
fn moved(directory: impl Display) -> Error {
    let text = format!(
        "{directory}: was moved or replaced meanwhile, with what had been copied into it; run it again"
    );
    Error::other(text)
}
