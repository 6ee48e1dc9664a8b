//! What the driver reports about devices, and what a policy changes about deaths.

use std::time::Duration;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::receipt::AttemptOutcome;

use super::*;
use crate::action::Novelty;

fn says(rig: &mut Rig, index: u32, fault: FaultCode) {
    rig.tell(Event::DeviceFault { device: device(index), fault });
}

/// How the core took the driver's latest report.
fn novelty(rig: &Rig) -> Novelty {
    let novelties = rig.notes.iter().rev().filter_map(|note| {
        let Note::DriverReport { novelty, .. } = note else { return None };
        Some(*novelty)
    });
    { novelties }.next().expect("the driver has said something")
}

/// Whether the core expected the driver's latest report.
fn is_expected(rig: &mut Rig, index: u32, xid: u32) -> bool {
    says(rig, index, FaultCode::Xid(xid));
    novelty(rig) != Novelty::New
}

/// A rig of READY workers with these overrides.
fn with_policy(devices: u32, rules: &[(&str, &str)], change: impl FnOnce(&mut PoolConfig)) -> Rig {
    let mut policy = PolicyTable::default();
    rules.iter().for_each(|(fault, response)| policy.set(fault, response).unwrap());
    let mut rig = Rig::starting_with(devices, policy, change);
    (0..devices).for_each(|index| rig.ready(index));
    rig
}

fn exit_over(rig: &mut Rig, index: u32, status: ExitStatus, fault: Option<FaultCode>) {
    let worker = rig.worker(index);
    rig.running.remove(&worker);
    rig.tell(Event::Worker(
        worker,
        WorkerEvent::Exited(Exit { status, fault, last_words: None, is_ordered: false }),
    ));
    rig.tell(Event::Worker(worker, WorkerEvent::Reclaimed));
}

fn last_fault(rig: &Rig, index: usize) -> String {
    rig.rows()[index].last_fault.clone()
}

#[test]
fn a_device_that_needs_a_reset_is_out_blames_no_job_and_is_probed() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    assert_eq!(rig.runs(0), Some((1, 1)));
    says(&mut rig, 0, FaultCode::Xid(95));
    assert_eq!(rig.kills(), 1);
    rig.die(0, SIGKILL);
    assert_eq!(rig.state(0), WorkerState::Quarantined);
    assert!(last_fault(&rig, 0).starts_with("gpu0: xid 95 (uncontained error): "));
    assert_eq!(rig.runs(1), Some((1, 2)), "its job runs elsewhere");
    rig.answer(1);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    assert_eq!(rig.core.counters().poison, 0);
    // Out of service already: the same fault changes nothing, and does not delay the next probe.
    rig.wait(Duration::from_secs(30));
    says(&mut rig, 0, FaultCode::Xid(95));
    rig.wait(Duration::from_secs(30));
    assert_eq!(rig.state(0), WorkerState::Starting);
    // The driver reports it again during the probe.
    says(&mut rig, 0, FaultCode::Xid(95));
    rig.die(0, SIGKILL);
    rig.wait(Duration::from_secs(299));
    assert_eq!(rig.state(0), WorkerState::Quarantined, "the next try is after five minutes");
    rig.wait(Duration::from_secs(1));
    rig.ready(0);
    assert_eq!(rig.state(0), WorkerState::Ready);
}

#[test]
fn a_job_that_must_not_run_twice_fails_when_its_device_goes_out_of_service() {
    let mut rig = Rig::new(2);
    rig.submit_as(1, 1, |request| request.idempotent = false);
    says(&mut rig, 0, FaultCode::Xid(95));
    assert_eq!(rig.verdicts(1), [], "its worker may still answer");
    rig.die(0, SIGKILL);
    assert_eq!(rig.verdicts(1), [Verdict::Failed]);
    assert_eq!(rig.runs(1), None);
}

