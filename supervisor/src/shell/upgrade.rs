//! Replaces this pool by its successor: starts the binary that is installed now, as this process was started, and
//! hands it everything over once its workers serve. `predecessor` is the other side.
//!
//! Until the successor serves, this pool goes on as if nothing happened, and a successor that fails, ends or takes too
//! long changes nothing.

mod devices;
mod error;
mod origin;
mod turn;

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_core::event::{Event, HandOver, Helper, HelperEvent};
use gridpool_ipc::clock;
use gridpool_ipc::frame::{self, FrameReader};
use gridpool_protocol::build;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::codec;
use gridpool_protocol::handover::{FromPredecessor, FromSuccessor, PoolModels, Welcome};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::tensor::model::ModelState;
use nix::libc::SIGKILL;

use super::core::Core;
use super::gateway::Gateway;
use super::pidfd::PidFd;
use super::predecessor::END_GRACE;
use super::{Shared, Shell};

pub use error::UpgradeError;
pub use origin::Origin;
pub(super) use turn::{By, Turn};

/// How long a successor may take to say hello, the first thing that it does.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a successor may take until it could accept connections, once it has everything.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an upgrade waits for the end of the pool before this one, if that is about to end.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a successor that has closed its link may take to end by itself.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a process may take to end that is killed, or has made the one that goes on.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The ids of the successor begin this far beyond those of this pool, which may need some more.
const IDS_APART: u64 = 1 << 20;

/// Why a successor was ended for another.
const REPLACED: &str = "it was killed, because another upgrade was ordered";

/// A successor that has been started.
struct Successor<'a> {
    shared: &'a Shared,
    program: PathBuf,
    /// The process that was started. It ends when it has made the one that goes on.
    child: Child,
    /// The one that goes on, once it has said so.
    process: Option<PidFd>,
    reader: FrameReader,
    /// It gets the devices one by one.
    one_by_one: bool,
}

impl Shell {
    /// Lets this pool be upgraded from now on, to what is then installed where `origin` came from.
    pub fn allow_upgrades(&self, origin: Origin) {
        self.shared.origin.get_or_init(|| origin);
    }

    /// Replaces this pool by a successor, because a signal says so. The log tells how that went.
    pub fn upgrade(&self) {
        self.shared.upgrade(By::Signal, drop);
    }
}

impl Shared {
    /// Replaces this pool by a successor on a thread of its own; says in the log, and to `told`, how that went.
    pub(super) fn upgrade(
        self: &Arc<Self>,
        by: By,
        told: impl FnOnce(Result<String, UpgradeError>) + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        // Sent once there is a thread: without one, it must be told that.
        let (sender, told_to) = crossbeam_channel::bounded(1);
        let upgrade = move || {
            if let Ok(told) = told_to.recv() {
                shared.replace(by, told);
            }
        };
        match thread::Builder::new().name("upgrade".into()).spawn(upgrade) {
            Ok(_) => sender.send(told).expect("the thread waits for it"),
            Err(source) => {
                tracing::error!(%source, "no thread for an upgrade");
                let program = self.origin.get().map(|origin| origin.program.clone());
                told(Err(UpgradeError::Start { program: program.unwrap_or_default(), source }));
            }
        }
    }

    fn replace(&self, by: By, told: impl FnOnce(Result<String, UpgradeError>)) {
        let began = clock::now();
        let upgraded = self
            .start_successor(by)
            .and_then(|successor| successor.hand_over(clock::now() + self.upgrade_timeout()));
        match upgraded {
            Ok((link, pid, build)) => {
                let (own, this) = (build::text(), std::process::id());
                let seconds = began.elapsed().as_secs_f64();
                let what = format!(
                    "gridpool {build} (pid {pid}) serves in place of gridpool {own} (pid {this}), {seconds:.1} s \
                     after it was started"
                );
                tracing::info!("{what}");
                self.leave_to(pid, link, || told(Ok(what)));
            }
            Err(error) => {
                if !matches!(error, UpgradeError::InProgress { .. }) {
                    self.upgrading.end();
                }
                tracing::error!(error = %Chain(&error), "upgrade");
                told(Err(error));
            }
        }
    }

    fn upgrade_timeout(&self) -> Duration {
        *self.upgrade_timeout.lock()
    }

