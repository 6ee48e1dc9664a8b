//! Answers of jobs that no thread waits for: futures of Rust, which one Python thread takes to their callbacks.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Condvar, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use gridpool_client::{Answer, Answering, ClientError, Handle};
use gridpool_ipc::mutex::Mutex;
use pyo3::prelude::*;

use crate::errors;
use crate::outputs::Answered;
use crate::process::{Owned, detached};

/// How long the thread sleeps at most before it looks again.
const TAKE_EVERY: Duration = Duration::from_secs(3_600);

/// A callback, and its result or its exception.
type Taken = (Py<PyAny>, Py<PyAny>, Py<PyAny>);
type Polled = Result<Answer<gridpool_client::Outputs>, ClientError>;

/// Jobs under way, each with its callback.
#[derive(Debug, Default)]
struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    jobs: BTreeMap<u64, Job>,
    /// Jobs to look at.
    woken: VecDeque<u64>,
    /// Callbacks of jobs that [`Completions::close`] has cancelled.
    cancelled: Vec<Py<PyAny>>,
    next: u64,
    closed: bool,
}

#[derive(Debug)]
struct Job {
    answer: Pin<Box<Answering<gridpool_client::Outputs>>>,
    callback: Py<PyAny>,
}

/// Wakes the thread for one job.
#[derive(Debug)]
struct Bell {
    queue: Arc<Queue>,
    job: u64,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.queue.inner.lock().woken.push_back(self.job);
        self.queue.changed.notify_all();
    }
}

/// See the module's text.
#[pyclass(frozen, module = "gridpool._native")]
#[derive(Debug)]
pub(crate) struct Completions {
    queue: Owned<Arc<Queue>>,
}

impl Completions {
    /// Calls `callback(result, error)` on the taking thread when the job has its answer.
    pub(crate) fn watch(
        &self,
        py: Python<'_>,
        handle: Handle<gridpool_client::Outputs>,
        callback: Py<PyAny>,
    ) -> PyResult<()> {
        let mut inner = self.queue.inner.lock();
        if inner.closed {
            drop(inner);
            detached(py, || drop(handle));
            return Err(closed(py));
        }
        let job = inner.next;
        inner.next += 1;
        inner.jobs.insert(job, Job { answer: Box::pin(handle.into_future()), callback });
        inner.woken.push_back(job);
        drop(inner);
        self.queue.changed.notify_all();
        Ok(())
    }
}

/// The error of a job whose client was closed.
fn closed(py: Python<'_>) -> PyErr {
    errors::raise(py, "Cancelled", ("the client was closed",))
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> Self {
        Self { queue: Owned::new(Arc::default()) }
    }

    /// Waits for answers: `(callback, result, error)` of each. Once this is closed, the jobs without one are
    /// `Cancelled`, and then there is `None`.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Vec<Taken>>> {
        let queue: &Arc<Queue> = &self.queue;
        loop {
            let Some(polled) = detached(py, || queue.next()) else {
                let left = detached(py, || queue.left());
                let taken = left
                    .into_iter()
                    .map(|callback| (callback, py.None(), closed(py).into_value(py).into_any()));
                let taken: Vec<_> = taken.collect();
                return Ok(if taken.is_empty() { None } else { Some(taken) });
            };
            let mut done = Vec::with_capacity(polled.len());
            for (job, answer) in polled {
                let (result, error) = match Answered::of(py, answer) {
                    Ok(result) => (result.into_any(), py.None()),
                    Err(error) => (py.None(), error.into_value(py).into_any()),
                };
                done.push((job.callback, result, error));
            }
            if !done.is_empty() {
                return Ok(Some(done));
            }
        }
    }

    /// The number of jobs without an answer.
    fn under_way(&self) -> usize {
        if self.queue.is_mine() { self.queue.inner.lock().jobs.len() } else { 0 }
    }

    /// Cancels all jobs and ends [`Completions::take`].
    fn close(&self) {
        if !self.queue.is_mine() {
            return;
        }
        let answers = self.queue.close();
        self.queue.changed.notify_all();
        drop(answers);
    }
}

impl Queue {
    /// Closes it. Dropping the jobs' answers cancels them; [`Queue::left`] has their callbacks.
    fn close(&self) -> Vec<Pin<Box<Answering<gridpool_client::Outputs>>>> {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let jobs = std::mem::take(&mut inner.jobs).into_values();
        let (answers, callbacks): (Vec<_>, Vec<_>) =
            jobs.map(|job| (job.answer, job.callback)).unzip();
        inner.cancelled.extend(callbacks);
        answers
    }

    /// The callbacks of the jobs that had no answer when it was closed.
    fn left(&self) -> Vec<Py<PyAny>> {
        // One that was looked at just then is among the jobs.
        drop(self.close());
        std::mem::take(&mut self.inner.lock().cancelled)
    }

    /// The jobs that have answers, at least one; `None` once it is closed.
    fn next(self: &Arc<Self>) -> Option<Vec<(Job, Polled)>> {
        loop {
            let woken = self.woken()?;
            let mut done = Vec::new();
            for number in woken {
                // Polled outside of the lock, since a poll may wake.
                let Some(mut job) = self.inner.lock().jobs.remove(&number) else { continue };
                let waker = Waker::from(Arc::new(Bell { queue: Arc::clone(self), job: number }));
                match job.answer.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(answer) => done.push((job, answer)),
                    Poll::Pending => {
                        self.inner.lock().jobs.insert(number, job);
                    }
                }
            }
            if !done.is_empty() {
                return Some(done);
            }
        }
    }

    /// The jobs to look at, once there is one.
    fn woken(&self) -> Option<Vec<u64>> {
        let mut inner = self.inner.lock();
        while inner.woken.is_empty() && !inner.closed {
            let waited = self.changed.wait_timeout(inner, TAKE_EVERY);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if inner.closed { None } else { Some(inner.woken.drain(..).collect()) }
    }
}

/// Cancels a job that is under way.
#[pyclass(frozen, module = "gridpool._native")]
#[derive(Debug)]
pub(crate) struct Canceller {
    pub(crate) canceller: Owned<gridpool_client::Canceller>,
}

#[pymethods]
impl Canceller {
    /// Cancels it. The verdict is then CANCELLED, unless it has another already.
    fn cancel(&self, py: Python<'_>) {
        if self.canceller.is_mine() {
            detached(py, || self.canceller.cancel());
        }
    }
}
