//! The report of a worker's death: one per death, with the fate of every outstanding attempt.

use std::time::Duration;

use gridpool_protocol::fault::FaultCode;

use super::*;
use crate::action::Novelty;
use crate::action::{Disposition, Next};

/// The process of a device ends; returns the report.
fn death(rig: &mut Rig, index: u32, status: ExitStatus) -> DeathReport {
    let worker = rig.worker(index);
    death_of(rig, worker, status)
}

fn death_of(rig: &mut Rig, worker: WorkerId, status: ExitStatus) -> DeathReport {
    rig.running.remove(&worker);
    let exit = Exit { status, fault: None, last_words: None, is_ordered: false };
    rig.tell(Event::Worker(worker, WorkerEvent::Exited(exit)));
    let death = rig.take_death().expect("its death is reported");
    assert_eq!((death.worker, death.exit.status), (worker, status));
    assert_eq!(rig.take_death(), None, "once");
    rig.tell(Event::Worker(worker, WorkerEvent::Reclaimed));
    assert_eq!(rig.take_death(), None, "and not again");
    death
}

fn dispositions(death: &DeathReport) -> Vec<Disposition> {
    death.attempts.iter().map(|lost| lost.disposition).collect()
}

fn says(rig: &mut Rig, number: u32) {
    let (device, fault) = (device(0), FaultCode::Xid(number));
    rig.tell(Event::DeviceFault { device, fault });
}

#[test]
fn a_death_report_says_that_a_job_waits_or_runs_again() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.wait_ms(70);
    let told = death(&mut rig, 0, SIGSEGV);
    assert_eq!(dispositions(&told), [Disposition::Waits { suspects: 0 }]);
    assert_eq!(told.next, Next::Restart(Duration::ZERO));
    assert_eq!((told.lived, told.ready_after), (Duration::from_millis(70), Some(Duration::ZERO)));
    assert_eq!((told.killed, told.is_expected, told.served_by), (None, false, None));
    let mut rig = Rig::new(2);
    rig.submit_as(1, 1, |request| request.divisible = false);
    let told = death(&mut rig, 0, SIGSEGV);
    assert_eq!(dispositions(&told), [Disposition::Runs(rig.worker(1))]);
}

#[test]
fn a_second_death_of_one_job_reports_its_verdict_or_that_it_is_denylisted() {
    // It is denylisted as soon as its hash is known.
    for (hashes, disposition) in
        [(true, Disposition::Verdict(Verdict::Poison)), (false, Disposition::Denylisted)]
    {
        let mut rig = Rig::new(1);
        rig.hashes = hashes;
        rig.submit(1);
        rig.die_and_return(0, SIGSEGV);
        let told = death(&mut rig, 0, SIGSEGV);
        assert_eq!(dispositions(&told), [disposition]);
        assert_eq!(rig.verdicts(1).len(), usize::from(hashes));
    }
    let mut rig = Rig::new(1);
    rig.submit_as(1, 1, |request| request.idempotent = false);
    let told = death(&mut rig, 0, SIGSEGV);
    assert_eq!(dispositions(&told), [Disposition::Verdict(Verdict::Failed)]);
}

#[test]
fn a_death_report_names_an_earlier_verdict_and_the_worker_that_answered() {
    // Its deadline passes: the pool kills its worker.
    let mut rig = Rig::new(1);
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_secs(1));
    rig.wait(Duration::from_secs(2));
    assert_eq!(rig.verdicts(1), [Verdict::Deadline]);
    let told = death(&mut rig, 0, SIGKILL);
    assert_eq!(dispositions(&told), [Disposition::Over { verdict: Verdict::Deadline, by: None }]);
    assert_eq!(told.killed, Some(KillReason::Late));
    // Another worker answers before the first one is gone.
    let mut rig = Rig::with(1, |config| config.standbys = 1);
    let standby = WorkerId { device: device(0), group: Group::Grid, generation: 2 };
    rig.tell(Event::Worker(standby, WorkerEvent::Ready(info(0))));
    rig.submit_as(1, 1, |r| (r.answer_inline, r.divisible) = (true, false));
    let old = rig.lose_beacon(0);
    assert_eq!(rig.take_death(), None, "it is not gone yet");
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    let told = death_of(&mut rig, old, SIGSEGV);
    assert_eq!(
        dispositions(&told),
        [Disposition::Over { verdict: Verdict::Ok, by: Some(standby.name()) }]
    );
    assert_eq!((told.served_by, told.killed), (Some(standby), None));
    // A verdict that is not remembered.
    let mut rig = Rig::with(1, |config| config.verdicts_kept = 0);
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_secs(1));
    rig.wait(Duration::from_secs(2));
    assert_eq!(dispositions(&death(&mut rig, 0, SIGKILL)), [Disposition::Unheard]);
}