#[test]
fn a_device_that_is_lost_or_needs_a_reboot_stays_out_until_it_is_released() {
    for fault in [FaultCode::Xid(79), FaultCode::Nvml(15), FaultCode::Recovery(2)] {
        let mut rig = Rig::new(1);
        says(&mut rig, 0, fault);
        rig.die(0, SIGKILL);
        rig.wait(Duration::from_secs(7_200));
        assert_eq!((rig.state(0), rig.spawns(0).len()), (WorkerState::Quarantined, 1), "{fault}");
        rig.tell(released(Release::Device(device(0))));
        rig.ready(0);
        assert_eq!(rig.state(0), WorkerState::Ready, "{fault}");
    }
    // A worse fault cancels the next probe.
    let mut rig = Rig::new(1);
    says(&mut rig, 0, FaultCode::Xid(48));
    rig.die(0, SIGKILL);
    says(&mut rig, 0, FaultCode::Recovery(1));
    rig.wait(Duration::from_secs(7_200));
    assert_eq!(rig.spawns(0).len(), 1);
}

#[test]
fn a_fault_that_the_worker_handles_or_that_needs_nothing_ends_no_worker() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    for number in [13, 31, 43, 45, 63, 94, 154, 9_999] {
        says(&mut rig, 0, FaultCode::Xid(number));
    }
    for fault in [FaultCode::Nvml(18), FaultCode::Nvml(999), FaultCode::Recovery(0)] {
        says(&mut rig, 0, fault);
    }
    says(&mut rig, 7, FaultCode::Xid(79));
    assert_eq!(rig.kills(), 0);
    exit_over(&mut rig, 0, STICKY, Some(FaultCode::Cuda(700)));
    rig.ready(0);
    exit_over(&mut rig, 0, STICKY, Some(FaultCode::Cuda(700)));
    assert_eq!(rig.verdicts(1), [Verdict::Poison], "the worker's own word counts");
}

#[test]
fn an_incident_reported_many_times_counts_once_and_a_repeated_one_quarantines() {
    let mut rig = Rig::new(1);
    for _ in 0..4 {
        says(&mut rig, 0, FaultCode::Xid(109));
        rig.wait_ms(1_000);
    }
    assert_eq!(rig.kills(), 1);
    rig.die(0, SIGKILL);
    rig.ready(0);
    rig.wait_ms(10_001);
    says(&mut rig, 0, FaultCode::Xid(74));
    assert_eq!(rig.kills(), 2, "another is a first one too");
    rig.die(0, SIGKILL);
    rig.wait_ms(200);
    rig.ready(0);
    rig.wait(Duration::from_secs(580));
    says(&mut rig, 0, FaultCode::Xid(109));
    rig.die(0, SIGKILL);
    assert_eq!(rig.state(0), WorkerState::Quarantined);
    let mut rig = Rig::new(1);
    says(&mut rig, 0, FaultCode::Xid(109));
    rig.die(0, SIGKILL);
    rig.ready(0);
    rig.wait(Duration::from_secs(601));
    says(&mut rig, 0, FaultCode::Xid(109));
    rig.die(0, SIGKILL);
    assert_eq!(rig.state(0), WorkerState::Backoff, "after ten minutes it is a first one");
}

#[test]
fn a_job_that_breaks_devices_is_denylisted_before_it_has_broken_them_all() {
    let mut rig = Rig::new(4);
    rig.submit(1);
    for index in 0..2 {
        assert!(rig.runs(index).is_some(), "it goes on elsewhere");
        says(&mut rig, index, FaultCode::Xid(46));
        rig.die(index, SIGKILL);
        assert_eq!(rig.state(index), WorkerState::Quarantined);
    }
    assert_eq!(rig.verdicts(1), [Verdict::Poison]);
    let receipt = &rig.receipts(1)[0];
    let detail = &receipt.attempts[0].detail;
    assert!(detail.starts_with("its worker was killed over xid 46 ("), "{detail}");
    assert_eq!(receipt.attempts[0].outcome, AttemptOutcome::WorkerDied);
    assert!(receipt.reason.contains("xid 46"), "{}", receipt.reason);
    assert_eq!([rig.state(2), rig.state(3)], [WorkerState::Ready; 2]);
}

