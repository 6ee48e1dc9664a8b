//! The gateway: the Open Inference Protocol v2 over HTTP and gRPC, in a process of its own.
//!
//! The gateway is a client of the pool's socket. If it dies, only the open requests are
//! lost. The supervisor opens the listening sockets, starts this process, watches it, and restarts it
//! ([`crate::shell`]). The supervisor hands over
//!
//! - descriptor 0: a socket with a frame for each protocol, with its listening socket, which outlives this process;
//! - descriptor 1: a socket to which the gateway writes a line as a sign of life. The supervisor writes
//!   whom to admit (`door`). When it closes the socket, the gateway answers the requests in progress and stops.
//!
//! Only this folder names the async runtime and the HTTP crates. A request passes these stations: the runtime reads it
//! (`serve`, `tls`, `grpc`); `access` admits it; its body becomes tensors (`request`) and tensors a job (`models`,
//! `job`), which is sent (`pool`), all on a thread of the runtime if nothing there waits, or else on another
//! (`exchange`); the runtime reads the answer and writes the response (`reply`). `routes` and `grpc` are the two
//! protocols, and `documents` what both say. `observer` and `catalogue` ask the pool for its models; `readiness` and
//! `probe` find out whether they work; `metrics` prints the counts. `page` is what a browser gets, `watch` and `events`
//! tell it of the pool, and `orders` gives what an operator orders there.

mod access;
mod blocking;
mod body;
mod catalogue;
mod desk;
mod documents;
mod door;
mod draft;
mod events;
mod exchange;
mod failure;
mod grids;
mod grpc;
mod job;
mod limits;
mod listing;
mod metrics;
mod models;
mod observer;
mod orders;
mod outliving;
mod pace;
mod page;
mod pool;
mod probe;
mod readiness;
mod reason;
mod receipts;
mod record;
mod regions;
mod reply;
mod request;
mod routes;
mod seats;
mod serve;
mod shares;
mod statistics;
mod tally;
mod tensors;
mod tls;
mod tokens;
mod turns;
mod unserved;
mod watch;

use std::io;
use std::iter;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use gridpool_client::ClientError;
use gridpool_ipc::frame::{FrameError, FrameReader};
use gridpool_ipc::sandbox::Calls;
use gridpool_protocol::codec;
use gridpool_protocol::handover::Protocol;
use hyper_util::server::graceful::GracefulShutdown;
use nix::unistd::dup2_stdin;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use body::BodyBudget;
use desk::Desk;
use door::Doorway;
use exchange::ParsedRequest;
use failure::Failure;
use limits::{
    ASKED_EACH_MAX, ASKED_MAX, BEAT_EVERY, CALLS_ALL_MAX, CALLS_EACH_MAX, PROBES_MAX,
    REQUESTS_EACH_MAX, REQUESTS_MAX, STOP_TIMEOUT,
};
use listing::Repository;
use metrics::Requests;
use models::{GridModel, Model};
use observer::Observer;
use pool::PoolConnections;
use readiness::Readiness;
use reason::Reason;
use receipts::Receipts;
use regions::{Memory, Regions};
use routes::HttpBody;
use seats::Seats;
use serve::Listener;
use shares::{Portions, Shares};
use statistics::Statistics;
use turns::Turns;
use watch::Watch;

use crate::helper::{HelperError, HelperFlags, system};
use crate::logging;
use crate::refusals::Refusals;
use crate::traces::{Handed, PacketSender};

#[cfg(test)]
pub(crate) use limits::listed as listed_limits;
pub(crate) use limits::memory_max;

pub use door::{DoorError, DoorPlan, Holders};
pub use regions::{OpenOrder, Opened, Unopened};
pub(crate) use tokens::parse_time;
pub use tokens::{NewToken, Scope, TokenMark};

