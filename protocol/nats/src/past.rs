//! Jobs that have ended and are still in the stream, as no host takes them. They make room for others: a client looks
//! for them when it finds the stream full, and each host from time to time.
//!
//! A job has ended if it has its result, such as the DEADLINE that its client has stored; or if it is past its deadline
//! by the servers' own clock. The clock of this machine does not count: a fast one would remove jobs that are to run.

use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::limits::DEADLINE_MAX;
use gridpool_protocol::receipt::{Receipt, Verdict};

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::message::StreamMessage;

use crate::{Generation, JobMessage, NatsError, Outcome, Streams, decode, message_id};

/// Jobs that one look takes in. The next one goes on behind them.
pub const LOOKED_AT_MAX: u64 = 64;
/// Of those, jobs that have not ended after which a look is over.
const LIVE_MAX: u64 = 8;
/// The first number that a job may have.
const FRONT: u64 = 1;
/// How far the clocks of two servers may be apart. The book says a second.
const CLOCKS_APART: Duration = Duration::from_secs(2);
/// How long the verdict of one may take to be stored.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(2);
/// Why it is late.
const LATE: &str = "its deadline passed in the stream";

/// What a look needs of a stream of jobs.
trait Jobs {
    type Job;

    /// Which stream it is.
    async fn generation(&self) -> Result<Generation, NatsError>;

    /// The first job of this number or a later one, and its number.
    async fn job_from(&self, number: u64) -> Result<Option<(u64, Self::Job)>, NatsError>;

    /// Whether a job has its result by now; a late one gets it here.
    async fn is_past(&mut self, job: &Self::Job) -> Result<bool, NatsError>;

    /// Removes the job of this number. Returns whether it was there.
    async fn remove(&mut self, number: u64) -> Result<bool, NatsError>;
}

/// Does what [`Streams::remove_past`] says.
async fn remove_past(jobs: &mut impl Jobs, next: &mut u64) -> Result<u64, NatsError> {
    let generation = jobs.generation().await?;
    let (mut look, mut removed) = (Look::new(*next), 0);
    while !look.is_over() {
        let Some((number, job)) = jobs.job_from(look.at).await? else {
            look.turn();
            continue;
        };
        let is_past = jobs.is_past(&job).await?;
        if is_past {
            // In a stream that was made anew, the number is another job's.
            if jobs.generation().await? != generation {
                break;
            }
            removed += u64::from(jobs.remove(number).await?);
        }
        look.saw(number, is_past);
        *next = look.at;
    }
    Ok(removed)
}

impl Streams {
    /// Goes over jobs from this number on, and behind the last one from the first on, and removes those that have
    /// ended. Those that have no result get the verdict DEADLINE first. Returns how many were removed; `next` is then
    /// where the next look goes on, also if this one is given up.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn remove_past(&self, next: &mut u64) -> Result<u64, NatsError> {
        let removed = remove_past(&mut Judged { streams: self, now_ns: None }, next).await?;
        if removed > 0 {
            tracing::info!(removed, "jobs that had ended have made room");
        }
        Ok(removed)
    }

    /// The time of the servers; the first there is if they do not say, by which no job is late.
    async fn now_ns(&self) -> i128 {
        self.data.now_ns().await.unwrap_or_else(|error| {
            tracing::debug!(error = Chain(&error).to_string(), "what time the servers have");
            i128::MIN
        })
    }
}

/// Jobs that are judged by the servers' time.
struct Judged<'a> {
    streams: &'a Streams,
    /// When the first one was met.
    now_ns: Option<i128>,
}

impl Jobs for Judged<'_> {
    type Job = StreamMessage;

    async fn generation(&self) -> Result<Generation, NatsError> {
        self.streams.generation().await
    }

    async fn job_from(&self, number: u64) -> Result<Option<(u64, StreamMessage)>, NatsError> {
        let job = self.streams.job_from(number).await?;
        Ok(job.map(|job| (job.sequence, job)))
    }

    async fn is_past(&mut self, message: &StreamMessage) -> Result<bool, NatsError> {
        let now_ns = match self.now_ns {
            Some(now_ns) => now_ns,
            None => *self.now_ns.insert(self.streams.now_ns().await),
        };
        let Some(key) = key_of(message) else { return Ok(false) };
        let results = &self.streams.results;
        if results.are_there(key).await? {
            return Ok(true);
        }
        // Only a host of its version can read the deadline of another version's job.
        let version = self.streams.subjects.version();
        let job = decode::<JobMessage>(version, &message.payload).ok();
        let deadline = job.as_ref().map_or(DEADLINE_MAX, |job| job.terms.deadline());
        if !is_late(message.time.unix_timestamp_nanos(), deadline, now_ns) {
            return Ok(false);
        }
        let (content, items) = match &job {
            Some(job) => (Some(job.content), job.packing.items()),
            None => (None, 0),
        };
        let (verdict, reason) = (Verdict::Deadline, LATE.to_owned());
        let receipt =
            Receipt { key: key.to_string(), verdict, reason, items, ..Receipt::default() };
        let (outcome, until) =
            (Outcome::done(content, receipt, None), clock::now() + VERDICT_TIMEOUT);
        // If there is another by now, that is the job's.
        results.publish(key, None, &outcome, until).await.map(|_| true)
    }

    async fn remove(&mut self, number: u64) -> Result<bool, NatsError> {
        self.streams.remove_job(number).await
    }
}

/// How far a look has come.
#[derive(Debug)]
struct Look {
    from: u64,
    at: u64,
    /// It has gone on from the first job.
    has_turned: bool,
    jobs: u64,
    live: u64,
}

