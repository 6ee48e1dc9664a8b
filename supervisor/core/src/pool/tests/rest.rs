//! A pool that rests: it keeps no worker, starts none, and starts all of them when it wakes.

use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};

use super::*;

/// A pool without workers, and the workers that it starts when it wakes.
fn resting() -> Rig {
    resting_with(|_| {})
}

fn resting_with(change: impl FnOnce(&mut PoolConfig)) -> Rig {
    let mut rig = Rig::concurrent(1, 4, change);
    rig.rest();
    rig
}

/// The same, awake and READY.
fn awake_with(change: impl FnOnce(&mut PoolConfig)) -> Rig {
    let mut rig = resting_with(change);
    rig.wake();
    rig.offer(0, &["a"]);
    rig.ready(0);
    rig
}

fn load(name: &str) -> ModelCommand {
    let (name, path) = (name.to_owned(), "/m/a.onnx".into());
    ModelCommand::Load(ModelPlan { name, path, options: ModelOptions::default() })
}

fn is_unload(what: &ModelCommand) -> bool {
    matches!(what, ModelCommand::Unload { .. })
}

impl Rig {
    /// An operator asks to change the models.
    fn change(&mut self, command: ModelCommand) {
        let command = Box::new(command);
        let event = ClientEvent::ModelsChangeRequested { request: 1, command };
        self.tell(Event::Client(ClientId(9), event));
    }

    /// The commands of each worker.
    fn commands(&self) -> Vec<(u64, ModelCommand)> {
        let command = |action: &Action| {
            let Action::Command { number, command, .. } = action else { return None };
            Some((*number, (**command).clone()))
        };
        self.actions().filter_map(command).collect()
    }

    /// The device's worker has carried out its last command, and has these models now.
    fn does(&mut self, index: u32, models: &[&str]) {
        let (number, _) = *self.commands().last().expect("it has a command");
        self.offer(index, models);
        let ended = WorkerEvent::CommandEnded { number, result: Ok(()) };
        self.tell(Event::Worker(self.worker(index), ended));
    }

    /// The device's worker reports no models, and loads those of its commands.
    fn loads(&mut self, index: u32, name: &str) {
        self.offer(index, &[]);
        self.does(index, &[name]);
    }
}

fn exited(rig: &mut Rig, worker: WorkerId, status: ExitStatus) {
    let exit = Exit { status, fault: None, last_words: None, is_ordered: false };
    rig.tell(Event::Worker(worker, WorkerEvent::Exited(exit)));
}

#[test]
fn a_pool_that_rests_has_no_worker_and_takes_no_job_until_it_wakes() {
    let mut rig = resting();
    rig.is_whole = true;
    rig.wait_ms(10_000);
    assert_eq!(rig.seen, []);
    rig.ask(1, "a");
    let [Refusal::Invalid(why)] = rig.refusals()[..] else { panic!("{:?}", rig.seen) };
    assert!(why.contains("model load"), "{why}");
    rig.change(load("a"));
    assert_eq!(rig.spawns(0).len(), 1);
    rig.loads(0, "a");
    rig.ready(0);
    rig.ask(2, "a");
    assert_eq!(rig.dispatches(0).concat(), [2]);
}

#[test]
fn a_model_stays_for_its_requests_whatever_dies_and_then_the_pool_rests() {
    let mut rig = resting();
    rig.is_whole = true;
    rig.change(load("a"));
    rig.loads(0, "a");
    rig.ready(0);
    rig.ask(1, "a");
    rig.change(ModelCommand::Unload { name: "a".to_owned() });
    rig.ask(2, "a");
    assert_eq!(rig.refusals().len(), 1, "it takes nothing new");
    rig.die(0, SIGKILL);
    rig.wait_ms(50);
    assert_eq!(rig.spawns(0).len(), 2, "one that dies meanwhile is replaced");
    rig.offer(0, &["a"]);
    rig.ready(0);
    let stops = |rig: &Rig| rig.count(|action| matches!(action, Action::Stop { .. }));
    let unloads = |rig: &Rig| rig.commands().iter().filter(|(_, what)| is_unload(what)).count();
    assert_eq!((stops(&rig), unloads(&rig)), (0, 0), "it has a job");
    rig.answer(0);
    assert_eq!((rig.verdicts(1), stops(&rig), unloads(&rig)), (vec![Verdict::Ok], 0, 1));
    rig.does(0, &[]);
    assert_eq!(stops(&rig), 1, "there is nothing left to do");
}

