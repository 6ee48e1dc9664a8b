//! Takes jobs from the stream: as many as the pool can work on, those of high priority first.
//!
//! While there are jobs, the bridge asks each lane for as many as it has places, in the order of priority, and takes
//! what is there. When there is none, it leaves one question open at each lane, so that the next job comes at once.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{AckKind, Message};
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, SelectAll, Stream, StreamExt};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_nats::{Generation, Lane, NatsError, Streams};
use gridpool_protocol::chain::Chain;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::Bridge;
use crate::counts::{Counts, count};

/// How long a question stays open.
const OPEN_FOR: Duration = Duration::from_secs(10);
/// Between two tries while a server does not answer.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How often the models are compared with the lanes while no job comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a server may take to say that it has no job.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// For how long each round of questions may have failures until streams and lanes are opened again.
const SILENT_MAX: Duration = Duration::from_secs(20);
/// How soon a lane that cannot be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_secs(5);

/// The lanes of this host, and the open questions.
#[derive(Default)]
struct Lanes {
    names: Vec<String>,
    /// The stream that they are of.
    generation: Option<Generation>,
    /// When to try again to open those that could not be opened.
    open_again: Option<Instant>,
    /// The beginning of the first of the rounds of questions that had failures, one after the other.
    silent_since: Option<Instant>,
    /// Rounds of questions. Each begins with another lane.
    rounds: usize,
    lanes: Vec<(Lane, PullConsumer)>,
    /// Jobs that came, and were not handed on yet: whoever stops waiting for more leaves them here.
    taken: Mutex<Vec<Message>>,
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
        let mut lanes = Lanes::default();
        self.take_jobs(&mut lanes).await;
        for job in lanes.arrived() {
            self.return_unused(&job).await;
        }
    }

    async fn take_jobs(self: &Arc<Self>, lanes: &mut Lanes) {
        let slots = Arc::new(Semaphore::new(0));
        let mut given = 0;
        while !self.counts.is_ending() {
            let state = self.state.borrow().clone();
            given = resize(&slots, given, state.slots as usize);
            let permit = tokio::select! {
                permit = Arc::clone(&slots).acquire_owned() => permit,
                () = self.turn_away(lanes) => continue,
                () = self.counts.leaving() => return,
            };
            let Ok(permit) = permit else { return };
            let has_name = self.reach.has_name();
            if !state.is_alive || state.is_draining || !has_name {
                drop(permit);
                tokio::select! {
                    () = self.turn_away(lanes) => {}
                    () = sleep(LOOK_EVERY) => {}
                    () = self.reach.naming(), if !has_name => {}
                    () = self.counts.leaving() => return,
                }
                continue;
            }
            if let Err(error) = self.open_lanes(lanes, state.model_names()).await {
                self.reach.lanes_are_closed(&error);
                let error = Chain(&error).to_string();
                tracing::debug!(%error, "no consumer of jobs");
                sleep(RETRY_EVERY).await;
                continue;
            }
            let places = given.min(1 + slots.available_permits());
            let generation = lanes.generation;
            let jobs = tokio::select! {
                jobs = lanes.take(places, &self.counts) => jobs,
                // They are of a stream that is gone, and would not answer.
                () = self.is_outdated(generation) => {
                    tracing::warn!("the stream of jobs was made anew: its lanes are opened");
                    self.leave(lanes).await;
                    continue;
                }
            };
            match lanes.silent_since {
                None => self.reach.lanes_answer(),
                Some(_) => self.reach.lanes_are_silent(),
            }
            let mut permit = Some(permit);
            for job in jobs {
                let place = permit.take().or_else(|| Arc::clone(&slots).try_acquire_owned().ok());
                match place {
                    Some(permit) if !self.counts.is_ending() => self.start(job, permit),
                    // One that came of an open question may be one too many.
                    Some(_) | None => self.return_unused(&job).await,
                }
            }
            if lanes.silent_since.is_some_and(|since| since.elapsed() >= SILENT_MAX) {
                self.open_again(lanes).await;
            }
        }
    }

    fn start(self: &Arc<Self>, job: Message, permit: OwnedSemaphorePermit) {
        count(&self.counts.taken);
        let (bridge, running) = (Arc::clone(self), self.counts.begin());
        tokio::spawn(async move {
            bridge.run(job, permit).await;
            drop(running);
        });
    }

    async fn return_unused(&self, job: &Message) {
        count(&self.counts.given_back);
        if let Err(error) = job.ack_with(AckKind::Nak(None)).await {
            tracing::debug!(%error, "giving a job back");
        }
    }

    /// The servers have not answered for a while: perhaps somebody has removed the streams, or the lanes.
    async fn open_again(&self, lanes: &mut Lanes) {
        tracing::warn!("the lanes of jobs do not answer: the streams are opened again");
        let connection = &self.streams.connection;
        let (prefix, limits) = (&self.settings.nats.prefix, &self.settings.limits);
        // They have the names of the old ones, so what this process holds is of use again.
        if let Err(error) = Streams::open(connection, prefix, Some(limits)).await {
            tracing::warn!(error = Chain(&error).to_string(), "no streams of the cluster");
        }
        self.leave(lanes).await;
    }

    /// Opens the lanes anew with the next round.
    async fn leave(&self, lanes: &mut Lanes) {
        for job in lanes.arrived() {
            self.return_unused(&job).await;
        }
        *lanes = Lanes::default();
    }

    /// Waits until lanes of this stream are of no use any more.
    async fn is_outdated(&self, generation: Option<Generation>) {
        match generation {
            Some(generation) => self.latest.is_other(generation).await,
            None => std::future::pending().await,
        }
    }

    /// Gives back jobs that come while this host has no place for them. Never ends while no job comes.
    async fn turn_away(&self, lanes: &mut Lanes) {
        loop {
            match lanes.open.next().await {
                Some(Came::Job(job)) => {
                    return self.return_unused(&job).await;
                }
                Some(Came::Closed(lane)) => drop(lanes.asked.remove(&lane)),
                None => std::future::pending().await,
            }
        }
    }

    /// Makes the consumers of programs and of these models.
    async fn open_lanes(&self, lanes: &mut Lanes, names: Vec<String>) -> Result<(), NatsError> {
        let is_due = lanes.open_again.is_some_and(|at| clock::until(at).is_zero());
        if !lanes.lanes.is_empty() && lanes.names == names && !is_due {
            return Ok(());
        }
        let question = self.latest.question();
        let generation = match self.streams.generation().await {
            Ok(generation) => {
                self.latest.found(question, generation);
                generation
            }
            Err(error) => {
                lanes.open_again = Some(clock::now() + OPEN_AGAIN);
                return Err(error);
            }
        };
        let mut failed = None;
        let ack_wait = self.settings.limits.ack_wait;
        let mut opened = Vec::new();
        let models = names.iter().map(|name| Some(name.as_str()));
        for lane in [None].into_iter().chain(models).flat_map(Lane::all) {
            match self.streams.consumer(&lane, ack_wait, generation).await {
                Ok(consumer) => {
                    self.under_way.hold_within(consumer.cached_info().config.ack_wait);
                    opened.push((lane, consumer));
                }
                // The others have jobs all the same.
                Err(error) => {
                    let said = Chain(&error).to_string();
                    tracing::warn!(error = said, lane = lane.name(), "no jobs of this lane");
                    failed = Some(error);
                }
            }
        }
        lanes.open_again = failed.is_some().then(|| clock::now() + OPEN_AGAIN);
        if let (Some(error), true) = (failed, opened.is_empty()) {
            return Err(error);
        }
        opened.sort_by_key(|(lane, _)| lane.rank());
        (lanes.lanes, lanes.names, lanes.generation) = (opened, names, Some(generation));
        Ok(())
    }
}