#[test]
fn broken_memory_is_no_evidence_against_a_job_but_costs_an_attempt() {
    let mut rig = Rig::with(4, |config| config.attempts_max = 3);
    rig.submit(1);
    for index in 0..3 {
        says(&mut rig, index, FaultCode::Xid(48));
        rig.die(index, SIGKILL);
    }
    assert_eq!(rig.verdicts(1), [Verdict::Failed], "as often as it may be tried, and no more");
    assert_eq!(rig.state(3), WorkerState::Ready);
}

#[test]
fn a_driver_report_about_a_killed_worker_kills_no_other() {
    for response in ["quarantine_on_repeat", "restart"] {
        let mut rig = with_policy(1, &[("xid 109", response)], |config| config.standbys = 1);
        let standby = WorkerId { device: device(0), group: Group::Grid, generation: 2 };
        rig.tell(Event::Worker(standby, WorkerEvent::Ready(info(0))));
        rig.submit_as(1, 1, |request| request.deadline = Duration::from_millis(750));
        for _ in 0..5 {
            rig.tell(Event::Worker(standby, WorkerEvent::Heard));
            rig.wait_ms(200);
        }
        assert_eq!((rig.verdicts(1), rig.kills()), (vec![Verdict::Deadline], 1));
        for _ in 0..3 {
            says(&mut rig, 0, FaultCode::Xid(109));
        }
        assert_eq!(rig.kills(), 1, "the standby serves on");
        assert_eq!(novelty(&rig), Novelty::Repeated);
    }
}

#[test]
fn a_device_fault_before_ready_is_no_wrong_set_up() {
    let mut rig = Rig::starting(1, |_| {});
    says(&mut rig, 0, FaultCode::Xid(48));
    rig.die(0, SIGKILL);
    assert_eq!(rig.state(0), WorkerState::Quarantined);
    assert!(!rig.core.pool.is_misconfigured, "it may be tried again");
    rig.wait(Duration::from_secs(60));
    rig.die(0, ExitStatus::Code(73));
    assert!(rig.core.pool.is_misconfigured);
}

#[test]
fn a_policy_that_takes_a_device_out_holds_while_a_suspect_runs_alone_too() {
    let mut rig = with_policy(1, &[("exit 71", "quarantine")], |_| {});
    rig.submit(1);
    rig.die(0, SIGSEGV);
    rig.ready(0);
    assert_eq!(rig.runs(0), Some((1, 2)), "being probed");
    rig.die(0, ExitStatus::Code(71));
    assert_eq!(rig.state(0), WorkerState::Quarantined);
}

#[test]
fn removed_channels_are_expected_for_ten_seconds_after_a_worker_was_lost() {
    let mut rig = Rig::new(2);
    assert!(!is_expected(&mut rig, 0, 45));
    rig.die(0, SIGKILL);
    assert!(is_expected(&mut rig, 0, 45) && is_expected(&mut rig, 0, 43));
    assert!(!is_expected(&mut rig, 0, 31), "that is news at any time");
    assert!(!is_expected(&mut rig, 1, 45), "of another device");
    rig.ready(0);
    rig.wait_ms(10_000);
    assert!(is_expected(&mut rig, 0, 45));
    rig.wait_ms(1);
    assert!(!is_expected(&mut rig, 0, 45));
    says(&mut rig, 0, FaultCode::Xid(119));
    assert!(is_expected(&mut rig, 0, 45), "a kill of the pool's own");
}

#[test]
fn standbys_of_a_quarantined_device_end_and_none_takes_over() {
    let mut rig = Rig::with(1, |config| config.standbys = 1);
    let standby = WorkerId { device: device(0), group: Group::Grid, generation: 2 };
    rig.tell(Event::Worker(standby, WorkerEvent::Ready(info(0))));
    let serving = rig.worker(0);
    rig.submit(1);
    says(&mut rig, 0, FaultCode::Xid(119));
    assert_eq!(rig.kills(), 2);
    let dispatched = rig.count(|action| matches!(action, Action::Dispatch { .. }));
    assert_eq!(dispatched, 1, "nothing was given to the standby");
    rig.exit(standby, SIGKILL);
    rig.exit(serving, SIGKILL);
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
    assert_eq!(rig.spawns(0).len(), 2);
}

