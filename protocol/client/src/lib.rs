//! The Rust client of a gridpool pool: submit jobs from any number of threads, and wait for verdicts.
//!
//! A [`Client`] connects to the pool's socket. A [`Job`] is a program over grids or a model over named
//! tensors. You submit both kinds the same way and get the same kind of answer. This crate re-exports all
//! types that you need.
//!
//! ```no_run
//! use gridpool_client::{Client, Grid, GridBatch, Job, Program, Ties};
//!
//! let client = Client::connect("/run/user/1000/gridpool/pool.sock")?;
//! let grid = Grid::from_rows(&[[1, 2, 3], [4, 5, 6]])?;
//! let program = Program::compile("rot90 | replace(1, 7)", Ties::Cpython)?;
//! let job = Job::program(program, GridBatch::from_grids([&grid])?)?;
//! let outputs = client.run(job)?.ok()?;
//! println!("{:?}", outputs.item(0)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Many programs over the same grids
//!
//! Pack a batch into shared memory once, with [`Client::load`] or [`Client::build`]. Jobs over it copy
//! nothing. Results stay in the shared memory that the worker wrote. Drop them to free it for the next job.
//!
//! ```no_run
//! # use gridpool_client::{Client, GridBatch, Job, Program, Ties};
//! # fn solve(client: &Client, batch: &GridBatch) -> Result<(), Box<dyn std::error::Error>> {
//! let loaded = client.load(batch)?;
//! for text in ["rot90", "objects(true, false, true)"] {
//!     let job = Job::over(Program::compile(text, Ties::Cpython)?, &loaded)?;
//!     let outputs = client.run(job)?.ok()?;
//!     println!("{} items", outputs.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Models
//!
//! ```no_run
//! # use gridpool_client::{Client, Job, ModelInput};
//! # fn ask(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
//! let x = ModelInput::new("x", [1, 16], vec![0.5_f32; 16])?;
//! let outputs = client.run(Job::model("mlp", [x])?)?.ok()?;
//! let y = outputs.values::<f32>("y")?;
//! println!("{:?}: {:?}", y.shape(), &y[..]);
//! # Ok(())
//! # }
//! ```
//!
//! # What a client can rely on
//!
//! - [`Client::submit`] returns once the pool has *accepted* the job. The job then gets exactly one verdict
//!   ([`Verdict`]), as long as the supervisor and the connection live.
//! - The pool may run a job more than once, but it returns only one result. [`Job::at_most_once`] forbids a
//!   second attempt.
//! - If the supervisor goes away, the client tries to reconnect for 10 s ([`ClientBuilder::reconnect_for`]).
//!   It then submits every job without a verdict again, under the same key.
//! - A full pool is BUSY. [`Client::submit`] retries until the job's deadline, or returns an error at once
//!   ([`Job::refuse_if_busy`]).
//!
//! # From an async runtime
//!
//! `handle.await` (feature `async`) blocks no thread. [`Client::send`] may: it asks the pool for the size of
//! a model's outputs (at most [`ClientBuilder::reply_timeout`]), gets shared memory for a large job (if the
//! pool has none left, until the job's deadline), copies the input, and writes to the socket (10 s at most).
//! Call it on a thread that may block, such as one of `spawn_blocking` under tokio, and await the handle.
//! [`Client::try_send`] never waits: it sends a small job at once in most cases, and leaves the others to `send`.
//! Use `send` and not `submit` there: `submit` also waits until the pool accepts the job.
//!
//! # What may grow
//!
//! The errors of this library, and those of batches, grids and tensors, may get new variants: match them
//! with a wildcard arm. The types that travel between pool and client are exhaustive on purpose:
//! [`Receipt`], [`Attempt`], [`Verdict`], [`Refusal`], [`Limit`], [`ItemErrorCode`], [`ModelInfo`],
//! [`Status`](gridpool_protocol::status::Status), [`Metrics`](gridpool_protocol::metrics::Metrics). A client
//! works only with a pool of the same [`PROTOCOL_VERSION`](limits::PROTOCOL_VERSION), so it knows every variant and
//! every field that the pool can send. A new one comes with a new version of this crate, and the compiler then shows
//! you the places to decide.
//!
//! # Threads
//!
//! Calls that block need no thread of the client: one of the waiting threads reads the socket for all, and wakes
//! those whose jobs have news.
//! Futures (feature `async`) share one reading thread; a runtime that watches sockets can read for them
//! ([`Client::watch`]), which saves the thread's turn. A program that polls ([`Handle::try_wait`])
//! gets a thread for the time of a reconnect.