impl Lanes {
    /// Takes up to so many jobs, and at least one: waits for it a while, or until the bridge is to end.
    async fn take(&mut self, places: usize, counts: &Counts) -> Vec<Message> {
        *self.taken.lock() = self.arrived();
        let taken = &self.taken;
        let (began, mut has_failed) = (clock::now(), false);
        self.rounds = self.rounds.wrapping_add(1);
        for rank in 0..3 {
            let lanes = self.lanes.iter().filter(|(lane, _)| lane.rank() == rank);
            let mut lanes: Vec<_> = lanes.map(|(_, consumer)| consumer).collect();
            if lanes.is_empty() {
                continue;
            }
            let first = self.rounds % lanes.len();
            lanes.rotate_left(first);
            let left = places.saturating_sub(taken.lock().len());
            if left == 0 {
                break;
            }
            if left < lanes.len() {
                // One after the other, so that none is left out for one of lower priority.
                for lane in lanes {
                    let left = places.saturating_sub(taken.lock().len());
                    if left > 0 {
                        has_failed |= !fetch(lane, left, taken).await;
                    }
                }
                continue;
            }
            let asked = lanes.iter().zip(spread(left, lanes.len()));
            let asked = asked.map(|(lane, most)| fetch(lane, most, taken));
            has_failed |= join_all(asked).await.contains(&false);
        }
        self.silent_since = has_failed.then(|| self.silent_since.unwrap_or(began));
        let taken = std::mem::take(&mut *taken.lock());
        if !taken.is_empty() {
            return taken;
        }
        if has_failed {
            sleep(RETRY_EVERY).await;
        }
        self.ask().await;
        let came = tokio::select! {
            came = timeout(LOOK_EVERY, self.open.next()) => came,
            () = counts.leaving() => return taken,
        };
        match came {
            Ok(Some(Came::Job(job))) => vec![*job],
            Ok(Some(Came::Closed(lane))) => {
                self.asked.remove(&lane);
                Vec::new()
            }
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    /// What has come by now: of questions, and of open ones.
    fn arrived(&mut self) -> Vec<Message> {
        use futures_util::FutureExt;
        let mut jobs = std::mem::take(&mut *self.taken.lock());
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
            let name = lane.name();
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

/// Adds the jobs that a lane has now, up to so many. Returns whether the server has answered.
async fn fetch(lane: &PullConsumer, most: usize, jobs: &Mutex<Vec<Message>>) -> bool {
    match lane.fetch().max_messages(most).messages().await {
        Ok(messages) => collect(messages, jobs).await,
        Err(error) => {
            tracing::debug!(%error, "asking for jobs");
            false
        }
    }
}

/// Adds what comes as it comes: who waits for it may stop to do so. Returns whether it came to its end.
async fn collect<T, E: Display>(
    mut coming: impl Stream<Item = Result<T, E>> + Unpin,
    to: &Mutex<Vec<T>>,
) -> bool {
    loop {
        match timeout(FETCH_TIMEOUT, coming.next()).await {
            Ok(Some(Ok(job))) => to.lock().push(job),
            Ok(Some(Err(error))) => {
                tracing::debug!(%error, "taking jobs");
                return false;
            }
            Ok(None) => return true,
            Err(_) => {
                tracing::debug!("the server does not say whether it has jobs");
                return false;
            }
        }
    }
}

/// How many of these places each of so many lanes gets.
fn spread(places: usize, lanes: usize) -> impl Iterator<Item = usize> {
    (0..lanes).map(move |lane| places / lanes + usize::from(lane < places % lanes))
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

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn jobs_that_came_are_not_lost_with_the_wait_for_more() {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let jobs = Mutex::new(Vec::new());
            let coming = stream::iter([Ok::<_, String>(7)]).chain(stream::pending());
            let waiting = collect(coming, &jobs);
            assert!(timeout(Duration::from_millis(1), waiting).await.is_err(), "more may come");
            assert_eq!(*jobs.lock(), [7]);
        });
    }

    #[test]
    fn places_are_spread_over_lanes_and_none_is_given_twice() {
        assert_eq!(spread(7, 3).collect::<Vec<_>>(), [3, 2, 2]);
        for (places, lanes) in [(1, 1), (3, 3), (64, 5), (4, 3)] {
            let given: Vec<_> = spread(places, lanes).collect();
            assert_eq!((given.len(), given.iter().sum::<usize>()), (lanes, places));
        }
    }

    #[test]
    fn places_in_use_are_taken_away_later() {
        let slots = Semaphore::new(0);
        assert_eq!(resize(&slots, 0, 4), 4);
        let used = slots.try_acquire_many(3).expect("there are 4");
        assert_eq!(resize(&slots, 4, 1), 3, "one was free");
        drop(used);
        assert_eq!(resize(&slots, 3, 1), 1);
    }
}
