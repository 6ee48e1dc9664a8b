//! The checker against histories that were made up right and then altered: it finds each alteration,
//! names it by its kind, and finds nothing in what was not altered.

use std::time::Duration;

use super::*;
use crate::oracle::samples::SplitMix64;

const RULES: Rules = Rules { attempts_max: 8, poison_deaths: 2, verdicts_kept: 1_000 };
const JOBS: u64 = 40;

fn key(number: u64) -> JobKey {
    JobKey(u128::from(number))
}

fn submitted(number: u64) -> Submitted {
    Submitted {
        key: key(number),
        expected: 1_000 + number,
        idempotent: !number.is_multiple_of(5),
        at: Duration::from_millis(number),
        deadline: Duration::from_secs(60),
    }
}

fn ok(number: u64) -> Reply {
    Reply {
        key: key(number),
        receipt_key: key(number).to_string(),
        job: format!("job{number}"),
        at: Duration::from_millis(100 + number),
        verdict: Verdict::Ok,
        reason: String::new(),
        replayed: false,
        result: Found::Digest(1_000 + number),
        attempts: 1,
        evidence: 0,
    }
}

/// Several jobs at a time, as a pipelining client sees them; some are sent twice, some retried.
fn right(seed: u64) -> Vec<Event> {
    let mut rng = SplitMix64::new(seed);
    let (mut history, mut open, mut next) = (Vec::new(), Vec::new(), 0);
    while next < JOBS || !open.is_empty() {
        if next < JOBS && (open.len() < 4 && rng.below(2) == 0 || open.is_empty()) {
            history.push(Event::Submitted(submitted(next)));
            history.push(Event::Accepted(key(next)));
            if rng.below(6) == 0 {
                history.push(Event::Submitted(submitted(next)));
                history.push(Event::Accepted(key(next)));
            }
            open.push(next);
            next += 1;
            continue;
        }
        let number = open.swap_remove(rng.below(open.len()));
        let attempts = if number % 5 == 0 { 1 } else { 1 + u32::from(rng.below(3) == 0) };
        let reply = Reply { attempts, ..ok(number) };
        history.push(Event::Replied(reply.clone()));
        if rng.below(6) == 0 {
            history.push(Event::Submitted(submitted(number)));
            let replay = Reply { replayed: true, result: Found::Nothing, ..reply };
            history.push(Event::Replied(replay));
        }
    }
    history
}

/// Places of the verdicts in a history.
fn verdicts(history: &[Event]) -> Vec<usize> {
    let is_verdict = |event: &Event| matches!(event, Event::Replied(reply) if !reply.replayed);
    (0..history.len()).filter(|&at| is_verdict(&history[at])).collect()
}

fn reply(history: &mut [Event], at: usize) -> &mut Reply {
    let Event::Replied(reply) = &mut history[at] else { unreachable!("no reply at {at}") };
    reply
}

/// What an alteration does, given the place of a verdict and of an earlier one.
type Alteration = fn(&mut Vec<Event>, usize, usize);

/// Each with the kind that it must be found as.
const ALTERATIONS: [(&str, Broken, Alteration); 15] = [
    ("a dropped reply", Broken::Lost, |history, at, _| {
        let dropped = reply(history, at).key;
        // With what was said of it again: that would be another fault.
        history.retain(|e| !matches!(e, Event::Replied(r) if r.key == dropped));
        history.retain(|e| !matches!(e, Event::Submitted(s) if s.key == dropped));
        history.insert(0, Event::Submitted(submitted(u64::try_from(dropped.0).unwrap())));
        let accepted = |e: &Event| matches!(e, Event::Accepted(key) if *key == dropped);
        let first = history.iter().position(accepted).unwrap();
        let mut seen = 0..;
        history.retain(|e| !accepted(e) || seen.next() == Some(0));
        assert!(accepted(&history[first]));
    }),
    ("a doubled reply", Broken::Doubled, |history, at, _| {
        let again = history[at].clone();
        history.push(again);
    }),
    ("two swapped replies", Broken::Wrong, |history, at, earlier| {
        let (one, two) =
            (reply(history, at).result.clone(), reply(history, earlier).result.clone());
        reply(history, at).result = two;
        reply(history, earlier).result = one;
    }),
    ("two swapped receipts", Broken::Mixed, |history, at, earlier| {
        let other = reply(history, earlier).receipt_key.clone();
        reply(history, at).receipt_key = other;
    }),
    ("a wrong byte", Broken::Wrong, |history, at, _| {
        reply(history, at).result = Found::Digest(7);
    }),
    ("a buffer of an earlier job", Broken::Wrong, |history, at, earlier| {
        let before = reply(history, earlier).result.clone();
        reply(history, at).result = before;
    }),
    ("a result that is none", Broken::Wrong, |history, at, _| {
        reply(history, at).result = Found::Malformed("item 0".to_owned());
    }),
    ("OK with nothing", Broken::Wrong, |history, at, _| {
        reply(history, at).result = Found::Nothing;
    }),
    ("a reply for a job that nobody sent", Broken::Unknown, |history, _, _| {
        history.push(Event::Replied(ok(JOBS + 7)));
    }),
    ("a verdict without acceptance", Broken::Unknown, |history, at, _| {
        let key = reply(history, at).key;
        history.retain(|event| *event != Event::Accepted(key));
    }),
    ("a submission without an answer", Broken::Words, |history, _, _| {
        history.push(Event::Submitted(submitted(JOBS + 1)));
    }),
    ("a second run of what may run once", Broken::RanAgain, |history, _, _| {
        let all = verdicts(history);
        let once = |&&at: &&usize| matches!(&history[at], Event::Replied(r) if r.key.0 % 5 == 0);
        let at = *all.iter().find(once).unwrap();
        reply(history, at).attempts = 2;
    }),
    ("a cancellation that nobody asked for", Broken::Unexcused, |history, at, _| {
        let reply = reply(history, at);
        (reply.verdict, reply.result) = (Verdict::Cancelled, Found::Nothing);
    }),
    ("a replay that says something else", Broken::Replay, |history, at, _| {
        let reply = reply(history, at).clone();
        history.push(Event::Submitted(submitted(u64::try_from(reply.key.0).unwrap())));
        let job = "job77777".to_owned();
        history.push(Event::Replied(Reply {
            replayed: true,
            job,
            result: Found::Nothing,
            ..reply
        }));
    }),
    ("a connection that ends", Broken::Broke, |history, _, _| {
        history.push(Event::Broke(None, "closed".to_owned()));
    }),
];

