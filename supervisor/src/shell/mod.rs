//! The shell around the core: sockets, processes, clocks, threads, and no rule of its own.
//!
//! The core lives behind one lock. Whichever thread reads an event takes the lock, hands the event
//! to the core and performs the actions that come out, in order, before it lets go. Nothing that
//! may block is done under the lock: sends to a worker have room because the core has at most two
//! batches outstanding, sends to a client fall back to a bounded outbox, and spawning has a thread of
//! its own.
//!
//! A service manager (systemd) is told that we live by the thread that keeps the time, after it has had
//! the lock for a turn of the core: whatever holds the lock for good makes us silent.
//!
//! Threads: one for spawning, one for time, one for hashing suspects, three per worker process
//! (`attendant`), one per client connection (`clients`), one that accepts connections, if there is a
//! socket. Whoever says something while it holds the lock waits for nobody who reads the log: a thread of
//! its own writes that ([`crate::logging::write_aside`]).

mod arenas;
mod attendant;
mod clients;
mod content;
mod core;
mod death;
mod gateway;
mod link;
mod listen;
mod models;
mod monitor;
mod notify;
mod operator;
mod outbox;
mod pidfd;
mod process;
mod spawn;
mod status;
mod stderr;
mod timer;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gridpool_protocol::clock;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{AttemptId, DeviceId, WorkerId};
use gridpool_protocol::message::{Answer, AttemptError};
use gridpool_protocol::spin;
use gridpool_protocol::status::{Status, WorkerMemory};

use crate::logging;
use crate::pool::config::PoolConfig;
use crate::pool::event::{Event, Timestamp};
use crate::pool::policy::PolicyTable;
use arenas::Budget;
use gateway::Gateway;
use link::{Link, LinkError};
use models::Catalogue;
use monitor::{Monitor, Patience, Reclaim};
use timer::Timer;

use self::core::Core;

pub use arenas::arena_bytes_max;
pub use gateway::{Front, HttpError};
pub use listen::{Claim, ListenError, SocketLock};
pub use notify::Notifier;
pub use process::{raise_descriptor_limit, survive_file_size_limit};
pub use spawn::WorkerCommand;

/// Descriptors kept back for files, logs and accepting.
const DESCRIPTORS_RESERVED: usize = 48;
/// Roles that a device may have workers of.
const ROLES: usize = 2;
/// Descriptors kept back for the workers of one seat: the old one's and the next one's.
const DESCRIPTORS_PER_SEAT: usize = 32;

/// How long a pool that has ended waits for clients to read their last verdicts, and for its log.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// One device of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDevice {
    /// Its name in the pool.
    pub id: DeviceId,
    /// `GPU-…`; empty on a CPU device.
    pub uuid: String,
}

/// A running pool.
#[derive(Debug)]
pub struct Shell {
    shared: Arc<Shared>,
}

/// How a pool came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was drained or stopped.
    Left,
    /// Every worker refused to start, each with its sentence.
    Misconfigured(Vec<String>),
}

/// What all threads of the supervisor share.
#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    /// Signalled when the pool has left, or can never serve.
    ended: Condvar,
    timer: Timer,
    /// Only locked by who holds the core.
    notifier: OnceLock<Mutex<Notifier>>,
    started: Instant,
    spawner: Sender<WorkerId>,
    hasher: content::Orders,
    budget: Arc<Budget>,
    /// What is done about which fault.
    policy: PolicyTable,
    /// Watches the GPUs, if there are any.
    monitor: OnceLock<Monitor>,
    /// Serves HTTP, if that is wanted.
    gateway: OnceLock<Gateway>,
    socket: PathBuf,
    ids: AtomicU64,
    /// How long a thread may look for a message before it sleeps.
    spin: Duration,
    /// The same for a worker's.
    worker_spin: Duration,
    /// The most bytes that ever waited for one client.
    outbox_bytes_high: Arc<AtomicU64>,
    /// Jobs may make a worker fault on purpose.
    allows_chaos: AtomicBool,
    /// Open connections, those that have not shaken hands included.
    connections: AtomicUsize,
    /// Descriptors that connections and arenas may take; the rest is for workers and ourselves.
    descriptors_max: usize,
}