/// Threads for calls that block: one for each request that is read and sent, those that ask the supervisor for
/// clients, two that query the pool, and some that cancel jobs. A pool that does not read its socket can block all of
/// them.
const BLOCKING_THREADS: usize = REQUESTS_MAX + ASKED_MAX + 8;
/// IO threads also read and send small requests. They are a quarter of the processors, since the supervisor, workers
/// and clients need some, too; so many at least and at most.
const IO_THREADS: RangeInclusive<usize> = 2..=8;

/// The sockets to serve, and what is spoken at each.
type Listeners = Vec<(Protocol, Listener)>;

/// What the supervisor hands over.
#[derive(Default)]
struct HandedOver {
    /// Sockets to serve.
    listeners: Listeners,
    /// Where packets of traces go.
    traces: Option<PacketSender>,
    /// Where files of shared memory are asked for.
    memory: Option<UnixStream>,
    /// Where the model repository is listed.
    repository: Option<UnixStream>,
}

/// The error of one that a user starts.
const BY_HAND: &str = "`gridpool gateway` is started by `gridpool serve --http ADDR`, not by hand";

/// Why a gateway ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The gateway cannot connect to the pool.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The connection to the pool is lost for good.
    #[error("the pool is gone: {0}")]
    Cut(String),
    /// The gateway does not begin.
    #[error(transparent)]
    Helper(#[from] HelperError),
}

/// What all requests share: connections, statistics and limits.
#[derive(Debug)]
struct Server {
    /// Whom to admit.
    door: Doorway,
    /// Where spans of requests go, if the pool sends traces.
    traces: Option<PacketSender>,
    pool: Arc<PoolConnections>,
    /// Queries the pool, and runs the probes.
    observer: Arc<Observer>,
    readiness: Readiness,
    statistics: Statistics,
    requests: Requests,
    budget: BodyBudget,
    /// Requests in progress.
    slots: Arc<Shares>,
    /// Calls of gRPC in progress.
    calls: Arc<Shares>,
    /// The rate of questions.
    turns: Turns,
    /// What the supervisor is asked for clients.
    asked: Arc<Shares>,
    /// Watches the pool for pages.
    watch: Watch,
    /// Those of the last jobs.
    receipts: Arc<Receipts>,
    /// Shared memory of clients.
    regions: Arc<Regions>,
    /// The supervisor, which lists the model repository.
    repository: Option<Arc<Repository>>,
    /// Held while it does.
    /// Permits for probes in progress.
    probes: Arc<Semaphore>,
    refusals: Arc<Refusals<Reason>>,
    seats: Arc<Seats>,
    /// Whether this process ends: connections and streams of gRPC then end with the calls that they have.
    closing: tokio::sync::watch::Sender<bool>,
}

