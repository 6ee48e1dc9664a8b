//! The judgement of `gridpool chaos`: what it takes for recovered, and what not.

use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::{DeviceInfo, ItemRange, Receipt};
use gridpool_protocol::status::{SlotDevice, WorkerMemory};

use super::*;

fn attempt(worker: &str, outcome: AttemptOutcome) -> Attempt {
    let device = DeviceInfo {
        kind: DeviceKind::Cpu,
        index: 0,
        name: String::new(),
        uuid: String::new(),
        driver: String::new(),
    };
    let part = ItemRange { start: 0, end: 1 };
    Attempt::unreported(worker.to_owned(), device, part, outcome, String::new())
}

fn receipt(verdict: Verdict, attempts: Vec<Attempt>) -> Receipt {
    Receipt {
        job: String::new(),
        key: String::new(),
        program_hash: String::new(),
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
        device: SlotDevice {
            kind: DeviceKind::Cpu,
            index: 0,
            name: String::new(),
            uuid: String::new(),
        },
        state,
        generation: 1,
        jobs_done: 0,
        items_done: 0,
        restarts: 0,
        last_fault: String::new(),
        start_us: None,
        end_us: None,
        arena_bytes: 0,
        memory: WorkerMemory::default(),
        run: None,
        cpu_us: 0,
        resident_bytes: 0,
    }
}

fn chaos(fault: &str, attempts: u32) -> Chaos {
    Chaos { fault: fault.parse().unwrap(), attempts }
}

#[test]
fn a_worker_that_died_is_replaced_by_a_later_one_of_its_device_that_serves() {
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
fn a_worker_that_answered_is_lost_only_if_it_answered_wrongly() {
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
fn what_is_not_as_it_should_be_is_said_and_costs_the_exit_code() {
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
        "\nthe next job was answered 1.5 ms after the verdict, by cpu1#1\n",
        "\nthe pool recovered as it should",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let cases = [
        (judged(Verdict::Failed, None, served(), replaced()), "the verdict should be OK"),
        (judged(Verdict::Ok, Some(false), served(), replaced()), "the result is wrong"),
        (judged(Verdict::Ok, Some(true), None, replaced()), "no ordinary job was answered"),
        (judged(Verdict::Ok, Some(true), served(), vec![]), "nobody took the place of cpu0#1"),
    ];
    for ((recovered, text), why) in cases {
        assert!(!recovered && text.contains(&format!("NOT as it should be: {why}")), "{text}");
    }
}
