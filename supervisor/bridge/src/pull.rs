//! Takes jobs from the stream: as many as the pool can work on, those of high priority first.
//!
//! While there are jobs, the bridge asks each lane for as many as it has places, in the order of priority, and takes
//! what is there. When there is none, it leaves one question open at each lane, so that the next job comes at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{AckKind, Message};
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, SelectAll, StreamExt};
use gridpool_nats::{Lane, NatsError};
use gridpool_protocol::chain::Chain;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::Bridge;
use crate::counts::count;

/// How long a question stays open.
const OPEN_FOR: Duration = Duration::from_secs(10);
/// Between two tries while a server does not answer.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How often the models are compared with the lanes while no job comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a server may take to say that it has no job.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The lanes of this host, and the open questions.
struct Lanes {
    names: Vec<String>,
    lanes: Vec<(Lane, PullConsumer)>,
    open: SelectAll<BoxStream<'static, Came>>,
    /// The lanes with an open question, by their consumers' names.
    asked: BTreeSet<String>,
}

/// What came of an open question.
enum Came {
    Job(Box<Message>),
    /// The question is closed.
    Closed(String),
}

impl Bridge {
    /// Takes jobs until the bridge is to end.
    pub(crate) async fn pull(self: &Arc<Self>) {
        let slots = Arc::new(Semaphore::new(0));
        let mut given = 0;
        let mut lanes = Lanes {
            names: Vec::new(),
            lanes: Vec::new(),
            open: SelectAll::new(),
            asked: BTreeSet::new(),
        };
        loop {
            let state = self.state.borrow().clone();
            given = resize(&slots, given, state.slots as usize);
            let permit = tokio::select! {
                permit = Arc::clone(&slots).acquire_owned() => permit,
                () = self.turn_away(&mut lanes) => continue,
                () = self.counts.leaving() => return,
            };
            let Ok(permit) = permit else { return };
            if !state.is_alive || state.is_draining {
                drop(permit);
                tokio::select! {
                    () = self.turn_away(&mut lanes) => {}
                    () = sleep(LOOK_EVERY) => {}
                    () = self.counts.leaving() => return,
                }
                continue;
            }
            if let Err(error) = self.open_lanes(&mut lanes, state.model_names()).await {
                let error = Chain(&error).to_string();
                tracing::debug!(%error, "no consumer of jobs");
                sleep(RETRY_EVERY).await;
                continue;
            }
            let places = given.min(1 + slots.available_permits());
            let jobs = tokio::select! {
                jobs = lanes.take(places) => jobs,
                () = self.counts.leaving() => return,
            };
            let mut permits = vec![permit];
            for job in jobs {
                let permit = match permits.pop() {
                    Some(permit) => permit,
                    // One that came of an open question may be one too many: it waits for a place here.
                    None => match Arc::clone(&slots).acquire_owned().await {
                        Ok(permit) => permit,
                        Err(_) => return,
                    },
                };
                self.start(job, permit, &slots);
                permits.extend(Arc::clone(&slots).try_acquire_owned().ok());
            }
        }
    }

    fn start(self: &Arc<Self>, job: Message, permit: OwnedSemaphorePermit, slots: &Arc<Semaphore>) {
        count(&self.counts.taken);
        self.counts.begin();
        let (bridge, slots) = (Arc::clone(self), Arc::clone(slots));
        tokio::spawn(async move {
            bridge.run(job, permit, &slots).await;
            bridge.counts.end();
        });
    }

    /// Gives back jobs that come while this host has no place for them. Never ends while no job comes.
    async fn turn_away(&self, lanes: &mut Lanes) {
        loop {
            match lanes.open.next().await {
                Some(Came::Job(job)) => {
                    count(&self.counts.given_back);
                    if let Err(error) = job.ack_with(AckKind::Nak(None)).await {
                        tracing::debug!(%error, "giving a job back");
                    }
                    return;
                }
                Some(Came::Closed(lane)) => drop(lanes.asked.remove(&lane)),
                None => std::future::pending().await,
            }
        }
    }

