//! The bridge: takes jobs of NATS JetStream, runs them in the pool of this host as an ordinary client, and publishes
//! their results. `gridpool serve --nats` starts it as a helper process, as it starts the gateway.
//!
//! It keeps nothing that matters. A job stays in the stream until its result is published, so whatever dies here, the
//! job is delivered again, to this host or another one; and the stream takes one result for each job.
//!
//! - `pool` asks the pool how it is. While it does not answer, no job is taken, and none is held.
//! - `pull` takes as many jobs as the pool can work on, those of high priority first.
//! - `job` is the life of one of them; `publish` stores its result; `batches` has the large batches that several use.
//! - `reach` knows whether a server answers, and whether this host's name is its own.
//! - `releases` tells the pool of convictions that are taken back for all hosts.
//! - `streams` makes streams again that somebody has removed; `sweep` removes what has ended, where the servers have
//!   kept it.

mod batches;
mod counts;
mod job;
mod pool;
mod prepare;
mod publish;
mod pull;
mod reach;
mod releases;
mod settings;
mod streams;
mod sweep;
mod taken;
mod under_way;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridpool_client::{Client, ClientError};
use gridpool_ipc::clock;
use gridpool_nats::{HOST_EVERY, HostRow, NatsError, RETRY_EVERY, Streams, connect};
use gridpool_protocol::chain::Chain;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

pub use reach::BridgeLine;
pub use settings::BridgeSettings;

use batches::Batches;
use counts::Counts;
use pool::PoolState;
use reach::{Reach, server_of};
use streams::Latest;
use under_way::UnderWay;

/// Threads for the connection to the servers.
const IO_THREADS: usize = 2;
/// Threads that copy jobs into the pool's memory, and results out of it.
const BLOCKING_THREADS: usize = 64;
/// How often the supervisor gets a sign of life.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// The same at most for a large result that finds no room.
const FULL_PAUSE_MAX: Duration = Duration::from_secs(16);
/// How long results may take to be stored, and jobs to be given back, when the process ends.
const END_TIMEOUT: Duration = Duration::from_secs(4);

