//! `nfsw share`: a directory for people nearby who have a code, until a time.

mod kept;
mod web;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fmt::Write as _,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::{Component, Path},
    time::{Duration, Instant, SystemTime},
};

use jiff::{Timestamp, tz::TimeZone};
use nfs_share::{Event, Identity, Member, MemberId, Share, Sharer};
use nfs_wireless_server::{Access, Directory, DirectoryConfig};

use self::{
    kept::{Kept, Run},
    web::Web,
};
use crate::{
    args::{OutputArgs, ShareArgs},
    error::{io_text, local, show},
    exit::{Exit, Failure},
    report::Reporter,
    signals::interrupted,
    summary::Summary,
    text::escape,
};

/// A person that is shared with.
#[derive(Clone, Debug)]
struct Person {
    name: String,
    /// What the person may read, below the directory.
    below: String,
}

pub(super) fn execute(arguments: &ShareArgs) -> Exit {
    let reporter = Reporter::new(&OutputArgs::default(), Instant::now());
    match run(arguments, &reporter) {
        Ok(exit) => reporter.end(exit, &Summary::default()),
        Err(error) => reporter.finish(Err(error), &Summary::default()),
    }
}

fn run(arguments: &ShareArgs, reporter: &Reporter) -> anyhow::Result<Exit> {
    crate::descriptors::raise_limit();
    let persons = persons(&arguments.to)?;
    let directory =
        arguments.directory.canonicalize().map_err(|error| local(&arguments.directory, &error))?;
    for person in &persons {
        // Before anything is told.
        files(&directory, person)?;
    }
    let kept = match Kept::open(&directory, &arguments.to) {
        Ok(kept) => Some(kept),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            return Err(Failure::with(Exit::LocalIo, "the same share is running already".to_owned()));
        }
        Err(error) => {
            warn_not_kept(reporter, &error);
            None
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(share(arguments, &directory, &persons, kept.as_ref(), reporter))
}

async fn share(
    arguments: &ShareArgs,
    directory: &Path,
    persons: &[Person],
    kept: Option<&Kept>,
    reporter: &Reporter,
) -> anyhow::Result<Exit> {
    let ended = interrupted();
    let now = Instant::now();
    let before = kept.and_then(|kept| kept.load(now));
    let until = before.as_ref().map_or(now + arguments.lifetime, |run| run.until);
    let identity = before.as_ref().map_or_else(Identity::draw, |run| run.identity.clone());
    let title = arguments.name.clone().unwrap_or_else(|| name(directory));
    let mut listen = arguments.listen;
    if let Some(run) = &before {
        listen.set_port(run.port);
    }
    let (share, mut events) = Share::bind(listen, Sharer::new(identity.clone(), &title, now))
        .await
        .map_err(|error| cannot_listen(listen, &error))?;
    let before = before.map_or_else(Vec::new, |run| run.members);
    let people = admit(&share, directory, persons, before, until)?;
    let web = show_to_browsers(arguments, &title, &identity, &share, directory, &people).await?;
    let keep = |share: &Share| {
        let members = people.iter().filter_map(|(id, _)| share.member(*id)).collect();
        let run = Run { identity: identity.clone(), port: share.local_addr().port(), until, members };
        if let Some(Err(error)) = kept.map(|kept| kept.save(&run)) {
            warn_not_kept(reporter, &error);
        }
    };
    keep(&share);
    let addresses = addresses(share.local_addr());
    let mut said =
        format!("sharing {} until {}, read-only; Ctrl-C ends it\n", show(directory), clock_time(until));
    for (id, person) in &people {
        said.push_str(&invitation(&share, *id, person, &addresses));
        web.iter().for_each(|web| said.push_str(&web.invitation(*id)));
    }
    reporter.print(said.as_bytes())?;
    tokio::pin!(ended);
    let exit = loop {
        let event = tokio::select! {
            () = &mut ended => break Exit::Interrupted,
            event = events.recv() => event,
        };
        let Some(event) = event else { break Exit::Done };
        let (Event::Joined(id, _) | Event::Withdrawn(id) | Event::Ended(id)) = event else { continue };
        let Some((_, person)) = people.iter().find(|(known, _)| *known == id) else { continue };
        keep(&share);
        reporter.print(tell(&share, &event, person, &addresses).as_bytes())?;
        if share.members().is_empty() {
            break Exit::Done;
        }
    };
    let mut said = String::new();
    for (id, person) in &people {
        let read = share.served(*id).read_bytes;
        if read > 0 {
            let _ = writeln!(said, "{} read {read} bytes", person.shown());
        }
    }
    if let Some(web) = web {
        web.end().await;
    }
    share.end().await;
    if let Some(kept) = kept {
        kept.remove();
    }
    reporter.print(said.as_bytes())?;
    Ok(exit)
}

/// Gives each person a code, or what an earlier run has given it.
fn admit<'a>(
    share: &Share,
    directory: &Path,
    persons: &'a [Person],
    before: Vec<Member>,
    until: Instant,
) -> anyhow::Result<Vec<(MemberId, &'a Person)>> {
    let before = before.into_iter().map(Some).chain(std::iter::repeat(None));
    let admitted = persons.iter().zip(before).map(|(person, member)| {
        let files = files(directory, person)?;
        let id = match member {
            Some(member) => {
                let id = member.id;
                share.restore(member, files);
                id
            }
            None => share.invite(until, files),
        };
        Ok((id, person))
    });
    admitted.collect()
}

