//! The thread that reads the socket for futures. It starts with the first future.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use gridpool_ipc::mutex::Mutex;

/// The reading thread, once it has started.
#[derive(Debug, Default)]
pub(super) struct Reading {
    thread: Mutex<Option<Thread>>,
    signals: Arc<Signals>,
}

/// What the thread is told to do.
#[derive(Debug, Default)]
struct Signals {
    read: AtomicBool,
    end: AtomicBool,
}

impl Reading {
    /// Makes the thread call `read` once more. The thread ends when `read` returns `false`.
    pub(super) fn start(&self, read: impl Fn() -> bool + Send + 'static) -> io::Result<()> {
        if self.signals.read.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut thread = self.thread.lock();
        if let Some(thread) = &*thread {
            thread.unpark();
            return Ok(());
        }
        let signals = Arc::clone(&self.signals);
        let builder = thread::Builder::new().name("gridpool-client".into());
        let started = builder.spawn(move || while signals.wait() && read() {})?;
        *thread = Some(started.thread().clone());
        Ok(())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.signals.end.store(true, Ordering::Release);
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }
}

impl Signals {
    /// Waits until there is something to read; `false` ends the thread.
    fn wait(&self) -> bool {
        while !self.read.swap(false, Ordering::AcqRel) {
            if self.end.load(Ordering::Acquire) {
                return false;
            }
            thread::park();
        }
        true
    }
}
