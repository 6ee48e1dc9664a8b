//! Loads that end before their workers are done with them.

use gridpool_protocol::status::LoadStatus;

use super::*;

#[test]
fn a_load_that_is_given_up_fails_and_what_its_worker_says_later_is_not_about_the_next_one() {
    let mut world = World::new(&["a"], 1);
    world.begin(load("b"));
    assert!(world.models.loads_for(CLIENT) && !world.models.loads_for(ClientId(2)));
    assert_eq!(world.models.loading("b"), Some("b"));
    world.models.give_up("nobody wants it");
    assert_eq!(world.models.loading("b"), None);
    world.step();
    assert_eq!(world.told, [Err("`b` cannot be loaded: nobody wants it".to_owned())]);
    // The worker is still at it.
    world.begin(load("b"));
    world.does(worker(0, 2), false);
    assert_eq!(world.told.len(), 1, "the former load has failed");
    world.all_do();
    assert_eq!(world.told[1], Ok("`b` is loaded on cpu0#2".to_owned()));
}

#[test]
fn a_model_that_was_loaded_after_all_is_unloaded() {
    let mut world = World::new(&["a"], 1);
    world.begin(load("b"));
    world.models.give_up("nobody wants it");
    world.step();
    world.does(worker(0, 2), true);
    world.all_do();
    assert_eq!(world.models(worker(0, 2)), [("a", 1)]);
}

#[test]
fn a_late_load_says_how_far_each_worker_was() {
    let mut world = World::new(&["a"], 1);
    world.begin(load("b"));
    let (at, row) = (worker(0, 2), |phase| LoadStatus {
        worker: "cpu0#2".to_owned(),
        model: "b".to_owned(),
        phase,
    });
    assert_eq!(world.models.loads(), [row(LoadPhase::Reading)]);
    world.models.on_progress(at, "b", LoadPhase::Session);
    assert_eq!(world.models.loads(), [row(LoadPhase::Session)]);
    assert_eq!(world.models.deadline(Duration::from_secs(9)), Some(LATER));
    let context = StepContext {
        now: LATER,
        is_requested: &|_| false,
        awaits_workers: false,
        why_no_worker: &String::new,
    };
    let effects = world.models.step(&context);
    let [Effect::Reply { result: Err(why), .. }] = effects.as_slice() else {
        panic!("{effects:?}")
    };
    let want = "`b` cannot be loaded: that took longer than it may (cpu0#2: making the session)";
    assert!(why.starts_with(want), "{why}");
    world.models.start(worker(1, 3));
    assert_eq!(world.models.loads()[0].phase, LoadPhase::Start);
}
