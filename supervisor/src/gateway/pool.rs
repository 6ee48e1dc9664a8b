//! The gateway's connections to the pool. Each job names the principal of its request. If an HTTP client hangs up, the
//! gateway cancels its job.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gridpool_client::{
    Answer, Canceller, Client, ClientError, Job, Principal, TraceContext, TraceState,
};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::receipt::Verdict;
use tokio::runtime::Handle;

use super::limits::POOL_CONNECTIONS;
use super::receipts::Receipts;

/// The connections for jobs of requests.
#[derive(Debug)]
pub(super) struct PoolConnections {
    socket: PathBuf,
    connections: Vec<PoolConnection>,
    /// Held while a request chooses a connection.
    choosing: Mutex<()>,
    receipts: Arc<Receipts>,
}

#[derive(Debug)]
struct PoolConnection {
    client: Mutex<Client>,
    /// Jobs without a verdict.
    jobs: AtomicUsize,
}

impl PoolConnections {
    pub(super) fn connect(socket: &Path, receipts: Arc<Receipts>) -> Result<Self, ClientError> {
        let connect = |_| {
            let client = Mutex::new(connect(socket)?);
            Ok(PoolConnection { client, jobs: AtomicUsize::new(0) })
        };
        let connections = (0..POOL_CONNECTIONS).map(connect).collect::<Result<_, ClientError>>()?;
        let (socket, choosing) = (socket.to_owned(), Mutex::default());
        Ok(Self { socket, connections, choosing, receipts })
    }

    /// Sends a job on the connection with the fewest jobs. The future waits for its answer. If the HTTP
    /// client goes away, the job is cancelled.
    pub(super) fn send<O: Send + 'static>(
        self: &Arc<Self>,
        job: Job<O>,
        Origin { asker: Asker { principal, trace, trace_state }, hang_up }: Origin,
    ) -> Result<impl Future<Output = Result<Answer<O>, ClientError>> + Send + use<O>, ClientError>
    {
        let running = self.choose();
        let client = running.connection().client.lock().clone();
        let (receipts, whose) = (Arc::clone(&self.receipts), principal.clone());
        let job = job.on_behalf_of(principal).with_trace(trace).with_trace_state(trace_state);
        let handle = client.send(job).inspect_err(|error| running.note(error))?;
        hang_up.attach(handle.canceller());
        Ok(async move {
            let answer = handle.await;
            hang_up.detach();
            // That of one that succeeded is kept once the answer is written.
            if let Ok(answer) = &answer
                && answer.receipt.verdict != Verdict::Ok
            {
                receipts.keep(whose, answer.receipt.clone());
            }
            answer.inspect_err(|error| running.note(error))
        })
    }

    /// Chooses the connection with the fewest jobs, and counts one more job there.
    fn choose(self: &Arc<Self>) -> RunningJob {
        let _choosing = self.choosing.lock();
        let jobs =
            |(_, connection): &(usize, &PoolConnection)| connection.jobs.load(Ordering::Relaxed);
        let least = self.connections.iter().enumerate().min_by_key(jobs);
        let (index, least) = least.expect("there are several");
        least.jobs.fetch_add(1, Ordering::Relaxed);
        RunningJob { pool: Arc::clone(self), index }
    }

    /// Reads the supervisor's last messages on every connection and on `observer`'s, so that nothing stays
    /// unread when the gateway ends.
    pub(super) fn read_remaining(&self, observer: &Client) {
        let clients = self.connections.iter().map(|connection| connection.client.lock().clone());
        for client in clients.chain([observer.clone()]) {
            // An error means that the connection has ended: there is nothing left to read.
            drop(client.status());
        }
    }

    /// Replaces a connection that is closed for good.
    fn replace(&self, index: usize) {
        match connect(&self.socket) {
            Ok(client) => *self.connections[index].client.lock() = client,
            Err(error) => tracing::warn!(%error, "cannot reconnect to the pool"),
        }
    }
}

/// A job on one of the connections. Dropping this counts it as answered.
#[derive(Debug)]
struct RunningJob {
    pool: Arc<PoolConnections>,
    index: usize,
}

impl RunningJob {
    fn connection(&self) -> &PoolConnection {
        &self.pool.connections[self.index]
    }

    /// Notes why a job got no answer, and replaces the connection if that is closed.
    fn note(&self, error: &ClientError) {
        if matches!(error, ClientError::Lost | ClientError::Closed(_)) {
            let (pool, index) = (Arc::clone(&self.pool), self.index);
            drop(tokio::task::spawn_blocking(move || pool.replace(index)));
        }
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.connection().jobs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connects without busy polling: the reading thread sleeps while it waits.
pub(super) fn connect(socket: &Path) -> Result<Client, ClientError> {
    Client::builder().socket(socket).spin(Duration::ZERO).connect()
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    /// Who the job is for.
    pub(super) principal: Principal,
    /// The trace that it is a part of.
    pub(super) trace: Option<TraceContext>,
    /// What systems on the way of that trace have noted.
    pub(super) trace_state: Option<TraceState>,
}

/// Where a request comes from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) asker: Asker,
    pub(super) hang_up: HangUp,
}

/// Cancels the job of an HTTP client that hangs up.
#[derive(Clone, Debug, Default)]
pub(super) struct HangUp(Arc<Mutex<RequestState>>);

#[derive(Debug, Default)]
struct RequestState {
    is_gone: bool,
    job: Option<Canceller>,
}

/// Cancels the job if this is dropped before the request is answered.
#[derive(Debug)]
pub(super) struct OnDrop(HangUp);

impl HangUp {
    /// Returns a guard for a request: dropping it cancels the job.
    pub(super) fn watch(&self) -> OnDrop {
        OnDrop(self.clone())
    }

    /// Attaches the request's job. If the client has hung up already, the job is cancelled.
    fn attach(&self, job: Canceller) {
        let mut state = self.0.lock();
        if state.is_gone {
            job.cancel();
        } else {
            state.job = Some(job);
        }
    }

    /// The job has its verdict, so there is nothing to cancel.
    fn detach(&self) {
        self.0.lock().job = None;
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        let job = {
            let mut state = self.0.0.lock();
            state.is_gone = true;
            state.job.take()
        };
        let Some(job) = job else { return };
        // Cancelling may block if the supervisor is slow to read, so use another thread than the runtime's.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || job.cancel())),
            Err(_) => job.cancel(),
        }
    }
}
