//! The last verdicts of the job log, in memory, for the page: those that went well and the others apart, so that the
//! many of one do not displace the few of the other. A pool begins with what the log on disk has from pools before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::codec;
use gridpool_protocol::limits::FRAME_BYTES_MAX;
use gridpool_protocol::message::{AskedVerdicts, LastVerdicts, LoggedJob};
use gridpool_protocol::receipt::Verdict;

use super::{Client, Entry, is_usual};
use crate::gateway::TokenMark;

/// Verdicts of each kind that are kept.
const KEPT_MAX: usize = 256;
/// Bytes of them, as a message has them.
const KEPT_BYTES_MAX: usize = 2 << 20;
/// Verdicts of one answer, and their bytes: all of it fits a message, whose head takes no more than what is left.
const TOLD_MAX: usize = 64;
const TOLD_BYTES_MAX: usize = FRAME_BYTES_MAX - TOLD_HEAD_BYTES;
const TOLD_HEAD_BYTES: usize = 4 << 10;
/// Bytes of a verdict without its attempts and its reason, at most.
const BARE_BYTES: usize = 1 << 10;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Recent(Mutex<Rings>);

#[derive(Debug)]
struct Rings {
    /// The number of the latest verdict, or the one before the first.
    last: u64,
    /// Those that went well, and the others.
    rings: [Ring; 2],
}

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Kept {
    number: u64,
    /// Copied without the lock.
    job: Arc<LoggedJob>,
    token: Option<TokenMark>,
    bytes: usize,
}

impl Recent {
    /// None yet.
    pub(super) fn new() -> Self {
        Self(Mutex::new(Rings { last: first_number(), rings: <[Ring; 2]>::default() }))
    }

    /// Keeps a verdict, and drops the oldest ones that there is no room for.
    pub(super) fn keep(&self, Entry { job, token, .. }: Entry) {
        let (job, bytes) = fitting(job);
        let (is_usual, job) = (is_usual(&job.receipt), Arc::new(job));
        let mut dropped = Vec::new();
        let mut rings = self.0.lock();
        rings.last += 1;
        let number = rings.last;
        let ring = &mut rings.rings[usize::from(!is_usual)];
        while ring.kept.len() >= KEPT_MAX || ring.bytes + bytes > KEPT_BYTES_MAX {
            let Some(oldest) = ring.kept.pop_front() else { break };
            ring.bytes -= oldest.bytes;
            dropped.push(oldest);
        }
        ring.bytes += bytes;
        ring.kept.push_back(Kept { number, job, token, bytes });
        // Their memory is given back without the lock.
        drop(rings);
        drop(dropped);
    }

    /// The number of the latest.
    pub(super) fn latest(&self) -> u64 {
        self.0.lock().last
    }

    /// The last verdicts that somebody asks for: those of one client, or all.
    pub(super) fn told(&self, asked: &AskedVerdicts, whose: Option<&Client>) -> LastVerdicts {
        // A question may name each verdict many times. The thread that logs waits for the lock.
        let is_asked = |verdict| asked.verdicts.is_empty() || asked.verdicts.contains(&verdict);
        let wanted = Verdict::ALL.map(|verdict| (verdict, is_asked(verdict)));
        let job = asked.job.map(|job| job.to_string());
        let whose = whose.map(|client| (client.principal.to_string(), client.token));
        let is_wanted = |kept: &&Kept| {
            kept.number > asked.after
                && wanted.contains(&(kept.job.receipt.verdict, true))
                && job
                    .as_ref()
                    .is_none_or(|job| *job == kept.job.receipt.job || *job == kept.job.receipt.key)
                && whose.as_ref().is_none_or(|(principal, token)| {
                    kept.job.principal == *principal && kept.token == *token
                })
        };
        let rings = self.0.lock();
        let [usual, others] = &rings.rings;
        let found = usual.kept.iter().chain(&others.kept).filter(is_wanted);
        let (mut found, last) = (found.cloned().collect::<Vec<_>>(), rings.last);
        drop(rings);
        found.sort_by_key(|kept| std::cmp::Reverse(kept.number));
        let mut room = TOLD_BYTES_MAX;
        let fit = found.into_iter().take(TOLD_MAX).take_while(|kept| {
            let left = room.checked_sub(kept.bytes);
            room = left.unwrap_or(0);
            left.is_some()
        });
        let mut jobs: Vec<_> = fit.map(|kept| (kept.number, LoggedJob::clone(&kept.job))).collect();
        jobs.reverse();
        LastVerdicts { last, is_all: whose.is_none(), jobs }
    }
}

/// Microseconds since 1970: a later pool's numbers are larger, for a page that was open before.
fn first_number() -> u64 {
    let since = clock::time_of_day().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(1).max(1)
}

