//! `nfsw share`: a directory for people nearby who have a code, until a time.

mod announce;
mod control;
mod kept;
mod live;
mod people;
mod plain;
mod sleep;
mod web;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    future::pending,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::Path,
    time::{Duration, Instant},
};

use nfs_share::{Identity, Interfaces, Share, Sharer};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::{
    announce::Announced,
    control::Question,
    kept::{Kept, SavedShare},
    live::Live,
    people::{People, Person, clock_time},
    plain::Plain,
    sleep::Sleep,
    web::Web,
};
use super::{
    find::interfaces,
    serve::{END, LAST_CALLS},
};
use crate::{
    args::{OutputArgs, ShareArgs},
    color::Color,
    error::{io_text, local, show},
    exit::{Exit, Failure},
    progress::{Line, Progress},
    report::Reporter,
    shares::PORT,
    signals::{end_within, ended},
    sockets::Asker,
    summary::Summary,
    units, verdict,
};

/// How often it is looked whether the machine has slept, and the state is shown.
const SECOND: Duration = Duration::from_secs(1);

pub(super) fn execute(arguments: &ShareArgs) -> Exit {
    let reporter = Reporter::new(&OutputArgs::default(), Instant::now());
    if let Some(question) = Question::of(arguments) {
        let result = control::ask(&question, arguments.directory.as_deref(), &reporter);
        return reporter.finish(result, &Summary::default());
    }
    let exit = match run(arguments, &reporter) {
        Ok(exit) => reporter.end(exit, &Summary::default()),
        Err(error) => reporter.finish(Err(error), &Summary::default()),
    };
    verdict::say(exit);
    exit
}

fn run(arguments: &ShareArgs, reporter: &Reporter) -> anyhow::Result<Exit> {
    crate::descriptors::raise_limit();
    let typed = Person::all(&arguments.to)?;
    let directory = arguments.directory();
    let directory = directory.canonicalize().map_err(|error| local(directory, &error))?;
    for person in &typed {
        // Before anything is told.
        person.files(&directory)?;
    }
    let kept = match Kept::open(&directory) {
        Ok(kept) => Some(kept),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            let text = format!(
                "{} is shared already (nfsw share --list; --allow lets more people in)",
                show(&directory)
            );
            return Err(Failure::with(Exit::LocalIo, text));
        }
        Err(error) => {
            warn_not_kept(reporter, &error);
            None
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(share(arguments, &directory, &typed, kept.as_ref(), reporter));
    runtime.shutdown_timeout(LAST_CALLS);
    ended
}

async fn share(
    arguments: &ShareArgs,
    directory: &Path,
    typed: &[Person],
    kept: Option<&Kept>,
    reporter: &Reporter,
) -> anyhow::Result<Exit> {
    let ended = ended();
    let now = Instant::now();
    let until = later(now, arguments.lifetime)?;
    let (identity, port, before) = match kept.and_then(|kept| kept.load(now)) {
        Some(SavedShare { identity, port, people }) => (identity, port, people),
        None => (Identity::draw(), arguments.listen.map_or(PORT, |listen| listen.port()), Vec::new()),
    };
    let mut listen = arguments.listen.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, port).into());
    if listen.port() == 0 {
        listen.set_port(port);
    }
    let title = arguments.name.clone().unwrap_or_else(|| name(directory));
    let (share, events) = Share::bind(listen, Sharer::new(identity.clone(), &title, now))
        .await
        .map_err(|error| cannot_listen(listen, &error))?;
    if !share.takes_streams() {
        reporter.warning(format_args!(
            "warning: another program has port {} over TCP: people whose network lets no UDP through cannot come (--listen takes another)",
            share.local_addr().port()
        ));
    }
    let reached_at = |bound| addresses(bound, &interfaces(&arguments.interface));
    let web = match arguments.web {
        Some(listen) => Some(Web::bind(listen, &title, &identity, reached_at).await?),
        None => None,
    };
    let plain = match arguments.plain {
        Some(listen) => Some(Plain::bind(listen, directory, reached_at).await?),
        None => None,
    };
    let reachable = reached_at(share.local_addr());
    let mut people = People::admit(share, web, (directory, reachable), typed, before, until)?;
    let place = (identity.public(), people.share.local_addr());
    let announced = Announced::start(arguments, place, people.codes(), reporter).await?;
    people.is_found = announced.is_sent;
    let until = clock_time(people.until().unwrap_or(until));
    let said = format!("sharing {} until {until}, read-only; Ctrl-C ends it\n", show(directory));
    let to_all = plain.as_ref().map_or_else(String::new, Plain::invitation);
    reporter.print((said + &people.invitations() + &to_all).as_bytes())?;
    let questions = questions(directory, reporter);
    let live = Live::default();
    let mut running = Running { people, plain, announced, title, identity, kept, reporter, used: now, live };
    if let Some(progress) = Progress::on_terminal(None, Color::Auto) {
        reporter.show_progress(progress);
    }
    running.keep();
    let exit = running.until_its_end(arguments, ended, events, questions).await;
    reporter.close(false, "");
    let exit = exit?;
    end_within(arguments.farewell() + END, exit);
    let said = running.people.totals() + &running.plain.as_ref().map_or_else(String::new, Plain::line);
    let plain = async {
        if let Some(plain) = running.plain {
            plain.end(arguments.farewell()).await;
        }
    };
    tokio::join!(running.announced.end(), running.people.end(), plain);
    if let Some(kept) = kept {
        kept.remove();
    }
    reporter.print(said.as_bytes())?;
    Ok(exit)
}

