//! The jobs that this host has: the stream is told of them while the pool works, and clients' cancellations reach them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::{AckKind, Message};
use futures_util::StreamExt;
use gridpool_ipc::mutex::Mutex;
use gridpool_nats::RETRY_EVERY;
use gridpool_protocol::ids::JobKey;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, watch};
use tokio::time::sleep;

use crate::Bridge;

/// The jobs that this host has.
#[derive(Debug)]
pub(crate) struct UnderWay {
    jobs: Mutex<BTreeMap<u64, Held>>,
    next: AtomicU64,
    /// The least that a lane has.
    ack_wait: watch::Sender<Duration>,
    /// Read by a job that runs, written by a suspect that runs alone.
    runs: RwLock<()>,
}

/// A job that this host has. It has it no more when this is dropped.
#[derive(Debug)]
pub(crate) struct InHand<'a> {
    under_way: &'a UnderWay,
    number: u64,
}

impl InHand<'_> {
    /// Its last delivery.
    pub(crate) fn message(&self) -> Option<Arc<Message>> {
        self.under_way.jobs.lock().get(&self.number).map(|held| Arc::clone(&held.message))
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.under_way.jobs.lock().remove(&self.number);
    }
}

#[derive(Debug)]
struct Held {
    /// Its last delivery.
    message: Arc<Message>,
    key: JobKey,
    cancelled: watch::Sender<bool>,
}

impl Default for UnderWay {
    fn default() -> Self {
        Self {
            jobs: Mutex::default(),
            next: AtomicU64::new(0),
            ack_wait: watch::Sender::new(Duration::from_secs(30)),
            runs: RwLock::default(),
        }
    }
}

impl UnderWay {
    /// The stream gives a job to another host after this time without a word.
    pub(crate) fn hold_within(&self, ack_wait: Duration) {
        self.ack_wait.send_if_modified(|least| {
            let is_less = ack_wait < *least;
            *least = ack_wait.min(*least);
            is_less
        });
    }

    /// Waits as long as jobs may be left without a word.
    async fn pause(&self) {
        let mut ack_wait = self.ack_wait.subscribe();
        loop {
            let pause = *ack_wait.borrow_and_update() / 3;
            tokio::select! {
                () = sleep(pause) => return,
                // It is less by now, as when the first lane is opened.
                Ok(()) = ack_wait.changed() => {}
            }
        }
    }

    /// Takes a job in hand. `None` if this host has it: the stream has not heard of it for too long, and delivers it
    /// again; or the stream was lost, and its client has sent it again. It goes on, and ends under its last delivery.
    pub(crate) fn add(
        &self,
        message: &Arc<Message>,
        key: JobKey,
    ) -> Option<(InHand<'_>, watch::Receiver<bool>)> {
        let message = Arc::clone(message);
        let mut jobs = self.jobs.lock();
        if let Some(held) = jobs.values_mut().find(|held| held.key == key) {
            held.message = message;
            return None;
        }
        let (cancelled, told) = watch::channel(false);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        jobs.insert(number, Held { message, key, cancelled });
        drop(jobs);
        Some((InHand { under_way: self, number }, told))
    }

    /// Waits until no suspect runs alone.
    pub(crate) async fn beside(&self) -> RwLockReadGuard<'_, ()> {
        self.runs.read().await
    }

    /// Waits until nothing else runs. Meanwhile nothing else begins.
    pub(crate) async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.runs.write().await
    }
}

impl Bridge {
    /// Tells the stream that jobs are worked on, for as long as the pool answers.
    pub(crate) async fn hold(self: Arc<Self>) {
        loop {
            self.under_way.pause().await;
            if !self.state.borrow().is_alive {
                continue;
            }
            let jobs = self
                .under_way
                .jobs
                .lock()
                .values()
                .map(|held| Arc::clone(&held.message))
                .collect::<Vec<_>>();
            for job in jobs {
                if let Err(error) = job.ack_with(AckKind::Progress).await {
                    tracing::debug!(%error, "holding a job");
                }
            }
        }
    }

    /// Stops jobs whose clients have cancelled them.
    pub(crate) async fn hear_of_cancels(self: Arc<Self>) {
        loop {
            let client = &self.streams.connection.client;
            match client.subscribe(self.streams.subjects.cancel()).await {
                Ok(mut cancels) => {
                    while let Some(cancel) = cancels.next().await {
                        let Ok(key) = <[u8; 16]>::try_from(&*cancel.payload) else { continue };
                        let key = JobKey(u128::from_le_bytes(key));
                        for held in self.under_way.jobs.lock().values() {
                            held.cancelled.send_if_modified(|is| {
                                std::mem::replace(is, *is || held.key == key) != *is
                            });
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "cancellations"),
            }
            sleep(RETRY_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_job_of_the_first_lane_is_held_in_time() {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let under_way = UnderWay::default();
            let pause = timeout(Duration::from_secs(5), under_way.pause());
            let lane = async { under_way.hold_within(Duration::from_millis(30)) };
            let (paused, ()) = tokio::join!(pause, lane);
            assert_eq!(paused, Ok(()), "it has not heard that the lane has 30 ms");
        });
    }
}
