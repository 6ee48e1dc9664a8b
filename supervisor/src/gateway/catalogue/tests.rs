//! The catalogue as workers come, go and report other models.

use super::*;
use crate::gateway::models::tests::info;

fn worker(name: &str, role: Role, state: WorkerState) -> WorkerStatus {
    WorkerStatus {
        name: name.to_owned(),
        pid: 1,
        role: role.name().to_owned(),
        group: if role == Role::Grid { "grid" } else { "g" }.to_owned(),
        state,
        generation: 1,
        last_fault: "killed".to_owned(),
        ..WorkerStatus::default()
    }
}

fn serving(name: &str) -> WorkerStatus {
    worker(name, Role::Infer, WorkerState::Ready)
}

fn row(worker: &str, name: &str, reason: &str) -> DeviceModel {
    let state = if reason.is_empty() { ModelState::Ready } else { ModelState::Unavailable };
    let model = ModelInfo { state, reason: reason.to_owned(), ..info(name) };
    DeviceModel { worker: worker.to_owned(), serves: true, model }
}

fn after(before: &Catalogue, workers: &[WorkerStatus], rows: &[DeviceModel]) -> Catalogue {
    let report =
        PoolReport { workers: workers.to_vec(), quarantines: Vec::new(), rows: rows.to_vec() };
    before.updated(&report)
}

fn state(catalogue: &Catalogue, name: &str) -> Option<Availability> {
    catalogue.find(name, None).map(|model| model.availability.clone())
}

#[test]
fn a_model_is_ready_if_one_worker_has_it_else_it_gives_the_reason_of_each() {
    let workers = [serving("cpu0#2"), serving("cpu1#2")];
    let rows = [row("cpu0#2", "m", "no memory"), row("cpu1#2", "m", "")];
    let one = after(&Catalogue::default(), &workers, &rows);
    assert_eq!(state(&one, "m"), Some(Availability::Ready));
    assert_eq!(one.find("m", None).unwrap().workers, ["cpu1#2"]);
    let rows = [row("cpu0#2", "m", "no memory"), row("cpu1#2", "m", "no file")];
    let none = after(&one, &workers, &rows);
    let why = "cpu0#2: no memory; cpu1#2: no file".to_owned();
    assert_eq!(state(&none, "m"), Some(Availability::Unavailable(why)));
}

#[test]
fn a_model_waits_for_workers_that_ended_and_is_unloaded_if_they_serve_without_it() {
    let rows = [row("cpu0#2", "a", ""), row("cpu0#2", "b", "")];
    let both = after(&Catalogue::default(), &[serving("cpu0#2")], &rows);
    both.find("a", None).unwrap().record.tally.failed(std::time::Duration::ZERO);
    // The shell may still list the models of a worker that is ending.
    for rows in [&rows[..], &[]] {
        let ending = [worker("cpu0#2", Role::Infer, WorkerState::Stopping)];
        let away = after(&both, &ending, rows);
        let why = "no worker of the group `g` serves now: cpu0#2 is stopping (killed)".to_owned();
        assert_eq!(away.outage(), Some(&*why));
        assert_eq!(state(&away, "a"), Some(Availability::NoWorker(why.clone())));
        let back = after(&away, &[serving("cpu0#3")], &[row("cpu0#3", "a", "")]);
        assert_eq!(state(&back, "a"), Some(Availability::Ready));
        assert_eq!(state(&back, "b"), Some(Availability::Unloaded));
        let record = |of: &Catalogue| Arc::clone(&of.find("a", None).unwrap().record);
        assert!(Arc::ptr_eq(&record(&both), &record(&back)), "what was counted is kept");
        // An unloaded model stays unloaded when the worker dies.
        assert_eq!(state(&after(&back, &ending, &[]), "b"), Some(Availability::Unloaded));
        let again = [row("cpu0#3", "a", ""), row("cpu0#3", "b", "")];
        let again = after(&back, &[serving("cpu0#3")], &again);
        assert_eq!(state(&again, "b"), Some(Availability::Ready));
        assert!(again.unloaded.is_empty());
    }
    let none = after(&both, &[serving("cpu0#2")], &[]);
    assert_eq!(state(&none, "a"), Some(Availability::Unloaded));
    assert_eq!(none.outage(), None, "it serves, and has no models");
}