    /// Starts a successor, unless there is one.
    fn start_successor(&self, by: By) -> Result<Successor<'_>, UpgradeError> {
        let origin = self.origin.get().ok_or(UpgradeError::Private)?;
        if std::process::id() == 1 {
            return Err(UpgradeError::Init);
        }
        self.upgrading.take(by, self.upgrade_timeout())?;
        self.wait_for_predecessor()?;
        if self.lock().pool.is_draining() {
            return Err(UpgradeError::Ending);
        }
        let program = origin.program.clone();
        let spawned = UnixStream::pair().and_then(|(ours, theirs)| {
            let mut command = origin.command();
            let own = ours.try_clone()?;
            let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
            self.upgrading.runs(own);
            Ok((ours, child))
        });
        let failed = |source| UpgradeError::Start { program: program.clone(), source };
        let (link, child) = spawned.map_err(failed)?;
        let reader = FrameReader::new(link);
        let one_by_one = by == By::Command { one_by_one: true };
        Ok(Successor { shared: self, program, child, process: None, reader, one_by_one })
    }

    /// Waits until the pool before this one has ended: a successor hears only of what runs here.
    fn wait_for_predecessor(&self) -> Result<(), UpgradeError> {
        let is_early = |core: &mut Core| core.has_predecessor && !core.pool.is_draining();
        let waited = self.ended.wait_timeout_while(self.lock(), PREDECESSOR_TIMEOUT, is_early);
        let (mut core, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match self.former_pool.get() {
            Some(former) if is_early(&mut core) => {
                let within_s = (*self.drain_timeout.lock() + END_GRACE).as_secs();
                Err(UpgradeError::Predecessor { pid: former.pid, within_s })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The successor can accept connections: this pool finishes what runs, and ends. `told` is called when nothing more
    /// is accepted here.
    fn leave_to(&self, pid: u32, mut link: FrameReader, told: impl FnOnce()) {
        if let Some(mut notifier) = self.notifier(&self.lock()) {
            notifier.hand_over(pid);
        }
        if let Some(door) = self.door.get() {
            door.leave();
        }
        told();
        let gateway = self.gateway.get().and_then(Gateway::start_no_more);
        let mut core = self.lock();
        let stay = core.of_gateway.iter().copied().collect();
        core.handle(self, self.timestamp(), Event::HandOver(HandOver::Done { stay }));
        core.tell_successor(&FromPredecessor::Released { gateway });
        let left = core.payloads.len();
        drop(core);
        tracing::info!(jobs = left, "the successor serves; what runs here is finished");
        let within = *self.drain_timeout.lock();
        if let Some(bridge) = self.bridge.get() {
            bridge.leave();
            self.post(Event::Helper(Helper::Bridge, HelperEvent::Leaves { within }));
        }
        let Some(gateway) = self.gateway.get() else { return };
        // Until then, or until its end, HTTP is served here.
        let until = clock::now() + within;
        loop {
            match read(&mut link, until) {
                Ok(FromSuccessor::HttpServing) => break,
                // It may yet serve.
                Ok(FromSuccessor::Failed { why }) => {
                    let most_s = clock::until(until).as_secs();
                    tracing::error!(
                        why,
                        most_s,
                        "HTTP: the successor cannot serve it; it is served here meanwhile"
                    );
                }
                Ok(
                    other @ (FromSuccessor::Hello { .. }
                    | FromSuccessor::Ready
                    | FromSuccessor::Serving),
                ) => {
                    tracing::warn!(?other, "HTTP: the successor says something out of order");
                    break;
                }
                Err(why) => {
                    tracing::warn!(why, "HTTP: the successor does not say that it serves it");
                    break;
                }
            }
        }
        gateway.leave();
        let within = clock::until(until);
        self.post(Event::Helper(Helper::Gateway, HelperEvent::Leaves { within }));
    }
}

/// The next message; the error says why there is none.
fn read(link: &mut FrameReader, until: Instant) -> Result<FromSuccessor, String> {
    loop {
        match link.read(Some(clock::until(until))) {
            Ok(Some(frame)) => {
                return codec::decode(&frame.body).map_err(|error| Chain(&error).to_string());
            }
            Ok(None) if clock::until(until).is_zero() => return Err("it was too late".to_owned()),
            Ok(None) => {}
            Err(error) => return Err(Chain(&error).to_string()),
        }
    }
}

impl Successor<'_> {
    /// Hands everything over. Returns the link, the process and its build once it can accept connections. Otherwise
    /// nothing of it is left.
    fn hand_over(mut self, until: Instant) -> Result<(FrameReader, u32, String), UpgradeError> {
        match self.try_hand_over(until) {
            Ok((pid, build)) => Ok((self.reader, pid, build)),
            Err(error) => {
                let shared = self.shared;
                // First: its worker may be on a device that this pool takes back.
                self.end();
                let mut core = shared.lock();
                core.successor = None;
                core.handle(shared, shared.timestamp(), Event::HandOver(HandOver::Failed));
                Err(error)
            }
        }
    }

    fn try_hand_over(&mut self, until: Instant) -> Result<(u32, String), UpgradeError> {
        let seconds = self.shared.upgrade_timeout().as_secs_f64();
        let or = match self.one_by_one {
            true => ", or the job on its first device did not end in that time",
            false => "",
        };
        let late = format!(
            "it did not come up within {seconds} s{or}; [limits] upgrade_timeout_s allows more"
        );
        let hello_by = clock::now() + HELLO_TIMEOUT;
        let hello = match until <= hello_by {
            true => self.hear(until, &late)?,
            false => self.hear(hello_by, &format!("it said nothing within {HELLO_TIMEOUT:?}"))?,
        };
        let FromSuccessor::Hello { version, build, pid } = &hello else {
            return Err(self.unexpected(&hello));
        };
        if *version != PROTOCOL_VERSION {
            return Err(UpgradeError::Version { program: self.program.clone(), theirs: *version });
        }
        self.is_detached_as(*pid).map_err(|error| self.failed(error.to_string()))?;
        let shared = self.shared;
        // No change of models begins from here on.
        let (now, rows) = {
            let core = shared.lock();
            (core.pool.model_plans().map_err(|why| self.failed(why))?, core.pool.models())
        };
        let ready = rows.into_iter().filter(|row| row.model.state == ModelState::Ready);
        let ready = ready.map(|row| row.model.name).collect();
        let settings = shared.origin.get().map(|origin| origin.models.clone()).unwrap_or_default();
        self.say(&FromPredecessor::Welcome(Welcome {
            socket: shared.socket.clone(),
            served: shared.gateway.get().map(Gateway::asked).unwrap_or_default(),
            arena_bytes_max: shared.budget.limit(),
            worker_bytes_max: shared.groups.as_ref().map_or(0, |groups| groups.bytes_max),
            models: PoolModels { settings, now, ready },
            one_by_one: self.one_by_one,
        }))?;
        let outbox = self.outbox().map_err(|e| self.failed(e.to_string()))?;
        self.give_devices(&outbox);
        self.hears(&FromSuccessor::Ready, until, &late)?;
        self.pass_sockets()?;
        if !shared.upgrading.hands_over() {
            return Err(self.failed(REPLACED.to_owned()));
        }
        // From here on everything goes through the outbox, in order.
        let tell = |part| outbox.tell(&FromPredecessor::Past(Box::new(part)));
        shared.timeline.parts().into_iter().for_each(tell);
        let mut core = shared.lock();
        if core.pool.is_draining() {
            return Err(self.ended_first());
        }
        core.successor = Some(outbox.clone());
        core.handle(shared, shared.timestamp(), Event::HandOver(HandOver::Begun));
        let ids = shared.next_id() + IDS_APART;
        outbox.tell(&FromPredecessor::Take { ids });
        drop(core);
        let late = format!("it did not take over within {TAKE_TIMEOUT:?}");
        self.hears(&FromSuccessor::Serving, clock::now() + TAKE_TIMEOUT, &late)?;
        let ends = shared.lock().pool.is_draining();
        if ends { Err(self.ended_first()) } else { Ok((*pid, build.clone())) }
    }

    /// The process that was started has made another, which lives as long as its link, and ends.
    fn is_detached_as(&mut self, pid: u32) -> io::Result<()> {
        let process = PidFd::open(pid)?;
        // While its link is open it lives, and no other process has its number.
        if self.reader.is_hung_up()? {
            return Err(io::Error::other("it has ended"));
        }
        self.process = Some(process);
        if !PidFd::open(self.child.id())?.wait(Some(END_TIMEOUT))? {
            return Err(io::Error::other("it stays a child of this pool"));
        }
        self.child.wait()?;
        tracing::info!(program = %self.program.display(), pid, "upgrade: a successor is started");
        Ok(())
    }

    /// Sends the descriptors of the pool's socket and of HTTP's.
    fn pass_sockets(&self) -> Result<(), UpgradeError> {
        let failed = |error: io::Error| self.failed(error.to_string());
        let door = self.shared.door.get().ok_or(UpgradeError::Private)?;
        let mut sockets = Vec::from(door.pass().map_err(failed)?);
        if let Some(gateway) = self.shared.gateway.get() {
            sockets.extend(gateway.pass().map_err(failed)?);
        }
        sockets.into_iter().try_for_each(|(what, descriptor)| {
            self.send(&FromPredecessor::Passed(what), &[descriptor])
        })
    }

    fn say(&self, message: &FromPredecessor) -> Result<(), UpgradeError> {
        self.send(message, &[])
    }

    fn send(&self, message: &FromPredecessor, fds: &[OwnedFd]) -> Result<(), UpgradeError> {
        let frame =
            frame::of(message, fds.len()).map_err(|error| self.failed(error.to_string()))?;
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let sent = frame::send_all(self.reader.socket(), &frame, &fds);
        sent.map_err(|error| self.failed(error.to_string()))
    }

    /// Waits for this message. `late` says what it did not do if none comes in time.
    fn hears(
        &mut self,
        message: &FromSuccessor,
        until: Instant,
        late: &str,
    ) -> Result<(), UpgradeError> {
        let next = self.hear(until, late)?;
        if next == *message { Ok(()) } else { Err(self.unexpected(&next)) }
    }

    /// The next message. The error says why it fails: its own words, or how it ended.
    fn hear(&mut self, until: Instant, late: &str) -> Result<FromSuccessor, UpgradeError> {
        match read(&mut self.reader, until) {
            Ok(FromSuccessor::Failed { why }) => Err(self.failed(why)),
            Ok(message) => Ok(message),
            Err(_) if self.shared.upgrading.is_replaced() => Err(self.failed(REPLACED.to_owned())),
            Err(_) if clock::until(until).is_zero() => {
                Err(self.failed(format!("it was killed, because {late}")))
            }
            Err(why) => {
                let ended = self.ended().unwrap_or(why);
                Err(self.failed(ended))
            }
        }
    }

    /// How it has ended, if it has. How a process that is not a child of ours ended cannot be known.
    fn ended(&mut self) -> Option<String> {
        let how = match &self.process {
            Some(process) => {
                process.wait(Some(EXIT_TIMEOUT)).is_ok_and(|ended| ended).then(String::new)?
            }
            None => {
                let process = PidFd::open(self.child.id());
                let waited = process.and_then(|process| process.wait(Some(EXIT_TIMEOUT)));
                let status = waited.and_then(|_| self.child.try_wait()).ok().flatten()?;
                format!(" ({status})")
            }
        };
        Some(format!("it ended{how}; its words are in the log of this pool"))
    }

    fn ended_first(&self) -> UpgradeError {
        UpgradeError::Ended { program: self.program.clone() }
    }

    fn failed(&self, why: String) -> UpgradeError {
        UpgradeError::Failed { program: self.program.clone(), why }
    }

    fn unexpected(&self, message: &FromSuccessor) -> UpgradeError {
        self.failed(format!("it sent {message:?} out of order"))
    }

    /// Ends a successor that does not take over. Its workers and helpers die with it.
    fn end(mut self) {
        // It has nothing that must be ended well. First, since the end of the link may let it go on alone.
        let killed = self.process.as_ref().map_or(Ok(()), |process| {
            process.send_signal(SIGKILL)?;
            let late = || io::Error::other("it goes on after SIGKILL");
            process.wait(Some(END_TIMEOUT))?.then_some(()).ok_or_else(late)
        });
        let ended = killed.and_then(|()| self.child.kill()).and_then(|()| self.child.wait());
        if let Err(error) = self.reader.socket().shutdown(Shutdown::Both) {
            tracing::debug!(%error, "the successor has closed the link");
        }
        match ended {
            Ok(status) => tracing::debug!(%status, "the successor has ended"),
            Err(error) => tracing::error!(%error, "a successor could not be ended"),
        }
    }
}
