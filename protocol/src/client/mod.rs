//! The blocking client: submit jobs to a pool from any number of threads, and wait for verdicts.
//!
//! It has no thread of its own. Of the threads that wait, one reads the socket for all of them, so
//! a lone job's answer takes no hand-over. If the supervisor goes away, the reading thread connects
//! again and submits every job that has no verdict under its old key.
//!
//! ```no_run
//! use gridpool_protocol::batch::{Grid, GridBatch};
//! use gridpool_protocol::client::{Client, Job};
//! use gridpool_protocol::program::{Program, Ties};
//!
//! let client = Client::connect("/run/user/1000/gridpool/pool.sock")?;
//! let grid = Grid::from_rows(&[[1, 2, 3], [4, 5, 6]])?;
//! let program = Program::compile("rot90 | replace(1, 7)", Ties::Cpython)?;
//! let job = Job::new(program, GridBatch::from_grids([&grid])?)?;
//! let answer = client.submit(job)?.wait()?;
//! println!("{} on {}", answer.verdict(), answer.receipt.attempts[0].device.name);
//! if let Some(outputs) = answer.outputs {
//!     println!("{:?}", outputs.item(0)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For many programs over the same grids, and for grids by the million, pack them once:
//!
//! ```no_run
//! # use gridpool_protocol::{batch::GridBatch, client::{Client, Job}, program::{Program, Ties}};
//! # fn solve(client: &Client, batch: &GridBatch) -> Result<(), Box<dyn std::error::Error>> {
//! let loaded = client.load(batch)?;
//! for text in ["rot90", "objects(true, false, true)"] {
//!     let job = Job::over(Program::compile(text, Ties::Cpython)?, &loaded)?;
//!     let outputs = client.run(job)?.outputs.ok_or("no verdict OK")?;
//!     println!("{} items", outputs.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Results stay in the shared memory that the worker wrote; dropping them frees it for the next job.
//!
//! A model is asked likewise: [`Client::infer`] takes an [`InferJob`] of named tensors, and
//! [`Client::models`] says which models there are.

mod connection;
mod error;
mod handle;
mod infer;
mod job;
mod keys;
mod link;
mod loaded;
mod models;
mod rooms;
mod state;
mod task;
mod wire;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{BatchError, BatchLayout, BatchWriter, GridBatch, PackedBatch};
use crate::lease::Lease;
use crate::message::{ClientMessage, Refusal, ServerMessage};
use crate::metrics::Metrics;
use crate::receipt::Verdict;
use crate::status::{PolicyRule, Status};
use connection::Connection;

pub use error::ClientError;
pub use handle::{Canceller, JobHandle};
pub use infer::{InferAnswer, InferHandle, InferJob, InferOutputs, OUTPUT_BYTES_DEFAULT};
pub use job::{Job, JobAnswer};
pub use loaded::LoadedBatch;

/// A connection to a pool. Clones share it; it ends with the last of them and of its handles.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Arc<Connection>,
}

impl Client {
    /// Connects to the pool whose socket is at `path`.
    ///
    /// # Errors
    /// [`ClientError::NoPool`] if nobody listens there.
    pub fn connect(path: impl Into<PathBuf>) -> Result<Self, ClientError> {
        let connection = Connection::open(path.into())?;
        Ok(Self { connection: Arc::new(connection) })
    }

    /// Talks to a supervisor at the other end of a socket pair. A lost connection stays lost.
    ///
    /// # Errors
    /// [`ClientError`] if the other end does not shake hands.
    pub fn from_socket(socket: UnixStream) -> Result<Self, ClientError> {
        let connection = Connection::over(socket)?;
        Ok(Self { connection: Arc::new(connection) })
    }

    /// Submits a job and waits until it is accepted. While the pool is BUSY it tries again until the
    /// job's deadline, unless the job says [`Job::refuse_if_busy`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the pool does not take it, else what the connection says.
    pub fn submit(&self, job: Job) -> Result<JobHandle, ClientError> {
        JobHandle::send(&self.connection, job)?.accepted()
    }

    /// Submits a job and waits for its verdict: the same as [`Client::submit`] and then
    /// [`JobHandle::wait`], without a stop where it is accepted.
    ///
    /// # Errors
    /// Those of both.
    pub fn run(&self, job: Job) -> Result<JobAnswer, ClientError> {
        JobHandle::send(&self.connection, job)?.wait()
    }

    /// Packs a batch into shared memory, for any number of jobs ([`Job::over`]).
    ///
    /// # Errors
    /// [`ClientError::Batch`] if it is empty; [`ClientError::Refused`] if the pool has no shared memory
    /// to spare.
    pub fn load(&self, batch: &GridBatch) -> Result<LoadedBatch, ClientError> {
        let layout = batch.layout()?;
        let lease = self.lease(layout)?;
        batch.write_to(layout, &lease.bytes());
        Ok(LoadedBatch { batch: Arc::new(PackedBatch::new(layout, lease)) })
    }

