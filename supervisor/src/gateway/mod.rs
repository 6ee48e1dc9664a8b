//! The HTTP gateway: the Open Inference Protocol v2, in a process of its own.
//!
//! It is one more client of the pool's socket: it knows nothing that another client could not know, and
//! its death costs the HTTP requests that are open and nothing else. The supervisor opens the listening
//! socket, starts this process, watches it, and starts it again ([`crate::shell`]); it hands over
//!
//! - descriptor 0: the listening socket, which outlives this process;
//! - descriptor 1: a socket on which the gateway gives signs of life, a line each. Its end is the order
//!   to answer what is under way and to stop.
//!
//! The async runtime, and whatever speaks HTTP, is named here and nowhere else. A request is read by the
//! runtime and worked on by a thread: JSON to tensors (`request`), tensors to a job (`models`, `work`),
//! the job through the pool (`pool`), and back (`reply`). Which models there are is asked of the pool
//! (`observer`, `catalogue`), and whether they are ready is tried (`readiness`, `trial`). What there is to be
//! counted is printed by `metrics`.

mod body;
mod catalogue;
mod failure;
mod grids;
mod limits;
mod metrics;
mod models;
mod observer;
mod pool;
mod readiness;
mod reply;
mod request;
mod routes;
mod serve;
mod statistics;
mod tensors;
mod trial;
mod work;

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use axum::http::{HeaderMap, HeaderName};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use gridpool_protocol::client::ClientError;
use gridpool_protocol::clock;
use hyper_util::server::graceful::GracefulShutdown;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getppid};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use body::{Budget, Held};
use failure::Failure;
use limits::{BEAT_EVERY, REQUESTS_MAX};
use metrics::Requests;
use models::{GridModel, Model};
use observer::Observer;
use pool::{HangUp, Pool};
use readiness::Readiness;
use reply::{Encoded, Reply};
use statistics::{Spent, Statistics};

use crate::logging;

/// Threads that may wait for the pool: those of requests and trials, two that ask how it is, and those
/// that cancel.
const BLOCKING_THREADS: usize = REQUESTS_MAX + 8;
/// Threads that read and write sockets.
const IO_THREADS: usize = 2;

/// What the supervisor tells its gateway.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pool's socket.
    pub socket: PathBuf,
    /// The supervisor, with which the gateway dies.
    pub supervisor_pid: u32,
}

/// Why a gateway ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The pool cannot be talked to.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The pool cannot be talked to any longer.
    #[error("the pool is gone: {0}")]
    Cut(String),
    /// It was not started by a supervisor.
    #[error("`gridpool gateway` is started by `gridpool serve --http ADDR`, not by hand")]
    Orphan,
    /// The system says no.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error.
        #[source]
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> GatewayError {
    move |source| GatewayError::System { what, source }
}

/// What all requests share.
#[derive(Debug)]
struct Gateway {
    pool: Pool,
    /// Looks at the pool, and runs the known job and trials.
    observer: Arc<Observer>,
    readiness: Readiness,
    statistics: Statistics,
    requests: Requests,
    budget: Budget,
    /// One for each request and trial that is being worked on.
    slots: Arc<Semaphore>,
}