#[test]
fn a_right_history_has_no_violation() {
    for seed in 0..200 {
        assert_eq!(check(&right(seed), RULES), [], "seed {seed}");
    }
}

#[test]
fn every_alteration_of_a_right_history_is_found_and_named() {
    for (name, kind, alter) in ALTERATIONS {
        for seed in 0..50 {
            let mut history = right(seed);
            let places = verdicts(&history);
            let mut rng = SplitMix64::new(seed ^ 0xface);
            let later = 1 + rng.below(places.len() - 1);
            let earlier = rng.below(later);
            alter(&mut history, places[later], places[earlier]);
            let found = check(&history, RULES);
            assert!(found.iter().any(|v| v.kind == kind), "{name}, seed {seed}: {found:?}");
        }
    }
}

#[test]
fn swapped_and_stale_results_are_traced_to_their_job() {
    let mut history = right(1);
    let places = verdicts(&history);
    let before = reply(&mut history, places[3]).key;
    let (_, _, reuse) = ALTERATIONS[5];
    reuse(&mut history, places[9], places[3]);
    let found = check(&history, RULES);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].seen, format!("it has the result of {before}"));
}

#[test]
fn a_job_that_was_sent_again_long_after_may_run_again() {
    for (number, is_right) in [(501, true), (500, false)] {
        let again = [Event::Submitted(submitted(1)), Event::Accepted(key(1))];
        let late = Reply { job: format!("job{number}"), ..ok(1) };
        let first = again.clone().into_iter().chain([Event::Replied(ok(1))]);
        let all: Vec<_> = first.chain(again).chain([Event::Replied(late)]).collect();
        assert_eq!(check(&all, RULES).is_empty(), is_right);
    }
}

/// A history of one job that was cancelled or not, and ended so.
fn one(job: Submitted, cancelled: bool, reply: Reply) -> Vec<Violation> {
    let cancel = cancelled.then_some(Event::Cancelled(job.key));
    let before = [Event::Submitted(job), Event::Accepted(job.key)];
    let all: Vec<Event> = before.into_iter().chain(cancel).chain([Event::Replied(reply)]).collect();
    check(&all, RULES)
}

#[test]
fn a_verdict_is_excused_only_by_its_own_reason() {
    let (free, once) = (submitted(1), submitted(5));
    let short = Submitted { deadline: Duration::from_millis(2), ..free };
    let nothing = |number, verdict, attempts, evidence| {
        let base = ok(number);
        Reply { verdict, attempts, evidence, result: Found::Nothing, ..base }
    };
    let cases = [
        (free, true, nothing(1, Verdict::Cancelled, 0, 0), true),
        (free, false, nothing(1, Verdict::Cancelled, 0, 0), false),
        (short, false, nothing(1, Verdict::Deadline, 1, 0), true),
        (free, false, nothing(1, Verdict::Deadline, 1, 0), false),
        (once, false, nothing(5, Verdict::Failed, 1, 0), true),
        (once, false, nothing(5, Verdict::Failed, 0, 0), false),
        (free, false, nothing(1, Verdict::Failed, 8, 0), true),
        (free, false, nothing(1, Verdict::Failed, 7, 0), false),
        (free, false, nothing(1, Verdict::Poison, 3, 2), true),
        (free, false, nothing(1, Verdict::Poison, 3, 1), false),
        (free, false, nothing(1, Verdict::DeviceLost, 3, 3), false),
    ];
    for (job, cancelled, reply, is_excused) in cases {
        let verdict = reply.verdict;
        let found = one(job, cancelled, reply);
        assert_eq!(found.is_empty(), is_excused, "{verdict}: {found:?}");
        assert!(found.iter().all(|v| v.kind == Broken::Unexcused), "{found:?}");
    }
}

#[test]
fn a_tally_counts_the_entries_of_a_history() {
    let history = right(4);
    let sum = tally(&history);
    assert_eq!((sum.ok, sum.not_ok, sum.refused), (JOBS, 0, 0));
    assert_eq!(sum.submitted, sum.accepted + sum.replayed);
    let mut twice = sum;
    twice += sum;
    assert_eq!((twice.ok, twice.submitted), (2 * sum.ok, 2 * sum.submitted));
}