/// Serves until the supervisor closes the link or dies.
///
/// # Errors
/// [`GatewayError`]; the supervisor then starts another gateway.
pub fn run(flags: &HelperFlags) -> Result<(), GatewayError> {
    let (HandedOver { listeners, traces, memory, repository }, link, door) = take_over(flags)?;
    let processors = thread::available_parallelism().map_err(system("the processor's threads"))?;
    // It needs no file but its libraries.
    flags.confine(Calls::Local, iter::empty()).map_err(HelperError::from)?;
    // The log is a pipe of the supervisor. A slow reader must not delay requests.
    logging::write_aside().map_err(system("a thread for the log"))?;
    // Whatever clients do, and whatever the filter lets pass.
    door.current().limit_log();
    let receipts = Arc::<Receipts>::default();
    let pool = PoolConnections::connect(&flags.socket, Arc::clone(&receipts))?;
    let refusals = Arc::new(Refusals::default());
    let gateway = Arc::new(Server {
        door,
        traces,
        pool: Arc::new(pool),
        observer: Arc::new(Observer::connect(&flags.socket)?),
        readiness: Readiness::new(),
        statistics: Statistics::new(),
        requests: Requests::default(),
        budget: BodyBudget::new(),
        slots: Shares::new(Portions::of_places(REQUESTS_MAX, REQUESTS_EACH_MAX)),
        calls: Shares::new(Portions::of_places(CALLS_ALL_MAX, CALLS_EACH_MAX)),
        turns: Turns::default(),
        asked: Shares::new(Portions::of_places(ASKED_MAX, ASKED_EACH_MAX)),
        watch: Watch::new(),
        receipts,
        regions: Regions::new(memory),
        repository: repository.map(|socket| Repository::new(Desk::new(socket))),
        probes: Arc::new(Semaphore::new(PROBES_MAX)),
        seats: Seats::new(Arc::clone(&refusals)),
        refusals,
        closing: tokio::sync::watch::Sender::new(false),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads((processors.get() / 4).clamp(*IO_THREADS.start(), *IO_THREADS.end()))
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(system("the runtime"))?;
    let ended = runtime.block_on(live(Arc::clone(&gateway), listeners, link));
    if ended.is_ok() {
        gateway.pool.read_remaining(gateway.observer.client());
    }
    // Some threads may still wait for the pool. Their answers are of no use now.
    runtime.shutdown_background();
    ended
}

/// Why a model of the pool cannot be served over HTTP and gRPC under that name, if it cannot.
#[must_use]
pub fn why_taken(name: &str) -> Option<String> {
    models::why_taken(name)
}

/// Parses a request for a built-in model into a job, without running it, and returns its number of items.
/// `json_bytes` is the value of `Inference-Header-Content-Length`.
///
/// # Errors
/// The sentence that a client would receive.
pub fn check_request(model: &str, json_bytes: Option<usize>, body: &[u8]) -> Result<u64, String> {
    let none = || Failure::unknown(format!("there is no model `{model}`"));
    let length = json_bytes.map(|bytes| (request::HEADER_LENGTH, bytes));
    let length = length.map(|(name, bytes)| (HeaderName::from_static(name), bytes.into()));
    let model = GridModel::find(model).ok_or_else(none).map(Model::Grid);
    let body = HttpBody { headers: HeaderMap::from_iter(length), body: body.to_owned() };
    let mut memory = Memory::none();
    let asked = model.and_then(|model| ParsedRequest::read(&model, &body, &mut memory));
    asked.map(|(asked, _)| asked.items).map_err(|failure| failure.message().to_owned())
}

/// The same for a `ModelInferRequest` of gRPC, which names its model.
///
/// # Errors
/// The sentence that a client would receive.
pub fn check_message(message: &[u8]) -> Result<u64, String> {
    grpc::check(message.to_vec()).map_err(|failure| failure.message().to_owned())
}

/// The messages in a body of gRPC that comes in pieces, each of so many bytes and the last of the rest; and why they
/// end, if not because the body does.
pub fn split_messages(body: &[u8], pieces: &[usize]) -> (Vec<Vec<u8>>, Result<(), String>) {
    let (messages, end) = grpc::split(body, pieces);
    (messages, end.map_err(|failure| failure.message().to_owned()))
}

/// Takes the descriptors that the supervisor passed, and asks the kernel to end this process with it.
fn take_over(flags: &HelperFlags) -> Result<(HandedOver, UnixStream, Doorway), HelperError> {
    let link = flags.attach(BY_HAND)?;
    let own = "the descriptors of the supervisor";
    let given = io::stdin().as_fd().try_clone_to_owned().map_err(system(own))?;
    let handed = read_handed(given.into()).ok_or(HelperError::Orphan(BY_HAND))?;
    let door = Doorway::receive(&link).map_err(system("whom to admit"))?;
    link.set_nonblocking(true).map_err(system(own))?;
    Ok((handed, link, door))
}

/// The sockets, which lie ready in `given`. `None` if no supervisor has put them there.
fn read_handed(given: UnixStream) -> Option<HandedOver> {
    let mut frames = FrameReader::with_descriptors(given);
    let mut own = HandedOver::default();
    loop {
        match frames.read(Some(Duration::ZERO)) {
            Ok(Some(frame)) => {
                let handed: Handed = codec::decode(&frame.body).ok()?;
                let socket = frame.fds.into_iter().next()?;
                if own.listeners.is_empty() {
                    // What it came by is of no more use, and that descriptor must not be free.
                    dup2_stdin(&socket).ok()?;
                }
                match handed {
                    Handed::Listens(protocol) => {
                        own.listeners.push((protocol, Listener::new(socket).ok()?));
                    }
                    Handed::Traces(sample) => own.traces = Some(PacketSender::new(socket, sample)),
                    Handed::Memory => own.memory = Some(socket.into()),
                    Handed::Repository => own.repository = Some(socket.into()),
                }
            }
            Err(FrameError::Closed) if !own.listeners.is_empty() => return Some(own),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Probes the pool with the known job, again and again.
async fn probe(gateway: Arc<Server>) {
    loop {
        let pause = gateway.readiness.probe(gateway.observer.client()).await;
        sleep(pause).await;
    }
}

/// Serves, and writes signs of life from the same runtime: if it stalls, they stop.
async fn live(
    gateway: Arc<Server>,
    listeners: Listeners,
    link: UnixStream,
) -> Result<(), GatewayError> {
    let link = tokio::net::UnixStream::from_std(link).map_err(system("the supervisor's socket"))?;
    let graceful = Arc::new(GracefulShutdown::new());
    let router = routes::router(Arc::clone(&gateway));
    let entrance = serve::Entrance::new(router, Arc::clone(&gateway), Arc::clone(&graceful));
    let mut tasks = vec![
        tokio::spawn(probe(Arc::clone(&gateway))),
        tokio::spawn(watch::watch(Arc::clone(&gateway))),
        tokio::spawn(regions::look(Arc::clone(&gateway))),
    ];
    for (protocol, listener) in listeners {
        let listener = listener.into_async().map_err(system("the socket"))?;
        tasks.push(tokio::spawn(serve::accept(protocol, listener, entrance.clone())));
    }
    drop(entrance);
    gateway.pool.read_on_runtime();
    let ended = stay(&gateway, &link).await;
    gateway.closing.send_replace(true);
    for task in tasks {
        task.abort();
        // Wait until the task has dropped its share of the connections.
        drop(task.await);
    }
    gateway.watch.end();
    if let Some(graceful) = Arc::into_inner(graceful) {
        if gateway.door.current().is_leaving {
            // The supervisor kills this process when its own time is up.
            serve::finish_all(graceful, &gateway).await;
        } else {
            serve::finish(graceful, STOP_TIMEOUT).await;
        }
    }
    ended
}

/// Writes signs of life until the supervisor closes its end of the link.
async fn stay(gateway: &Arc<Server>, link: &tokio::net::UnixStream) -> Result<(), GatewayError> {
    // Before the system has said that it is writable, the first sign of life would be left out.
    link.writable().await.map_err(system("the supervisor's socket"))?;
    loop {
        match link.try_write(b"\n") {
            Ok(_) => {}
            // The supervisor has not read yet. Enough lines are waiting for it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok(()),
        }
        if let Some(why) = gateway.readiness.is_cut() {
            return Err(GatewayError::Cut(why));
        }
        if let Ok(readable) = timeout(BEAT_EVERY, link.readable()).await {
            readable.map_err(system("the supervisor's socket"))?;
            let mut bytes = [0; 4_096];
            match link.try_read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    gateway.door.take_in(&bytes[..count]).map_err(system("whom to admit"))?;
                    if gateway.door.current().is_leaving {
                        return Ok(());
                    }
                    // This must not wait for it.
                    tokio::spawn(regions::sweep(Arc::clone(gateway)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Ok(()),
            }
        }
    }
}
