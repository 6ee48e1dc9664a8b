//! A search as a Python object: programs are fed without waiting, results are taken, and Ctrl-C ends it.
//!
//! A thread of its own takes results from the stream, so that a waiting thread can look after signals.

use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::thread;
use std::time::Duration;

use gridpool_client::{
    Candidate, ClientError, GridBatch, Score, Search as Sought, SearchOutcome, SearchResult,
    SearchStopper, SearchStream, SearchSummary, Ties,
};
use gridpool_ipc::mutex::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::errors;
use crate::process::{Owned, detached};
use crate::terms::Traced;

/// Programs that wait to be read. The search itself reads ahead, and bounds that by bytes.
const FED_MAX: usize = 256;
/// Results that wait to be taken, and most that one call gives.
const READY_MAX: usize = 4_096;
/// How long a waiting thread is away from Python at a time: Ctrl-C takes as long.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// A program: its text, or what it was compiled to.
#[derive(Debug, FromPyObject)]
pub(crate) enum Program {
    Text(String),
    Bytecode(Vec<u8>),
}

/// Name, what was wrong, statuses, scores.
type Row = (String, Option<String>, Option<Py<PyBytes>>, Option<Py<PyBytes>>);

/// See the module's text.
#[pyclass(frozen, module = "gridpool._native")]
#[derive(Debug)]
pub(crate) struct Search {
    running: Owned<Running>,
}

#[derive(Debug)]
struct Running {
    /// `None` once there are no more programs.
    programs: Mutex<Option<SyncSender<Candidate>>>,
    results: Mutex<Receiver<Result<SearchResult, ClientError>>>,
    /// The error that ended the search, until the results before it were given.
    failed: Mutex<Option<ClientError>>,
    stopper: SearchStopper,
    summary: Arc<Mutex<SearchSummary>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

/// What is searched for.
pub(crate) struct Terms<'a> {
    pub(crate) score: &'a str,
    pub(crate) steps: u32,
    pub(crate) ties: &'a str,
    pub(crate) deadline: Option<Duration>,
    pub(crate) threads: Option<usize>,
    pub(crate) trace: Option<Traced>,
    pub(crate) only_solving: bool,
    pub(crate) sharing: bool,
}

impl Search {
    /// Starts a search over pairs.
    pub(crate) fn start(
        py: Python<'_>,
        client: &gridpool_client::Client,
        pairs: GridBatch,
        terms: Terms<'_>,
    ) -> PyResult<Self> {
        let mut sought = Sought::new(pairs);
        sought.score = terms.score.parse::<Score>().map_err(PyValueError::new_err)?;
        sought.ties = terms.ties.parse::<Ties>().map_err(PyValueError::new_err)?;
        (sought.steps, sought.only_solving) = (terms.steps, terms.only_solving);
        sought.sharing = terms.sharing;
        sought.deadline = terms.deadline.unwrap_or(sought.deadline);
        sought.threads = terms.threads.unwrap_or(sought.threads);
        (sought.trace, sought.trace_state) = terms.trace.map(Traced::parts).unwrap_or_default();
        let (feed, fed) = sync_channel(FED_MAX);
        let stream = detached(py, || client.search(sought, fed));
        let stream = stream.map_err(|error| errors::client(py, &error))?;
        let stopper = stream.stopper();
        let summary = Arc::new(Mutex::new(SearchSummary::default()));
        let (send, results) = sync_channel(READY_MAX);
        let shared = Arc::clone(&summary);
        let thread = thread::Builder::new().name("gridpool-search".into());
        thread
            .spawn(move || forward(stream, &send, &shared))
            .map_err(|error| errors::client(py, &ClientError::System(error)))?;
        let (programs, results) = (Mutex::new(Some(feed)), Mutex::new(results));
        let failed = Mutex::default();
        Ok(Self { running: Owned::new(Running { programs, results, failed, stopper, summary }) })
    }

    fn mine(&self) -> PyResult<&Running> {
        if self.running.is_mine() {
            return Ok(&self.running);
        }
        Err(PyRuntimeError::new_err("the search is the parent process's: start one after the fork"))
    }
}

