//! The last verdicts of the job log, in memory, for the page: those that went well and the others apart, so that the
//! many of one do not displace the few of the other. A pool begins with what the log on disk has from pools before.

use std::collections::VecDeque;
use std::time::SystemTime;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::codec;
use gridpool_protocol::limits::FRAME_BYTES_MAX;
use gridpool_protocol::message::{AskedVerdicts, LastVerdicts, LoggedJob};

use super::is_usual;

/// LastVerdicts of each kind that are kept.
const KEPT_MAX: usize = 256;
/// Bytes of them, as a message has them.
const KEPT_BYTES_MAX: usize = 2 << 20;
/// LastVerdicts of one answer, and their bytes: all of it fits a message.
const TOLD_MAX: usize = 64;
const TOLD_BYTES_MAX: usize = FRAME_BYTES_MAX - 4 * 1024;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Rings>);

#[derive(Debug, Default)]
struct Rings {
    /// The number of the latest verdict.
    last: u64,
    /// Those that went well, and the others.
    rings: [Ring; 2],
}

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    job: LoggedJob,
    bytes: usize,
}

impl Recent {
    /// Keeps a verdict, and drops the oldest ones that there is no room for.
    pub(super) fn keep(&self, job: LoggedJob) {
        let (job, bytes) = fitting(job);
        let mut dropped = Vec::new();
        let mut rings = self.0.lock();
        rings.last = match rings.last {
            0 => first_number(),
            last => last + 1,
        };
        let number = rings.last;
        let ring = &mut rings.rings[usize::from(!is_usual(&job.receipt))];
        while ring.kept.len() >= KEPT_MAX || ring.bytes + bytes > KEPT_BYTES_MAX {
            let Some(oldest) = ring.kept.pop_front() else { break };
            ring.bytes -= oldest.bytes;
            dropped.push(oldest);
        }
        ring.bytes += bytes;
        ring.kept.push_back(Kept { number, job, bytes });
        // Their memory is given back without the lock.
        drop(rings);
        drop(dropped);
    }

    /// The last verdicts that somebody asks for: those of one principal, or all.
    pub(super) fn told(&self, asked: &AskedVerdicts, whose: Option<&str>) -> LastVerdicts {
        let rings = self.0.lock();
        let is_wanted = |kept: &&Kept| {
            let verdict = kept.job.receipt.verdict;
            kept.number > asked.after
                && (asked.verdicts.is_empty() || asked.verdicts.contains(&verdict))
                && whose.is_none_or(|whose| kept.job.principal == whose)
        };
        let [usual, others] = &rings.rings;
        let mut found: Vec<_> = usual.kept.iter().chain(&others.kept).filter(is_wanted).collect();
        found.sort_by_key(|kept| std::cmp::Reverse(kept.number));
        let mut room = TOLD_BYTES_MAX;
        let fit = found.into_iter().take(TOLD_MAX).take_while(|kept| {
            let left = room.checked_sub(kept.bytes);
            room = left.unwrap_or(0);
            left.is_some()
        });
        let mut jobs: Vec<_> = fit.map(|kept| (kept.number, kept.job.clone())).collect();
        jobs.reverse();
        LastVerdicts { last: rings.last, is_all: whose.is_none(), jobs }
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
            return (job, NUMBER_BYTES + 1_024);
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::receipt::{Attempt, AttemptOutcome, DeviceInfo, ItemRange};
    use gridpool_protocol::receipt::{Receipt, Verdict};

    use super::*;

    fn job(number: usize, verdict: Verdict, principal: &str) -> LoggedJob {
        let receipt = Receipt { job: format!("job{number}"), verdict, ..Receipt::default() };
        LoggedJob { time: String::new(), principal: principal.to_owned(), receipt }
    }

    fn names(verdicts: &LastVerdicts) -> Vec<&str> {
        verdicts.jobs.iter().map(|(_, job)| &*job.receipt.job).collect()
    }

    #[test]
    fn each_is_told_of_its_own_by_verdict_and_of_what_is_new() {
        let recent = Recent::default();
        let all = AskedVerdicts::default();
        assert_eq!(
            recent.told(&all, None),
            LastVerdicts { is_all: true, ..LastVerdicts::default() }
        );
        for (number, verdict) in [Verdict::Ok, Verdict::Failed, Verdict::Ok].into_iter().enumerate()
        {
            recent.keep(job(number, verdict, if number == 2 { "uid 8" } else { "uid 7" }));
        }
        let told = recent.told(&all, None);
        assert_eq!(names(&told), ["job0", "job1", "job2"]);
        let own = recent.told(&all, Some("uid 7"));
        assert_eq!((names(&own), own.last, own.is_all), (vec!["job0", "job1"], told.last, false));
        let failed = AskedVerdicts { verdicts: vec![Verdict::Failed], ..all.clone() };
        assert_eq!(names(&recent.told(&failed, None)), ["job1"]);
        let after = AskedVerdicts { after: told.jobs[1].0, ..all };
        assert_eq!(names(&recent.told(&after, None)), ["job2"]);
    }

    #[test]
    fn the_many_that_go_well_displace_none_of_the_others_and_all_have_a_limit() {
        let recent = Recent::default();
        recent.keep(job(0, Verdict::Poison, "uid 7"));
        (1..=3 * KEPT_MAX).for_each(|number| recent.keep(job(number, Verdict::Ok, "uid 7")));
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
        let recent = Recent::default();
        let attempt = |number| {
            let (device, part) = (DeviceInfo::default(), ItemRange::default());
            let (worker, detail) = (format!("cpu0#{number}"), "x".repeat(8 << 10));
            Attempt::unreported(worker, device, part, AttemptOutcome::WorkerDied, detail)
        };
        for number in 0..64 {
            let mut large = job(number, Verdict::Poison, "uid 7");
            large.receipt.attempts = (0..64).map(attempt).collect();
            recent.keep(large);
        }
        let told = recent.told(&AskedVerdicts::default(), None);
        assert!(codec::encode(&told).unwrap().len() < FRAME_BYTES_MAX);
        let [(_, last)] = &*told.jobs else { panic!("{}", told.jobs.len()) };
        assert_eq!(last.receipt.job, "job63");
        assert_eq!(last.receipt.attempts.last().unwrap().worker, "cpu0#63");
        let rings = recent.0.lock();
        assert!(rings.rings[1].bytes <= KEPT_BYTES_MAX, "{}", rings.rings[1].bytes);
    }
}