#[test]
fn grid_workers_do_not_count_for_models() {
    let grid = worker("cpu0#1", Role::Grid, WorkerState::Ready);
    let none = after(&Catalogue::default(), std::slice::from_ref(&grid), &[]);
    assert_eq!(none.outage(), None);
    let report = |workers: &[WorkerStatus]| PoolReport {
        workers: workers.to_vec(),
        quarantines: Vec::new(),
        rows: Vec::new(),
    };
    assert!(!report(std::slice::from_ref(&grid)).is_inconsistent());
    let both = [grid, worker("cpu0#2", Role::Infer, WorkerState::Starting)];
    assert!(after(&none, &both, &[]).outage().is_some());
    assert!(!report(&both).is_inconsistent());
    let serves = [serving("cpu0#2")];
    let mut report = report(&serves);
    assert!(report.is_inconsistent());
    report.mark_ended(&serves);
    assert!(report.outages().is_empty(), "it has no models");
    report.mark_ended(&[serving("cpu0#3")]);
    assert!(!report.outages().is_empty(), "it has ended");
}

#[test]
fn models_that_were_unloaded_are_forgotten_when_there_are_too_many() {
    let workers = [serving("cpu0#2")];
    let mut catalogue = Catalogue::default();
    let more = UNLOADED_MAX + 5;
    for number in 0..more {
        let rows = [row("cpu0#2", &format!("m{number}"), ""), row("cpu0#2", "stays", "")];
        catalogue = after(&catalogue, &workers, &rows);
    }
    assert_eq!(catalogue.all().count(), UNLOADED_MAX + 2, "these, the last and the one that stays");
    assert_eq!(catalogue.unloaded.len(), UNLOADED_MAX);
    assert_eq!(state(&catalogue, "m3"), None, "the oldest go first");
    assert_eq!(state(&catalogue, "m4"), Some(Availability::Unloaded));
}

#[test]
fn a_device_out_of_service_is_described_in_the_pool_s_words() {
    let out = |device: &str, role: Role, tried_in_us| QuarantineStatus {
        device: device.to_owned(),
        role: role.name().to_owned(),
        group: if role == Role::Grid { "grid" } else { "g" }.to_owned(),
        why: "exit code 73".to_owned(),
        tried_in_us,
    };
    let report = PoolReport {
        workers: ["cpu0#2", "cpu1#2"]
            .map(|n| worker(n, Role::Infer, WorkerState::Quarantined))
            .into(),
        quarantines: vec![
            out("cpu0", Role::Grid, None),
            out("cpu0", Role::Infer, Some(58_000_001)),
            out("cpu1", Role::Infer, None),
        ],
        rows: Vec::new(),
    };
    let want = "no worker of the group `g` serves now: cpu0 is out of service and tried again in 59 s (exit code 73); \
                cpu1 is out of service until `gridpool release cpu1` (exit code 73)";
    assert_eq!(report.outages().get("g").map(String::as_str), Some(want));
}

#[test]
fn a_group_whose_worker_has_ended_is_out_and_its_neighbours_are_not() {
    let of = |group: &str, name: &str, state| WorkerStatus {
        group: group.to_owned(),
        ..worker(name, Role::Infer, state)
    };
    let up = [of("a", "cpu0#2", WorkerState::Ready), of("b", "cpu0#3", WorkerState::Ready)];
    let rows = [row("cpu0#2", "a", ""), row("cpu0#3", "b", "")];
    let both = after(&Catalogue::default(), &up, &rows);
    let down = [of("a", "cpu0#4", WorkerState::Starting), up[1].clone()];
    let one = after(&both, &down, &rows[1..]);
    let why = "no worker of the group `a` serves now: cpu0#4 is starting (killed)".to_owned();
    assert_eq!(state(&one, "a"), Some(Availability::NoWorker(why)));
    assert_eq!(state(&one, "b"), Some(Availability::Ready));
    // The pool has no worker of it any more: it was unloaded.
    assert_eq!(state(&after(&one, &up[1..], &rows[1..]), "a"), Some(Availability::Unloaded));
}
