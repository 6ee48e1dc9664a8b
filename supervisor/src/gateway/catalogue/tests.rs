//! What becomes of what is known as workers come, go and say other things.

use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::status::{SlotDevice, WorkerMemory};

use super::*;
use crate::gateway::models::tests::info;

fn worker(name: &str, role: Role, state: WorkerState) -> WorkerStatus {
    let (kind, text) = (DeviceKind::Cpu, String::new);
    WorkerStatus {
        name: name.to_owned(),
        pid: 1,
        role: role.name().to_owned(),
        device: SlotDevice { kind, index: 0, name: text(), uuid: text() },
        state,
        generation: 1,
        jobs_done: 0,
        items_done: 0,
        restarts: 0,
        last_fault: "killed".to_owned(),
        start_us: None,
        end_us: None,
        arena_bytes: 0,
        memory: WorkerMemory::default(),
        run: None,
        cpu_us: 0,
        resident_bytes: 0,
    }
}

fn serving(name: &str) -> WorkerStatus {
    worker(name, Role::Infer, WorkerState::Ready)
}

fn row(worker: &str, name: &str, reason: &str) -> DeviceModel {
    let state = if reason.is_empty() { ModelState::Ready } else { ModelState::Unavailable };
    let model = ModelInfo { state, reason: reason.to_owned(), ..info(name) };
    DeviceModel { worker: worker.to_owned(), model }
}

fn after(before: &Catalogue, workers: &[WorkerStatus], rows: &[DeviceModel]) -> Catalogue {
    let heard = Heard { workers: workers.to_vec(), quarantines: Vec::new(), rows: rows.to_vec() };
    before.after(&heard)
}

fn state(catalogue: &Catalogue, name: &str) -> Option<State> {
    catalogue.find(name).map(|model| model.state.clone())
}

#[test]
fn a_model_is_ready_where_one_worker_has_it_and_else_says_why_of_each() {
    let workers = [serving("cpu0#2"), serving("cpu1#2")];
    let rows = [row("cpu0#2", "m", "no memory"), row("cpu1#2", "m", "")];
    let one = after(&Catalogue::default(), &workers, &rows);
    assert_eq!(state(&one, "m"), Some(State::Ready));
    assert_eq!(one.find("m").unwrap().workers, ["cpu1#2"]);
    let rows = [row("cpu0#2", "m", "no memory"), row("cpu1#2", "m", "no file")];
    let none = after(&one, &workers, &rows);
    let why = "cpu0#2: no memory; cpu1#2: no file".to_owned();
    assert_eq!(state(&none, "m"), Some(State::Unavailable(why)));
}

#[test]
fn a_model_whose_workers_have_ended_is_away_and_one_without_which_they_serve_was_unloaded() {
    let rows = [row("cpu0#2", "a", ""), row("cpu0#2", "b", "")];
    let both = after(&Catalogue::default(), &[serving("cpu0#2")], &rows);
    both.find("a").unwrap().record.tally.failed(std::time::Duration::ZERO);
    // The shell may still list what a worker said that is ending.
    for rows in [&rows[..], &[]] {
        let ending = [worker("cpu0#2", Role::Infer, WorkerState::Stopping)];
        let away = after(&both, &ending, rows);
        let why = "no worker serves models now: cpu0#2 is stopping (killed)".to_owned();
        assert_eq!(away.silence(), Some(&*why));
        assert_eq!(state(&away, "a"), Some(State::Away(why.clone())));
        let back = after(&away, &[serving("cpu0#3")], &[row("cpu0#3", "a", "")]);
        assert_eq!(state(&back, "a"), Some(State::Ready));
        assert_eq!(state(&back, "b"), Some(State::Unloaded));
        let record = |of: &Catalogue| Arc::clone(&of.find("a").unwrap().record);
        assert!(Arc::ptr_eq(&record(&both), &record(&back)), "what was counted is kept");
        // Once unloaded it is not away when the worker dies.
        assert_eq!(state(&after(&back, &ending, &[]), "b"), Some(State::Unloaded));
        let again = [row("cpu0#3", "a", ""), row("cpu0#3", "b", "")];
        let again = after(&back, &[serving("cpu0#3")], &again);
        assert_eq!(state(&again, "b"), Some(State::Ready));
        assert!(again.unloaded.is_empty());
    }
    let none = after(&both, &[serving("cpu0#2")], &[]);
    assert_eq!(state(&none, "a"), Some(State::Unloaded));
    assert_eq!(none.silence(), None, "it serves, and has no models");
}

#[test]
fn workers_of_grids_say_nothing_about_models() {
    let grid = worker("cpu0#1", Role::Grid, WorkerState::Ready);
    let none = after(&Catalogue::default(), std::slice::from_ref(&grid), &[]);
    assert_eq!(none.silence(), None);
    let heard = |workers: &[WorkerStatus]| Heard {
        workers: workers.to_vec(),
        quarantines: Vec::new(),
        rows: Vec::new(),
    };
    assert!(!heard(std::slice::from_ref(&grid)).is_doubtful());
    let both = [grid, worker("cpu0#2", Role::Infer, WorkerState::Starting)];
    assert!(after(&none, &both, &[]).silence().is_some());
    assert!(!heard(&both).is_doubtful());
    let serves = [serving("cpu0#2")];
    let mut heard = heard(&serves);
    assert!(heard.is_doubtful());
    heard.correct(&serves);
    assert_eq!(heard.silence(), None, "it has no models");
    heard.correct(&[serving("cpu0#3")]);
    assert!(heard.silence().is_some(), "it has ended");
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
    assert_eq!(state(&catalogue, "m4"), Some(State::Unloaded));
}

#[test]
fn a_name_that_is_built_in_is_not_the_model_s() {
    let rows = [row("cpu0#2", "rot90", "")];
    let catalogue = after(&Catalogue::default(), &[serving("cpu0#2")], &rows);
    let Some(State::Unavailable(why)) = state(&catalogue, "rot90") else { panic!("{catalogue:?}") };
    assert!(why.contains("`rot90` is built into the gateway"), "{why}");
}

#[test]
fn a_device_out_of_service_is_told_as_the_pool_tells_it() {
    let out = |device: &str, role: Role, tried_in_us| QuarantineStatus {
        device: device.to_owned(),
        role: role.name().to_owned(),
        why: "exit code 73".to_owned(),
        tried_in_us,
    };
    let heard = Heard {
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
    let want = "no worker serves models now: cpu0 is out of service and tried again in 59 s (exit code 73); \
                cpu1 is out of service until `gridpool release cpu1` (exit code 73)";
    assert_eq!(heard.silence().as_deref(), Some(want));
}