/// With `--web`: shows the same files to the same people's browsers.
async fn show_to_browsers(
    arguments: &ShareArgs,
    title: &str,
    identity: &Identity,
    share: &Share,
    directory: &Path,
    people: &[(MemberId, &Person)],
) -> anyhow::Result<Option<Web>> {
    let Some(listen) = arguments.web else { return Ok(None) };
    let web = Web::bind(listen, title, identity, addresses).await?;
    for (id, person) in people {
        web.admit(*id, files(directory, person)?, share.term(*id));
    }
    Ok(Some(web))
}

fn warn_not_kept(reporter: &Reporter, error: &std::io::Error) {
    let why = io_text(error);
    reporter.warning(format_args!("warning: if this is killed, it cannot be resumed: {why}"));
}

/// Reads `--to`; without one there is one person without a name.
fn persons(to: &[String]) -> anyhow::Result<Vec<Person>> {
    if to.is_empty() {
        return Ok(vec![Person { name: String::new(), below: String::new() }]);
    }
    let mut persons: Vec<Person> = Vec::new();
    for text in to {
        let (name, below) = text.split_once('=').unwrap_or((text, ""));
        let is_below = Path::new(below).components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !is_below {
            let text = format!("--to {text}: expected NAME or NAME=SUBDIR, with a path below DIR");
            return Err(Failure::with(Exit::Usage, text));
        }
        if persons.iter().any(|person| person.name == name) {
            return Err(Failure::with(Exit::Usage, format!("--to {name} is there twice")));
        }
        persons.push(Person { name: name.to_owned(), below: below.to_owned() });
    }
    Ok(persons)
}

/// Opens what a person may read.
fn files(directory: &Path, person: &Person) -> anyhow::Result<Directory> {
    let path = directory.join(&person.below);
    // A link in the directory may lead out of it.
    let real = path.canonicalize().map_err(|error| local(&path, &error))?;
    if !real.starts_with(directory) {
        return Err(Failure::with(Exit::Usage, format!("{} leads out of {}", show(&path), show(directory))));
    }
    let mut config = DirectoryConfig::default();
    config.access = Access::ReadOnly;
    Ok(Directory::open(&real, config).map_err(|error| local(&real, &error))?)
}

impl Person {
    fn shown(&self) -> String {
        if self.name.is_empty() {
            "the receiver".to_owned()
        } else {
            escape(self.name.as_bytes()).into_owned()
        }
    }
}

/// Says which code somebody has, and what to type.
fn invitation(share: &Share, id: MemberId, person: &Person, addresses: &[SocketAddr]) -> String {
    let Some(member) = share.member(id) else { return String::new() };
    let whom = if person.name.is_empty() { String::new() } else { format!(" for {}", person.shown()) };
    let Some(code) = member.code else {
        return match member.key {
            Some(_) => format!("\n{} has the code already\n", person.shown()),
            None => format!("\nno code{whom}: others have guessed too often\n"),
        };
    };
    let mut said = format!("\ncode{whom}: {code}\n");
    for address in addresses {
        let _ = writeln!(said, "  nfsw ls -l {code}@{address}:/\n  nfsw cp -r {code}@{address}:/ .");
    }
    said
}

/// Says what has happened.
fn tell(share: &Share, event: &Event, person: &Person, addresses: &[SocketAddr]) -> String {
    let whom = person.shown();
    match event {
        Event::Joined(id, from) => {
            let label = share.member(*id).map(|member| member.label).unwrap_or_default();
            format!("{whom} has used the code: {} at {}\n", escape(&label), from.ip().to_canonical())
        }
        Event::Withdrawn(id) => {
            let again = invitation(share, *id, person, addresses);
            format!("three wrong guesses: the code of {whom} is not valid any more\n{again}")
        }
        Event::Ended(_) => format!("the time of {whom} is over\n"),
        _ => String::new(),
    }
}

/// Returns the addresses that others may reach: the one given, or that of each way out.
fn addresses(bound: SocketAddr) -> Vec<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return vec![bound];
    }
    // Nothing is sent: the system only chooses where it would leave for another network, and for those that homes have.
    let mut found = BTreeSet::new();
    for to in ["192.0.2.1:9", "192.168.255.254:9", "10.255.255.254:9", "172.31.255.254:9"] {
        let local = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect(to)?;
            socket.local_addr()
        });
        found.extend(
            local.ok().map(|local| local.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified()),
        );
    }
    if found.is_empty() {
        found.insert(IpAddr::from([127, 0, 0, 1]));
    }
    found.into_iter().map(|ip| SocketAddr::new(ip, bound.port())).collect()
}

fn cannot_listen(listen: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let text = format!("cannot listen on {listen}: {} (--listen takes another)", io_text(error));
    Failure::with(Exit::LocalIo, text)
}

fn name(directory: &Path) -> String {
    directory.file_name().unwrap_or_else(|| OsStr::new("/")).to_string_lossy().into_owned()
}

/// Returns the time of day at which an instant is.
fn clock_time(until: Instant) -> String {
    let time =
        SystemTime::now() + until.saturating_duration_since(Instant::now()) + Duration::from_millis(500);
    match Timestamp::try_from(time) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string(),
        Err(_) => "the end of time".to_owned(),
    }
}
