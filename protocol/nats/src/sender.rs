//! The sender: answers one client as a pool would, over the protocol of the pool's socket, with the jobs in the
//! stream. So every client works with a cluster as it works with a pool.
//!
//! It lives in the client's process, with threads of its own. It owns no promise: a job is in the stream before the
//! client hears that it is accepted, and nothing of it is lost with this process.

mod answers;
mod arenas;
mod jobs;
mod looked;
mod models;
mod outbox;
mod put;
mod refusal;

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::frame::{FrameError, FrameReader};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::codec;
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{ClientMessage, Refusal, ServerMessage};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout_at};

use crate::cluster::{ANSWER_TIMEOUT, Background, within};
use crate::{NatsError, NatsOptions, RETRY_EVERY, Streams, connect};
use arenas::Arenas;
use jobs::Jobs;
use models::Models;
use outbox::Outbox;

/// Threads for the connection to the servers.
const THREADS: usize = 2;
/// How long the end of a client waits until the servers have what it said last.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// What a cluster does not answer.
const NOT_HERE: &str = "this client is connected to a cluster, which has no such order: `gridpool cluster \
    status` shows its hosts; give orders to one pool on its own host, with --socket";

/// A client's connection to the cluster. Dropping it ends the connection.
#[derive(Debug)]
pub struct Sender {
    agent: Arc<Agent>,
    /// The end of the socket from which the client is read.
    socket: UnixStream,
    /// Closed when all that the client has said is read.
    read: Mutex<mpsc::Receiver<()>>,
    runtime: Background,
}

/// What the threads and tasks of a sender share.
#[derive(Debug)]
struct Agent {
    streams: Streams,
    arenas: Mutex<Arenas>,
    jobs: Jobs,
    models: Models,
    outbox: Outbox,
    /// Small messages under way for which no client waits: cancellations, marks.
    aside: AtomicUsize,
    settled: Notify,
}

impl Sender {
    /// Connects, and returns the socket at whose other end the cluster answers.
    ///
    /// # Errors
    /// [`NatsError`].
    pub fn connect(
        options: &NatsOptions,
        patience: Patience,
    ) -> Result<(Self, UnixStream), NatsError> {
        let built = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("gridpool-nats")
            .enable_all()
            .build();
        let runtime = Background(Some(built.map_err(NatsError::System)?));
        let (ours, theirs) = UnixStream::pair().map_err(NatsError::System)?;
        let outbox = Outbox::new(ours.try_clone().map_err(NatsError::System)?);
        let outbox = outbox.map_err(NatsError::System)?;
        let options = options.clone();
        let opening = async move { open(&options, patience).await };
        let streams = within(&runtime, clock::until(patience.until) + ANSWER_TIMEOUT, opening)?;
        let agent = Arc::new(Agent {
            streams,
            arenas: Mutex::default(),
            jobs: Jobs::default(),
            models: Models::until(patience.lists_until),
            outbox,
            aside: AtomicUsize::new(0),
            settled: Notify::new(),
        });
        let (for_reader, handle) = (Arc::clone(&agent), runtime.handle().clone());
        let (reading, read) = mpsc::channel();
        let socket = ours.try_clone().map_err(NatsError::System)?;
        let body = move || {
            for_reader.read(ours, &handle);
            drop(reading);
        };
        let reader = thread::Builder::new().name("gridpool-sender".into()).spawn(body);
        reader.map_err(NatsError::System)?;
        let read = Mutex::new(read);
        Ok((Self { agent, socket, read, runtime }, theirs))
    }
}

/// Tells somebody why a client waits, and how long.
type Tell = fn(&NatsError, Duration) -> io::Result<()>;

/// How long a client waits for servers that are down, and for streams that were removed.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// All tries end by then.
    until: Instant,
    wait: Duration,
    tries_again: bool,
    /// Lists are not asked for again after that, if there is such a time.
    pub(crate) lists_until: Option<Instant>,
    /// What to do when it begins to wait.
    tell: Option<Tell>,
}