/// Why the bridge has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// The pool cannot be reached.
    #[error("the pool")]
    Pool(#[from] ClientError),
    /// The servers cannot be used.
    #[error("NATS")]
    Nats(#[from] NatsError),
    /// The system gave no thread or socket.
    #[error("{what}")]
    System {
        /// What failed.
        what: &'static str,
        /// The error.
        #[source]
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> BridgeError {
    move |source| BridgeError::System { what, source }
}

/// What the tasks share.
#[derive(Debug)]
struct Bridge {
    settings: BridgeSettings,
    pool: Client,
    streams: Streams,
    latest: Latest,
    state: watch::Receiver<PoolState>,
    counts: Arc<Counts>,
    reach: Arc<Reach>,
    under_way: UnderWay,
    batches: Batches,
    /// For results that are not stored yet.
    unstored: Semaphore,
}

/// Serves until the supervisor closes its end of the link.
///
/// # Errors
/// [`BridgeError`]; the supervisor then starts another bridge.
pub fn serve(
    socket: PathBuf,
    settings: BridgeSettings,
    link: UnixStream,
) -> Result<(), BridgeError> {
    link.set_nonblocking(true).map_err(system("the supervisor's socket"))?;
    // It ends with its pool, so it never reconnects.
    let pool = Client::builder().socket(socket).reconnect_for(Duration::ZERO);
    let pool = pool.reply_timeout(pool::ANSWER_TIMEOUT).connect()?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(system("the runtime"))?;
    let ended = runtime.block_on(live(pool, settings, link));
    // Some threads may still wait for the pool. Their answers are of no use now.
    runtime.shutdown_background();
    ended
}

async fn live(pool: Client, settings: BridgeSettings, link: UnixStream) -> Result<(), BridgeError> {
    let link = tokio::net::UnixStream::from_std(link).map_err(system("the supervisor's socket"))?;
    let counts = Arc::new(Counts::default());
    let reach = Arc::new(Reach::default());
    let work = tokio::spawn(work(pool, settings, (Arc::clone(&counts), Arc::clone(&reach))));
    let aborter = work.abort_handle();
    let ended = tokio::select! {
        ended = stay(&link, &counts, &reach) => ended,
        worked = work => worked.map_err(io::Error::other).map_err(system("a task"))?,
    };
    if ended.is_err() {
        // The supervisor starts another, which goes on under this one's name.
        counts.leave();
    }
    counts.stop();
    // The jobs are given back, so that another host need not wait for them.
    let ends = async { tokio::join!(counts.given_back(), counts.unlisted()) };
    if timeout(END_TIMEOUT, ends).await.is_err() {
        tracing::warn!(
            "the servers do not answer: the jobs of this host are given to others later"
        );
    }
    aborter.abort();
    ended
}

/// Connects to the servers, and takes jobs until the bridge is to end.
async fn work(
    pool: Client,
    settings: BridgeSettings,
    (counts, reach): (Arc<Counts>, Arc<Reach>),
) -> Result<(), BridgeError> {
    let streams = loop {
        match open(&settings).await {
            Ok(streams) => break streams,
            Err(error) => reach.is_lost(&error),
        }
        sleep(RETRY_EVERY).await;
    };
    let (state, followed) = pool::follow(pool.clone(), settings.under_way_max);
    let (cache, slots) = (settings.cache_bytes_max, state.borrow().slots);
    tracing::info!(servers = settings.nats.shown(), host = settings.host, slots, "cluster");
    let bridge = Arc::new(Bridge {
        batches: Batches::new(cache),
        under_way: UnderWay::default(),
        unstored: Semaphore::new(taken::ROOM as usize),
        latest: Latest::new(streams.opened_generation()),
        settings,
        pool,
        streams,
        state,
        counts,
        reach,
    });
    tokio::spawn(Arc::clone(&bridge).announce());
    tokio::spawn(Arc::clone(&bridge).hear_of_losses());
    tokio::spawn(Arc::clone(&bridge).keep_streams());
    tokio::spawn(Arc::clone(&bridge).hold());
    tokio::spawn(Arc::clone(&bridge).hear_of_cancels());
    tokio::spawn(Arc::clone(&bridge).hear_of_releases());
    tokio::spawn(Arc::clone(&bridge).sweep());
    tokio::spawn(async move { bridge.pull().await });
    // It ends with the link, or with the pool.
    let lost = followed.await.map_err(io::Error::other).map_err(system("a task"))?;
    Err(BridgeError::Pool(lost))
}

async fn open(settings: &BridgeSettings) -> Result<Streams, NatsError> {
    let connection = connect(&settings.nats, &format!("gridpool on {}", settings.host)).await?;
    let streams = Streams::open(&connection, &settings.nats.prefix, Some(&settings.limits)).await?;
    streams.poison.follow().await?;
    Ok(streams)
}

/// Writes signs of life and counts until the supervisor closes its end of the link.
async fn stay(
    link: &tokio::net::UnixStream,
    counts: &Counts,
    reach: &Reach,
) -> Result<(), BridgeError> {
    link.writable().await.map_err(system("the supervisor's socket"))?;
    let mut changes = reach.changes();
    loop {
        let mut line = serde_json::to_vec(&reach.line(counts.now()))
            .map_err(io::Error::other)
            .map_err(system("counts"))?;
        line.push(b'\n');
        if counts.has_left() {
            return Ok(());
        }
        match link.try_write(&line) {
            // The supervisor reads lines, and a line in part would be none.
            Ok(written) if written < line.len() => return Ok(()),
            Ok(_) => {}
            // The supervisor has not read yet. Enough lines are waiting for it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok(()),
        }
        let readable = tokio::select! {
            readable = link.readable() => Some(readable),
            _ = changes.changed() => None,
            () = sleep(BEAT_EVERY) => None,
        };
        if let Some(readable) = readable {
            readable.map_err(system("the supervisor's socket"))?;
            match link.try_read(&mut [0; 64]) {
                Ok(0) if counts.is_leaving() => sleep(BEAT_EVERY).await,
                Ok(0) => return Ok(()),
                // Another pool takes this one's place.
                Ok(_) => counts.leave(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Ok(()),
            }
        }
    }
}

impl Bridge {
    /// Notes at once that the connection is lost, which questions find out later.
    async fn hear_of_losses(self: Arc<Self>) {
        let mut connected = self.streams.connection.connected();
        // The sender lives as long as the connection.
        while connected.wait_for(|is| !is).await.is_ok() {
            self.reach.is_cut();
            if connected.wait_for(|is| *is).await.is_err() {
                return;
            }
        }
    }

    /// Tells the cluster how this host is: again and again, when it is another, and that it ends.
    async fn announce(self: Arc<Self>) {
        let (started, mut state) = (clock::now(), self.state.clone());
        let mut connected = self.streams.connection.connected();
        loop {
            let now = state.borrow_and_update().clone();
            let has_changed = |new: &PoolState| {
                (new.is_alive, new.is_draining) != (now.is_alive, now.is_draining)
            };
            let row = HostRow {
                host: self.settings.host.clone(),
                place: self.settings.place.clone(),
                machine: self.settings.machine.clone(),
                pid: self.settings.pid,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                protocol: self.streams.subjects.version(),
                uptime_s: started.elapsed().as_secs(),
                pool: now.is_alive,
                draining: now.is_draining,
                slots: now.slots,
                counts: self.counts.now(),
                devices: now.devices.clone(),
                models: now.models.clone(),
            };
            let server = || server_of(&self.streams.connection);
            let began = clock::now();
            match self.streams.hosts.say(&row).await {
                Ok(None) => {
                    self.counts.list(true);
                    if self.reach.is_named(server(), began) {
                        let host = &row.host;
                        tracing::info!(
                            host,
                            "the name is this pool's now: it takes jobs of the cluster"
                        );
                    }
                }
                Ok(Some(other)) => {
                    if let Some(why) = self.reach.is_namesake(server(), &other) {
                        tracing::error!(why, "no jobs of the cluster");
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "announcing this host");
                    self.reach.is_lost(&error);
                }
            }
            connected.mark_unchanged();
            let ends = tokio::select! {
                () = sleep(HOST_EVERY) => false,
                () = async { drop(state.wait_for(has_changed).await) } => false,
                _ = connected.changed() => false,
                () = self.counts.stopping() => true,
            };
            if ends {
                return self.leave_cluster(&row).await;
            }
        }
    }

    /// Takes this host off the list of the cluster, unless another bridge goes on under its name.
    async fn leave_cluster(&self, row: &HostRow) {
        if !self.counts.is_leaving()
            && let Err(error) = self.streams.hosts.leave(row).await
        {
            tracing::debug!(error = Chain(&error).to_string(), "this host stays on the list");
        }
        self.counts.list(false);
    }
}
