//! The shell around the core: sockets, processes, clocks, threads. It performs the core's actions and has
//! no rule of its own. Its limits are of what the system lends it: descriptors, threads, shared memory,
//! unread bytes. It closes a connection that it cannot read or write; the core decides what follows.
//!
//! The core lives behind one lock. The thread that reads an event takes the lock, hands the event to the
//! core and performs its actions in order, before it releases the lock. Nothing under the lock may block.
//! A worker's channel has room, because the core bounds what a worker has outstanding. A client that does
//! not read gets a bounded outbox. Spawning has a thread of its own.
//!
//! The timing thread pings the service manager (systemd), after it has handled an event under the lock. So
//! if a thread never releases the lock, the pings stop.
//!
//! Threads: one each for spawning, time, the timeline, hashing suspects, capsules, the job log, arenas that have
//! ended, and sends that do not end; three per worker process (`reader`), one per helper process (`helper`) and per
//! client connection (`clients`), one that accepts connections. Another writes the log
//! ([`crate::logging::write_aside`]), so none waits for its reader under the lock.

mod arenas;
mod audit;
mod bound;
mod bridge;
mod cache;
pub(crate) mod capsules;
mod claim;
mod clients;
mod confinement;
mod content;
mod core;
mod death_report;
mod deaths;
mod descriptors;
mod end;
mod gateway;
mod given;
pub(crate) mod groups;
mod held;
mod helper;
mod inbox;
mod lines;
mod link;
mod listen;
mod models;
mod monitor;
mod notes;
mod notify;
mod operator;
mod outbox;
mod pidfd;
mod pinned;
mod posts;
mod predecessor;
mod process;
mod processes;
mod questions;
mod reader;
mod refused;
mod seats;
mod sends;
mod spawn;
mod status;
mod stderr;
mod timeline;
mod timer;
mod told;
mod tracer;
mod upgrade;
mod users;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_ipc::spin;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::status::Status;

use crate::job_log::JobLog;
use crate::logging;
use crate::state::{StateError, StateFolder};
use arenas::Budget;
use bridge::Bridge;
use deaths::Deaths;
use descriptors::{Descriptors, groups_of};
use gateway::Gateway;
use gridpool_core::config::{HelperLimits, PoolConfig};
use gridpool_core::event::{Event, Helper, HelperEvent, Timestamp};
use gridpool_core::placing::DeviceMemory;
use gridpool_core::policy::PolicyTable;
use groups::Groups;
use inbox::Inbox;
use listen::Door;
use monitor::Monitor;
use predecessor::{FormerGateway, FormerPool};
use process::SocketFolder;
use processes::KnownProcesses;
use seats::Seats;
use status::Viewer;
use timeline::KeptTimeline;
use timer::Timer;
use tracer::Tracer;
use users::Users;

use self::core::Core;
use crate::repository::{Keeper, Repository};

pub use arenas::arena_bytes_max;
pub(crate) use claim::folder_of;
pub use claim::{Claim, ListenError};
pub use confinement::Confinement;
pub use end::Ended;
pub use gateway::{FileError, Front, HttpError};
pub use given::{Given, GivenError};
pub use listen::{Opener, SocketLock};
pub use notify::Notifier;
pub use pinned::Pinned;
pub use predecessor::{Predecessor, TakeOverError, TakenOver};
pub use process::{
    descriptor_limit, limit_heaps, lock_folders, raise_descriptor_limit, survive_file_size_limit,
};
pub use spawn::WorkerCommand;
use upgrade::Turn;
pub use upgrade::{Origin, UpgradeError};

/// One device of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDevice {
    /// Its name in the pool.
    pub id: DeviceId,
    /// `GPU-…`; empty on a CPU device.
    pub uuid: String,
    /// Its memory when it was found, if the driver told.
    pub memory: Option<DeviceMemory>,
}

/// A running pool.
#[derive(Debug)]
pub struct Shell {
    shared: Arc<Shared>,
}

