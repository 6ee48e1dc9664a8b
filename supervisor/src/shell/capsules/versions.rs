//! What a capsule says of the builds that ran: each is asked for until it has answered.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gridpool_ipc::mutex::Mutex;

use crate::devices::{driver_by, version_by};
use crate::shell::Shared;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Versions {
    worker: OnceLock<String>,
    cuda: Mutex<Asked>,
}

/// How long a capsule waits for an answer. A driver may give none after a fault, and the inputs of the next worker that
/// dies have to be copied at the first sign of its end.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// What is asked for in a thread of its own.
#[derive(Debug, Default)]
struct Asked {
    known: Option<String>,
    /// The answer to come. Nobody is asked beside it.
    coming: Option<Receiver<Option<String>>>,
}

impl Asked {
    /// The answer; empty if it does not come in time, or is none. The next call gets it then, or asks again.
    fn answer(
        &mut self,
        within: Duration,
        ask: impl FnOnce() -> Option<String> + Send + 'static,
    ) -> String {
        if let Some(known) = &self.known {
            return known.clone();
        }
        let begin = || {
            let (sender, coming) = crossbeam_channel::bounded(1);
            // Without a thread, and so without a sender, there is no answer.
            let thread = thread::Builder::new().name("driver version".into());
            let begun = thread.spawn(move || drop(sender.send(ask())));
            if let Err(error) = begun {
                tracing::debug!(%error, "the driver's version is not asked for");
            }
            coming
        };
        let coming = self.coming.take().unwrap_or_else(begin);
        match coming.recv_timeout(within) {
            Ok(answer) => self.known = answer,
            Err(RecvTimeoutError::Timeout) => self.coming = Some(coming),
            Err(RecvTimeoutError::Disconnected) => {}
        }
        self.known.clone().unwrap_or_default()
    }
}

impl Versions {
    /// What the worker's binary says of itself.
    pub(super) fn worker(&self, shared: &Shared) -> String {
        let ask = || {
            let mut command = shared.command.lock().program.command();
            version_by(&mut command).unwrap_or_default().trim().to_owned()
        };
        self.worker.get_or_init(ask).clone()
    }

    /// The CUDA version of a driver, which does not change while the driver is loaded; empty without a driver. One
    /// that does not answer after a fault leaves it unknown.
    pub(super) fn cuda(&self, shared: &Shared, driver: &str) -> String {
        if driver.is_empty() {
            return String::new();
        }
        let mut command = shared.command.lock().program.command();
        let ask = move || {
            let versions = driver_by(&mut command).inspect_err(|error| {
                tracing::debug!(?error, "the driver's version is unknown");
            });
            versions.ok().map(|versions| versions.cuda).filter(|cuda| !cuda.is_empty())
        };
        self.cuda.lock().answer(ANSWER_WITHIN, ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_late_comes_with_the_next_capsule_and_a_failure_is_not_kept() {
        let mut asked = Asked::default();
        assert_eq!(asked.answer(ANSWER_WITHIN, || None), "");
        let (sender, answer) = crossbeam_channel::bounded(0);
        let late = move || answer.recv().ok();
        assert_eq!(asked.answer(Duration::ZERO, late), "", "nobody waits for it");
        let never = || unreachable!("it is asked already");
        assert_eq!(asked.answer(Duration::ZERO, never), "");
        sender.send("13.0".to_owned()).unwrap();
        assert_eq!(asked.answer(ANSWER_WITHIN, never), "13.0");
        assert_eq!(asked.answer(Duration::ZERO, never), "13.0");
    }
}
