//! A connection as a Python object: jobs, loaded batches, and what an operator asks.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use gridpool_client::{
    Answer, ClientError, Handle, Job, LoadedBatch, Program, Release, Ties, Verdict, WorkerSelector,
};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::limits::STEPS_DEFAULT;
use gridpool_protocol::program::Programs;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::cluster::{ClusterFiles, Place};
use crate::completions::{Canceller, Completions};
use crate::errors;
use crate::input::{self, Source};
use crate::load::ModelLoad;
use crate::outputs::{Answered, Outputs};
use crate::process::{Owned, detached, not_sent, unless_interrupted};
use crate::search::{self, Search};
use crate::terms::{Terms, Traced, seconds};

/// How long a waiting thread is away from Python at a time: Ctrl-C takes as long.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// Of jobs that are sent together, so many may have their arrays in shared memory before the first is sent: a client
/// has few pieces of it.
const PLACED_MAX: usize = 16;

/// A connection to a pool. After a fork, the child connects anew.
#[pyclass(frozen, module = "gridpool._native")]
#[derive(Debug)]
pub(crate) struct Client {
    place: Place,
    reconnect_for: Duration,
    wait: Option<Duration>,
    connection: Mutex<Arc<Owned<gridpool_client::Client>>>,
    programs: Mutex<Programs>,
}

/// A batch in shared memory of a client.
#[pyclass(frozen, module = "gridpool._native")]
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) batch: Owned<LoadedBatch>,
    pub(crate) grids_per_item: u32,
}

#[pymethods]
impl Loaded {
    fn __len__(&self) -> usize {
        self.batch.len()
    }

    /// Its size in shared memory, bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.batch.bytes()
    }

    /// Whether its items are pairs.
    #[getter]
    fn pairs(&self) -> bool {
        self.grids_per_item == 2
    }
}

/// Waits for an answer, and looks after signals meanwhile. An exception, such as KeyboardInterrupt, cancels the job.
pub(crate) fn wait<O: Send + Sync + 'static>(
    py: Python<'_>,
    mut handle: Handle<O>,
) -> PyResult<Result<Answer<O>, ClientError>> {
    loop {
        let waited = detached(py, || handle.wait_for(SIGNALS_EVERY));
        if let Some(answer) = waited.transpose() {
            return Ok(answer);
        }
        if let Err(interrupt) = py.check_signals() {
            detached(py, || drop(handle));
            return Err(interrupt);
        }
    }
}

pub(crate) fn compile(py: Python<'_>, text: &str, ties: &str) -> PyResult<Program> {
    let ties = ties.parse::<Ties>().map_err(PyValueError::new_err)?;
    Program::compile(text, ties).map_err(|error| errors::program(py, text, &error))
}

/// What a program takes and gives: `(text, hash, takes_pairs, kind, tuple)`.
#[pyfunction]
#[pyo3(name = "_describe")]
pub(crate) fn describe(
    py: Python<'_>,
    text: &str,
    ties: &str,
) -> PyResult<(String, String, bool, &'static str, Option<u8>)> {
    let program = compile(py, text, ties)?;
    let (gives, pairs) = (program.gives(), program.grids_per_item() == 2);
    let (text, hash) = (program.text().to_owned(), program.hash().to_owned());
    Ok((text, hash, pairs, gives.kind.name(), gives.tuple))
}

impl Client {
    /// The connection of this process.
    pub(crate) fn connection(&self, py: Python<'_>) -> PyResult<gridpool_client::Client> {
        let held = Arc::clone(&self.connection.lock());
        if held.is_mine() {
            return Ok(gridpool_client::Client::clone(&held));
        }
        let made = connect(py, &self.place, self.reconnect_for, self.wait)?;
        *self.connection.lock() = Arc::new(Owned::new(made.clone()));
        Ok(made)
    }

    pub(crate) fn program(&self, py: Python<'_>, text: &str, ties: &str) -> PyResult<Program> {
        let ties = ties.parse::<Ties>().map_err(PyValueError::new_err)?;
        let program = self.programs.lock().compile(text, ties, STEPS_DEFAULT);
        let program = program.map_err(|error| errors::program(py, text, &error))?;
        Ok(Program::clone(&program))
    }

    /// A job over grids; `lender` may lend memory for a large array.
    fn job(
        &self,
        py: Python<'_>,
        lender: Option<&gridpool_client::Client>,
        (program, ties): (&str, &str),
        grids: &Bound<'_, PyAny>,
        terms: Terms,
    ) -> PyResult<Job<gridpool_client::Outputs>> {
        let program = self.program(py, program, ties)?;
        let pairs = program.grids_per_item() == 2;
        let job = match input::source(py, lender, grids, pairs)? {
            Source::Batch(batch) => Job::program(program, batch),
            Source::Loaded(loaded) => Job::over(program, &loaded),
        };
        terms.of(job.map_err(|error| errors::batch(py, &error))?)
    }