impl Look {
    fn new(from: u64) -> Self {
        let from = from.max(FRONT);
        Self { from, at: from, has_turned: false, jobs: 0, live: 0 }
    }

    fn is_over(&self) -> bool {
        let is_round = self.has_turned && self.at >= self.from;
        is_round || self.jobs == LOOKED_AT_MAX || self.live == LIVE_MAX
    }

    /// There is no job from there on.
    fn turn(&mut self) {
        self.at = if self.has_turned { self.from } else { FRONT };
        self.has_turned = true;
    }

    fn saw(&mut self, number: u64, is_past: bool) {
        self.at = number + 1;
        self.jobs += 1;
        self.live += u64::from(!is_past);
    }
}

/// The key of a job, whatever its version; `None` if it is no job.
fn key_of(message: &StreamMessage) -> Option<JobKey> {
    message_id::key_of(message.headers.get(NATS_MESSAGE_ID)?.as_str())
}

/// Whether a job of this deadline is late, which a stream took at that time. All are the servers' times.
fn is_late(taken_ns: i128, deadline: Duration, now_ns: i128) -> bool {
    let given = (deadline + CLOCKS_APART).as_nanos();
    now_ns.saturating_sub(taken_ns) > i128::try_from(given).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;

    use super::*;

    /// Jobs by their numbers, and whether each has ended.
    #[derive(Default)]
    struct Numbered {
        jobs: Vec<(u64, bool)>,
        looked_at: u64,
        /// Questions which stream it is, after which it is another.
        made_anew_after: Option<u32>,
        asked: Cell<u32>,
    }

    impl Jobs for Numbered {
        type Job = bool;

        async fn generation(&self) -> Result<Generation, NatsError> {
            let asked = self.asked.replace(self.asked.get() + 1);
            let is_new = self.made_anew_after.is_some_and(|after| asked >= after);
            Ok(Generation::made_at(i128::from(is_new)))
        }

        async fn job_from(&self, number: u64) -> Result<Option<(u64, bool)>, NatsError> {
            Ok(self.jobs.iter().copied().find(|(own, _)| *own >= number))
        }

        async fn is_past(&mut self, job: &bool) -> Result<bool, NatsError> {
            self.looked_at += 1;
            Ok(*job)
        }

        async fn remove(&mut self, number: u64) -> Result<bool, NatsError> {
            let before = self.jobs.len();
            self.jobs.retain(|(own, _)| *own != number);
            Ok(self.jobs.len() < before)
        }
    }

    impl Numbered {
        fn new(jobs: impl IntoIterator<Item = (u64, bool)>) -> Self {
            Self { jobs: jobs.into_iter().collect(), ..Self::default() }
        }

        /// Looks once. Returns how many jobs it has looked at, and where the next look goes on.
        fn look(&mut self, from: u64) -> (u64, u64) {
            self.looked_at = 0;
            let (there, mut next) = (self.jobs.len(), from);
            let removed = remove_past(self, &mut next).now_or_never().expect("nothing to wait for");
            assert_eq!(removed.expect("no error"), (there - self.jobs.len()) as u64);
            (self.looked_at, next)
        }
    }

    #[test]
    fn looks_go_over_all_jobs_whatever_is_in_front_of_those_that_have_ended() {
        // One that lives, then numbers without jobs.
        let mut stream = Numbered::new([(1, false), (1_000, true), (1_001, true)]);
        stream.look(0);
        assert_eq!(stream.jobs, [(1, false)]);
        // More that live than one look takes in, each look with its limits.
        let lives = LIVE_MAX * 3;
        let mut stream = Numbered::new((1..=lives + 100).map(|number| (number, number > lives)));
        let mut next = 0;
        for _ in 0..6 {
            let (looked_at, at) = stream.look(next);
            assert!(looked_at <= LOOKED_AT_MAX);
            next = at;
        }
        assert_eq!(stream.jobs.len() as u64, lives);
        // Behind the last one it goes on from the first, once, and ends without any.
        let mut stream = Numbered::new([(1, true), (2, false), (3, false)]);
        assert_eq!(stream.look(3), (3, 3));
        assert_eq!((stream.jobs.len(), Numbered::default().look(7)), (2, (0, 7)));
    }

    #[test]
    fn nothing_is_removed_of_a_stream_that_was_made_anew_during_the_look() {
        let ended = || Numbered::new((1..=4).map(|number| (number, true)));
        // The look asks first, and before each that it removes.
        for questions in 1..=4 {
            let mut stream = Numbered { made_anew_after: Some(questions), ..ended() };
            let (_, next) = stream.look(0);
            let removed = u64::from(questions) - 1;
            assert_eq!(stream.jobs.first(), Some(&(removed + 1, true)), "{questions}");
            assert!(next <= removed + 1, "the job of that number is looked at again");
        }
        let mut stream = Numbered { made_anew_after: Some(0), ..ended() };
        stream.look(0);
        assert_eq!(stream.jobs, [], "it was made anew before");
    }

    #[test]
    fn a_job_is_late_after_its_deadline_and_not_while_clocks_may_differ() {
        let s = 1_000_000_000;
        let late = |age: i128| is_late(5 * s, Duration::from_secs(10), 5 * s + age);
        assert!(!late(-s) && !late(10 * s) && !late(12 * s));
        assert!(late(12 * s + 1));
        assert!(!is_late(i128::MAX, Duration::from_secs(1), i128::MIN));
    }
}
