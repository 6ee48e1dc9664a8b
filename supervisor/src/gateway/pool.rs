//! The gateway's connections to the pool: an ordinary client, several times, and jobs that end with the
//! HTTP connection that asked for them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridpool_protocol::client::{
    Canceller, Client, ClientError, InferAnswer, InferJob, Job, JobAnswer,
};
use tokio::runtime::Handle;

use super::limits::POOL_CONNECTIONS;

/// All connections that jobs of requests go by.
#[derive(Debug)]
pub(super) struct Pool {
    socket: PathBuf,
    connections: Vec<Connection>,
    /// Held while one is chosen.
    choosing: Mutex<()>,
}

#[derive(Debug)]
struct Connection {
    client: Mutex<Client>,
    /// Without a verdict yet.
    jobs: AtomicUsize,
}

impl Pool {
    pub(super) fn connect(socket: &Path) -> Result<Self, ClientError> {
        let connect = |_| {
            let client = Mutex::new(connect(socket)?);
            Ok(Connection { client, jobs: AtomicUsize::new(0) })
        };
        let connections = (0..POOL_CONNECTIONS).map(connect).collect::<Result<_, ClientError>>()?;
        Ok(Self { socket: socket.to_owned(), connections, choosing: Mutex::default() })
    }

    /// Runs a job of grids, unless its client hangs up.
    pub(super) fn run(&self, job: Job, hang_up: &HangUp) -> Result<JobAnswer, ClientError> {
        self.on_a_connection(|client| {
            let handle = client.submit(job)?;
            hang_up.attach(handle.canceller());
            let answer = handle.wait();
            hang_up.detach();
            answer
        })
    }

    /// Asks a model, likewise.
    pub(super) fn infer(
        &self,
        job: InferJob,
        hang_up: &HangUp,
    ) -> Result<InferAnswer, ClientError> {
        self.on_a_connection(|client| {
            let handle = client.infer(job)?;
            hang_up.attach(handle.canceller());
            let answer = handle.wait();
            hang_up.detach();
            answer
        })
    }

    /// Asks the pool on the connection that has the fewest jobs.
    fn on_a_connection<T>(
        &self,
        ask: impl FnOnce(&Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let connection = self.choose();
        let client = connection.lock().clone();
        let answer = ask(&client);
        connection.jobs.fetch_sub(1, Ordering::Relaxed);
        if let Err(ClientError::Lost | ClientError::Closed(_)) = &answer {
            self.replace(connection);
        }
        answer
    }

    /// The connection with the fewest jobs, which has one more now.
    fn choose(&self) -> &Connection {
        let _turn = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let least = self.connections.iter().min_by_key(|c| c.jobs.load(Ordering::Relaxed));
        let least = least.expect("there are several");
        least.jobs.fetch_add(1, Ordering::Relaxed);
        least
    }

    /// Reads what the supervisor has said last, there and to `observer`, so that nothing is left unread
    /// when we end.
    pub(super) fn hear_out(&self, observer: &Client) {
        let clients = self.connections.iter().map(|connection| connection.lock().clone());
        for client in clients.chain([observer.clone()]) {
            // It may have ended; there is nothing left to hear then.
            drop(client.status());
        }
    }

    /// A connection that was ended for good stays so: the next job needs another one.
    fn replace(&self, connection: &Connection) {
        match connect(&self.socket) {
            Ok(client) => *connection.lock() = client,
            Err(error) => tracing::warn!(%error, "a connection to the pool cannot be made again"),
        }
    }
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection whose threads sleep while they wait: there are many of them.
pub(super) fn connect(socket: &Path) -> Result<Client, ClientError> {
    Ok(Client::connect(socket)?.with_spin(Duration::ZERO))
}

/// What a client that goes away leaves behind: its job is cancelled.
#[derive(Clone, Debug, Default)]
pub(super) struct HangUp(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    is_gone: bool,
    job: Option<Canceller>,
}

/// Hangs up when it is dropped before its request was answered.
#[derive(Debug)]
pub(super) struct OnDrop(HangUp);

impl HangUp {
    /// Watches over a request.
    pub(super) fn watch(&self) -> OnDrop {
        OnDrop(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job that the request has become.
    fn attach(&self, job: Canceller) {
        let mut line = self.lock();
        if line.is_gone {
            job.cancel();
        } else {
            line.job = Some(job);
        }
    }

    /// It has its verdict: nothing of it is left to cancel.
    fn detach(&self) {
        self.lock().job = None;
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        let job = {
            let mut line = self.0.lock();
            line.is_gone = true;
            line.job.take()
        };
        let Some(job) = job else { return };
        // A supervisor that is slow to read must not hold up a thread of the runtime.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || job.cancel())),
            Err(_) => job.cancel(),
        }
    }
}
