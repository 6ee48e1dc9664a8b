//! Suspects: how they are bisected, which job is denylisted, and what the pool then refuses.

use gridpool_protocol::receipt::AttemptOutcome;
use gridpool_protocol::status::{DENYLIST_SHOWN_MAX, DeniedContent, DenylistStatus};

use super::*;

/// A pool of one device whose worker runs one dispatch of `count` joined jobs; their keys begin at 3.
fn joined(count: u128) -> Rig {
    let mut rig = Rig::with(1, |config| {
        (config.feed_cost_max, config.join_cost_max, config.client_jobs_max) = (100, 1_000, 100);
    });
    for key in 1..3 {
        rig.submit_as(1, key, |request| request.work = program(format!("p{key}")));
    }
    for key in 3..3 + count {
        rig.submit_as(2, key, |request| (request.work, request.cost) = (program("a"), 1));
    }
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.dispatches(0)[0].len() as u128, count);
    rig
}

/// The first three jobs whose content is on the denylist.
fn denylisted(rig: &Rig) -> Vec<u64> {
    (1..=3).filter(|&job| rig.core.pool.denylist.has(content(job))).collect()
}

/// Whether a job with this program and number of items must carry its content hash.
fn asks(rig: &Rig, hash: &str, items: u32) -> bool {
    rig.core.pool.asks_for_content(&program(hash), items)
}

/// Runs the pool until no job is left; every dispatch with `poison` in it kills its worker. Returns the
/// number of deaths.
fn run_out(rig: &mut Rig, poison: u64) -> u32 {
    let mut deaths = 0;
    while let Some(front) = rig.dispatches(0).first().cloned() {
        if front.contains(&poison) {
            deaths += 1;
            rig.die_and_return(0, SIGSEGV);
        } else {
            rig.answer(0);
        }
    }
    deaths
}

#[test]
fn a_dispatch_that_kills_its_worker_is_bisected_until_one_job_is_denylisted() {
    for (count, most) in [(2, 3), (3, 4), (8, 5), (64, 8)] {
        for poison in [3, 3 + count / 2, 2 + count] {
            let mut rig = joined(count);
            let deaths = run_out(&mut rig, u64::try_from(poison).unwrap());
            assert!(deaths <= most, "{deaths} deaths for {count} jobs");
            assert_eq!(rig.verdicts(poison), [Verdict::Poison]);
            for key in (3..3 + count).filter(|&key| key != poison) {
                assert_eq!(rig.verdicts(key), [Verdict::Ok], "{key} of {count}");
            }
        }
    }
}

#[test]
fn suspects_are_bisected_in_order_and_no_job_joins_or_waits_behind_them() {
    let mut rig = joined(5);
    rig.submit_as(2, 9, |request| request.work = program("a"));
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.dispatches(0), [[3, 4, 5]]);
    for _ in 0..3 {
        rig.answer(0);
    }
    assert_eq!(rig.dispatches(0), [[6, 7]], "and not the eighth, which is no suspect");
}

#[test]
fn a_shared_death_costs_no_job_an_attempt() {
    let mut rig = joined(2);
    rig.die_and_return(0, SIGKILL);
    assert_eq!(rig.dispatches(0), [[3]], "whatever it was");
    for _ in 0..7 {
        rig.die_and_return(0, SIGKILL);
        while rig.dispatches(0) != [[3]] {
            rig.answer(0);
        }
    }
    assert_eq!(rig.verdicts(3), [], "seven attempts were its own");
    rig.die(0, SIGKILL);
    assert_eq!(rig.verdicts(3), [Verdict::Failed]);
}

#[test]
fn denylisted_content_is_refused_until_it_is_released() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.die_and_return(0, SIGSEGV);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Poison]);
    let reason = &rig.receipts(1)[0].reason;
    assert!(reason.contains(&format!("gridpool release {}", content(1))), "{reason}");
    let shown = rig.core.denylist(rig.now.after(Duration::from_millis(3)));
    let row = DeniedContent {
        content: content(1).to_string(),
        what: "rot90".to_owned(),
        items: 1,
        for_us: 3_000,
    };
    assert_eq!(shown, DenylistStatus { contents: 1, latest: vec![row] });
    assert!(asks(&rig, "rot90", 1));
    assert!(!asks(&rig, "rot90", 2) && !asks(&rig, "rot180", 1));
    rig.submit_as(2, 2, |request| request.content = Some(content(1)));
    assert_eq!(rig.refusals(), [&Refusal::Poison(content(1))]);
    assert_eq!(rig.core.counters().refused_poison, 1);
    rig.submit_as(2, 3, |request| request.content = Some(content(9)));
    assert_eq!(rig.runs(0), Some((3, 1)), "another job of the same looks");
    for release in [Release::Content(content(1)), Release::Contents] {
        rig.tell(released(release));
        assert!(!asks(&rig, "rot90", 1));
        assert_eq!(rig.core.denylist(rig.now), DenylistStatus::default());
    }
    rig.submit_as(2, 4, |request| request.content = Some(content(1)));
    assert_eq!(rig.refusals().len(), 1);
}