#[test]
fn a_death_report_says_where_a_moved_attempt_runs_now() {
    let mut rig = Rig::with(1, |config| config.standbys = 1);
    let standby = WorkerId { device: device(0), group: Group::Grid, generation: 2 };
    rig.tell(Event::Worker(standby, WorkerEvent::Ready(info(0))));
    rig.submit_as(1, 1, |r| (r.answer_inline, r.divisible) = (true, false));
    let old = rig.lose_beacon(0);
    let told = death_of(&mut rig, old, SIGSEGV);
    assert_eq!(dispositions(&told), [Disposition::Runs(standby)]);
    assert_eq!(told.next, Next::Restart(Duration::ZERO));
}

#[test]
fn a_device_that_goes_out_of_service_is_reported_with_the_time_of_its_probe() {
    let mut rig = Rig::new(1);
    says(&mut rig, 95);
    let told = death(&mut rig, 0, SIGKILL);
    assert!(matches!(told.next, Next::Out(Some(after)) if after > Duration::ZERO), "{told:?}");
    assert_eq!(told.killed, Some(KillReason::DeviceFault(FaultCode::Xid(95))));
    let mut rig = Rig::new(1);
    says(&mut rig, 79);
    assert_eq!(death(&mut rig, 0, SIGKILL).next, Next::Out(None));
}

#[test]
fn an_unkillable_worker_is_reported_when_it_ends_after_all() {
    let mut rig = Rig::with(1, |config| config.heartbeat_kill = Duration::from_secs(3));
    rig.mute.insert(0);
    rig.submit(1);
    let worker = rig.worker(0);
    rig.wait(Duration::from_secs(20));
    assert_eq!(rig.take_death(), None, "no worker has died yet");
    let told = death_of(&mut rig, worker, SIGKILL);
    assert!(matches!(told.killed, Some(KillReason::Silent { .. })), "{told:?}");
    assert!(matches!(told.next, Next::Out(Some(_))), "{told:?}");
    assert_eq!(told.attempts, [], "what it had was given up before");
}

#[test]
fn an_end_on_request_is_expected_and_any_other_during_a_drain_is_not() {
    for (status, is_expected) in [(ExitStatus::Code(0), true), (SIGSEGV, false)] {
        let mut rig = Rig::new(1);
        rig.tell(Event::DrainRequested);
        let told = death(&mut rig, 0, status);
        assert_eq!((told.is_expected, told.next), (is_expected, Next::Nothing), "{status:?}");
    }
    let mut rig = Rig::new(1);
    assert!(!death(&mut rig, 0, ExitStatus::Code(0)).is_expected, "it was not told to end");
    for (status, is_expected) in [(SIGKILL, true), (SIGSEGV, false)] {
        let mut rig = Rig::starting(1, |_| {});
        rig.tell(Event::DrainRequested);
        let told = death(&mut rig, 0, status);
        assert_eq!(told.is_expected, is_expected, "it had not started: {status:?}");
    }
}

#[test]
fn a_death_report_leaves_out_what_the_driver_reported_before_the_worker_started() {
    let mut rig = Rig::new(1);
    rig.wait(Duration::from_secs(1));
    says(&mut rig, 31);
    rig.wait(Duration::from_secs(1));
    assert_eq!(death(&mut rig, 0, STICKY).driver, Some(FaultCode::Xid(31)));
    rig.wait(Duration::from_secs(1));
    rig.ready(0);
    rig.wait(Duration::from_secs(1));
    assert_eq!(death(&mut rig, 0, SIGSEGV).driver, None, "that was about the one before");
}

#[test]
fn a_driver_report_is_about_a_dead_worker_only_while_there_is_no_other() {
    let mut rig = Rig::with(1, |config| config.backoff_min = Duration::from_secs(1));
    rig.die_and_return(0, SIGSEGV);
    let second = rig.worker(0);
    rig.die(0, SIGSEGV);
    let said = |rig: &mut Rig| {
        says(rig, 31);
        let Some(Note::DriverReport { lost, is_about_lost, novelty: Novelty::New, .. }) =
            rig.notes.pop()
        else {
            panic!("{:?}", rig.notes)
        };
        (lost, is_about_lost)
    };
    assert_eq!(said(&mut rig), (Some(second), true), "the next one waits");
    while rig.state(0) == WorkerState::Backoff {
        rig.wait_ms(50);
    }
    assert_eq!(said(&mut rig), (Some(second), false));
}
