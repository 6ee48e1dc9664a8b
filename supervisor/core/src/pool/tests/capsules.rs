//! Capsules: the receipt of a job names that of a death which cost it an attempt, if there is one.

use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

/// The process ends; returns the capsule that the shell was asked for.
fn capsule_of(rig: &mut Rig, worker: WorkerId, exit: Exit) -> Option<String> {
    rig.running.remove(&worker);
    let before = rig.seen.len();
    rig.tell(Event::Worker(worker, WorkerEvent::Exited(exit)));
    rig.seen[before..].iter().find_map(|(_, action)| {
        let Action::Capsule { name, .. } = action else { return None };
        Some(name.to_string())
    })
}

fn segv(is_ordered: bool) -> Exit {
    Exit { status: SIGSEGV, fault: None, last_words: None, is_ordered }
}

#[test]
fn a_pool_that_names_no_capsules_asks_for_none() {
    for names in [true, false] {
        let mut rig = Rig::new(1);
        if names {
            rig.core.name_capsules("x");
        }
        rig.submit(1);
        let worker = rig.worker(0);
        let capsule = capsule_of(&mut rig, worker, segv(false));
        assert_eq!(capsule.as_deref(), names.then_some("x-gpu0-1"));
    }
}

#[test]
fn a_death_that_a_client_has_ordered_has_no_capsule_and_its_receipt_names_none() {
    for (is_ordered, named) in [(false, "x-gpu0-1"), (true, "")] {
        let mut rig = Rig::new(1);
        rig.core.name_capsules("x");
        rig.submit(1);
        let worker = rig.worker(0);
        let capsule = capsule_of(&mut rig, worker, segv(is_ordered));
        assert_eq!(capsule.is_none(), is_ordered);
        assert_eq!(rig.core.attempts_of(JobId(1))[0].capsule, named);
    }
}

/// It runs again before its first worker is gone, and hears of the capsule later.
#[test]
fn a_job_that_was_moved_from_a_worker_that_hung_names_the_capsule() {
    let mut rig = Rig::new(2);
    rig.core.name_capsules("x");
    rig.submit_as(1, 1, |r| (r.answer_inline, r.divisible) = (true, false));
    let silent = rig.worker(0);
    rig.mute.insert(0);
    let is_kill =
        |action: &Action| matches!(action, Action::Kill { worker, .. } if *worker == silent);
    while !rig.seen.iter().any(|(_, action)| is_kill(action)) {
        rig.wait_ms(500);
    }
    let job = JobId(1);
    assert_eq!(rig.core.attempts_of(job)[0].outcome, AttemptOutcome::Hang);
    let exit = Exit { status: SIGKILL, fault: None, last_words: None, is_ordered: false };
    let capsule = capsule_of(&mut rig, silent, exit).expect("it is worth one");
    assert_eq!(rig.core.attempts_of(job)[0].capsule, capsule);
}
