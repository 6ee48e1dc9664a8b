//! Whether what a client saw is what it was promised (docs/src/design/promises.md).
//!
//! Owns the rules. It knows nothing of sockets or clocks: a history in, its violations out, so that
//! histories which were made up, or altered, are judged by the very same code.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::Verdict;

use super::history::{Event, Found, Reply, Submitted};

/// What the pool was configured to.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Attempts after which a job may be FAILED.
    pub attempts_max: u32,
    /// Attempts with evidence after which it may be POISON.
    pub poison_deaths: u32,
    /// Verdicts that the pool remembers by key.
    pub verdicts_kept: u64,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Of which kind.
    pub kind: Broken,
    /// For which job; `None` for the connection itself.
    pub key: Option<JobKey>,
    /// What was seen.
    pub seen: String,
}

/// Kinds of promises that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// An accepted job got no verdict.
    Lost,
    /// A job got more than one verdict.
    Doubled,
    /// A word on a job that this client has not sent, or a verdict of one that was not accepted.
    Unknown,
    /// A submission was not answered, or answered more than once.
    Words,
    /// An OK result is not what the reference gives.
    Wrong,
    /// A receipt is of another job than the reply.
    Mixed,
    /// A verdict for which there was no reason.
    Unexcused,
    /// A job that may run once was attempted again.
    RanAgain,
    /// A replayed verdict is another one than the first.
    Replay,
    /// The connection or the client library gave no answer.
    Broke,
}

/// Sums over histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Submissions, repeated ones included.
    pub submitted: u64,
    /// Jobs accepted.
    pub accepted: u64,
    /// Submissions refused.
    pub refused: u64,
    /// Verdicts OK.
    pub ok: u64,
    /// Other verdicts.
    pub not_ok: u64,
    /// Verdicts said again.
    pub replayed: u64,
    /// Attempts beyond the first of a job.
    pub retries: u64,
}

/// All that a history says of one job.
#[derive(Default)]
struct Job<'a> {
    submitted: Vec<&'a Submitted>,
    cancelled: bool,
    accepted: usize,
    refused: Vec<&'a Refusal>,
    verdicts: Vec<&'a Reply>,
    replays: Vec<&'a Reply>,
}

/// Every violation in the history of a client that lived and waited for all that was due.
#[must_use]
pub fn check(history: &[Event], rules: Rules) -> Vec<Violation> {
    let mut found = Findings::default();
    let jobs = by_job(history, &mut found);
    let owners: BTreeMap<u64, JobKey> = jobs
        .iter()
        .flat_map(|(&key, job)| job.submitted.iter().map(move |s| (s.expected, key)))
        .collect();
    for (&key, job) in &jobs {
        let Some(first) = job.submitted.first() else {
            let heard = job.accepted + job.refused.len() + job.verdicts.len() + job.replays.len();
            found.add(Broken::Unknown, key, format!("{heard} words on a job that was not sent"));
            continue;
        };
        count_words(key, job, rules, &mut found);
        for reply in job.verdicts.iter().chain(&job.replays) {
            if reply.receipt_key != key.to_string() {
                found.add(Broken::Mixed, key, format!("its receipt is of {}", reply.receipt_key));
            }
            if let Some(why) = unexcused(job, first, reply, rules) {
                found.add(Broken::Unexcused, key, format!("{}: {why}", reply.verdict));
            }
            if !first.idempotent && reply.attempts > 1 {
                found.add(Broken::RanAgain, key, format!("{} attempts", reply.attempts));
            }
        }
        // Of two, the second is one too many whatever it says.
        if let Some(reply) = job.verdicts.first() {
            check_result(key, first, reply, &owners, &mut found);
        }
        check_replays(key, job, &mut found);
    }
    found.violations
}

/// The sums of a history.
#[must_use]
pub fn tally(history: &[Event]) -> Tally {
    let mut sum = Tally::default();
    for event in history {
        match event {
            Event::Submitted(_) => sum.submitted += 1,
            Event::Accepted(_) => sum.accepted += 1,
            Event::Refused(..) => sum.refused += 1,
            Event::Replied(reply) if reply.replayed => sum.replayed += 1,
            Event::Replied(reply) => {
                sum.ok += u64::from(reply.verdict == Verdict::Ok);
                sum.not_ok += u64::from(reply.verdict != Verdict::Ok);
                sum.retries += u64::from(reply.attempts.saturating_sub(1));
            }
            Event::Cancelled(_) | Event::Broke(..) => {}
        }
    }
    sum
}

fn by_job<'a>(history: &'a [Event], found: &mut Findings) -> BTreeMap<JobKey, Job<'a>> {
    let mut jobs: BTreeMap<JobKey, Job<'_>> = BTreeMap::new();
    for event in history {
        match event {
            Event::Submitted(job) => jobs.entry(job.key).or_default().submitted.push(job),
            Event::Cancelled(key) => jobs.entry(*key).or_default().cancelled = true,
            Event::Accepted(key) => jobs.entry(*key).or_default().accepted += 1,
            Event::Refused(key, why) => jobs.entry(*key).or_default().refused.push(why),
            Event::Replied(reply) if reply.replayed => {
                jobs.entry(reply.key).or_default().replays.push(reply);
            }
            Event::Replied(reply) => jobs.entry(reply.key).or_default().verdicts.push(reply),
            Event::Broke(key, seen) => {
                let (key, seen) = (*key, seen.clone());
                found.violations.push(Violation { kind: Broken::Broke, key, seen });
            }
        }
    }
    jobs
}