impl Patience {
    /// So long, from now on. Zero is one try, which ends when servers that are there do not answer.
    #[must_use]
    pub fn of(wait: Duration) -> Self {
        let tries_again = !wait.is_zero();
        let wait = if tries_again { wait } else { ANSWER_TIMEOUT };
        Self { until: clock::now() + wait, wait, tries_again, lists_until: None, tell: None }
    }

    /// The same for a command, which then ends: it does not ask for lists any longer, either.
    #[must_use]
    pub fn of_command(wait: Duration) -> Self {
        Self { lists_until: Some(clock::now() + wait), ..Self::of(wait) }
    }

    /// The same, and `tell` is called once if it begins to wait.
    #[must_use]
    pub fn telling(self, tell: Tell) -> Self {
        Self { tell: Some(tell), ..self }
    }
}

/// Opens the streams as a client: tries again, as a bridge does, while a server is down or streams are not there.
async fn open(options: &NatsOptions, patience: Patience) -> Result<Streams, NatsError> {
    let Patience { until, tries_again, mut tell, .. } = patience;
    let mut last = None;
    loop {
        let opened = async {
            let connection = connect(options, "gridpool client").await?;
            // Nobody is told while it asks for the streams again.
            let until = if tries_again && tell.is_none() { until } else { clock::now() };
            Streams::sought(&connection, &options.prefix, true, until).await
        };
        let opened = timeout_at(until.into(), opened).await;
        // What a whole try has said tells more than that the last was cut off.
        match opened.unwrap_or_else(|_| Err(last.take().unwrap_or(NatsError::Silent))) {
            Err(error) if tries_again && error.may_pass() && !clock::until(until).is_zero() => {
                tracing::debug!(error = Chain(&error).to_string(), "no cluster yet");
                tell.take().map_or(Ok(()), |tell| tell(&error, patience.wait))?;
                last = Some(error);
            }
            opened => return opened,
        }
        sleep(RETRY_EVERY.min(clock::until(until))).await;
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // What was said before is still read; then the reading thread ends.
        if let Err(error) = self.socket.shutdown(Shutdown::Read) {
            tracing::debug!(%error, "the client's socket");
        }
        if self.read.lock().recv_timeout(FLUSH_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::debug!("the client's last messages are not read");
        }
        let agent = Arc::clone(&self.agent);
        let (tell, told) = mpsc::sync_channel::<()>(1);
        self.runtime.spawn(async move {
            agent.settle().await;
            drop(tell);
        });
        // What is not stored by then: a result stays until it expires, and a job runs although nobody wants it.
        if told.recv_timeout(FLUSH_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::debug!("the servers do not answer");
        }
    }
}

impl Agent {
    /// The body of the reading thread. It ends with the client's end of the socket.
    fn read(self: &Arc<Self>, socket: UnixStream, runtime: &Handle) {
        let mut frames = FrameReader::new(socket);
        loop {
            let frame = match frames.read(None) {
                Ok(Some(frame)) => frame,
                Ok(None) => continue,
                Err(FrameError::Closed) => return self.jobs.forget_all(),
                Err(error) => {
                    tracing::warn!(%error, "the client's socket");
                    return self.jobs.forget_all();
                }
            };
            match codec::decode(&frame.body) {
                Ok(message) => self.handle(message, runtime),
                Err(error) => {
                    let reason = error.to_string();
                    self.outbox.say(&ServerMessage::Closing { reason });
                    return self.jobs.forget_all();
                }
            }
        }
    }

    fn handle(self: &Arc<Self>, message: ClientMessage, runtime: &Handle) {
        match message {
            ClientMessage::Hello { .. } => {
                // The client is of this build.
                self.outbox.say(&ServerMessage::Welcome { version: PROTOCOL_VERSION });
            }
            ClientMessage::Submit(submission) => self.submit(*submission, runtime),
            ClientMessage::Cancel { key } => self.cancel(key, runtime),
            ClientMessage::CreateArena { request, bytes } => self.create_arena(request, bytes),
            ClientMessage::DropArena { arena } => self.arenas.lock().remove(arena),
            ClientMessage::Models { request, from } => self.list_models(request, from, runtime),
            ClientMessage::Model { request, .. }
            | ClientMessage::Repository { request, .. }
            | ClientMessage::Job { request, .. }
            | ClientMessage::Policy { request }
            | ClientMessage::Status { request, .. }
            | ClientMessage::Kill { request, .. }
            | ClientMessage::Release { request, .. }
            | ClientMessage::Drain { request }
            | ClientMessage::Metrics { request }
            | ClientMessage::Upgrade { request, .. }
            | ClientMessage::ByToken { request, .. }
            | ClientMessage::Deaths { request, .. }
            | ClientMessage::Timeline { request, .. }
            | ClientMessage::Verdicts { request, .. } => {
                let refusal = Refusal::Unable(NOT_HERE.to_owned());
                self.outbox.say(&ServerMessage::Denied { request, refusal });
            }
        }
    }