/// The data that all threads of the supervisor share.
#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    inbox: Inbox,
    /// Signalled when the pool has ended, or can never serve.
    ended: Condvar,
    timer: Timer,
    /// Locked only by a thread that holds the core's lock.
    notifier: OnceLock<Mutex<Notifier>>,
    started: Instant,
    spawner: Sender<spawn::Request>,
    /// Held while a worker is started, until the core has it.
    starting: Mutex<()>,
    hasher: content::Requests,
    budget: Budget,
    /// How workers are started from now on.
    command: Mutex<WorkerCommand>,
    /// Watches the GPUs, if there are any.
    monitor: OnceLock<Monitor>,
    /// Takes jobs of a cluster, if the user asked for it.
    bridge: OnceLock<Bridge>,
    /// Serves HTTP, if the user asked for it.
    gateway: OnceLock<Gateway>,
    /// Sends traces, if the user asked for them.
    tracer: OnceLock<Tracer>,
    /// That of the pool before this one, if it had one.
    former_gateway: OnceLock<FormerGateway>,
    /// That pool, whether it has ended or not.
    former_pool: OnceLock<FormerPool>,
    /// Where verdicts outlive the pool, if it has a state folder.
    job_log: OnceLock<JobLog>,
    /// Follows the model repository, if there is one.
    keeper: OnceLock<Keeper>,
    /// The pool's socket, if it has one.
    door: OnceLock<Arc<Door>>,
    /// How a successor is started, if one may be.
    origin: OnceLock<Origin>,
    upgrading: Turn,
    /// How long a successor may take to come up, and how long this pool then finishes what runs.
    upgrade_timeout: Mutex<Duration>,
    drain_timeout: Mutex<Duration>,
    /// What workers and helpers give up.
    confinement: Confinement,
    /// The control groups of workers and of the gateway, in a service to which systemd delegates its own.
    groups: Option<Arc<Groups>>,
    socket: PathBuf,
    socket_folder: SocketFolder,
    ids: AtomicU64,
    /// How long a thread may look for a message before it sleeps.
    spin: Duration,
    /// The same for a thread of a worker.
    worker_spin: Duration,
    /// The most bytes that ever waited for one client.
    outbox_bytes_high: Arc<AtomicU64>,
    /// What is kept of deaths, if anything is.
    capsules: OnceLock<capsules::Capsules>,
    /// Jobs may make a worker fault on purpose.
    allows_chaos: AtomicBool,
    /// Open connections, including those before their handshake.
    seats: Arc<Seats>,
    users: Users,
    known_processes: KnownProcesses,
    /// The last deaths of workers.
    deaths: Deaths,
    timeline: KeptTimeline,
    /// Descriptors that connections, arenas and later groups of models may take; the rest is for workers and
    /// ourselves.
    descriptors: Arc<Descriptors>,
    /// Those that a group of models takes for its workers.
    of_group: usize,
}