    /// Sends a job over grids.
    fn send(
        &self,
        py: Python<'_>,
        program: (&str, &str),
        grids: &Bound<'_, PyAny>,
        terms: Terms,
    ) -> PyResult<Handle<gridpool_client::Outputs>> {
        let client = self.connection(py)?;
        let job = self.job(py, Some(&client), program, grids, terms)?;
        detached(py, || client.send(job)).map_err(|error| not_sent(py, &error))
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&gridpool_client::Client) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        let client = self.connection(py)?;
        detached(py, || question(&client)).map_err(|error| errors::client(py, &error))
    }
}

/// Connects, and looks after signals meanwhile. After an exception nobody waits for what the thread connects.
fn connect(
    py: Python<'_>,
    place: &Place,
    reconnect_for: Duration,
    wait: Option<Duration>,
) -> PyResult<gridpool_client::Client> {
    let builder = place.builder().reconnect_for(reconnect_for);
    let builder = match wait {
        Some(wait) => builder.wait_for_pool(wait),
        None => builder,
    };
    let (tell, mut told) = mpsc::channel();
    thread::Builder::new().spawn(move || drop(tell.send(builder.connect())))?;
    loop {
        let told = &mut told;
        match detached(py, move || told.recv_timeout(SIGNALS_EVERY)) {
            Ok(connected) => return connected.map_err(|error| errors::client(py, &error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the thread that connects has panicked"));
            }
        }
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (
        socket=None, reconnect_for=10.0, wait_for_pool=None, prefix=None, files=ClusterFiles::default()
    ))]
    fn new(
        py: Python<'_>,
        socket: Option<PathBuf>,
        reconnect_for: f64,
        wait_for_pool: Option<f64>,
        prefix: Option<String>,
        files: ClusterFiles,
    ) -> PyResult<Self> {
        let place = Place::new(socket, prefix, files)?;
        let reconnect_for = seconds(reconnect_for)?;
        let wait = wait_for_pool.map(seconds).transpose()?;
        let client = connect(py, &place, reconnect_for, wait)?;
        let connection = Mutex::new(Arc::new(Owned::new(client)));
        Ok(Self { place, reconnect_for, wait, connection, programs: Mutex::default() })
    }

    #[getter]
    fn socket(&self) -> PathBuf {
        self.place.socket.clone()
    }

    /// Runs a program and waits for the answer.
    #[pyo3(signature = (
        program, grids, ties, deadline=None, priority=None, at_most_once=false, refuse_if_busy=false, trace=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one Python call")]
    fn run(
        &self,
        py: Python<'_>,
        program: &str,
        grids: &Bound<'_, PyAny>,
        ties: &str,
        deadline: Option<f64>,
        priority: Option<&str>,
        at_most_once: bool,
        refuse_if_busy: bool,
        trace: Option<Traced>,
    ) -> PyResult<Py<Outputs>> {
        let terms = Terms::new(deadline, priority, at_most_once, refuse_if_busy, trace)?;
        let handle = self.send(py, (program, ties), grids, terms)?;
        Answered::of(py, wait(py, handle)?)
    }

    /// Sends a job. `completions` calls `callback(result, error)` when it has its answer.
    #[pyo3(signature = (
        completions, callback, program, grids, ties,
        deadline=None, priority=None, at_most_once=false, refuse_if_busy=false, trace=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one Python call")]
    fn start(
        &self,
        py: Python<'_>,
        completions: &Completions,
        callback: Py<PyAny>,
        program: &str,
        grids: &Bound<'_, PyAny>,
        ties: &str,
        deadline: Option<f64>,
        priority: Option<&str>,
        at_most_once: bool,
        refuse_if_busy: bool,
        trace: Option<Traced>,
    ) -> PyResult<Canceller> {
        let terms = Terms::new(deadline, priority, at_most_once, refuse_if_busy, trace)?;
        let handle = self.send(py, (program, ties), grids, terms)?;
        let handle = unless_interrupted(py, handle)?;
        let canceller = Canceller { canceller: Owned::new(handle.canceller()) };
        completions.watch(py, handle, callback)?;
        Ok(canceller)
    }

    /// Sends a job for each batch, all in one message. Each job has its own callback.
    #[pyo3(signature = (
        completions, callbacks, program, batches, ties,
        deadline=None, priority=None, at_most_once=false, refuse_if_busy=false, trace=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one Python call")]
    fn start_many(
        &self,
        py: Python<'_>,
        completions: &Completions,
        callbacks: Vec<Py<PyAny>>,
        program: &str,
        batches: Vec<Bound<'_, PyAny>>,
        ties: &str,
        deadline: Option<f64>,
        priority: Option<&str>,
        at_most_once: bool,
        refuse_if_busy: bool,
        trace: Option<Traced>,
    ) -> PyResult<Vec<Canceller>> {
        let terms = Terms::new(deadline, priority, at_most_once, refuse_if_busy, trace)?;
        let client = self.connection(py)?;
        let jobs = batches.iter().enumerate().map(|(at, grids)| {
            let lender = (at < PLACED_MAX).then_some(&client);
            let job = self.job(py, lender, (program, ties), grids, terms.clone());
            job.map_err(|error| errors::in_batch(py, error, at))
        });
        let jobs = jobs.collect::<PyResult<Vec<_>>>()?;
        let sent = detached(py, || client.send_many(jobs));
        let handles = sent.map_err(|error| not_sent(py, &error))?;
        let handles = unless_interrupted(py, handles)?;
        let watched = handles.into_iter().zip(callbacks).map(|(handle, callback)| {
            let canceller = Canceller { canceller: Owned::new(handle.canceller()) };
            completions.watch(py, handle, callback)?;
            Ok(canceller)
        });
        watched.collect()
    }

    /// Packs a batch into shared memory.
    fn load(&self, py: Python<'_>, grids: &Bound<'_, PyAny>, pairs: bool) -> PyResult<Loaded> {
        let client = self.connection(py)?;
        let batch = match input::source(py, Some(&client), grids, pairs)? {
            Source::Loaded(loaded) => loaded,
            Source::Batch(batch) => {
                detached(py, || client.load(&batch)).map_err(|error| errors::client(py, &error))?
            }
        };
        Ok(Loaded { batch: Owned::new(batch), grids_per_item: if pairs { 2 } else { 1 } })
    }

    /// Starts a search over pairs.
    #[pyo3(signature = (pairs, score, steps, ties, deadline=None, threads=None, trace=None,
        only_solving=false, sharing=true))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one Python call")]
    fn search(
        &self,
        py: Python<'_>,
        pairs: &Bound<'_, PyAny>,
        score: &str,
        steps: u32,
        ties: &str,
        deadline: Option<f64>,
        threads: Option<usize>,
        trace: Option<Traced>,
        only_solving: bool,
        sharing: bool,
    ) -> PyResult<Search> {
        let client = self.connection(py)?;
        let pairs = input::batch(py, pairs, true)?;
        let deadline = deadline.map(seconds).transpose()?;
        let terms =
            search::Terms { score, steps, ties, deadline, threads, trace, only_solving, sharing };
        Search::start(py, &client, pairs, terms)
    }

    /// The state of the pool, as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        Outputs::json(&self.ask(py, gridpool_client::Client::status)?)
    }

    /// The models, one row for each model and device, as JSON.
    fn models(&self, py: Python<'_>) -> PyResult<String> {
        Outputs::json(&self.ask(py, gridpool_client::Client::models)?)
    }

    fn kill(&self, py: Python<'_>, worker: &str, signal: i32) -> PyResult<String> {
        let worker = worker.parse::<WorkerSelector>();
        let worker = worker.map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.ask(py, |client| client.kill(worker, signal))
    }

    fn release(&self, py: Python<'_>, what: &str) -> PyResult<String> {
        let what = what.parse::<Release>();
        let what = what.map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.ask(py, |client| client.release(what))
    }

    fn drain(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, gridpool_client::Client::drain)
    }

    /// Begins to load a model. `options` is JSON with fields of `[[model]]`.
    fn start_load(
        &self,
        py: Python<'_>,
        name: String,
        path: PathBuf,
        options: &str,
    ) -> PyResult<ModelLoad> {
        ModelLoad::start(py, &self.place, (name, path), options)
    }

    fn set_contexts(&self, py: Python<'_>, name: &str, contexts: u32) -> PyResult<String> {
        self.ask(py, |client| client.set_contexts(name, contexts))
    }

    fn unload_model(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        self.ask(py, |client| client.unload_model(name))
    }

    /// Runs a model: tensors in and out as `(name, type, shape, bytes)`, and the receipt as JSON.
    #[pyo3(signature = (
        model, inputs, deadline=None, priority=None, at_most_once=false, output_bytes=None, trace=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one Python call")]
    fn infer(
        &self,
        py: Python<'_>,
        model: &str,
        inputs: Vec<crate::model::RawTensor>,
        deadline: Option<f64>,
        priority: Option<&str>,
        at_most_once: bool,
        output_bytes: Option<u64>,
        trace: Option<Traced>,
    ) -> PyResult<(Vec<crate::model::RawOutput>, String)> {
        let terms = Terms::new(deadline, priority, at_most_once, false, trace)?;
        let mut job = terms.of(crate::model::job(model, inputs)?)?;
        if let Some(bytes) = output_bytes {
            job = job.with_output_bytes(bytes);
        }
        let client = self.connection(py)?;
        let sent = detached(py, || client.send(job));
        let handle = sent.map_err(|error| not_sent(py, &error))?;
        let answer = wait(py, handle)?.map_err(|error| errors::client(py, &error))?;
        let (receipt, outputs) = answer.into_parts();
        let json = Outputs::json(&receipt)?;
        match outputs {
            Some(outputs) if receipt.verdict == Verdict::Ok => {
                Ok((crate::model::outputs(py, &outputs), json))
            }
            Some(_) | None => {
                let text = format!("{}: {}", receipt.verdict, receipt.reason);
                let class = errors::class_of(receipt.verdict);
                Err(errors::raise(py, class, (text, json, py.None())))
            }
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a connection cannot be pickled: connect again, to its socket"))
    }
}