/// Serves HTTP until the supervisor says so or is gone.
///
/// # Errors
/// [`GatewayError`]; the supervisor starts another one.
pub fn run(options: &Options) -> Result<(), GatewayError> {
    let (listener, link) = take_over(options)?;
    // Requests do not wait for whoever reads the log, which is the supervisor's.
    logging::write_aside().map_err(system("a thread for the log"))?;
    let pool = Pool::connect(&options.socket)?;
    let gateway = Arc::new(Gateway {
        pool,
        observer: Arc::new(Observer::connect(&options.socket)?),
        readiness: Readiness::new(),
        statistics: Statistics::new(),
        requests: Requests::default(),
        budget: Budget::new(),
        slots: Arc::new(Semaphore::new(REQUESTS_MAX)),
    });
    let for_probe = Arc::clone(&gateway);
    let (stop, stopped) = crossbeam_channel::bounded(0);
    thread::Builder::new()
        .name("probe".into())
        .spawn(move || probe(&for_probe, &stopped))
        .map_err(system("a thread for the known job"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(system("the runtime"))?;
    let ended = runtime.block_on(live(Arc::clone(&gateway), listener, link));
    if ended.is_ok() {
        gateway.pool.hear_out(gateway.observer.client());
    }
    drop(stop);
    // Threads that still wait for the pool wait for nothing any more.
    runtime.shutdown_background();
    ended
}

/// Whether the gateway would not serve a model of that name: it is an op's, or stands in a path.
#[must_use]
pub fn is_taken(name: &str) -> bool {
    models::is_taken(name)
}

/// Reads a request for a model that is built in as far as a job, which nobody runs: how many items it
/// has, or what is wrong with it. `json_bytes` is what `Inference-Header-Content-Length` would say.
///
/// # Errors
/// The sentence that a client would be told.
pub fn check_request(model: &str, json_bytes: Option<usize>, body: &[u8]) -> Result<u64, String> {
    let check = || {
        let none = || Failure::unknown(format!("there is no model `{model}`"));
        let model = Model::Grid(GridModel::find(model).ok_or_else(none)?);
        let length = json_bytes.map(|bytes| (request::HEADER_LENGTH, bytes));
        let length = length.map(|(name, bytes)| (HeaderName::from_static(name), bytes.into()));
        let mut request = request::parse(&HeaderMap::from_iter(length), body)?;
        let items = model.items(&request);
        model.work(&mut request).map(|_| items)
    };
    check().map_err(|failure: Failure| failure.message().to_owned())
}

/// The descriptors that the supervisor has left, and our life in its hands.
fn take_over(options: &Options) -> Result<(TcpListener, UnixStream), GatewayError> {
    let parent = i32::try_from(options.supervisor_pid).ok().map(Pid::from_raw);
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| system("dying with a parent")(e.into()))?;
    if parent != Some(getppid()) {
        return Err(GatewayError::Orphan);
    }
    // The supervisor blocks some for itself, which a child inherits.
    SigSet::empty().thread_set_mask().map_err(|e| system("unblocking signals")(e.into()))?;
    let own = "the descriptors of the supervisor";
    let listener = io::stdin().as_fd().try_clone_to_owned().map_err(system(own))?;
    let link = io::stdout().as_fd().try_clone_to_owned().map_err(system(own))?;
    let (listener, link) = (TcpListener::from(listener), UnixStream::from(link));
    listener.local_addr().map_err(|_| GatewayError::Orphan)?;
    link.peer_addr().map_err(|_| GatewayError::Orphan)?;
    listener.set_nonblocking(true).map_err(system(own))?;
    link.set_nonblocking(true).map_err(system(own))?;
    Ok((listener, link))
}

/// The body of the thread that runs the known job, until the gateway stops.
fn probe(gateway: &Gateway, stopped: &Receiver<()>) {
    loop {
        let pause = gateway.readiness.probe(gateway.observer.client());
        if stopped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Serves, and gives signs of life from the runtime that serves.
async fn live(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    link: UnixStream,
) -> Result<(), GatewayError> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(system("the socket"))?;
    let link = tokio::net::UnixStream::from_std(link).map_err(system("the supervisor's socket"))?;
    let graceful = Arc::new(GracefulShutdown::new());
    let router = routes::router(Arc::clone(&gateway));
    let accepting = tokio::spawn(serve::accept(listener, router, Arc::clone(&graceful)));
    let ended = stay(&gateway, &link).await;
    accepting.abort();
    // However it ended, the task is gone and with it its hold on the connections.
    drop(accepting.await);
    if let Some(graceful) = Arc::into_inner(graceful) {
        serve::finish(graceful).await;
    }
    ended
}

/// Gives signs of life until the supervisor's end of the link is closed.
async fn stay(gateway: &Gateway, link: &tokio::net::UnixStream) -> Result<(), GatewayError> {
    loop {
        match link.try_write(b"\n") {
            Ok(_) => {}
            // The supervisor has no time to read: it has enough lines to believe in us.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok(()),
        }
        if let Some(why) = gateway.readiness.is_cut() {
            return Err(GatewayError::Cut(why));
        }
        if let Ok(readable) = timeout(BEAT_EVERY, link.readable()).await {
            readable.map_err(system("the supervisor's socket"))?;
            match link.try_read(&mut [0; 64]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Ok(()),
            }
        }
    }
}

impl Gateway {
    /// One inference, from its body to the body of its answer. Blocks for as long as the job takes.
    fn infer(
        &self,
        model: &Model,
        headers: &HeaderMap,
        body: &[u8],
        (hang_up, held): (&HangUp, &mut Held),
    ) -> Result<Encoded, Failure> {
        let began = clock::now();
        let _under_way = self.statistics.of(model).enter();
        let done = self.try_infer(model, headers, body, (hang_up, held));
        if done.is_err() {
            self.statistics.of(model).failed(began.elapsed());
        }
        done
    }

    fn try_infer(
        &self,
        model: &Model,
        headers: &HeaderMap,
        body: &[u8],
        (hang_up, held): (&HangUp, &mut Held),
    ) -> Result<Encoded, Failure> {
        let began = clock::now();
        let mut request = request::parse(headers, body)?;
        let items = model.items(&request);
        let work = model.work(&mut request)?;
        let input = began.elapsed();
        let answer = work.run(&self.pool, hang_up)?;
        let answered = clock::now();
        let receipt = answer.receipt();
        let (outputs, errors) = answer.results()?;
        model.has_answered(receipt);
        let mut parameters = reply::proof(receipt)?;
        if !errors.is_empty() {
            parameters.insert("errors".to_owned(), Value::Array(errors).to_string().into());
        }
        let reply = Reply { model: model.name().to_owned(), id: request.id, parameters, outputs };
        let encoded = reply.encode(&request.wanted, held)?;
        let (output, total) = (answered.elapsed(), began.elapsed());
        self.statistics.of(model).succeeded(items, receipt, Spent { input, output, total });
        Ok(encoded)
    }
}
