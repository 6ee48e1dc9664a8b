//! Workers and their devices: silence, backoff, quarantine, old generations.

use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

#[test]
fn a_worker_that_is_silent_gets_no_job_until_it_is_heard() {
    let mut rig = Rig::new(1);
    rig.mute.insert(0);
    rig.wait_ms(2_000);
    rig.submit(1);
    assert_eq!(rig.runs(0), None);
    rig.tell(Event::Worker(rig.worker(0), WorkerEvent::Heard));
    assert_eq!(rig.runs(0), Some((1, 1)));
}

#[test]
fn a_worker_that_stays_silent_is_killed() {
    let mut rig = Rig::new(2);
    rig.mute.insert(0);
    rig.wait_ms(4_999);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(
        rig.actions().last(),
        Some(&Action::Kill { worker: rig.worker(0), reason: rig.kill_reason(0).unwrap() })
    );
    assert_eq!(rig.kills(), 1);
}

#[test]
fn a_worker_that_closed_its_channel_has_a_second_to_end() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.tell(Event::Worker(rig.worker(0), WorkerEvent::ChannelClosed));
    rig.wait_ms(999);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(rig.kill_reason(0), Some(KillReason::ClosedChannel));
    rig.die_and_return(0, SIGKILL);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
}

#[test]
fn a_worker_that_is_not_ready_in_time_is_killed() {
    let mut rig = Rig::starting(1, |_| {});
    rig.wait_ms(59_999);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1);
}

#[test]
fn each_restart_without_work_waits_twice_as_long_and_only_work_resets_that() {
    let mut rig = Rig::with(1, |config| {
        config.restart_limit = 100;
        config.backoff_max = Duration::from_millis(500);
    });
    let mut waits = Vec::new();
    for _ in 0..6 {
        let died = rig.now.0.as_millis();
        rig.die_and_return(0, SIGSEGV);
        waits.push(rig.spawns(0).last().unwrap() - died);
    }
    assert_eq!(waits, [0, 100, 200, 400, 500, 500]);
    rig.submit(1);
    rig.answer(0);
    rig.die(0, SIGSEGV);
    assert_eq!(rig.state(0), WorkerState::Starting);
}

#[test]
fn a_process_is_not_replaced_before_it_is_gone() {
    let mut rig = Rig::new(1);
    rig.mute.insert(0);
    rig.wait_ms(5_000 + 4_999);
    assert_eq!(rig.kills(), 1);
    assert_eq!(rig.spawns(0), [0]);
    rig.die(0, SIGKILL);
    assert_eq!(rig.spawns(0), [0, 9_999]);
}

#[test]
fn five_deaths_without_work_within_the_window_quarantine_a_device() {
    let mut rig = Rig::new(1);
    for _ in 0..4 {
        rig.die_and_return(0, SIGSEGV);
    }
    rig.die(0, SIGSEGV);
    assert_eq!(rig.state(0), WorkerState::Quarantined);
    rig.wait(Duration::from_millis(59_999));
    assert_eq!(rig.spawns(0).len(), 5);
}

#[test]
fn a_death_as_old_as_the_window_counts_and_an_older_one_does_not() {
    for (older, state) in [(0, WorkerState::Quarantined), (1, WorkerState::Starting)] {
        let mut rig = Rig::with(1, |config| config.restart_limit = 2);
        rig.die_and_return(0, SIGSEGV);
        rig.wait(Duration::from_millis(60_000 + older));
        rig.die(0, SIGSEGV);
        rig.wait_ms(100);
        assert_eq!(rig.state(0), state);
    }
}

#[test]
fn deaths_spread_over_more_than_the_window_do_not_quarantine() {
    let mut rig = Rig::new(1);
    for _ in 0..20 {
        rig.die_and_return(0, SIGSEGV);
        rig.wait(Duration::from_secs(15));
    }
    assert_eq!(rig.state(0), WorkerState::Ready);
}

#[test]
fn deaths_after_work_and_deaths_from_outside_do_not_quarantine() {
    let mut rig = Rig::new(1);
    for key in 0..20 {
        rig.submit(key);
        rig.answer(0);
        rig.die_and_return(0, SIGSEGV);
        rig.die_and_return(0, SIGKILL);
    }
    assert_eq!(rig.state(0), WorkerState::Ready);
}

#[test]
fn a_wrong_configuration_or_driver_quarantines_at_once() {
    for code in [73, 75] {
        let mut rig = Rig::starting(1, |_| {});
        rig.die(0, ExitStatus::Code(code));
        assert_eq!(rig.state(0), WorkerState::Quarantined);
    }
}

