//! Forks, and the end of the interpreter.
//!
//! After a fork, the child has copies of the parent's connection, its locks and its leases. It must neither use nor
//! drop them, so [`Owned`] forgets what belongs to the parent. At the interpreter's end, a thread that comes back
//! from the pool may not take the GIL any more: CPython would end it inside of Rust code.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use gridpool_client::ClientError;
use gridpool_ipc::clock;
use pyo3::prelude::*;

use crate::errors;

/// How long the interpreter's end waits for threads that take the GIL just then.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two looks at them.
const EXIT_EVERY: Duration = Duration::from_micros(100);

/// Counts forks, from the first process on.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// The interpreter ends.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// The thread that ends it.
static LEAVER: OnceLock<ThreadId> = OnceLock::new();
/// Threads between the look at [`LEAVING`] and the GIL.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

/// The number of this process among its forks.
pub(crate) fn generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Notes that this process is a fork. `os.register_at_fork` calls it.
#[pyfunction]
#[pyo3(name = "_after_fork_in_child")]
pub(crate) fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // The threads that were on their way are the parent's.
    RETURNING.store(0, Ordering::Relaxed);
}

/// From now on, other threads that come back from the pool wait for the process to end. `atexit` calls it.
#[pyfunction]
#[pyo3(name = "_before_exit")]
pub(crate) fn before_exit(py: Python<'_>) {
    LEAVER.get_or_init(|| thread::current().id());
    LEAVING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let until = clock::now() + EXIT_TIMEOUT;
        while RETURNING.load(Ordering::SeqCst) > 0 && !clock::until(until).is_zero() {
            thread::park_timeout(EXIT_EVERY);
        }
    });
}

/// Runs `work` without the GIL.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let value = py.detach(|| {
        let value = work();
        while !returns() {
            // The process ends now, and this thread with it.
            thread::park();
        }
        value
    });
    RETURNING.fetch_sub(1, Ordering::SeqCst);
    value
}

/// Whether this thread may take the GIL; then [`RETURNING`] counts it.
fn returns() -> bool {
    RETURNING.fetch_add(1, Ordering::SeqCst);
    let may = !LEAVING.load(Ordering::SeqCst) || LEAVER.get() == Some(&thread::current().id());
    if !may {
        RETURNING.fetch_sub(1, Ordering::SeqCst);
    }
    may
}

thread_local! {
    /// The exception of a signal that came while this thread waited without the GIL.
    static INTERRUPT: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Whether a signal that raises has come while this thread waits without the GIL.
pub(crate) fn is_interrupted() -> bool {
    if !returns() {
        return false;
    }
    let interrupt = Python::attach(|py| py.check_signals().err());
    RETURNING.fetch_sub(1, Ordering::SeqCst);
    let has_come = interrupt.is_some();
    INTERRUPT.set(interrupt);
    has_come
}

/// The exception for an error of what was sent: the signal's that ended the wait, if one did.
pub(crate) fn not_sent(py: Python<'_>, error: &ClientError) -> PyErr {
    INTERRUPT.take().unwrap_or_else(|| errors::client(py, error))
}

/// What was sent. If a signal came meanwhile that raises, nobody will have the jobs, so they are cancelled.
pub(crate) fn unless_interrupted<T: Send>(py: Python<'_>, sent: T) -> PyResult<T> {
    match py.check_signals() {
        Ok(()) => Ok(sent),
        Err(interrupt) => {
            detached(py, || drop(sent));
            Err(interrupt)
        }
    }
}

/// A value of one process. A fork of it neither uses nor drops it.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    value: ManuallyDrop<T>,
    generation: u64,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), generation: generation() }
    }

    /// Whether this process made it.
    pub(crate) fn is_mine(&self) -> bool {
        self.generation == generation()
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_mine() {
            #[expect(unsafe_code, reason = "a value that only its own process drops")]
            // SAFETY: this is the one place that drops it, and nothing uses it afterwards.
            unsafe {
                ManuallyDrop::drop(&mut self.value);
            }
        }
    }
}