impl Shell {
    /// Starts a pool over `devices`; it serves whoever is connected to it.
    ///
    /// # Errors
    /// The system's, if a thread cannot be started.
    pub fn start(
        config: PoolConfig,
        command: WorkerCommand,
        devices: Vec<PoolDevice>,
        socket: PathBuf,
    ) -> io::Result<Self> {
        logging::write_aside()?;
        let ids: Vec<DeviceId> = devices.iter().map(|device| device.id).collect();
        let spin = Duration::from_micros(config.spin_us.into());
        // Each worker has one thread that looks; they share the host like the threads of one process.
        let few = ids.len() <= spin::lookouts_max();
        let worker_spin = if few { spin } else { Duration::ZERO };
        let boot = process::keep_bootstrap_files_in(socket.parent());
        let standbys = config.standbys;
        let seats = seats(ids.len(), standbys);
        let (spawner, orders) = crossbeam_channel::bounded(2 * seats.max(1));
        let (hasher, suspects) = crossbeam_channel::unbounded();
        let pools = models::pools(config, &ids, &command.models, &command.policy);
        let shared = Arc::new(Shared {
            core: Mutex::new(Core::new(pools, Catalogue::new(&command.models))),
            ended: Condvar::new(),
            timer: Timer::default(),
            notifier: OnceLock::new(),
            started: clock::now(),
            spawner,
            hasher,
            budget: Arc::new(Budget::from_system()),
            policy: command.policy.clone(),
            monitor: OnceLock::new(),
            gateway: OnceLock::new(),
            socket,
            ids: AtomicU64::new(1),
            spin,
            worker_spin,
            outbox_bytes_high: Arc::default(),
            allows_chaos: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            descriptors_max: process::descriptor_limit()
                .saturating_sub(Self::descriptors_needed(ids.len(), standbys)),
        });
        let for_monitor = Arc::clone(&shared);
        let tell = move |device, fault| for_monitor.device_fault(device, fault);
        let program = command.program.clone();
        let monitor = Monitor::start(program, &devices, Patience::DEFAULT, Box::new(tell))?;
        if let Some(monitor) = monitor {
            shared.monitor.get_or_init(|| monitor);
        }
        let for_spawner = Arc::clone(&shared);
        let spawn_all = move || spawn::serve(&orders, &for_spawner, &command, &devices, boot);
        thread::Builder::new().name("spawn".into()).spawn(spawn_all)?;
        let for_hasher = Arc::clone(&shared);
        let hash_all = move || content::serve(&suspects, &for_hasher);
        thread::Builder::new().name("hash".into()).spawn(hash_all)?;
        let for_timer = Arc::clone(&shared);
        thread::Builder::new().name("timer".into()).spawn(move || timer::serve(&for_timer))?;
        shared.post(Event::TimePassed);
        Ok(Self { shared })
    }

    /// Descriptors that a pool over so many devices keeps for itself and its workers.
    #[must_use]
    pub fn descriptors_needed(devices: usize, standbys: u32) -> usize {
        DESCRIPTORS_RESERVED + DESCRIPTORS_PER_SEAT * seats(devices, standbys)
    }

    /// Takes in a connection that some other means than the socket has made.
    ///
    /// # Errors
    /// The system's, if a thread cannot be started.
    pub fn connect(&self, socket: UnixStream) -> io::Result<()> {
        clients::start(&self.shared, socket)
    }

    /// Opens a socket for a pool that is yet to be started, so that one whose socket is taken never
    /// starts a worker.
    ///
    /// # Errors
    /// [`ListenError`] if the socket is taken or cannot be made.
    pub fn claim(socket: &Path) -> Result<Claim, ListenError> {
        listen::claim(socket)
    }

    /// Whether [`claim`](Self::claim) would give the socket; nothing is made and nothing removed.
    ///
    /// # Errors
    /// [`ListenError`] as for that.
    pub fn could_claim(socket: &Path) -> Result<(), ListenError> {
        listen::look(socket)
    }

    /// Accepts connections from the pool's socket from now on.
    ///
    /// # Errors
    /// [`ListenError`] if there is no thread for that.
    pub fn listen(&self, claim: Claim) -> Result<SocketLock, ListenError> {
        listen::start(&self.shared, claim)
    }

    /// Serves HTTP from now on, by a process of its own. The first call counts.
    ///
    /// # Errors
    /// The system's, if a thread cannot be started.
    pub fn serve_http(&self, front: Front) -> io::Result<()> {
        let gateway = Gateway::start(front, &self.shared.socket, Patience::DEFAULT)?;
        self.shared.gateway.get_or_init(|| gateway);
        Ok(())
    }

    /// Tells the service manager of this pool from now on; its limits are `config`. The first call
    /// counts.
    pub fn report_to(&self, notifier: Notifier, config: &PoolConfig) {
        let core = self.shared.lock();
        self.shared.notifier.get_or_init(|| Mutex::new(notifier.about(config)));
        self.shared.tell(&core, self.shared.timestamp());
        // The timing thread sleeps as if there were nobody to tell.
        self.shared.timer.wake();
    }

    /// From now on jobs may make a worker fault on purpose.
    pub fn allow_chaos(&self) {
        self.shared.allows_chaos.store(true, Ordering::Relaxed);
    }

    /// Finishes what is accepted, then stops; a second call stops at once.
    pub fn drain(&self) {
        let draining = self.shared.lock().pool.is_draining();
        self.shared.post(if draining { Event::StopRequested } else { Event::DrainRequested });
    }