#[test]
fn three_starts_in_a_row_that_fail_quarantine_a_device() {
    let mut rig = Rig::starting(1, |_| {});
    for failures in 0..3 {
        assert_eq!(rig.state(0), WorkerState::Starting, "after {failures} failures");
        rig.die(0, ExitStatus::Code(72));
        rig.wait_ms(100);
    }
    assert_eq!(rig.state(0), WorkerState::Quarantined);
}

#[test]
fn a_system_that_can_start_no_process_delays_a_device_and_does_not_quarantine_it() {
    let mut rig = Rig::starting(1, |_| {});
    let fail = |rig: &mut Rig, is_final| {
        let (worker, detail) = (rig.worker(0), "EAGAIN".to_owned());
        rig.tell(Event::Worker(worker, WorkerEvent::SpawnFailed { detail, is_final }));
    };
    for _ in 0..10 {
        fail(&mut rig, false);
        rig.wait_ms(30_000);
        assert_eq!(rig.state(0), WorkerState::Starting);
    }
    fail(&mut rig, true);
    assert_eq!(rig.state(0), WorkerState::Quarantined, "there is no such program");
}

#[test]
fn a_supervisor_that_was_paused_kills_no_worker_for_its_own_silence() {
    let mut rig = Rig::new(1);
    // The clock jumps, as it does for a stopped process; no message has been read.
    rig.now = rig.now.after(Duration::from_secs(600));
    rig.tell(Event::TimePassed);
    assert_eq!(rig.state(0), WorkerState::Ready);
    rig.mute.insert(0);
    rig.wait_ms(5_000);
    assert_eq!(rig.state(0), WorkerState::Stopping, "silence while the supervisor runs");
}

#[test]
fn a_supervisor_that_was_stopped_takes_no_grace_from_a_job_that_was_cancelled() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.cancel(1);
    rig.now = rig.now.after(Duration::from_secs(600));
    rig.tell(Event::TimePassed);
    assert_eq!(rig.kills(), 0, "its answer may have come and not been read");
    rig.answer(0);
    rig.wait_ms(1_000);
    assert_eq!(rig.kills(), 0);

    rig.submit(2);
    rig.cancel(2);
    rig.now = rig.now.after(Duration::from_secs(600));
    rig.tell(Event::TimePassed);
    rig.wait_ms(99);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1, "a little more than the time that it had");
}

#[test]
fn a_successful_start_resets_the_count_of_failed_ones() {
    let mut rig = Rig::starting(1, |config| config.restart_limit = 100);
    for _ in 0..4 {
        for _ in 0..2 {
            rig.die(0, ExitStatus::Code(72));
            rig.wait(Duration::from_secs(30));
        }
        rig.ready(0);
        rig.die(0, SIGSEGV);
        rig.wait(Duration::from_secs(30));
    }
    assert_eq!(rig.state(0), WorkerState::Starting);
}

#[test]
fn a_fault_that_all_devices_have_is_reported_once() {
    let mut rig = Rig::starting(2, |_| {});
    rig.submit(1);
    rig.die(0, ExitStatus::Code(73));
    rig.die(1, ExitStatus::Code(73));
    assert_eq!(
        rig.receipts(1)[0].reason,
        "no device is left: gpu0 is out of service until `gridpool release gpu0` (gpu0#1 died: exit code \
         73); gpu1 is out of service until `gridpool release gpu1` (for the same reason)"
    );
}

#[test]
fn jobs_are_lost_with_the_last_device_and_the_reason_names_it() {
    let mut rig = Rig::starting(2, |_| {});
    rig.submit(1);
    rig.die(0, ExitStatus::Code(73));
    assert_eq!(rig.verdicts(1), [], "one device is left");
    let worker = rig.worker(1);
    let words = "libtorch_cuda.so is mapped".to_owned();
    let exit = Exit {
        status: ExitStatus::Code(73),
        fault: None,
        last_words: Some(words),
        is_ordered: false,
    };
    rig.tell(Event::Worker(worker, WorkerEvent::Exited(exit)));
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
    let reason = &rig.receipts(1)[0].reason;
    assert!(reason.contains("gpu0#1") && reason.contains("libtorch_cuda.so"), "{reason}");
    rig.submit(2);
    assert_eq!(rig.verdicts(2), [Verdict::DeviceLost], "a later job ends at once");
}

#[test]
fn an_unkillable_worker_blocks_nothing_and_its_device_is_probed_once_it_has_ended() {
    let mut rig = Rig::new(2);
    rig.submit_as(1, 1, |request| request.divisible = false);
    rig.mute.insert(0);
    rig.wait_ms(5_000 + 4_999);
    assert_eq!(rig.runs(1), None, "it may still write to the place of the result");
    rig.wait_ms(1);
    assert_eq!(rig.state(0), WorkerState::Unkillable);
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost], "and may for ever");
    rig.submit(2);
    assert_eq!(rig.runs(1), Some((2, 1)));
    rig.wait(Duration::from_secs(20));
    assert_eq!(rig.spawns(0), [0], "the old process may still use the device");
    rig.answer(1);
    rig.wait(Duration::from_secs(60));
    assert_eq!(rig.spawns(0), [0], "however long it has been out");
    rig.die(0, SIGKILL);
    assert_eq!(rig.spawns(0).len(), 2);
    rig.ready(0);
    rig.submit(3);
    rig.submit(4);
    assert!(rig.runs(0).is_some(), "it serves again");
}

