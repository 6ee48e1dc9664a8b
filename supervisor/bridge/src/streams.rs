//! Keeps the streams there: somebody may remove them, or the only server lose its disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gridpool_nats::{Generation, Streams};
use gridpool_protocol::chain::Chain;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::Bridge;

/// How often the bridge looks whether they are there.
const KEEP_EVERY: Duration = Duration::from_secs(10);

impl Bridge {
    /// Makes streams again that are gone, until the bridge is to end. They have the names of the old ones, so what this
    /// process holds is of use again, but for the lanes.
    pub(crate) async fn keep_streams(self: Arc<Self>) {
        let (nats, limits) = (&self.settings.nats, &self.settings.limits);
        loop {
            tokio::select! {
                () = sleep(KEEP_EVERY) => {}
                () = self.counts.leaving() => return,
            }
            let question = self.latest.question();
            match Streams::open(&self.streams.connection, &nats.prefix, Some(limits)).await {
                Ok(streams) => self.latest.found(question, streams.opened_generation()),
                Err(error) => {
                    let error = Chain(&error).to_string();
                    tracing::debug!(error, "whether the streams are there");
                }
            }
        }
    }
}

/// Which stream of jobs is there, by the answer to the question that was asked last. The time at which one was made
/// says nothing of it: a disk that is put back has the older one, and is right.
#[derive(Debug)]
pub(crate) struct Latest {
    /// With the number of the question that it answers.
    known: watch::Sender<(Question, Generation)>,
    asked: AtomicU64,
}

/// The number of a question which stream there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question(u64);

impl Latest {
    pub(crate) fn new(opened: Generation) -> Self {
        let known = watch::Sender::new((Question::default(), opened));
        Self { known, asked: AtomicU64::new(0) }
    }

    /// Its number is taken before it is asked.
    pub(crate) fn question(&self) -> Question {
        Question(self.asked.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Takes in an answer, unless a later question has been answered.
    pub(crate) fn found(&self, question: Question, generation: Generation) {
        self.known.send_if_modified(|(last, known)| {
            if question < *last {
                return false;
            }
            let is_other = *known != generation;
            (*last, *known) = (question, generation);
            is_other
        });
    }

    /// Waits until another stream of jobs than this is there.
    pub(crate) async fn is_other(&self, than: Generation) {
        let mut known = self.known.subscribe();
        // The sender lives as long as self.
        drop(known.wait_for(|(_, known)| *known != than).await);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_last_question_says_which_stream_is_there_whichever_is_older() {
        let [first, second] = [10, 20].map(Generation::made_at);
        let latest = Latest::new(first);
        let is_other = |than| latest.is_other(than).now_or_never().is_some();
        let [early, late, last] = [(); 3].map(|()| latest.question());
        latest.found(late, second);
        assert!(is_other(first) && !is_other(second));
        // It was asked before, and answered after.
        latest.found(early, first);
        assert!(is_other(first) && !is_other(second));
        // A disk was put back that has the older stream.
        latest.found(last, first);
        assert!(is_other(second) && !is_other(first));
    }
}
