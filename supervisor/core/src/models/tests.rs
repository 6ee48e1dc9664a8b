//! The models with workers that carry out commands, or die, in any order.

mod loads;
mod pins;

use std::collections::BTreeSet;

use gridpool_protocol::ids::{DeviceId, DeviceKind, Group};
use gridpool_protocol::tensor::Contexts;
use gridpool_protocol::tensor::model::StepInfo;
use gridpool_protocol::tensor::options::ModelOptions;
use gridpool_protocol::tensor::pipeline::{Pipeline, Step, StepBody};

use super::*;

const CLIENT: ClientId = ClientId(1);
const LATER: Timestamp = Timestamp(Duration::from_secs(1));

fn worker(index: u32, generation: u32) -> WorkerId {
    let device = DeviceId { kind: DeviceKind::Cpu, index };
    WorkerId { device, group: Group::Models(0), generation }
}

fn plan(name: &str) -> ModelPlan {
    let path = format!("/m/{name}.onnx").into();
    ModelPlan { name: name.to_owned(), path, options: ModelOptions::default() }
}

fn load(name: &str) -> ModelCommand {
    ModelCommand::Load(plan(name))
}

fn unload(name: &str) -> ModelCommand {
    ModelCommand::Unload { name: name.to_owned() }
}

fn contexts(name: &str, contexts: u32) -> ModelCommand {
    ModelCommand::Contexts { name: name.to_owned(), contexts }
}

/// A `Models`, its workers, and the replies to operators.
struct World {
    models: Models,
    workers: BTreeMap<WorkerId, BTreeMap<String, ModelInfo>>,
    commands: BTreeMap<WorkerId, (u64, ModelCommand)>,
    told: Vec<Result<String, String>>,
    rests: usize,
    awaits: bool,
    asked: BTreeSet<String>,
}

impl World {
    fn new(plans: &[&str], workers: u32) -> Self {
        let plans: Vec<_> = plans.iter().map(|name| plan(name)).collect();
        let mut world = Self {
            models: Models::new(&plans),
            workers: BTreeMap::new(),
            commands: BTreeMap::new(),
            told: Vec::new(),
            rests: 0,
            awaits: false,
            asked: BTreeSet::new(),
        };
        (0..workers).for_each(|index| world.start(worker(index, 2)));
        world
    }

    /// A worker starts, with the models that it must load, and reports its models.
    fn start(&mut self, worker: WorkerId) {
        let plans = self.models.start(worker);
        self.is_up(worker, &plans);
    }

    fn is_up(&mut self, worker: WorkerId, plans: &[ModelPlan]) {
        self.workers.insert(worker, BTreeMap::new());
        plans.iter().for_each(|plan| self.has(worker, plan));
        self.report(worker);
        self.step();
    }

    fn has(&mut self, worker: WorkerId, plan: &ModelPlan) {
        let mut info = ModelInfo::unavailable(&plan.name, String::new());
        let contexts = plan.options.contexts.fixed().unwrap_or(worker.device.index + 4);
        (info.state, info.contexts) = (ModelState::Ready, contexts);
        self.workers.get_mut(&worker).unwrap().insert(plan.name.clone(), info);
    }

    fn report(&mut self, worker: WorkerId) {
        let mut says: Vec<_> = self.workers[&worker].values().cloned().collect();
        self.models.on_reported(worker, &mut says);
    }