#[test]
fn a_job_is_lost_if_the_only_device_cannot_be_killed() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.mute.insert(0);
    rig.submit_as(2, 2, |request| request.answer_inline = true);
    rig.wait_ms(10_000);
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
    assert!(rig.receipts(1)[0].reason.contains("may still write"));
    assert_eq!(rig.verdicts(2), [Verdict::DeviceLost]);
    assert!(rig.receipts(2)[0].reason.contains("gpu0#1 does not die"));
}

#[test]
fn attempts_of_a_recycled_worker_run_elsewhere_and_do_not_count() {
    let mut rig = Rig::with(2, |config| config.attempts_max = 1);
    rig.submit_as(1, 1, |request| request.idempotent = false);
    assert!(rig.runs(0).is_some());
    rig.die(0, ExitStatus::Code(76));
    assert_eq!(rig.verdicts(1), [], "it had not begun");
    assert_eq!(rig.runs(1), Some((1, 2)));
    rig.answer(1);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    assert_eq!(rig.receipts(1)[0].attempts[0].outcome, AttemptOutcome::Preempted);
}

#[test]
fn a_device_with_a_worker_that_cannot_be_killed_is_out_and_its_standby_with_it() {
    let mut rig = Rig::with(1, |config| config.standbys = 1);
    let standby = WorkerId { device: device(0), group: Group::Grid, generation: 2 };
    rig.tell(Event::Worker(standby, WorkerEvent::Ready(info(0))));
    let stuck = rig.worker(0);
    rig.mute.insert(0);
    for _ in 0..5 {
        rig.tell(Event::Worker(standby, WorkerEvent::Heard));
        rig.wait_ms(1_000);
    }
    assert_eq!(rig.kills(), 1);
    rig.submit(1);
    let innocent = rig.count(|action| matches!(action, Action::Dispatch { .. }));
    assert_eq!(innocent, 1, "the standby has taken over");
    for _ in 0..5 {
        rig.tell(Event::Worker(standby, WorkerEvent::Heard));
        rig.wait_ms(1_000);
    }
    assert_eq!(rig.kills(), 2);
    rig.exit(standby, SIGKILL);
    let quarantine = rig.quarantine(0).expect("it is out");
    assert!(quarantine.why.contains("gpu0#1 does not die"), "{}", quarantine.why);
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
    assert_eq!(rig.receipts(1)[0].attempts[0].outcome, AttemptOutcome::Preempted);
    rig.exit(stuck, SIGKILL);
    rig.wait(Duration::from_secs(60));
    assert_eq!(rig.spawns(0).len(), 3, "it is tried again");
}

#[test]
fn a_message_of_an_old_process_has_no_effect_and_is_counted() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    let old = rig.worker(0);
    let attempt = rig.attempt(0).unwrap();
    rig.die_and_return(0, SIGKILL);
    assert_eq!(rig.runs(0), Some((1, 2)));
    let before = rig.seen.len();
    let exit = Exit { status: SIGSEGV, fault: None, last_words: None, is_ordered: false };
    let result = Ok(report());
    rig.tell(Event::Worker(old, WorkerEvent::Heard));
    rig.tell(Event::Worker(old, WorkerEvent::Ready(info(0))));
    rig.tell(Event::Worker(old, WorkerEvent::Answered { attempt, result: result.clone() }));
    rig.tell(Event::Worker(old, WorkerEvent::Exited(exit)));
    assert_eq!(rig.seen.len(), before);
    assert_eq!(rig.core.counters().stale, 4);
    // The right process, but an attempt that it does not run.
    rig.tell(Event::Worker(rig.worker(0), WorkerEvent::Answered { attempt, result }));
    assert_eq!(rig.seen.len(), before);
    assert_eq!(rig.core.counters().stale, 5);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
}

#[test]
fn an_old_process_does_not_keep_its_silent_successor_alive() {
    let mut rig = Rig::new(1);
    let old = rig.worker(0);
    rig.die_and_return(0, SIGKILL);
    rig.mute.insert(0);
    rig.wait_ms(4_000);
    rig.tell(Event::Worker(old, WorkerEvent::Heard));
    rig.wait_ms(1_000);
    assert_eq!(rig.kills(), 1);
}