    /// Waits until the pool has ended, or can never serve.
    pub fn wait(&self) -> Ended {
        let mut core = self.shared.lock();
        let ended = loop {
            if core.left {
                break Ended::Left;
            }
            if let Some(faults) = core.pool.misconfigured() {
                break Ended::Misconfigured(faults);
            }
            core = self.shared.ended.wait(core).unwrap_or_else(PoisonError::into_inner);
        };
        // What the last worker died of is worth a moment.
        let is_untold = |core: &mut Core| core.untold > 0;
        let told = self.shared.ended.wait_timeout_while(core, FLUSH_TIMEOUT, is_untold);
        let (core, _) = told.unwrap_or_else(PoisonError::into_inner);
        // The thread that would tell it otherwise may not run again before this process ends.
        self.shared.tell(&core, self.shared.timestamp());
        let outboxes: Vec<_> = core.clients.values().cloned().collect();
        drop(core);
        if let Some(monitor) = self.shared.monitor.get() {
            monitor.stop();
        }
        let until = clock::now() + FLUSH_TIMEOUT;
        outboxes.iter().for_each(|outbox| outbox.flush(until));
        if let Some(gateway) = self.shared.gateway.get() {
            gateway.stop();
        }
        process::remove_bootstrap_files(self.shared.socket.parent());
        ended
    }

    /// Why no worker could ever start, one sentence each, if that is so.
    #[must_use]
    pub fn misconfigured(&self) -> Option<Vec<String>> {
        self.shared.lock().pool.misconfigured()
    }

    /// The pool at this moment.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}

/// Workers that so many devices may have at a time.
fn seats(devices: usize, standbys: u32) -> usize {
    ROLES * devices * (1 + standbys as usize)
}

impl Clone for Shell {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Core> {
        // The release build aborts on panic; in tests a poisoned core has said why already.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp(self.started.elapsed())
    }

    /// A number that was never used for anything.
    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether connections and arenas may take so many more descriptors. ipc-channel panics where
    /// they run out, so they must not.
    fn has_descriptors_for(&self, more: usize) -> bool {
        let connections = self.connections.load(Ordering::Relaxed);
        let taken = connections * clients::DESCRIPTORS_PER_CLIENT + self.budget.arenas();
        taken + more <= self.descriptors_max
    }

    /// Hands one event to the core and performs what comes out.
    fn post(&self, event: Event) {
        let is_news = Notifier::is_news(&event);
        let mut core = self.lock();
        let now = self.timestamp();
        core.handle(self, now, event);
        if is_news {
            self.tell(&core, now);
        }
    }

    /// The service manager's ear, if there is one, for who holds the core.
    fn notifier(&self, _core: &Core) -> Option<MutexGuard<'_, Notifier>> {
        Some(self.notifier.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells the service manager what has changed.
    fn tell(&self, core: &Core, now: Timestamp) {
        if let Some(mut notifier) = self.notifier(core) {
            notifier.tell(now, &core.pool);
        }
    }

    /// A worker answered. Its inline result is there while the core handles that, so an answer that
    /// the core drops leaves nothing behind.
    fn answered(&self, worker: WorkerId, attempt: AttemptId, result: Result<Answer, AttemptError>) {
        let mut core = self.lock();
        let result = result.map(|Answer { report, output }| {
            core.output = output;
            report
        });
        core.handle(self, self.timestamp(), Event::WorkerAnswered { worker, attempt, result });
        core.output = None;
    }

    /// A worker gave a sign of life and said what it holds.
    fn heard(&self, worker: WorkerId, memory: WorkerMemory) {
        let mut core = self.lock();
        core.with_link(worker, |link| {
            link.memory = memory;
            Ok(())
        });
        core.handle(self, self.timestamp(), Event::WorkerHeard { worker });
        if core.is_late_with_order(worker) {
            core.with_link(worker, |_| {
                Err(LinkError::Stuck("it does not do as it was told".into()))
            });
        }
    }

    /// A worker has unmapped the arenas it was told to.
    fn forgot(&self, worker: WorkerId) {
        self.lock().with_link(worker, Link::forgot);
    }

    /// Waits until the memory that a process held on its device is free, if anybody can say. The core
    /// has a limit of its own.
    fn await_memory(&self, worker: WorkerId, pid: u32) {
        let Some(monitor) = self.monitor.get() else { return };
        match monitor.reclaimed(worker.device, pid, monitor::ANSWER_TIMEOUT) {
            Reclaim::Back => {}
            Reclaim::Held => tracing::warn!(%worker, pid, "a dead worker's memory is not free yet"),
            Reclaim::Unknown => tracing::debug!(%worker, pid, "there is no monitor to ask"),
        }
    }

    /// The driver told of a fault of a device.
    fn device_fault(&self, device: DeviceId, fault: FaultCode) {
        let mut core = self.lock();
        let now = self.timestamp();
        core.log_driver(now, device, fault, self.policy.response(fault));
        core.handle(self, now, Event::DeviceFault { device, fault });
    }
}
