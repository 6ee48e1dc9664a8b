//! Waiting for what a test has caused, never for time to pass.

#![expect(clippy::panic, reason = "what does not come in time is a test that fails")]

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gridpool_ipc::clock;

/// The timeout of every wait in a test: far more than is ever needed, so that only a fault reaches
/// it, however busy the machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks until `look` gives a value. Its error says what was seen instead.
///
/// # Panics
/// If it gives none in time.
pub fn eventually<T, E: Display>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let give_up = clock::now() + TIMEOUT;
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) if clock::until(give_up).is_zero() => {
                panic!("waited {TIMEOUT:?} for {what}; last seen: {seen}")
            }
            Err(_) => thread::park_timeout(LOOK_EVERY),
        }
    }
}

/// [`eventually`] for something that is either so or not.
pub fn eventually_so(what: &str, mut look: impl FnMut() -> bool) {
    eventually(what, || if look() { Ok(()) } else { Err("it is not so") });
}

/// The value of a call that blocks.
///
/// # Panics
/// If it does not come in time, or the call panics.
pub fn within<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || drop(sender.send(call())));
    match receiver.recv_timeout(TIMEOUT) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("waited {TIMEOUT:?} for {what}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it gave no value"))
        }
    }
}

/// Sets the flag that ends a loop of another thread, also if the test panics before: a scope that waits for that loop
/// would wait for ever, and hide the panic.
#[derive(Debug)]
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets time pass, where time is what is meant; ends early once `stop` is set.
pub fn pause(span: Duration, stop: &AtomicBool) {
    let end = clock::now() + span;
    while !clock::until(end).is_zero() && !stop.load(Ordering::Relaxed) {
        thread::park_timeout(clock::until(end).min(LOOK_EVERY));
    }
}