#[test]
fn a_policy_decides_what_a_death_is_evidence_against() {
    let twice = |rules: &[(&str, &str)], status, fault| {
        let mut rig = with_policy(1, rules, |_| {});
        rig.submit(1);
        for _ in 0..2 {
            exit_over(&mut rig, 0, status, fault);
            rig.wait_ms(200);
            if rig.state(0) == WorkerState::Starting {
                rig.ready(0);
            }
        }
        (rig.verdicts(1), rig.state(0))
    };
    let poison = (vec![Verdict::Poison], WorkerState::Ready);
    let lives = (Vec::new(), WorkerState::Busy);
    assert_eq!(twice(&[], SIGSEGV, None), poison);
    assert_eq!(twice(&[("signal 11", "retry")], SIGSEGV, None), lives);
    assert_eq!(twice(&[("signal 11", "restart")], SIGSEGV, None), lives);
    let assert_failed = Some(FaultCode::Cuda(710));
    assert_eq!(twice(&[("cuda 710", "restart")], STICKY, assert_failed), lives);
    assert_eq!(twice(&[("exit 70", "restart")], STICKY, assert_failed), lives);
    assert_eq!(twice(&[("exit 70", "restart")], STICKY, None), lives);
    assert_eq!(twice(&[], STICKY, Some(FaultCode::Cuda(214))), lives);
    assert_eq!(twice(&[("exit 74", "suspect")], ExitStatus::Code(74), None), poison);
}

#[test]
fn a_policy_may_quarantine_or_halt_a_device_at_its_first_death() {
    let after_a_death = |response| {
        let mut rig = with_policy(1, &[("exit 71", response)], |_| {});
        rig.submit(1);
        exit_over(&mut rig, 0, ExitStatus::Code(71), None);
        assert_eq!(rig.state(0), WorkerState::Quarantined);
        assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
        assert_eq!(last_fault(&rig, 0), "gpu0#1 died: exit code 71");
        rig.wait(Duration::from_secs(60));
        rig.state(0)
    };
    assert_eq!(after_a_death("quarantine"), WorkerState::Starting);
    assert_eq!(after_a_death("halt"), WorkerState::Quarantined);
    // An override may also restart after a wrong set-up.
    let mut rig = with_policy(1, &[("exit 73", "restart")], |_| {});
    rig.die(0, ExitStatus::Code(73));
    assert_eq!(rig.state(0), WorkerState::Starting);
}

#[test]
fn a_policy_may_ignore_a_hang_as_evidence() {
    let hang_twice = |rules: &[(&str, &str)]| {
        let mut rig = with_policy(1, rules, |_| {});
        rig.submit(1);
        for _ in 0..2 {
            rig.mute.insert(0);
            rig.wait(Duration::from_secs(6));
            rig.mute.clear();
            rig.die(0, SIGKILL);
            rig.wait_ms(200);
            rig.ready(0);
        }
        rig.verdicts(1)
    };
    assert_eq!(hang_twice(&[]), [Verdict::Poison]);
    assert_eq!(hang_twice(&[("hang", "retry")]), []);
    assert_eq!(hang_twice(&[("hang", "restart")]), []);
}

#[test]
fn a_worker_that_cannot_be_started_is_the_devices_fault_if_the_policy_says_so() {
    let fail = |rig: &mut Rig, is_final| {
        let (worker, detail) = (rig.worker(0), "no".to_owned());
        rig.tell(Event::Worker(worker, WorkerEvent::SpawnFailed { detail, is_final }));
    };
    let mut rig = with_policy(1, &[("spawn failed", "quarantine")], |_| {});
    rig.die(0, SIGKILL);
    fail(&mut rig, false);
    assert_eq!(rig.state(0), WorkerState::Quarantined);
    let mut rig = with_policy(1, &[("no binary", "quarantine")], |_| {});
    rig.die(0, SIGKILL);
    fail(&mut rig, true);
    rig.wait(Duration::from_secs(60));
    assert_eq!(rig.state(0), WorkerState::Starting, "it is tried again");
}
