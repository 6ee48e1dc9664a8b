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

use crate::client::Answered;
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
    pub(crate) fn watch(&self, handle: Handle<gridpool_client::Outputs>, callback: Py<PyAny>) {
        let mut inner = self.queue.inner.lock();
        let job = inner.next;
        inner.next += 1;
        inner.jobs.insert(job, Job { answer: Box::pin(handle.into_future()), callback });
        inner.woken.push_back(job);
        drop(inner);
        self.queue.changed.notify_all();
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> Self {
        Self { queue: Owned::new(Arc::default()) }
    }

    /// Waits for answers: `(callback, result, error)` of each; `None` once this is closed.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Vec<Taken>>> {
        let queue: &Arc<Queue> = &self.queue;
        loop {
            let Some(polled) = detached(py, || queue.next()) else { return Ok(None) };
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
        let jobs = {
            let mut inner = self.queue.inner.lock();
            inner.closed = true;
            std::mem::take(&mut inner.jobs)
        };
        self.queue.changed.notify_all();
        drop(jobs);
    }
}

impl Queue {
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