/// A verdict that fits an answer, and its bytes there. Of one that does not, the first attempts are left out.
fn fitting(mut job: LoggedJob) -> (LoggedJob, usize) {
    /// What its number takes.
    const NUMBER_BYTES: usize = 16;
    loop {
        let bytes = codec::encode(&job).map_or(usize::MAX, |bytes| bytes.len() + NUMBER_BYTES);
        if bytes <= TOLD_BYTES_MAX {
            return (job, bytes);
        }
        let attempts = &mut job.receipt.attempts;
        match attempts.len() {
            // What is left is short but for a client's own words.
            0 => job.receipt.reason.clear(),
            all => drop(attempts.drain(..all.div_ceil(2))),
        }
        if job.receipt.attempts.is_empty() && job.receipt.reason.is_empty() {
            return (job, NUMBER_BYTES + BARE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::principal::Principal;
    use gridpool_protocol::receipt::Receipt;
    use gridpool_protocol::receipt::{Attempt, AttemptOutcome, DeviceInfo, ItemRange};

    use super::*;

    const ME: Principal = Principal::Uid(7);

    fn job(number: usize, verdict: Verdict, principal: &Principal) -> Entry {
        let (name, key) = (format!("job{number}"), format!("{:032x}", 0xa0 + number));
        let receipt = Receipt { job: name, key, verdict, ..Receipt::default() };
        let job = LoggedJob { time: String::new(), principal: principal.to_string(), receipt };
        Entry { job, pool: String::new(), token: None }
    }

    fn mark(text: &str) -> Option<TokenMark> {
        Some(text.to_owned().try_into().unwrap())
    }

    fn names(verdicts: &LastVerdicts) -> Vec<&str> {
        verdicts.jobs.iter().map(|(_, job)| &*job.receipt.job).collect()
    }

    #[test]
    fn each_is_told_of_its_own_by_verdict_and_of_what_is_new() {
        let recent = Recent::new();
        let all = AskedVerdicts::default();
        let none = recent.told(&all, None);
        assert!(none.last > 0 && none.jobs.is_empty(), "0 is a pool without a log");
        for (number, verdict) in [Verdict::Ok, Verdict::Failed, Verdict::Ok].into_iter().enumerate()
        {
            recent.keep(job(number, verdict, &Principal::Uid(if number == 2 { 8 } else { 7 })));
        }
        let told = recent.told(&all, None);
        assert_eq!(names(&told), ["job0", "job1", "job2"]);
        let own = recent.told(&all, Some(&Client { principal: ME, token: None }));
        assert_eq!((names(&own), own.last, own.is_all), (vec!["job0", "job1"], told.last, false));
        // As often as a message has room for.
        let verdicts = vec![Verdict::Failed; FRAME_BYTES_MAX];
        let failed = AskedVerdicts { verdicts, ..all.clone() };
        assert_eq!(names(&recent.told(&failed, None)), ["job1"]);
        let after = AskedVerdicts { after: told.jobs[1].0, ..all.clone() };
        assert_eq!(names(&recent.told(&after, None)), ["job2"]);
        let named = |job: &str| AskedVerdicts { job: job.parse().ok(), ..all.clone() };
        assert_eq!(names(&recent.told(&named("job1"), None)), ["job1"]);
        assert_eq!(names(&recent.told(&named(&format!("{:032x}", 0xa2)), None)), ["job2"]);
        assert_eq!(names(&recent.told(&named("job3"), None)), [""; 0]);
        let other = Client { principal: Principal::Uid(8), token: None };
        assert_eq!(names(&recent.told(&named("job1"), Some(&other))), [""; 0]);
    }

    #[test]
    fn a_token_is_not_told_of_another_that_had_its_name() {
        let recent = Recent::new();
        let principal = Principal::Token("alice".to_owned());
        let [old, new] = ["00000000000000aa", "00000000000000bb"].map(mark);
        for (number, token) in [old, new, None].into_iter().enumerate() {
            recent.keep(Entry { token, ..job(number, Verdict::Ok, &principal) });
        }
        let told = |token| {
            let client = Client { principal: principal.clone(), token };
            recent.told(&AskedVerdicts::default(), Some(&client))
        };
        assert_eq!((names(&told(old)), names(&told(new))), (vec!["job0"], vec!["job1"]));
    }

    #[test]
    fn the_many_that_go_well_displace_none_of_the_others_and_all_have_a_limit() {
        let recent = Recent::new();
        recent.keep(job(0, Verdict::Poison, &ME));
        (1..=3 * KEPT_MAX).for_each(|number| recent.keep(job(number, Verdict::Ok, &ME)));
        let told = recent.told(&AskedVerdicts::default(), None);
        let last =
            (3 * KEPT_MAX - TOLD_MAX + 1..=3 * KEPT_MAX).map(|number| format!("job{number}"));
        assert_eq!(names(&told), last.collect::<Vec<_>>(), "the last that fit");
        let others = AskedVerdicts { verdicts: vec![Verdict::Poison], ..AskedVerdicts::default() };
        assert_eq!(names(&recent.told(&others, None)), ["job0"]);
        let rings = recent.0.lock();
        assert_eq!(rings.rings.each_ref().map(|ring| ring.kept.len()), [KEPT_MAX, 1]);
    }

    #[test]
    fn one_that_is_too_large_loses_its_first_attempts_and_every_answer_fits_a_message() {
        let recent = Recent::new();
        let attempt = |number| {
            let (device, part) = (DeviceInfo::default(), ItemRange::default());
            let (worker, detail) = (format!("cpu0#{number}"), "x".repeat(8 << 10));
            Attempt::unreported(worker, device, part, AttemptOutcome::WorkerDied, detail)
        };
        for number in 0..64 {
            let mut large = job(number, Verdict::Poison, &ME);
            large.job.receipt.attempts = (0..64).map(attempt).collect();
            recent.keep(large);
        }
        let told = recent.told(&AskedVerdicts::default(), None);
        assert!(codec::encode(&told).unwrap().len() < FRAME_BYTES_MAX);
        let [(_, last)] = &*told.jobs else { panic!("{}", told.jobs.len()) };
        assert_eq!(last.receipt.job, "job63");
        assert_eq!(&*last.receipt.attempts.last().unwrap().worker, "cpu0#63");
        let rings = recent.0.lock();
        assert!(rings.rings[1].bytes <= KEPT_BYTES_MAX, "{}", rings.rings[1].bytes);
    }
}