/// A share that runs.
struct Running<'a> {
    people: People<'a>,
    plain: Option<Plain>,
    announced: Announced,
    title: String,
    identity: Identity,
    kept: Option<&'a Kept>,
    reporter: &'a Reporter,
    /// When it began, or was changed last.
    used: Instant,
    live: Live,
}

impl Running<'_> {
    /// Tells what happens, and does what it is asked, until nobody may read any more.
    async fn until_its_end(
        &mut self,
        arguments: &ShareArgs,
        interrupted: impl Future<Output = ()>,
        mut events: UnboundedReceiver<nfs_share::Event>,
        mut questions: UnboundedReceiver<Asker>,
    ) -> anyhow::Result<Exit> {
        tokio::pin!(interrupted);
        let mut sleep = Sleep::new();
        let mut seconds = tokio::time::interval(SECOND);
        let mut is_over = self.people.share.members().is_empty();
        while !is_over {
            let idle_at = |it: &mut Self| arguments.idle.map(|idle| it.last_use() + idle);
            let due = idle_at(self);
            let idle = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = &mut interrupted => return Ok(Exit::Interrupted),
                Some(event) = events.recv() => {
                    self.keep();
                    let said = self.people.tell(&event).unwrap_or_default();
                    self.reporter.print(said.as_bytes())?;
                    is_over = self.people.share.members().is_empty();
                }
                Some(asker) = questions.recv() => self.take(asker).await?,
                // Timers stop while the machine sleeps, and the time that was said does not.
                _ = seconds.tick() => {
                    self.people.shorten(sleep.take());
                    self.show();
                }
                () = idle => {
                    // Somebody may have been heard meanwhile.
                    if idle_at(self) <= Some(Instant::now()) {
                        let time = units::whole_seconds(arguments.idle.unwrap_or_default());
                        self.reporter.print(format!("nobody has read anything for {time}\n").as_bytes())?;
                        return Ok(Exit::Done);
                    }
                }
            }
        }
        Ok(Exit::Done)
    }

    /// Shows the state on a terminal.
    fn show(&mut self) {
        let Self { people, live, reporter, .. } = self;
        reporter.show(|(width, _)| {
            let now = Instant::now();
            let left = people.until().map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
            Line::plain(live.line(now, left, people.readers()), width)
        });
    }

    /// Returns when somebody has read or changed something last.
    fn last_use(&mut self) -> Instant {
        let used = self.plain.as_mut().and_then(Plain::used);
        self.people.heard().max(used).map_or(self.used, |heard| heard.max(self.used))
    }

    /// Does what somebody asks.
    async fn take(&mut self, asker: Asker) -> anyhow::Result<()> {
        let question = Question::from_json(&asker.question);
        let said = match &question {
            Some(Question::List) => Ok(self.list()),
            Some(Question::Stop(whom)) => self.people.stop(whom),
            Some(Question::Allow(whom, time)) => {
                later(Instant::now(), *time).and_then(|until| self.people.allow(whom, until))
            }
            Some(Question::Extend(time)) => Ok(self.people.extend(*time)),
            None => Err(Failure::usage("the share does not understand this")),
        };
        if said.is_ok() && question != Some(Question::List) {
            self.used = Instant::now();
            self.keep();
        }
        // What ends is told when it has.
        if let (Some(Question::Allow(..) | Question::Extend(_)), Ok(said)) = (&question, &said) {
            self.reporter.print(said.as_bytes())?;
        }
        asker.answer(&control::answer(&self.title, said)).await;
        Ok(())
    }

    fn list(&self) -> String {
        let until =
            self.people.until().map_or_else(String::new, |until| format!(" until {}", clock_time(until)));
        let to_all = self.plain.as_ref().map_or_else(String::new, Plain::line);
        format!("{}{until}\n{}{to_all}", show(self.people.directory()), self.people.lines())
    }

    /// Keeps what the same command resumes, and tells others which codes there are.
    fn keep(&mut self) {
        self.announced.set_codes(self.people.codes());
        if self.people.until().is_none() {
            return;
        }
        let (identity, people) = (self.identity.clone(), self.people.known());
        let run = SavedShare { identity, port: self.people.share.local_addr().port(), people };
        if let Some(Err(error)) = self.kept.map(|kept| kept.save(&run)) {
            warn_not_kept(self.reporter, &error);
        }
    }
}