mod answer;
#[cfg(feature = "ndarray")]
mod arrays;
mod buffers;
mod builder;
mod bundle;
mod busy;
mod carried;
mod connection;
mod error;
#[cfg(feature = "async")]
mod futures;
mod handle;
mod job;
mod keys;
mod known;
mod lease;
mod link;
mod loaded;
mod memory;
mod model;
mod models;
mod operator;
mod packed;
mod program;
#[cfg(feature = "async")]
mod reading;
mod runnable;
mod search;
mod sleepers;
mod source;
mod state;
mod tensors;
#[cfg(test)]
mod tests;
#[cfg(feature = "async")]
mod watch;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;

use gridpool_protocol::shared::SharedMemory;

pub use answer::{Answer, JobError};
pub use builder::ClientBuilder;
pub use carried::{PackedInput, PackedOutput};
pub use error::ClientError;
#[cfg(feature = "async")]
pub use futures::Answering;
pub use gridpool_ipc::account::{Account, Barrier};
pub use gridpool_ipc::socket::path_of_environment as default_socket;
#[cfg(feature = "nats")]
pub use gridpool_nats::NatsOptions;
pub use gridpool_protocol::batch::{
    BatchError, BatchLayout, BatchWriter, Grid, GridBatch, GridError,
};
pub use gridpool_protocol::ids::{
    ContentHash, DeviceId, DeviceKind, JobKey, ParseContentError, ParseIdError, Role, WorkerName,
    WorkerSelector,
};
pub use gridpool_protocol::message::{
    AskedVerdicts, Death, DeviceModel, JobSelector, JobView, LastVerdicts, Limit, LoggedJob,
    ParseJobSelectorError, ParseReleaseError, Priority, Refusal, Release, Secret, TokenOrder,
};
pub use gridpool_protocol::output::{
    ItemError, ItemErrorCode, Labels, MalformedOutput, Object, ObjectCell, Output, Outputs,
    PatchCell,
};
pub use gridpool_protocol::principal::Principal;
pub use gridpool_protocol::program::{Kind, Program, ProgramError, Ties, Type};
pub use gridpool_protocol::receipt::{
    Attempt, AttemptOutcome, DeviceInfo, ItemRange, KernelUse, Receipt, Verdict,
};
pub use gridpool_protocol::search::{
    CellScore, PairStatus, Score, SearchError, SearchReport, Template,
};
pub use gridpool_protocol::tensor::model::{InferReport, ModelInfo, ModelState, ProviderNodes};
pub use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
pub use gridpool_protocol::tensor::pipeline::{Pipeline, Step, StepBody, StepModel, StepProgram};
pub use gridpool_protocol::tensor::{DataType, Element, Tensor, TensorError, TensorSpec};
pub use gridpool_protocol::trace::{SpanId, TraceContext, TraceError, TraceId, TraceState};
pub use gridpool_protocol::{chaos, limits, metrics, status, timeline};
pub use handle::{Canceller, Handle};
pub use job::Job;
pub use loaded::{LoadedBatch, PRIVATE_BYTES_MAX};
pub use model::OUTPUT_BYTES_DEFAULT;
pub use search::{
    Bytecode, Candidate, Check, Checker, Given, SEARCH_DEADLINE_DEFAULT, SEARCH_JOBS_DEFAULT,
    SEARCH_STEPS_DEFAULT, Search, SearchOutcome, SearchResult, SearchStopper, SearchStream,
    SearchSummary, Verdicts, bytecode,
};
pub use tensors::{ModelInput, ReadError, TensorOutputs, Values};
#[cfg(feature = "async")]
pub use watch::Watch;

