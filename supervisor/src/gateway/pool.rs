//! The gateway's connections to the pool. Each job names the principal of its request. If an HTTP client hangs up, the
//! gateway cancels its job.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use gridpool_client::{
    Answer, Canceller, Client, ClientError, Job, Principal, TraceContext, TraceState, Watch,
};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::receipt::Verdict;
use tokio::io::{Interest, unix::AsyncFd};
use tokio::runtime::Handle;
use tokio::time::interval;

use super::limits::{LATE_EVERY, POOL_CONNECTIONS};
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
        origin: Origin,
    ) -> Result<impl Future<Output = Result<Answer<O>, ClientError>> + Send + use<O>, ClientError>
    {
        let (running, job) = (self.choose(), origin.asker.sign(job));
        let sent = running.client().send(job).inspect_err(|error| running.note(error))?;
        Ok(running.answer(sent, origin))
    }

    /// The same if that takes no wait; `None` if it may.
    pub(super) fn try_send<O: Send + 'static>(
        self: &Arc<Self>,
        job: &Job<O>,
        origin: &Origin,
    ) -> Result<
        Option<impl Future<Output = Result<Answer<O>, ClientError>> + Send + use<O>>,
        ClientError,
    > {
        let (running, job) = (self.choose(), origin.asker.sign(job.clone()));
        let sent = running.client().try_send(&job).inspect_err(|error| running.note(error))?;
        Ok(sent.map(|sent| running.answer(sent, origin.clone())))
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

    /// Has the runtime read the answers, on which this is called.
    pub(super) fn read_on_runtime(&self) {
        self.connections.iter().for_each(|own| read_on_runtime(&own.client.lock()));
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
            Ok(client) => {
                read_on_runtime(&client);
                *self.connections[index].client.lock() = client;
            }
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

    fn client(&self) -> Client {
        self.connection().client.lock().clone()
    }

    /// Waits for the answer of the job, which was sent.
    fn answer<O: Send + 'static>(
        self,
        sent: gridpool_client::Handle<O>,
        Origin { asker, hang_up }: Origin,
    ) -> impl Future<Output = Result<Answer<O>, ClientError>> + Send + use<O> {
        hang_up.attach(sent.canceller());
        async move {
            let answer = sent.await;
            hang_up.detach();
            // That of one that succeeded is kept once the answer is written.
            if let Ok(answer) = &answer
                && answer.receipt.verdict != Verdict::Ok
            {
                self.pool.receipts.keep(asker.principal, answer.receipt.clone());
            }
            answer.inspect_err(|error| self.note(error))
        }
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

/// Has the runtime read a connection. Where it cannot, a thread of the client does.
fn read_on_runtime(client: &Client) {
    match client.watch() {
        Ok(Some(watch)) => drop(tokio::spawn(async {
            let Err(error) = read(watch).await;
            tracing::debug!(%error, "a connection to the pool is no longer watched");
        })),
        // It is lost already, and whoever uses it finds that.
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "a connection to the pool cannot be watched"),
    }
}

/// Reads a connection until it is lost.
async fn read(watch: Watch) -> io::Result<Infallible> {
    #[expect(unsafe_code, reason = "the runtime watches a descriptor that it did not open")]
    // SAFETY: a `Watch` owns its socket from its making to its end, always names the same, and lends it to nobody who
    // could close it.
    let socket = unsafe { AsyncFd::register_with_interest(watch, Interest::READABLE) }?;
    let mut late = interval(LATE_EVERY);
    poll_fn(|cx| {
        while late.poll_tick(cx).is_ready() {
            socket.get_ref().wake_late();
        }
        loop {
            let mut ready = ready!(socket.poll_read_ready(cx))?;
            match ready!(socket.get_ref().poll_read(cx)) {
                Ok(true) => ready.clear_ready(),
                Ok(false) => {}
                Err(error) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
    })
    .await
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

impl Asker {
    /// The job with the names of who asks.
    fn sign<O>(&self, job: Job<O>) -> Job<O> {
        let Self { principal, trace, trace_state } = self.clone();
        job.on_behalf_of(principal).with_trace(trace).with_trace_state(trace_state)
    }
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
            drop(state);
            cancel(job);
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
        job.into_iter().for_each(cancel);
    }
}

/// Cancels a job. That may block if the supervisor is slow to read, so another thread than the runtime's does it.
fn cancel(job: Canceller) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(move || job.cancel())),
        Err(_) => job.cancel(),
    }
}