/// Returns when a time that begins then is over.
///
/// # Errors
/// A usage error, if the clock does not go so far.
fn later(now: Instant, time: Duration) -> anyhow::Result<Instant> {
    /// A century: whatever is added to it, the clock goes so far.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
    let until = now.checked_add(time).filter(|_| time <= LONGEST);
    until.ok_or_else(|| Failure::usage("--for: no share lasts for more than a century"))
}

/// Listens for those who want to know or change something.
fn questions(directory: &Path, reporter: &Reporter) -> UnboundedReceiver<Asker> {
    let (sender, receiver) = unbounded_channel();
    let sockets = control::sockets().ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound));
    match sockets.and_then(|sockets| sockets.listen(&kept::id(directory))) {
        Ok(listener) => {
            drop(tokio::spawn(async move { while sender.send(listener.next().await).is_ok() {} }))
        }
        Err(error) => {
            let text = "nfsw share --list and the like will not find this share";
            reporter.warning(format_args!("{text}: {}", io_text(&error)));
        }
    }
    receiver
}

fn warn_not_kept(reporter: &Reporter, error: &std::io::Error) {
    let why = io_text(error);
    reporter.warning(format_args!("warning: if this is killed, it cannot be resumed: {why}"));
}

/// Returns the addresses that others may reach: the one given, or that of each way out and of each network with people nearby, which may lead
/// no further.
fn addresses(bound: SocketAddr, interfaces: &Interfaces) -> Vec<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return vec![bound];
    }
    // Nothing is sent: the system only chooses where it would leave for another network, and for those that homes have.
    let nearby = interfaces.addresses().unwrap_or_default();
    let mut found: BTreeSet<IpAddr> = nearby.into_iter().filter(IpAddr::is_ipv4).collect();
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