#[test]
fn the_oldest_content_on_the_denylist_is_forgotten_first() {
    let mut rig = Rig::with(1, |config| (config.denylist_max, config.poison_deaths) = (2, 1));
    for key in 1..=3 {
        rig.submit(key);
        rig.die_and_return(0, SIGSEGV);
    }
    assert_eq!(denylisted(&rig), [2, 3]);
    let shown = rig.core.denylist(rig.now);
    let contents: Vec<_> = shown.latest.iter().map(|row| &*row.content).collect();
    assert_eq!(contents, [content(3).to_string(), content(2).to_string()], "the newest first");
}

#[test]
fn the_denylist_is_shown_as_far_as_a_status_has_room() {
    let mut rig = Rig::with(1, |config| {
        (config.poison_deaths, config.kills_max, config.restart_limit) = (1, 100, 100);
    });
    let count = DENYLIST_SHOWN_MAX as u64 + 3;
    for key in 1..=u128::from(count) {
        rig.submit(key);
        rig.die_and_return(0, SIGSEGV);
    }
    let shown = rig.core.denylist(rig.now);
    assert_eq!((shown.contents, shown.latest.len()), (count, DENYLIST_SHOWN_MAX));
    assert_eq!(shown.latest[0].content, content(count).to_string());
    assert!(shown.without_work().latest.iter().all(|row| row.what.is_empty()));
}

#[test]
fn a_content_that_is_convicted_again_is_the_newest() {
    let mut rig = Rig::with(1, |config| (config.kills_max, config.restart_limit) = (100, 100));
    rig.hashes = false;
    for key in 1..=3 {
        rig.submit(key);
        rig.die_and_return(0, SIGSEGV);
        rig.die_and_return(0, SIGSEGV);
    }
    for (job, number) in [(1, 9), (3, 8), (2, 9)] {
        rig.tell(Event::ContentHashed { job: JobId(job), content: Some(content(number)) });
    }
    let shown = rig.core.denylist(rig.now);
    let latest: Vec<_> = shown.latest.iter().map(|row| &*row.content).collect();
    assert_eq!(latest, [content(9).to_string(), content(8).to_string()]);
}

#[test]
fn the_verdict_of_poison_waits_for_the_content_hash() {
    let mut rig = Rig::new(1);
    rig.hashes = false;
    rig.submit(1);
    rig.die_and_return(0, SIGSEGV);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.verdicts(1), []);
    assert_eq!(rig.runs(0), None, "and it does not run again");
    rig.tell(Event::ContentHashed { job: JobId(1), content: None });
    assert_eq!(rig.verdicts(1), [Verdict::Poison]);
    assert_eq!(denylisted(&rig), []);
    rig.submit(2);
    rig.die_and_return(0, SIGSEGV);
    rig.die_and_return(0, SIGSEGV);
    rig.cancel(2);
    assert_eq!(rig.verdicts(2), [Verdict::Cancelled]);
    rig.tell(Event::ContentHashed { job: JobId(2), content: Some(content(2)) });
    assert_eq!(denylisted(&rig), []);
    let asked = rig.count(|action| matches!(action, Action::HashContent { .. }));
    assert_eq!(asked, 2, "once for each");
}

#[test]
fn a_job_that_fails_alone_after_a_shared_death_needs_two_deaths_of_its_own() {
    let mut rig = joined(2);
    rig.die_and_return(0, SIGSEGV);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.verdicts(3), []);
    while rig.dispatches(0) != [[3]] {
        rig.answer(0);
    }
    rig.die(0, SIGSEGV);
    assert_eq!(rig.verdicts(3), [Verdict::Poison]);
    let outcomes = rig.outcomes(3);
    assert_eq!(outcomes, [AttemptOutcome::WorkerDied; 3]);
}