    fn step(&mut self) {
        while self.models.needs_step() {
            let asked = &self.asked;
            let context = StepContext {
                now: Timestamp::default(),
                is_requested: &|name| asked.contains(name),
                awaits_workers: self.awaits,
                why_no_worker: &|| "no worker is there".to_owned(),
            };
            let effects = self.models.step(&context);
            let is_quiet = effects.is_empty();
            for effect in effects {
                match effect {
                    Effect::Command { worker, number, command } => {
                        let before = self.commands.insert(worker, (number, command));
                        assert_eq!(before, None, "one at a time");
                    }
                    Effect::Rest => {
                        self.rests += 1;
                        self.commands.clear();
                        std::mem::take(&mut self.workers)
                            .into_keys()
                            .for_each(|worker| self.models.on_ended(worker));
                    }
                    Effect::Reply { client, request: 7, result } => {
                        assert_eq!(client, CLIENT);
                        self.told.push(result);
                    }
                    Effect::Reply { request, .. } => panic!("no one asked {request}"),
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    fn begin(&mut self, what: ModelCommand) {
        self.models.begin(CLIENT, 7, what, LATER).unwrap();
        self.step();
    }

    /// A worker carries out its command, or fails.
    fn does(&mut self, worker: WorkerId, can: bool) {
        let (number, what) = self.commands.remove(&worker).expect("it has a command");
        let result = match &what {
            _ if !can => Err("no room".to_owned()),
            ModelCommand::Load(plan) => {
                assert!(!self.workers[&worker].contains_key(&plan.name), "{worker} has it");
                self.has(worker, plan);
                Ok(())
            }
            ModelCommand::Contexts { name, contexts } => {
                let models = self.workers.get_mut(&worker).unwrap();
                models.get_mut(name).expect("it has it").contexts = *contexts;
                Ok(())
            }
            ModelCommand::Unload { name } => {
                self.workers.get_mut(&worker).unwrap().remove(name).expect("it has it");
                Ok(())
            }
        };
        if result.is_ok() {
            self.report(worker);
        }
        self.models.on_command_ended(worker, number, result).unwrap();
        self.step();
    }

    fn all_do(&mut self) {
        while let Some(&worker) = self.commands.keys().next() {
            self.does(worker, true);
        }
    }

    fn dies(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        self.commands.remove(&worker);
        self.models.on_ended(worker);
        self.step();
    }

    fn models(&self, worker: WorkerId) -> Vec<(&str, u32)> {
        let models = self.workers[&worker].iter();
        models.map(|(name, info)| (name.as_str(), info.contexts)).collect()
    }
}

#[test]
fn a_model_is_loaded_by_one_worker_before_the_others() {
    let mut world = World::new(&["a"], 3);
    world.begin(load("b"));
    assert_eq!(world.commands.len(), 1, "only one worker dies of it");
    let first = *world.commands.keys().next().unwrap();
    world.does(first, true);
    assert_eq!(world.commands.len(), 2);
    assert!(world.told.is_empty());
    world.all_do();
    assert_eq!(world.told, [Ok("`b` is loaded on cpu0#2, cpu1#2, cpu2#2".to_owned())]);
    world.start(worker(0, 4));
    assert_eq!(world.models(worker(0, 4)), [("a", 1), ("b", 1)]);
}

#[test]
fn a_load_that_fails_on_one_worker_is_rolled_back_on_the_others() {
    let mut world = World::new(&["a"], 2);
    world.begin(load("b"));
    world.does(worker(0, 2), true);
    world.does(worker(1, 2), false);
    assert_eq!(world.told, [Err("`b` cannot be loaded: cpu1#2: no room".to_owned())]);
    world.all_do();
    assert_eq!(world.models(worker(0, 2)), [("a", 1)]);
    world.begin(load("b"));
    world.all_do();
    assert!(world.told[1].is_ok(), "workers that failed try again");
}

#[test]
fn a_worker_that_dies_of_a_load_ends_the_change_and_no_other_loads_it() {
    let mut world = World::new(&["a"], 2);
    world.begin(load("b"));
    world.dies(worker(0, 2));
    let told = "`b` cannot be loaded: cpu0#2: it ended before it had answered the command";
    assert_eq!(world.told, [Err(told.to_owned())]);
    world.start(worker(0, 4));
    assert!(world.commands.is_empty());
    assert_eq!(world.models(worker(0, 4)), [("a", 1)]);
}

#[test]
fn a_worker_that_is_late_with_a_load_says_which_limit_that_was() {
    let mut world = World::new(&["a"], 1);
    world.begin(load("b"));
    world.models.on_late(worker(0, 2), Duration::from_secs(600));
    world.dies(worker(0, 2));
    let told = "`b` cannot be loaded: cpu0#2: it had not answered the command after 600 s; `--deadline`, or \
                `command_timeout_s` of [limits], gives it more time";
    assert_eq!(world.told, [Err(told.to_owned())]);
}

#[test]
fn a_load_may_take_as_long_as_its_owner_lets_it_and_no_less_than_other_commands() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (own, within) in [(None, 10), (Some(60), 10), (Some(3_600), 60)] {
        let mut world = World::new(&["a"], 1);
        let mut plan = plan("b");
        plan.options.load_timeout_s = own;
        world.begin(ModelCommand::Load(plan));
        let due = Timestamp::default().after(minutes(within));
        let late = |now| world.models.late(now, minutes(10));
        assert_eq!(
            late(Timestamp::default().after(minutes(within) - Duration::from_secs(1))),
            None
        );
        assert_eq!(late(due), Some((worker(0, 2), minutes(within))));
        assert_eq!(world.models.first_due(minutes(10)).map(|(due, ..)| due), Some(due));
    }
}

#[test]
fn a_worker_that_dies_after_its_load_is_waited_for_and_loads_again() {
    let mut world = World::new(&[], 2);
    world.begin(load("b"));
    world.does(worker(0, 2), true);
    world.awaits = true;
    world.dies(worker(0, 2));
    world.does(worker(1, 2), true);
    assert!(world.told.is_empty());
    world.awaits = false;
    world.start(worker(0, 4));
    world.all_do();
    assert_eq!(world.told, [Ok("`b` is loaded on cpu0#4, cpu1#2".to_owned())]);
}

#[test]
fn an_unload_keeps_the_model_until_its_last_request_has_its_verdict_despite_deaths() {
    let mut world = World::new(&["a", "b"], 1);
    world.asked.insert("a".to_owned());
    world.begin(unload("a"));
    assert!(world.commands.is_empty() && !world.models.is_open("a"));
    world.dies(worker(0, 2));
    world.start(worker(0, 4));
    assert_eq!(world.models(worker(0, 4)), [("a", 1), ("b", 1)], "requests wait for it");
    world.asked.clear();
    world.step();
    world.all_do();
    assert_eq!(world.told, [Ok("`a` is unloaded from cpu0#4".to_owned())]);
    assert_eq!((world.models(worker(0, 4)), world.rests), (vec![("b", 1)], 0));
}

#[test]
fn an_unload_is_done_once_no_worker_has_the_model_even_one_that_is_busy_with_another() {
    let mut world = World::new(&["a", "b"], 1);
    world.asked.insert("a".to_owned());
    world.begin(unload("a"));
    world.models.unload(CLIENT, 7, "b".to_owned());
    world.step();
    assert_eq!(world.commands[&worker(0, 2)].1, unload("b"));
    world.asked.clear();
    world.step();
    assert_eq!(world.told, [], "the worker is at the other model, and has this one");
    world.all_do();
    let done = |name| Ok(format!("`{name}` is unloaded from cpu0#2"));
    assert_eq!((world.told, world.rests), (vec![done("a"), done("b")], 1));
}

#[test]
fn an_unloaded_model_does_not_come_back_with_a_worker_that_started_before() {
    let mut world = World::new(&["a", "b"], 1);
    world.dies(worker(0, 2));
    let plans = world.models.start(worker(0, 4));
    world.begin(unload("a"));
    assert_eq!(world.told, [Ok("`a` is unloaded from no worker".to_owned())]);
    world.awaits = true;
    world.begin(load("a"));
    world.is_up(worker(0, 4), &plans);
    world.awaits = false;
    let ModelCommand::Unload { name } = &world.commands[&worker(0, 4)].1 else {
        panic!("the old one")
    };
    assert_eq!(name, "a");
    world.does(worker(0, 4), true);
    assert_eq!(world.told.len(), 1);
    world.all_do();
    assert_eq!(world.told[1], Ok("`a` is loaded on cpu0#4".to_owned()));
}

#[test]
fn a_worker_that_missed_a_change_catches_up_when_it_is_idle() {
    let mut world = World::new(&["a"], 1);
    let plans = world.models.start(worker(1, 2));
    world.begin(load("b"));
    world.does(worker(0, 2), true);
    world.begin(contexts("a", 3));
    world.all_do();
    world.is_up(worker(1, 2), &plans);
    world.all_do();
    let want = [("a", 3), ("b", 1)];
    assert_eq!([world.models(worker(0, 2)), world.models(worker(1, 2))], [want, want]);
}

#[test]
fn contexts_that_one_worker_cannot_hold_are_rolled_back_on_all() {
    let mut world = World::new(&["a"], 2);
    world.begin(contexts("a", 9));
    world.does(worker(0, 2), true);
    world.does(worker(1, 2), false);
    assert_eq!(world.told, [Err("`a` cannot be given other contexts: cpu1#2: no room".to_owned())]);
    world.all_do();
    assert_eq!(world.models(worker(0, 2)), [("a", 1)]);
}

#[test]
fn a_worker_that_is_ending_gets_no_command_and_its_reports_have_no_effect() {
    let mut world = World::new(&["a"], 1);
    world.begin(unload("a"));
    world.all_do();
    assert_eq!((world.told.len(), world.rests), (1, 1));
    // It was told to stop, and is not gone yet.
    world.awaits = true;
    world.begin(load("b"));
    assert!(world.commands.is_empty());
    assert_eq!(world.models.on_reported(worker(0, 2), &mut []), []);
    assert_eq!(world.models.on_command_ended(worker(0, 2), 99, Ok(())), Ok(None));
    world.awaits = false;
    world.start(worker(0, 4));
    world.all_do();
    assert_eq!(world.told[1], Ok("`b` is loaded on cpu0#4".to_owned()));
}

#[test]
fn without_workers_the_reason_is_reported_and_the_pool_rests() {
    let mut world = World::new(&[], 0);
    world.begin(load("b"));
    assert_eq!(world.told, [Err("`b` cannot be loaded: no worker is there".to_owned())]);
    assert_eq!(world.rests, 1);
}

#[test]
fn one_change_runs_at_a_time_and_an_answer_to_an_unknown_command_is_an_error() {
    let mut world = World::new(&["a"], 1);
    world.begin(load("b"));
    let why = world.models.begin(CLIENT, 8, unload("a"), LATER).unwrap_err();
    assert_eq!(why, "`b` is being loaded; try again when that is done");
    assert!(world.models.on_command_ended(worker(0, 2), 99, Ok(())).is_err());
    world.all_do();
    for (what, why) in [
        (load("a"), "there is a version 1 of `a` already, from /m/a.onnx"),
        (contexts("a", 0), "0 contexts"),
    ] {
        assert!(world.models.begin(CLIENT, 8, what, LATER).unwrap_err().starts_with(why));
    }
}

#[test]
fn whatever_happens_workers_have_the_wanted_models_in_the_end() {
    let mut seed = 1_u64;
    let mut pick = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let mut world = World::new(&["a", "b"], 2);
        let mut generation = 2;
        let mut begun = 0;
        for _ in 0..60 {
            let name = ["a", "b", "c"][usize::try_from(pick(3)).unwrap()];
            let some = world.workers.keys().copied().nth(usize::try_from(pick(2)).unwrap());
            match pick(8) {
                0 | 1 => {
                    let what = match pick(3) {
                        0 => load(name),
                        1 => unload(name),
                        _ => contexts(name, 1 + u32::try_from(pick(4)).unwrap()),
                    };
                    begun += usize::from(world.models.begin(CLIENT, 7, what, LATER).is_ok());
                }
                2 => some.into_iter().for_each(|worker| world.dies(worker)),
                3 if world.workers.len() < 3 => {
                    generation += 2;
                    world.start(worker(0, generation));
                }
                4 => drop(world.asked.insert(name.to_owned())),
                5 => drop(world.asked.remove(name)),
                _ => {
                    let next = world.commands.keys().next().copied();
                    let can = pick(5) > 0;
                    let is_unload = next.is_some_and(|worker| {
                        matches!(world.commands[&worker].1, ModelCommand::Unload { .. })
                    });
                    if let Some(worker) = next {
                        world.does(worker, can || is_unload);
                    }
                }
            }
            world.step();
        }
        world.asked.clear();
        world.step();
        world.all_do();
        assert_eq!(world.told.len(), begun, "every change ends");
        let wanted: BTreeSet<&str> = world.models.wanted().collect();
        for (worker, models) in &world.workers {
            let own: BTreeSet<&str> = models.keys().map(String::as_str).collect();
            assert!(own.is_subset(&wanted), "{worker} has {own:?} and not {wanted:?}");
        }
    }
}