    /// Has `fill` write a batch straight into shared memory: as many items as `room` says, with at most
    /// so many cells.
    ///
    /// # Errors
    /// As for [`Client::load`]; [`ClientError::Batch`] also with what `fill` or the writer said.
    pub fn build(
        &self,
        room: BatchLayout,
        fill: impl FnOnce(&mut BatchWriter<'_>) -> Result<(), BatchError>,
    ) -> Result<LoadedBatch, ClientError> {
        let lease = self.lease(room)?;
        let mut writer = BatchWriter::new(room, lease.bytes());
        fill(&mut writer)?;
        let layout = writer.finish()?;
        Ok(LoadedBatch { batch: Arc::new(PackedBatch::new(layout, lease)) })
    }

    /// Shared memory for a batch. Free arenas are given back for it, but nothing is waited for.
    fn lease(&self, layout: BatchLayout) -> Result<Arc<Lease>, ClientError> {
        let bytes = layout.bytes() as u64;
        match self.connection.lease(bytes) {
            Err(ClientError::Refused(Refusal::Busy(_)))
                if self.connection.wire.give_back_free() =>
            {
                self.connection.lease(bytes)
            }
            leased => leased,
        }
    }

    /// Has the thread that reads for all look for a message for at most so long before it sleeps, and
    /// at most [`SPIN_MAX`](crate::spin::SPIN_MAX): an answer that comes meanwhile costs no wake-up. It
    /// looks only if the last message came within that time, and only where the host has cores to
    /// spare ([`CORES_PER_LOOKOUT`](crate::spin::CORES_PER_LOOKOUT)), so a client whose jobs take long
    /// burns nothing. Zero sleeps always. Without this it is
    /// [`SPIN_DEFAULT`](crate::spin::SPIN_DEFAULT). For all clones of this client.
    #[must_use]
    pub fn with_spin(self, spin: Duration) -> Self {
        self.connection.set_spin(spin);
        self
    }

    /// How many arenas the pool has made for this client so far. It stops growing once there are as many
    /// as jobs and results hold at a time.
    #[must_use]
    pub fn arenas_made(&self) -> u64 {
        self.connection.wire.made()
    }

    /// Describes the pool.
    ///
    /// # Errors
    /// What the connection says.
    pub fn status(&self) -> Result<Status, ClientError> {
        let reply = self.connection.request(&|request| ClientMessage::Status { request })?;
        let message = reply.received.message;
        if let ServerMessage::Status { status, .. } = message {
            Ok(*status)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// What the pool has counted.
    ///
    /// # Errors
    /// What the connection says.
    pub fn metrics(&self) -> Result<Metrics, ClientError> {
        let reply = self.connection.request(&|request| ClientMessage::Metrics { request })?;
        let message = reply.received.message;
        if let ServerMessage::Metrics { metrics, .. } = message {
            Ok(*metrics)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// What the pool does about which fault.
    ///
    /// # Errors
    /// What the connection says.
    pub fn policy(&self) -> Result<Vec<PolicyRule>, ClientError> {
        let reply = self.connection.request(&|request| ClientMessage::Policy { request })?;
        let message = reply.received.message;
        if let ServerMessage::Policy { rules, .. } = message {
            Ok(rules)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// Sends a signal to a worker (`gpu0`, or `gpu0#4`) and says to which process.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if there is no such worker or signal.
    pub fn kill(&self, worker: &str, signal: i32) -> Result<String, ClientError> {
        let worker = worker.to_owned();
        self.command(&|request| ClientMessage::Kill { request, worker: worker.clone(), signal })
    }

    /// Takes a decision of the pool back: `what` is a device out of service (`gpu0`), which is tried
    /// again now, the content of a convicted job (64 hexadecimal digits), or `jobs` for all contents.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if there is no such thing.
    pub fn release(&self, what: &str) -> Result<String, ClientError> {
        let what = what.to_owned();
        self.command(&|request| ClientMessage::Release { request, what: what.clone() })
    }

    /// Tells the pool to finish what it has accepted and then to stop.
    ///
    /// # Errors
    /// What the connection says.
    pub fn drain(&self) -> Result<String, ClientError> {
        self.command(&|request| ClientMessage::Drain { request })
    }

    /// Waits until the pool has closed the connection, as it does when it stops, and leaves it
    /// closed. A pool that was drained says before how many verdicts of each kind it has given since the
    /// order to drain, `None` if it ended otherwise.
    ///
    /// # Errors
    /// [`ClientError::Silent`] if it does not close within two hours.
    pub fn wait_closed(&self) -> Result<Option<Vec<(Verdict, u64)>>, ClientError> {
        self.connection.wait_closed()
    }

    fn command(&self, message: &dyn Fn(u64) -> ClientMessage) -> Result<String, ClientError> {
        let message = self.connection.request(message)?.received.message;
        if let ServerMessage::Granted { what, .. } = message {
            Ok(what)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }
}