    /// Makes the consumers of programs and of these models.
    async fn open_lanes(&self, lanes: &mut Lanes, names: Vec<String>) -> Result<(), NatsError> {
        if !lanes.lanes.is_empty() && lanes.names == names {
            return Ok(());
        }
        let ack_wait = self.settings.limits.ack_wait;
        let mut opened = Vec::new();
        let models = names.iter().map(|name| Some(name.as_str()));
        for lane in [None].into_iter().chain(models).flat_map(Lane::all) {
            let consumer = self.streams.consumer(&lane, ack_wait).await?;
            self.under_way.hold_within(consumer.cached_info().config.ack_wait);
            opened.push((lane, consumer));
        }
        opened.sort_by_key(|(lane, _)| lane.rank());
        (lanes.lanes, lanes.names) = (opened, names);
        Ok(())
    }
}

impl Lanes {
    /// Takes up to so many jobs, and at least one: waits for it.
    async fn take(&mut self, places: usize) -> Vec<Message> {
        let mut taken = self.arrived();
        for rank in 0..3 {
            let lanes: Vec<_> = self.lanes.iter().filter(|(lane, _)| lane.rank() == rank).collect();
            let left = places.saturating_sub(taken.len());
            if left == 0 {
                return taken;
            }
            let each = left.div_ceil(lanes.len().max(1));
            let fetched = join_all(lanes.iter().map(|(_, consumer)| fetch(consumer, each))).await;
            taken.extend(fetched.into_iter().flatten());
        }
        if !taken.is_empty() {
            return taken;
        }
        self.ask().await;
        match timeout(LOOK_EVERY, self.open.next()).await {
            Ok(Some(Came::Job(job))) => vec![*job],
            Ok(Some(Came::Closed(lane))) => {
                self.asked.remove(&lane);
                Vec::new()
            }
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    /// What came of open questions by now.
    fn arrived(&mut self) -> Vec<Message> {
        use futures_util::FutureExt;
        let mut jobs = Vec::new();
        while let Some(Some(came)) = self.open.next().now_or_never() {
            match came {
                Came::Job(job) => jobs.push(*job),
                Came::Closed(lane) => drop(self.asked.remove(&lane)),
            }
        }
        jobs
    }

    /// Leaves a question open at each lane.
    async fn ask(&mut self) {
        for (lane, consumer) in &self.lanes {
            let name = lane.consumer();
            if self.asked.contains(&name) {
                continue;
            }
            let asked = consumer.batch().max_messages(1).expires(OPEN_FOR).messages().await;
            match asked {
                Ok(messages) => {
                    let jobs = messages.filter_map(async |job| match job {
                        Ok(job) => Some(Came::Job(Box::new(job))),
                        Err(error) => {
                            tracing::debug!(%error, "waiting for jobs");
                            None
                        }
                    });
                    self.asked.insert(name.clone());
                    let closed = stream::once(async move { Came::Closed(name) });
                    self.open.push(jobs.chain(closed).boxed());
                }
                Err(error) => tracing::debug!(%error, "asking for jobs"),
            }
        }
    }
}

/// The jobs that a lane has now, up to so many.
async fn fetch(consumer: &PullConsumer, most: usize) -> Vec<Message> {
    let mut jobs = Vec::new();
    let mut messages = match consumer.fetch().max_messages(most).messages().await {
        Ok(messages) => messages,
        Err(error) => {
            tracing::debug!(%error, "asking for jobs");
            sleep(RETRY_EVERY).await;
            return jobs;
        }
    };
    loop {
        match timeout(FETCH_TIMEOUT, messages.next()).await {
            Ok(Some(Ok(job))) => jobs.push(job),
            Ok(Some(Err(error))) => tracing::debug!(%error, "taking jobs"),
            Ok(None) => return jobs,
            Err(_) => {
                tracing::debug!("the server does not say whether it has jobs");
                return jobs;
            }
        }
    }
}

/// Gives the semaphore as many permits as the host has places now, and returns how many it has. Those in use are taken
/// away later.
fn resize(slots: &Semaphore, given: usize, wanted: usize) -> usize {
    match given.checked_sub(wanted) {
        None => {
            slots.add_permits(wanted - given);
            wanted
        }
        Some(surplus) => given - slots.forget_permits(surplus),
    }
}

/// Milliseconds, in a place that tasks share.
#[derive(Debug)]
pub(crate) struct Span(AtomicU64);

impl Span {
    pub(crate) fn new(span: Duration) -> Self {
        Self(AtomicU64::new(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Lowers it to `span`.
    pub(crate) fn lower(&self, span: Duration) {
        self.0.fetch_min(u64::try_from(span.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}