#[test]
fn a_pool_that_rests_may_wake_while_its_workers_end() {
    let mut rig = awake_with(|_| {});
    rig.rest();
    assert_eq!(rig.count(|action| matches!(action, Action::Stop { .. })), 1);
    rig.wake();
    assert_eq!(rig.spawns(0).len(), 1, "the old process may still hold the device's memory");
    rig.die(0, ExitStatus::Code(0));
    rig.wait_ms(10);
    assert_eq!(rig.spawns(0).len(), 2);
    rig.rest();
    rig.die(0, ExitStatus::Code(0));
    rig.wait_ms(60_000);
    assert_eq!(rig.spawns(0).len(), 2, "nothing is started while it rests");
    assert_eq!(rig.core.counters().quarantines, 0);
    rig.tell(Event::DrainRequested);
    assert!(rig.actions().any(|action| matches!(action, Action::Leave { .. })));
}

#[test]
fn a_job_submitted_while_old_processes_end_waits_for_new_ones() {
    let mut rig = awake_with(|_| {});
    rig.rest();
    rig.wake();
    assert!(rig.core.pool.awaits_workers(Group::Models(0)));
    rig.ask(1, "a");
    assert!(rig.verdicts(1).is_empty(), "the next process may have `a`");
    // A pool that drains gets it too.
    rig.tell(Event::DrainRequested);
    rig.die(0, ExitStatus::Code(0));
    assert_eq!(rig.spawns(0).len(), 2);
    rig.offer(0, &["a"]);
    rig.ready(0);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
}

#[test]
fn a_rest_frees_no_memory_that_is_held_and_forgives_no_backoff() {
    let mut rig = awake_with(|config| config.reclaim_timeout = Duration::from_secs(1));
    let worker = rig.worker(0);
    rig.rest();
    exited(&mut rig, worker, ExitStatus::Code(0));
    rig.wake();
    assert_eq!(rig.spawns(0).len(), 1, "its memory is not back");
    rig.wait_ms(1_000);
    assert_eq!(rig.spawns(0).len(), 2);
    let mut rig = awake_with(|config| config.backoff_min = Duration::from_secs(1));
    rig.die_and_return(0, SIGSEGV);
    rig.die(0, SIGSEGV);
    rig.rest();
    rig.wait_ms(100);
    rig.wake();
    assert_eq!(rig.spawns(0).len(), 2, "the backoff is not over");
    rig.wait_ms(900);
    assert_eq!(rig.spawns(0).len(), 3);
}

#[test]
fn a_cancelled_probe_is_repeated_when_the_pool_wakes() {
    let mut rig = awake_with(|config| config.restart_limit = 1);
    rig.die(0, SIGSEGV);
    rig.wait(Duration::from_secs(60));
    assert_eq!(rig.state(0), WorkerState::Starting, "it is tried");
    let worker = rig.worker(0);
    rig.rest();
    rig.wait_ms(2_000);
    assert_eq!(rig.spawns(0).len(), 2, "nothing is tried while it rests");
    rig.exit(worker, ExitStatus::Code(0));
    rig.wait_ms(2_000);
    assert_eq!(rig.spawns(0).len(), 2);
    rig.wake();
    assert_eq!((rig.spawns(0).len(), rig.state(0)), (3, WorkerState::Starting));
    rig.ready(0);
    assert_eq!(rig.core.counters().quarantines, 1, "the rest was no fault of the device");
    assert_eq!(rig.state(0), WorkerState::Ready);
}

#[test]
fn a_device_quarantined_for_a_resting_role_is_released_and_probed_when_the_pool_wakes() {
    let mut rig = awake_with(|config| config.restart_limit = 1);
    rig.die(0, SIGSEGV);
    rig.rest();
    rig.tell(released(Release::Device(device(0))));
    rig.wake();
    assert_eq!((rig.spawns(0).len(), rig.state(0)), (2, WorkerState::Starting));
}

#[test]
fn a_drain_or_a_stop_of_a_pool_that_rests_starts_no_worker_and_leaves() {
    for order in [Event::DrainRequested, Event::StopRequested] {
        let mut rig = resting();
        rig.tell(order);
        assert!(
            rig.actions().all(|action| matches!(action, Action::Leave { .. })),
            "{:?}",
            rig.seen
        );
        assert_eq!(rig.seen.len(), 1);
    }
}

#[test]
fn a_process_killed_because_the_pool_rests_is_no_evidence_against_its_device() {
    let mut rig = resting();
    rig.wake();
    let worker = rig.worker(0);
    rig.rest();
    rig.wait(PoolConfig::DEFAULT.kill_timeout);
    assert_eq!(rig.kills(), 1);
    rig.exit(worker, ExitStatus::Code(73));
    assert_eq!((rig.core.counters().quarantines, rig.core.pool.is_misconfigured), (0, false));
    rig.wake();
    assert_eq!((rig.spawns(0).len(), rig.core.counters().restarts), (2, 0));
}