impl Shell {
    /// Starts a pool over `devices`. It serves every client that is connected to it. Its workers may have as much
    /// memory as those of its predecessor. If that gives devices one by one, they start on each once it is free.
    ///
    /// # Errors
    /// The system's, if a thread cannot be started.
    pub fn start(
        config: PoolConfig,
        command: WorkerCommand,
        devices: Vec<PoolDevice>,
        socket: PathBuf,
        predecessor: Option<&Predecessor>,
    ) -> io::Result<Self> {
        logging::write_aside()?;
        let ids: Vec<DeviceId> = devices.iter().map(|device| device.id).collect();
        let spin = Duration::from_micros(config.spin_us.into());
        // Each worker has one thread that spins. Together they use the host's cores like one process.
        let few = ids.len() <= spin::spinners_max();
        let worker_spin = if few { spin } else { Duration::ZERO };
        let boot = process::keep_bootstrap_files_in(socket.parent());
        let (standbys, users) = (config.standbys, Users::new(config.user_connections_max));
        let (upgrade_timeout, drain_timeout) = (config.upgrade_timeout, config.drain_timeout);
        let needed = Self::descriptors_needed(&command.models, ids.len(), standbys);
        let descriptors = Descriptors::new(descriptor_limit().saturating_sub(needed));
        let groups = groups_of(&command.models);
        let of_group = descriptors::of_group(ids.len(), standbys);
        let (spawner, starts) = crossbeam_channel::unbounded();
        let (hasher, suspects) = crossbeam_channel::unbounded();
        let (policy, models) = (command.policy.clone(), &command.models);
        let mut core = gridpool_core::Core::new(config, policy, &ids, models, HelperLimits::of);
        if predecessor.is_some_and(Predecessor::gives_one_by_one) {
            core.hold_devices();
        }
        let worker_bytes_min = predecessor.map_or(0, Predecessor::worker_bytes_max);
        let confinement = command.confinement.clone();
        let watcher = (command.program.clone(), confinement.clone());
        let shared = Arc::new(Shared {
            core: Mutex::new(Core::new(core, groups)),
            inbox: Inbox::default(),
            ended: Condvar::new(),
            timer: Timer::default(),
            notifier: OnceLock::new(),
            started: clock::now(),
            spawner,
            starting: Mutex::default(),
            hasher,
            budget: Budget::from_system()?,
            command: Mutex::new(command),
            monitor: OnceLock::new(),
            bridge: OnceLock::new(),
            gateway: OnceLock::new(),
            tracer: OnceLock::new(),
            former_gateway: OnceLock::new(),
            former_pool: OnceLock::new(),
            job_log: OnceLock::new(),
            keeper: OnceLock::new(),
            door: OnceLock::new(),
            origin: OnceLock::new(),
            upgrading: Turn::default(),
            upgrade_timeout: Mutex::new(upgrade_timeout),
            drain_timeout: Mutex::new(drain_timeout),
            confinement,
            groups: Groups::of_this_process(worker_bytes_min).map(Arc::new),
            socket_folder: SocketFolder::of(&socket),
            socket,
            ids: AtomicU64::new(1),
            spin,
            worker_spin,
            outbox_bytes_high: Arc::default(),
            capsules: OnceLock::new(),
            allows_chaos: AtomicBool::new(false),
            seats: Seats::new(Arc::clone(&descriptors)),
            users,
            known_processes: KnownProcesses::default(),
            deaths: Deaths::default(),
            timeline: KeptTimeline::default(),
            descriptors,
            of_group,
        });
        let for_monitor = Arc::clone(&shared);
        let tell = move |event| for_monitor.post(event);
        let post = shared.helper_post(Helper::Monitor);
        if let Some(monitor) = Monitor::new(watcher, &devices, post, Box::new(tell))? {
            shared.monitor.get_or_init(|| monitor);
            shared.post(Event::Helper(Helper::Monitor, HelperEvent::Wanted));
        }
        let for_spawner = Arc::clone(&shared);
        let sends = sends::SendWatch::start()?;
        let spawn_all = move || spawn::serve(&starts, &for_spawner, &devices, boot, &sends);
        thread::Builder::new().name("spawn".into()).spawn(spawn_all)?;
        let for_hasher = Arc::clone(&shared);
        let hash_all = move || content::serve(&suspects, &for_hasher);
        thread::Builder::new().name("hash".into()).spawn(hash_all)?;
        let for_timer = Arc::clone(&shared);
        thread::Builder::new().name("timer".into()).spawn(move || timer::serve(&for_timer))?;
        let for_inbox = Arc::clone(&shared);
        thread::Builder::new().name("inbox".into()).spawn(move || inbox::serve(&for_inbox))?;
        let for_timeline = Arc::clone(&shared);
        let sample = move || timeline::serve(&for_timeline);
        thread::Builder::new().name("timeline".into()).spawn(sample)?;
        shared.post(Event::TimePassed);
        Ok(Self { shared })
    }

