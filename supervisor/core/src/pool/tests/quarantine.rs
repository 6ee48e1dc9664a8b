//! A device out of service: when it is probed, and how it comes back.

use super::*;

/// One device, just put into quarantine.
fn quarantined() -> Rig {
    let mut rig = Rig::with(1, |config| config.restart_limit = 1);
    rig.die(0, SIGSEGV);
    assert_eq!(rig.state(0), WorkerState::Quarantined);
    rig
}

#[test]
fn the_report_of_a_quarantine_names_the_rule_behind_it() {
    let rule = |rig: &Rig| rig.rule(0).expect("some rule put it out").to_string();
    let mut rig = Rig::with(1, |config| config.restart_limit = 2);
    rig.die_and_return(0, SIGSEGV);
    assert!(rig.quarantine(0).is_none());
    rig.die(0, SIGSEGV);
    assert_eq!(rule(&rig), "2 deaths without work in 60 s");
    rig.wait(Duration::from_secs(60));
    rig.die(0, SIGSEGV);
    assert_eq!(rule(&rig), "the end of the process that was to try it");
    rig.wait(Duration::from_secs(300));
    rig.ready(0);
    rig.die(0, SIGSEGV);
    assert_eq!(rule(&rig), "a death without work on probation");
    let mut starts = Rig::starting(1, |config| config.start_failures_max = 1);
    starts.die(0, SIGSEGV);
    assert_eq!(rule(&starts), "1 failed start");
    let mut halted = Rig::starting(1, |_| {});
    halted.die(0, ExitStatus::Code(73));
    assert_eq!(rule(&halted), "a set-up that no restart mends");
}

fn release(rig: &mut Rig) {
    rig.tell(released(Release::Device(device(0))));
}

#[test]
fn it_is_probed_after_one_five_and_fifteen_minutes_and_then_every_fifteen() {
    let mut rig = quarantined();
    for minutes in [1, 5, 15, 15] {
        rig.wait(Duration::from_millis(minutes * 60_000 - 1));
        assert_eq!(rig.state(0), WorkerState::Quarantined);
        rig.wait_ms(1);
        assert_eq!(rig.state(0), WorkerState::Starting, "after {minutes} minutes");
        rig.die(0, SIGKILL);
        assert_eq!(rig.state(0), WorkerState::Quarantined, "whatever ended it");
    }
}

#[test]
fn it_takes_no_job_before_it_is_ready_and_is_on_probation_after_that() {
    let mut rig = quarantined();
    rig.submit(1);
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
    rig.wait(Duration::from_secs(60));
    rig.submit(2);
    assert_eq!(rig.verdicts(2), [Verdict::DeviceLost], "it may fail its test");
    rig.ready(0);
    rig.submit(3);
    rig.answer(0);
    assert_eq!(rig.verdicts(3), [Verdict::Ok]);
    let mut rig = Rig::with(1, |config| config.restart_limit = 3);
    for _ in 0..2 {
        rig.die_and_return(0, SIGSEGV);
    }
    rig.die(0, SIGSEGV);
    rig.wait(Duration::from_secs(60));
    rig.ready(0);
    rig.die(0, SIGSEGV);
    assert_eq!(rig.state(0), WorkerState::Quarantined, "at the first death without work");
    rig.wait(Duration::from_secs(300));
    rig.ready(0);
    rig.submit(1);
    rig.answer(0);
    rig.die_and_return(0, SIGSEGV);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.state(0), WorkerState::Ready, "once it has worked it is like any other");
}

#[test]
fn a_wrong_set_up_is_not_probed_before_an_operator_releases_it() {
    let mut rig = Rig::starting(1, |_| {});
    rig.die(0, ExitStatus::Code(73));
    rig.wait(Duration::from_secs(3_600));
    assert_eq!(rig.spawns(0).len(), 1);
    release(&mut rig);
    assert_eq!(rig.state(0), WorkerState::Starting);
    release(&mut rig);
    assert_eq!(rig.spawns(0).len(), 2);
    rig.ready(0);
    rig.submit(1);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
}

#[test]
fn a_release_of_a_device_in_service_changes_nothing() {
    let mut rig = Rig::new(1);
    let before = rig.seen.len();
    release(&mut rig);
    assert!(matches!(&rig.seen[before..], [(_, Action::Reply { result: Err(_), .. })]));
    assert_eq!(rig.state(0), WorkerState::Ready);
}

#[test]
fn the_next_process_waits_for_the_memory_of_the_last_one_but_not_for_ever() {
    let mut rig = Rig::new(1);
    let worker = rig.worker(0);
    let exit = Exit { status: SIGKILL, fault: None, last_words: None, is_ordered: false };
    rig.tell(Event::Worker(worker, WorkerEvent::Exited(exit.clone())));
    assert_eq!((rig.state(0), rig.spawns(0).len()), (WorkerState::Backoff, 1));
    rig.wait_ms(9_999);
    assert_eq!(rig.spawns(0).len(), 1);
    rig.wait_ms(1);
    assert_eq!(rig.spawns(0).len(), 2, "its monitor has hung, or is wrong");
    let worker = rig.worker(0);
    rig.tell(Event::Worker(worker, WorkerEvent::Exited(exit)));
    rig.wait_ms(200);
    rig.tell(Event::Worker(worker, WorkerEvent::Reclaimed));
    assert_eq!(rig.spawns(0).len(), 3);
}