/// One word on each submission, one verdict for each job that was accepted.
fn count_words(key: JobKey, job: &Job<'_>, rules: Rules, found: &mut Findings) {
    let words = job.accepted + job.refused.len() + job.replays.len();
    if words != job.submitted.len() {
        let sent = job.submitted.len();
        found.add(Broken::Words, key, format!("{words} answers to {sent} submissions"));
    }
    match (job.accepted, job.verdicts.len()) {
        (0, 0) => {}
        (0, verdicts) => {
            found.add(Broken::Unknown, key, format!("{verdicts} verdicts and not accepted"));
        }
        (_, 0) => found.add(Broken::Lost, key, "accepted, and no verdict".to_owned()),
        (_, 1) => {}
        (_, _) if was_forgotten(job, rules) => {}
        (_, verdicts) => found.add(Broken::Doubled, key, format!("{verdicts} verdicts")),
    }
    for refusal in &job.refused {
        match refusal {
            Refusal::Busy(_) | Refusal::Draining => {}
            Refusal::Bundled
            | Refusal::Invalid(_)
            | Refusal::KeyInUse(_)
            | Refusal::NotAllowed(_)
            | Refusal::Poison(_)
            | Refusal::Unable(_) => {
                found.add(Broken::Unexcused, key, format!("refused: {refusal}"));
            }
        }
    }
}

/// Whether a job got verdicts of its own each time that it was sent, so far apart that the pool need not
/// have known the first any more. Its numbers count jobs, and some that are under way end out of turn:
/// half of what it keeps is allowed for them.
fn was_forgotten(job: &Job<'_>, rules: Rules) -> bool {
    let number = |reply: &&Reply| reply.job.strip_prefix("job")?.parse::<u64>().ok();
    let numbers: Option<Vec<u64>> = job.verdicts.iter().map(number).collect();
    let apart = |pair: &[u64]| pair[1].saturating_sub(pair[0]) >= rules.verdicts_kept / 2;
    numbers.is_some_and(|numbers| {
        numbers.windows(2).all(apart) && numbers.len() + job.replays.len() <= job.submitted.len()
    })
}

/// Why a verdict should not have been given, if that is so.
fn unexcused(job: &Job<'_>, first: &Submitted, reply: &Reply, rules: Rules) -> Option<String> {
    let Reply { attempts, evidence, reason, .. } = reply;
    match reply.verdict {
        Verdict::Ok => None,
        Verdict::Cancelled => (!job.cancelled).then(|| format!("nobody cancelled it; {reason}")),
        Verdict::Deadline => {
            let due = first.at + first.deadline;
            (reply.at < due).then(|| format!("{:?} before its time", due.saturating_sub(reply.at)))
        }
        Verdict::Failed => {
            let may = *attempts >= rules.attempts_max || (!first.idempotent && *attempts == 1);
            (!may).then(|| format!("{attempts} attempts; {reason}"))
        }
        Verdict::Poison => {
            let may = *evidence >= rules.poison_deaths;
            (!may).then(|| format!("{evidence} attempts speak against it; {reason}"))
        }
        Verdict::DeviceLost => Some(reason.clone()),
    }
}

fn check_result(
    key: JobKey,
    first: &Submitted,
    reply: &Reply,
    owners: &BTreeMap<u64, JobKey>,
    found: &mut Findings,
) {
    let seen = match (reply.verdict, &reply.result) {
        (Verdict::Ok, Found::Digest(digest)) if *digest == first.expected => return,
        (Verdict::Ok, Found::Digest(digest)) => match owners.get(digest) {
            Some(owner) => format!("it has the result of {owner}"),
            None => "its result is nobody's".to_owned(),
        },
        (Verdict::Ok, Found::Nothing) => "OK without a result".to_owned(),
        (Verdict::Ok, Found::Malformed(why)) => why.clone(),
        (_, Found::Nothing) => return,
        (verdict, Found::Digest(_) | Found::Malformed(_)) => format!("{verdict} with a result"),
    };
    found.add(Broken::Wrong, key, seen);
}

fn check_replays(key: JobKey, job: &Job<'_>, found: &mut Findings) {
    for replay in &job.replays {
        match job.verdicts.first() {
            None => {
                let seen = format!("{} is said to have been said before", replay.verdict);
                found.add(Broken::Replay, key, seen);
            }
            Some(first) => {
                let facts = |r: &Reply| (r.verdict, r.job.clone(), r.attempts, r.evidence);
                if facts(first) != facts(replay) {
                    let seen = format!("{:?}, and before {:?}", facts(replay), facts(first));
                    found.add(Broken::Replay, key, seen);
                }
            }
        }
    }
}

#[derive(Default)]
struct Findings {
    violations: Vec<Violation>,
}

impl Findings {
    fn add(&mut self, kind: Broken, key: JobKey, seen: String) {
        self.violations.push(Violation { kind, key: Some(key), seen });
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, key, seen } = self;
        match key {
            Some(key) => write!(f, "{kind:?}: job {key}: {seen}"),
            None => write!(f, "{kind:?}: {seen}"),
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.submitted += other.submitted;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.ok += other.ok;
        self.not_ok += other.not_ok;
        self.replayed += other.replayed;
        self.retries += other.retries;
    }
}

#[cfg(test)]
mod tests;