    /// Follows a model repository from now on. Call it once the pool serves its socket.
    ///
    /// # Errors
    /// The system's, if it cannot be watched.
    pub fn follow(&self, repository: Repository) -> io::Result<()> {
        self.shared.follow(repository)
    }

    /// Serves a connection that was not made through the pool's socket.
    ///
    /// # Errors
    /// The system's, if a thread cannot be started.
    pub fn connect(&self, socket: UnixStream) -> io::Result<()> {
        clients::start(&self.shared, socket)
    }

    /// Logs verdicts in a state folder from now on. Call it once, before the pool serves.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn log_jobs(&self, state: &StateFolder) -> Result<(), StateError> {
        let log = JobLog::start(state, &self.shared.socket)?;
        let admission = log.admission(self.shared.timestamp());
        drop(self.shared.job_log.set(log));
        self.shared.lock().admission = Some(admission);
        Ok(())
    }

    /// Reports this pool to the service manager from now on; its limits are `config`. Only the first call has
    /// an effect.
    pub fn report_to(&self, notifier: Notifier, config: &PoolConfig) {
        let core = self.shared.lock();
        let notifier = self.shared.notifier.get_or_init(|| Mutex::new(notifier));
        notifier.lock().limit(config);
        self.shared.tell(&core, self.shared.timestamp());
        // The timing thread may sleep too long: it does not know of the service manager yet.
        self.shared.timer.wake();
    }

    /// Goes on with other limits and responses to faults; the next workers load this ONNX Runtime. What
    /// [`PoolConfig::over`] keeps stays as it is. Workers that run already keep their limits.
    pub fn reconfigure(
        &self,
        config: PoolConfig,
        policy: PolicyTable,
        onnxruntime: Option<PathBuf>,
    ) {
        let mut command = self.shared.command.lock();
        command.known_answer_every = config.known_answer_every;
        command.memory_growth_max = config.worker_memory_growth_max;
        command.descriptors_growth_max = config.worker_descriptors_growth_max;
        (command.policy, command.onnxruntime) = (policy.clone(), onnxruntime);
        drop(command);
        *self.shared.upgrade_timeout.lock() = config.upgrade_timeout;
        *self.shared.drain_timeout.lock() = config.drain_timeout;
        if let Some(mut notifier) = self.shared.notifier(&self.shared.lock()) {
            notifier.limit(&config);
        }
        self.shared.users.limit_connections(config.user_connections_max);
        self.shared.post(Event::Reconfigured(Box::new(config), policy));
    }

    /// Why no worker can ever start, one sentence for each; `None` as long as one may start.
    #[must_use]
    pub fn misconfigured(&self) -> Option<Vec<String>> {
        self.shared.lock().misconfigured.clone()
    }

    /// The status of the pool now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status(&Viewer::All)
    }
}

impl Clone for Shell {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Shared {
    fn timestamp(&self) -> Timestamp {
        Timestamp(self.started.elapsed())
    }

    /// A new number, for a client, job or arena.
    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The socket's name is lost for good. Clients that are connected get their verdicts.
    fn displaced(&self, error: &ListenError) {
        let why = Chain(error).to_string();
        tracing::error!(error = why, "the socket was removed: the pool ends");
        self.lock().displaced = Some(why);
        self.post(Event::DrainRequested);
    }

    /// Hands one event to the core and performs its actions.
    fn post(&self, event: Event) {
        let is_news = Notifier::is_news(&event);
        let mut core = self.lock();
        let now = self.timestamp();
        core.handle(self, now, event);
        if is_news {
            self.tell(&core, now);
        }
    }

    /// The connection to the service manager, if there is one. The caller holds the core's lock.
    fn notifier(&self, _core: &Core) -> Option<MutexGuard<'_, Notifier>> {
        Some(self.notifier.get()?.lock())
    }

    /// Tells the service manager of changes.
    fn tell(&self, core: &Core, now: Timestamp) {
        if let Some(mut notifier) = self.notifier(core) {
            notifier.tell(now, &core.pool);
        }
    }
}