use connection::Connection;
use lease::Lease;
use source::Source;

/// A connection to a pool. Clones share the connection. It closes when the last clone and the last handle
/// are dropped.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Arc<Connection>,
}

impl Client {
    /// Connects to the pool whose socket is at `path`, or with the feature `nats` to the cluster whose servers
    /// are at `nats://a,b,c`.
    ///
    /// # Errors
    /// [`ClientError::NoPool`] if no pool listens there, [`ClientError::NotAllowed`] if this user may not
    /// connect.
    pub fn connect(path: impl Into<PathBuf>) -> Result<Self, ClientError> {
        Self::builder().socket(path).connect()
    }

    /// Returns a builder that sets how the client connects.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Submits a job and waits until the pool has accepted it. While the pool is BUSY, this retries until
    /// the job's deadline, unless the job has [`Job::refuse_if_busy`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the pool does not accept the job; else a [`ClientError`] of the connection.
    pub fn submit<O: 'static>(&self, job: Job<O>) -> Result<Handle<O>, ClientError> {
        self.submit_with(job, drop)
    }

    /// The same. `sent` gets what cancels the job while this waits for its acceptance: then the refusal of a busy pool
    /// is the error.
    ///
    /// # Errors
    /// As for [`Client::submit`].
    pub fn submit_with<O: 'static>(
        &self,
        job: Job<O>,
        sent: impl FnOnce(Canceller),
    ) -> Result<Handle<O>, ClientError> {
        let handle = self.send(job.with_told_acceptance())?;
        sent(handle.canceller());
        handle.accepted()
    }

    /// Sends a job without waiting for its acceptance. A refusal is an error of [`Handle::wait`]. Any number may be
    /// sent: of those beyond the pool's limits the oldest is sent again whenever another of this client ends. It
    /// blocks while the pool has no shared memory to lend, until the job's deadline at most, and while the pool does
    /// not read, for 10 s at most. See [From an async runtime](crate#from-an-async-runtime).
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the pool has no shared memory for the job; else a [`ClientError`] of the
    /// connection.
    pub fn send<O: 'static>(&self, job: Job<O>) -> Result<Handle<O>, ClientError> {
        Ok(Handle::send(&self.connection, [job])?.remove(0))
    }

    /// Sends a job as [`Client::send`] does if that takes no wait, and returns `None` if it may take one: the pool
    /// does not read, or has lent too little shared memory yet, the client reconnects, or must ask for the size of
    /// the outputs ([`Job::with_output_bytes`] sets it). Jobs over a [`LoadedBatch`] in shared memory are never sent
    /// so. For a thread that must not wait, such as one of an async runtime: what it cannot send so, another thread
    /// sends.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection.
    pub fn try_send<O: 'static>(&self, job: &Job<O>) -> Result<Option<Handle<O>>, ClientError> {
        Handle::try_send(&self.connection, job)
    }

    /// Submits jobs together, for many small ones, and waits until the pool has accepted all of
    /// them. Neighbouring jobs of one program on the same terms go to the pool as one, up to
    /// [`BUNDLE_JOBS_MAX`](limits::BUNDLE_JOBS_MAX) of them, unless they have keys or traces. Each job has its own
    /// verdict, receipt and handle, and counts for itself against the pool's limits (`client_jobs_max`: 64 under way
    /// by default). `job` in its receipt is then the number of all and its place, `job7.3`.
    ///
    /// # Errors
    /// As for [`Client::submit`]. Then those that were accepted are cancelled; some may have run. So it is also if the
    /// deadline of one passes while it waits for shared memory.
    pub fn submit_many<O: 'static>(
        &self,
        jobs: impl IntoIterator<Item = Job<O>>,
    ) -> Result<Vec<Handle<O>>, ClientError> {
        let jobs = jobs.into_iter().map(Job::with_told_acceptance);
        self.send_many(jobs)?.into_iter().map(Handle::accepted).collect()
    }

    /// Sends jobs together without waiting for their acceptance, as [`Client::send`] sends one.
    ///
    /// # Errors
    /// As for [`Client::submit_many`].
    pub fn send_many<O: 'static>(
        &self,
        jobs: impl IntoIterator<Item = Job<O>>,
    ) -> Result<Vec<Handle<O>>, ClientError> {
        Handle::send(&self.connection, jobs)
    }

    /// Submits a job and waits for its verdict.
    ///
    /// # Errors
    /// As for [`Client::submit`] and [`Handle::wait`].
    pub fn run<O: 'static>(&self, job: Job<O>) -> Result<Answer<O>, ClientError> {
        self.send(job)?.wait()
    }

    /// Packs a batch for any number of jobs ([`Job::over`]), into shared memory if it has more than
    /// [`PRIVATE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`ClientError::Batch`] if it is empty; [`ClientError::Refused`] if the pool has too little shared
    /// memory.
    pub fn load(&self, batch: &GridBatch) -> Result<LoadedBatch, ClientError> {
        let layout = batch.layout()?;
        if layout.bytes() <= PRIVATE_BYTES_MAX {
            return Ok(LoadedBatch { source: Source::Private(Arc::new(batch.clone())), layout });
        }
        let lease = self.lease(layout)?;
        batch.write_to(layout, &lease.bytes());
        Ok(LoadedBatch::packed(layout, lease))
    }

    /// Makes a batch in place: `fill` writes its grids straight into shared memory. `capacity` gives the
    /// exact number of items and the largest number of cells.
    ///
    /// # Errors
    /// As for [`Client::load`]; [`ClientError::Batch`] also if `fill` or the writer fails.
    pub fn build(
        &self,
        capacity: BatchLayout,
        fill: impl FnOnce(&mut BatchWriter<'_>) -> Result<(), BatchError>,
    ) -> Result<LoadedBatch, ClientError> {
        let lease = self.lease(capacity)?;
        let mut writer = BatchWriter::new(capacity, lease.bytes());
        fill(&mut writer)?;
        let layout = writer.finish()?;
        Ok(LoadedBatch::packed(layout, lease))
    }

    /// Leases shared memory for a batch. Returns free arenas to the pool if it has too little, but does not
    /// wait.
    fn lease(&self, layout: BatchLayout) -> Result<Arc<Lease>, ClientError> {
        let bytes = layout.bytes() as u64;
        // Other threads of this client may free and take memory all the time.
        for _ in 0..limits::CLIENT_ARENAS_MAX {
            match self.connection.lease(bytes) {
                Err(ClientError::Refused(Refusal::Busy(_))) if self.connection.free_memory() => {}
                leased => return leased,
            }
        }
        self.connection.lease(bytes)
    }

    /// The number of arenas that the pool has made for this client so far. Free arenas are used again, so
    /// the number stops growing.
    #[must_use]
    pub fn arenas_made(&self) -> u64 {
        self.connection.wire.made()
    }

    /// Waits until the pool closes the connection because it stops. After a drain, returns the number of
    /// verdicts of each kind since the drain began; `None` if the pool ended otherwise.
    ///
    /// # Errors
    /// [`ClientError::Silent`] if the pool does not stop within two hours.
    pub fn wait_closed(&self) -> Result<Option<Vec<(Verdict, u64)>>, ClientError> {
        self.connection.wait_closed()
    }
}
