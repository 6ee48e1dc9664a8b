//! Tests of the decision whether a pool has recovered.

use gridpool_protocol::receipt::{DeviceInfo, ItemRange, Receipt};

use super::*;

fn attempt(worker: &str, outcome: AttemptOutcome) -> Attempt {
    let device = DeviceInfo::default();
    let part = ItemRange { start: 0, end: 1 };
    Attempt::unreported(worker, device, part, outcome, String::new())
}

fn receipt(verdict: Verdict, attempts: Vec<Attempt>) -> Receipt {
    Receipt {
        host: String::new(),
        job: String::new(),
        key: String::new(),
        program_hash: "".into(),
        trace_id: String::new(),
        items: 1,
        item_errors: 0,
        verdict,
        reason: String::new(),
        queue_us: 0,
        total_us: 1_000,
        attempts,
    }
}

fn row(name: &str, state: WorkerState) -> WorkerStatus {
    WorkerStatus {
        name: name.to_owned(),
        pid: 1,
        role: "grid".to_owned(),
        state,
        generation: 1,
        ..WorkerStatus::default()
    }
}

fn chaos(fault: &str, attempts: u32) -> Chaos {
    Chaos { fault: fault.parse().unwrap(), attempts }
}

#[test]
fn a_dead_worker_is_replaced_once_a_later_worker_serves_its_device() {
    use WorkerState::{Busy, Quarantined, Ready, Standby, Starting};
    let died = [attempt("cpu0#3", AttemptOutcome::WorkerDied)];
    let [lost] = <[Lost; 1]>::try_from(lost_workers(&died, None)).unwrap();
    let cases = [
        ("cpu0#4", Ready, true),
        ("cpu0#5", Busy, true),
        ("cpu0#4", Starting, false),
        ("cpu0#4", Standby, false),
        ("cpu0#4", Quarantined, false),
        ("cpu0#3", Ready, false),
        ("cpu1#4", Ready, false),
    ];
    for (name, state, want) in cases {
        assert_eq!(lost.is_replaced_by(&row(name, state)), want, "{name} {state:?}");
    }
    let late = [attempt("cpu0#3", AttemptOutcome::Deadline)];
    let [late] = <[Lost; 1]>::try_from(lost_workers(&late, None)).unwrap();
    assert!(late.is_replaced_by(&row("cpu0#3", Ready)), "it may have ended in time");
    assert!(!late.is_replaced_by(&row("cpu0#3", Busy)), "it runs the late job still");
}

#[test]
fn a_worker_that_answered_is_lost_only_if_its_answer_is_wrong() {
    let answered = [attempt("cpu0#1", AttemptOutcome::Ok)];
    assert_eq!(lost_workers(&answered, Some(true)).len(), 0);
    assert_eq!(lost_workers(&answered, Some(false)).len(), 1);
    let no_memory = attempt("cpu0#1", AttemptOutcome::DeviceError);
    assert_eq!(lost_workers(&[no_memory], None).len(), 0);
}

#[test]
fn a_fault_met_once_must_end_ok_and_an_endless_one_at_the_deadline() {
    for fault in ChaosFault::ALL {
        let want = if fault.name() == "endless" { Verdict::Deadline } else { Verdict::Ok };
        assert_eq!(expected(Chaos { fault, attempts: 1 }), [want], "{fault}");
    }
    assert!(expected(chaos("segv", 2)).contains(&Verdict::Poison));
    assert!(expected(chaos("memory", 2)).contains(&Verdict::Failed));
    assert_eq!(expected(chaos("slow", 2)), [Verdict::Ok]);
}

#[test]
fn every_failure_to_recover_is_named_and_sets_the_exit_code() {
    let served = || {
        let receipt = receipt(Verdict::Ok, vec![attempt("cpu1#1", AttemptOutcome::Ok)]);
        Some(ServedAgain { after_ms: 1.5, receipt })
    };
    let replaced = || {
        let [worker, by, fault] = ["cpu0#1", "cpu0#2", "cpu0#1 died: signal 11 (SIGSEGV)"];
        vec![Replaced { worker: worker.into(), fault: fault.into(), by: by.into(), after_ms: 2.5 }]
    };
    let judged = |verdict, right, served, replaced| {
        let attempts = vec![attempt("cpu0#1", AttemptOutcome::WorkerDied)];
        let lost = lost_workers(&attempts, right);
        let mut report = Report::new(chaos("oob", 1), right, receipt(verdict, attempts));
        report.served_again = served;
        report.replaced = replaced;
        report.judge(&[Verdict::Ok], false, &lost);
        (report.recovered, report.text())
    };
    let (recovered, text) = judged(Verdict::Ok, Some(true), served(), replaced());
    assert!(recovered, "{text}");
    for line in [
        "OK after 1 ms; the result is right\n",
        "\n  cpu0#1  lost, the worker died\n",
        "\ncpu0#1 died: signal 11 (SIGSEGV)\ncpu0#1 was replaced: cpu0#2 serves 2.5 ms after the verdict\n",
        "\ncpu1#1 answered the next job 1.5 ms after the verdict\n",
        "\nthe pool recovered as it should",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let cases = [
        (judged(Verdict::Failed, None, served(), replaced()), "the verdict should be OK"),
        (judged(Verdict::Ok, Some(false), served(), replaced()), "the result is wrong"),
        (judged(Verdict::Ok, Some(true), None, replaced()), "the pool answered no ordinary job"),
        (judged(Verdict::Ok, Some(true), served(), vec![]), "the pool did not replace cpu0#1"),
    ];
    for ((recovered, text), why) in cases {
        assert!(!recovered && text.contains(&format!("NOT recovered: {why}")), "{text}");
    }
}