    fn create_arena(&self, request: u64, bytes: u64) {
        let made = self.arenas.lock().create(bytes);
        match made {
            Ok((arena, bytes, descriptor)) => {
                let message = ServerMessage::ArenaCreated { request, arena, bytes };
                self.outbox.say_with(&message, descriptor);
            }
            Err(error) => {
                let refusal =
                    Refusal::Unable(format!("this process has no memory for it: {error}"));
                self.outbox.say(&ServerMessage::Denied { request, refusal });
            }
        }
    }

    /// Does something for which no client waits.
    fn aside(
        self: &Arc<Self>,
        runtime: &Handle,
        what: &'static str,
        task: impl Future<Output = Result<(), NatsError>> + Send + 'static,
    ) {
        self.aside.fetch_add(1, Ordering::Relaxed);
        let agent = Arc::clone(self);
        runtime.spawn(async move {
            if let Err(error) = task.await {
                tracing::debug!(%error, what, "not told to the cluster");
            }
            if agent.aside.fetch_sub(1, Ordering::AcqRel) == 1 {
                agent.settled.notify_waiters();
            }
        });
    }

    /// Waits until all of that is done.
    async fn settle(&self) {
        loop {
            let settled = self.settled.notified();
            if self.aside.load(Ordering::Acquire) == 0 {
                return;
            }
            settled.await;
        }
    }
}

/// An error of the system as the client hears it.
impl From<io::Error> for NatsError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn one_connection_waits_and_tells_so_once() {
        static TOLD: AtomicUsize = AtomicUsize::new(0);
        let tell = |error: &NatsError, wait| {
            assert!(error.may_pass() && wait > RETRY_EVERY, "{error:?}, {wait:?}");
            TOLD.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let options = NatsOptions::parse(&format!("nats://{nobody}")).unwrap();
        let connect = |wait: Duration| {
            let patience = Patience::of_command(wait).telling(tell);
            Sender::connect(&options, patience).map(drop).unwrap_err()
        };
        connect(Duration::ZERO);
        assert_eq!(TOLD.load(Ordering::Relaxed), 0, "it does not wait");
        // Longer than one pause between tries.
        connect(RETRY_EVERY + Duration::from_millis(500));
        assert_eq!(TOLD.load(Ordering::Relaxed), 1);
        let unheard = |_: &NatsError, _| Err(io::Error::from(io::ErrorKind::BrokenPipe));
        let patience = Patience::of_command(Duration::from_secs(60)).telling(unheard);
        let error = Sender::connect(&options, patience).map(drop).unwrap_err();
        assert!(matches!(error, NatsError::System(_)), "{error:?}");
    }

    #[test]
    fn a_try_at_servers_that_say_nothing_ends_with_the_wait() {
        // The system accepts connections, and nobody reads them.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nats://{}", silent.local_addr().unwrap());
        let options = NatsOptions::parse(&address).unwrap();
        let connecting = |patience| {
            let (tell, told) = mpsc::channel();
            let options = options.clone();
            thread::spawn(move || tell.send(Sender::connect(&options, patience).map(drop)));
            told.recv_timeout(Duration::from_secs(4)).expect("it ends before a connection's 5 s")
        };
        let wait = Duration::from_millis(200);
        for patience in [Patience::of(wait), Patience::of_command(wait).telling(|_, _| Ok(()))] {
            let error = connecting(patience).unwrap_err();
            assert!(matches!(error, NatsError::Silent) && error.may_pass(), "{error:?}");
        }
    }
}