/// Passes results on until there are no more, or nobody takes them.
fn forward(
    mut stream: SearchStream,
    to: &SyncSender<Result<SearchResult, ClientError>>,
    summary: &Mutex<SearchSummary>,
) {
    while let Some(step) = stream.step() {
        *summary.lock() = stream.summary().clone();
        // Most jobs end without a result that is wanted.
        let Some(result) = step.transpose() else { continue };
        if to.send(result).is_err() {
            return;
        }
    }
    *summary.lock() = stream.summary().clone();
}

#[pymethods]
impl Search {
    /// Adds programs, each a name and a text or bytecode, as far as there is room. Returns how many.
    fn feed(&self, programs: Vec<(String, Program)>) -> PyResult<usize> {
        let feed = self.mine()?.programs.lock();
        let Some(feed) = &*feed else { return Ok(0) };
        let mut fed = 0;
        for (id, program) in programs {
            let candidate = match program {
                Program::Text(text) => Candidate::new(id, text),
                Program::Bytecode(bytes) => Candidate::of_bytecode(id, bytes),
            };
            match feed.try_send(candidate) {
                Ok(()) => fed += 1,
                Err(TrySendError::Full(_)) => break,
                Err(TrySendError::Disconnected(_)) => break,
            }
        }
        Ok(fed)
    }

    /// There are no more programs.
    fn end(&self) -> PyResult<()> {
        self.mine()?.programs.lock().take();
        Ok(())
    }

    /// Ends the search.
    fn stop(&self) -> PyResult<()> {
        self.mine()?.stopper.stop();
        Ok(())
    }

    /// The results that are there; if `wait`, at least one. `None` if there will be no more. An error is raised once
    /// the results before it were given.
    fn take(&self, py: Python<'_>, wait: bool) -> PyResult<Option<Vec<Row>>> {
        let running = self.mine()?;
        if let Some(error) = running.failed.lock().take() {
            return Err(errors::client(py, &error));
        }
        let mut rows = Vec::new();
        while rows.len() < READY_MAX {
            let may_wait = wait && rows.is_empty();
            let received = detached(py, || {
                let results = running.results.lock();
                match may_wait {
                    true => results.recv_timeout(SIGNALS_EVERY),
                    false => results.try_recv().map_err(|error| match error {
                        TryRecvError::Empty => RecvTimeoutError::Timeout,
                        TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                    }),
                }
            });
            match received {
                Ok(Ok(result)) => rows.push(row(py, result)),
                Ok(Err(error)) if rows.is_empty() => return Err(errors::client(py, &error)),
                Ok(Err(error)) => {
                    *running.failed.lock() = Some(error);
                    break;
                }
                Err(RecvTimeoutError::Timeout) if may_wait => {
                    if let Err(interrupt) = py.check_signals() {
                        running.stopper.stop();
                        return Err(interrupt);
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) if rows.is_empty() => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(Some(rows))
    }

    /// What was done so far, as JSON.
    fn summary(&self) -> PyResult<String> {
        let summary = self.mine()?.summary.lock().clone();
        let evaluations = summary.evaluations;
        let document = json!({
            "requested": summary.requested,
            "expanded": summary.expanded,
            "refused": summary.refused,
            "deduplicated": summary.deduplicated,
            "failed": summary.failed,
            "undecided": summary.undecided,
            "executed": evaluations.executed,
            "shared": evaluations.shared,
            "capped": evaluations.capped,
            "on_processor": evaluations.on_processor,
            "jobs": summary.jobs,
            "attempts_lost": summary.attempts_lost,
            "devices": summary.devices,
            "kernels": summary.kernels,
        });
        Ok(document.to_string())
    }
}

fn row(py: Python<'_>, SearchResult { id, outcome }: SearchResult) -> Row {
    match outcome {
        SearchOutcome::Refused(why) => (id, Some(why), None, None),
        SearchOutcome::Failed { verdict, reason } => {
            (id, Some(format!("{verdict}: {reason}")), None, None)
        }
        SearchOutcome::Done(verdicts) => {
            let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
            let scores = verdicts.score_numbers().map(|numbers| {
                let numbers: Vec<u8> =
                    numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                bytes(&numbers)
            });
            (id, None, Some(bytes(verdicts.bytes())), scores)
        }
    }
}
