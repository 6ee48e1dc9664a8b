//! Several groups on one device: what belongs to one group, to the device, and to all groups.

mod again;

use std::path::Path;

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::Role;
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use gridpool_protocol::tensor::pipeline::{Pipeline, Step, StepBody, StepModel};

use super::*;

const DEVICE: DeviceId = DeviceId { kind: DeviceKind::Gpu, index: 0 };
const CLIENT: ClientId = ClientId(1);

fn grid(generation: u32) -> WorkerId {
    WorkerId { device: DEVICE, group: Group::Grid, generation }
}

fn infer(generation: u32) -> WorkerId {
    WorkerId { device: DEVICE, group: Group::Models(0), generation }
}

fn plan(name: &str) -> ModelPlan {
    let path = format!("/m/{name}.onnx").into();
    ModelPlan { name: name.to_owned(), path, options: ModelOptions::default() }
}

fn ready(name: &str) -> ModelInfo {
    let mut info = ModelInfo::unavailable(name, String::new());
    (info.state, info.contexts) = (ModelState::Ready, 1);
    info
}

/// Actions without notes and reports.
fn tell_at(core: &mut Core, now: Timestamp, event: Event) -> Vec<Action> {
    core.handle(now, event);
    let is_told = |action: &Action| matches!(action, Action::Note(_) | Action::DeathReport(_));
    std::iter::from_fn(|| core.poll_action()).filter(|action| !is_told(action)).collect()
}

fn tell(core: &mut Core, event: Event) -> Vec<Action> {
    tell_at(core, Timestamp::default(), event)
}

fn worker(worker: WorkerId, event: WorkerEvent) -> Event {
    Event::Worker(worker, event)
}

fn exited(dead: WorkerId, status: ExitStatus) -> Event {
    worker(
        dead,
        WorkerEvent::Exited(Exit { status, fault: None, last_words: None, is_ordered: false }),
    )
}

fn spawned(actions: &[Action]) -> Vec<WorkerId> {
    let of = |action: &Action| {
        let Action::Spawn { worker, .. } = action else { return None };
        Some(*worker)
    };
    actions.iter().filter_map(of).collect()
}

fn killed(actions: &[Action]) -> Vec<WorkerId> {
    let of = |action: &Action| {
        let Action::Kill { worker, .. } = action else { return None };
        Some(*worker)
    };
    actions.iter().filter_map(of).collect()
}

fn sent_to(actions: &[Action]) -> Option<WorkerId> {
    actions.iter().find_map(|action| {
        if let Action::Dispatch { worker, .. } = action { Some(*worker) } else { None }
    })
}

fn core(models: &[&str]) -> Core {
    let models: Vec<_> = models.iter().map(|name| plan(name)).collect();
    let policy = PolicyTable::default();
    Core::new(PoolConfig::DEFAULT, policy, &[DEVICE], &models, HelperLimits::of)
}

/// Both roles on one device, READY, with the model `m`.
fn both() -> Core {
    let mut core = core(&["m"]);
    let started = tell(&mut core, Event::TimePassed);
    assert_eq!(spawned(&started), [grid(1), infer(2)], "one number for each process of the device");
    let Action::Spawn { models, .. } = &started[1] else { panic!("{started:?}") };
    assert_eq!(models[..], [plan("m")]);
    let offer = WorkerEvent::ModelsReported(vec![ready("m")]);
    assert_eq!(tell(&mut core, worker(infer(2), offer)), []);
    for own in [grid(1), infer(2)] {
        assert_eq!(tell(&mut core, worker(own, WorkerEvent::Ready(info(0)))), []);
    }
    core
}

fn submitted(job: u64, work: Work) -> Event {
    let request = JobRequest {
        job: JobId(job),
        work,
        principal: Principal::Uid(0),
        key: JobKey(job.into()),
        fingerprint: 0,
        label: "p".into(),
        jobs: 1,
        items: 1,
        cost: 1,
        inline_bytes: 0,
        bytes: 0,
        deadline: Duration::from_secs(30),
        priority: Priority::Normal,
        idempotent: true,
        divisible: false,
        answer_inline: true,
        trace: None,
        content: None,
    };
    Event::Client(CLIENT, ClientEvent::Submitted(Box::new(request)))
}

fn load(name: &str) -> Event {
    let command = Box::new(ModelCommand::Load(plan(name)));
    Event::Client(CLIENT, ClientEvent::ModelsChangeRequested { request: 7, command })
}

/// Whether no group of models has work.
fn rests(core: &Core) -> bool {
    !core.groups().any(|(group, _, works)| works && group != Group::Grid)
}

/// The groups for which the device is out of service.
fn out(core: &Core) -> Vec<Group> {
    core.quarantines().map(|out| out.group).collect()
}

#[test]
fn a_job_goes_to_a_worker_of_its_role_and_a_death_costs_only_that_role() {
    let mut core = both();
    assert_eq!(sent_to(&tell(&mut core, submitted(1, model("m")))), Some(infer(2)));
    assert_eq!(sent_to(&tell(&mut core, submitted(2, model("m")))), Some(infer(2)));
    assert_eq!(sent_to(&tell(&mut core, submitted(3, program("p")))), Some(grid(1)));
    tell(&mut core, exited(infer(2), SIGSEGV));
    let again = tell(&mut core, worker(infer(2), WorkerEvent::Reclaimed));
    assert_eq!(spawned(&again), [infer(3)]);
    let rows: Vec<_> =
        core.workers().into_iter().map(|(own, row)| (own, row.name, row.role)).collect();
    let row = |own: WorkerId, name: &str| {
        (Some(own), name.to_owned(), own.group.role().name().to_owned())
    };
    assert_eq!(rows, [row(grid(1), "gpu0#1"), row(infer(3), "gpu0#3")]);
    assert_eq!((core.counters().accepted, core.counters().attempts), (3, 3));
}

#[test]
fn a_role_without_devices_is_no_misconfigured_pool_and_a_lost_device_is_lost_to_both() {
    let mut core = both();
    let told = tell(&mut core, exited(infer(2), ExitStatus::Code(73)));
    assert!(!told.iter().any(|action| matches!(action, Action::Misconfigured { .. })));
    assert_eq!(out(&core), [Group::Models(0)]);
    let told = tell(&mut core, submitted(1, model("m")));
    assert!(told.iter().any(|action| matches!(action, Action::Finish { .. })), "{told:?}");
    let fault = FaultCode::Xid(79);
    let told = tell(&mut core, Event::DeviceFault { device: DEVICE, fault });
    assert_eq!(killed(&told), [grid(1)]);
    assert_eq!(out(&core), [Group::Grid, Group::Models(0)]);
}

#[test]
fn a_key_is_one_jobs_whatever_its_role() {
    let mut core = both();
    tell(&mut core, submitted(1, model("m")));
    let Event::Client(client, ClientEvent::Submitted(mut request)) = submitted(2, program("q"))
    else {
        unreachable!("it is one")
    };
    (request.key, request.fingerprint) = (JobKey(1), 1);
    let told = tell(&mut core, Event::Client(client, ClientEvent::Submitted(request)));
    assert!(matches!(told[..], [Action::Refuse { .. }]), "{told:?}");
}

#[test]
fn driver_reports_after_the_end_of_a_worker_of_one_role_kill_none_of_the_other() {
    let mut core = both();
    tell(&mut core, exited(infer(2), SIGKILL));
    let fault = FaultCode::Xid(109);
    assert_eq!(tell(&mut core, Event::DeviceFault { device: DEVICE, fault }), []);
    let fault = FaultCode::Xid(48);
    let told = tell(&mut core, Event::DeviceFault { device: DEVICE, fault });
    assert_eq!(killed(&told), [grid(1)], "that is news: {told:?}");
}

#[test]
fn all_roles_leave_together() {
    let mut core = both();
    let orders = tell(&mut core, Event::DrainRequested);
    assert_eq!(orders, [grid(1), infer(2)].map(|worker| Action::Stop { worker }));
    assert_eq!(tell(&mut core, exited(grid(1), ExitStatus::Code(0))), []);
    let last = tell(&mut core, exited(infer(2), ExitStatus::Code(0)));
    assert_eq!(last, [Action::Leave { verdicts: Vec::new() }]);
}

#[test]
fn a_pool_that_leaves_counts_the_verdicts_of_its_last_jobs() {
    let mut core = both();
    tell(&mut core, submitted(1, program("p")));
    let attempt = AttemptId { job: JobId(1), number: 1 };
    let answer = WorkerEvent::Answered { attempt, result: Ok(report()) };
    tell(&mut core, worker(grid(1), answer));
    tell(&mut core, submitted(2, program("p")));
    tell(&mut core, Event::DrainRequested);
    tell(&mut core, Event::StopRequested);
    tell(&mut core, exited(grid(1), SIGKILL));
    let last = tell(&mut core, exited(infer(2), SIGKILL));
    assert_eq!(last, [Action::Leave { verdicts: vec![(Verdict::Cancelled, 1)] }]);
}

#[test]
fn a_device_that_is_stuck_with_a_worker_of_one_role_is_out_for_the_other() {
    let mut core = both();
    tell(&mut core, worker(grid(1), WorkerEvent::BeaconLost { last_words: None }));
    let soon = Timestamp(PoolConfig::DEFAULT.kill_timeout);
    let told = tell_at(&mut core, soon, worker(infer(2), WorkerEvent::Heard));
    assert_eq!(killed(&told), [infer(2)]);
    assert_eq!(out(&core), [Group::Grid, Group::Models(0)]);
    let whys: Vec<_> = core.quarantines().map(|out| out.why.to_owned()).collect();
    assert_eq!(whys, ["gpu0#1 does not die: SIGKILL had no effect in time"; 2]);
}

#[test]
fn the_first_model_may_come_late_and_the_last_may_go() {
    let mut core = core(&[]);
    assert_eq!(spawned(&tell(&mut core, Event::TimePassed)), [grid(1)]);
    assert_eq!((core.workers().len(), rests(&core)), (1, true));
    assert_eq!(spawned(&tell(&mut core, load("m"))), [infer(2)]);
    assert_eq!(core.workers().len(), 2);
    tell(&mut core, exited(grid(1), SIGKILL));
    let again = tell(&mut core, worker(grid(1), WorkerEvent::Reclaimed));
    assert_eq!(spawned(&again), [grid(3)], "one number after the other, whatever the role");
    let told = tell(&mut core, worker(infer(2), WorkerEvent::ModelsReported(Vec::new())));
    let [Action::Command { number, .. }] = told[..] else { panic!("{told:?}") };
    assert_eq!(tell(&mut core, worker(infer(2), WorkerEvent::Ready(info(0)))), []);
    let result = Err("no room".to_owned());
    let told = tell(&mut core, worker(infer(2), WorkerEvent::CommandEnded { number, result }));
    let stop = Action::Stop { worker: infer(2) };
    assert!(matches!(&told[..], [Action::Reply { result: Err(_), .. }, last] if *last == stop));
    tell(&mut core, exited(infer(2), ExitStatus::Code(0)));
    assert_eq!((core.workers().len(), rests(&core)), (1, true));
}

#[test]
fn a_device_fault_is_counted_once_for_both_roles_and_not_if_it_was_expected() {
    let mut core = both();
    let told = |core: &Core| {
        let (_, _, faults) = core.metrics(Timestamp::default());
        faults.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!(told(&core), []);
    for fault in [FaultCode::Xid(63), FaultCode::Recovery(0), FaultCode::Nvml(999)] {
        tell(&mut core, Event::DeviceFault { device: DEVICE, fault });
    }
    assert_eq!(told(&core), [(FaultCode::Xid(63), 1), (FaultCode::Nvml(999), 1)]);
    tell(&mut core, exited(infer(2), SIGSEGV));
    tell(&mut core, Event::DeviceFault { device: DEVICE, fault: FaultCode::Xid(43) });
    let all = told(&core);
    assert!(all.contains(&(FaultCode::Signal(11), 1)), "{all:?}");
    assert_eq!(all.len(), 3, "{all:?}");
    let (roles, devices, _) = core.metrics(Timestamp::default());
    assert_eq!(roles.iter().map(|row| row.role).collect::<Vec<_>>(), Role::ALL);
    assert_eq!(devices.iter().map(|row| row.generation).collect::<Vec<_>>(), [1, 2]);
}

fn of(group: u16, generation: u32) -> WorkerId {
    WorkerId { device: DEVICE, group: Group::Models(group), generation }
}

/// A worker starts, has these models and is READY.
fn comes_up(core: &mut Core, own: WorkerId, models: &[&str]) -> Vec<Action> {
    let models = models.iter().map(|name| ready(name)).collect();
    let mut told = tell(core, worker(own, WorkerEvent::ModelsReported(models)));
    told.extend(tell(core, worker(own, WorkerEvent::Ready(info(0)))));
    told
}

fn shared(name: &str) -> ModelPlan {
    let options = ModelOptions { group: Some("g".to_owned()), ..ModelOptions::default() };
    ModelPlan { options, ..plan(name) }
}

fn change(request: u64, command: ModelCommand) -> Event {
    let command = Box::new(command);
    Event::Client(CLIENT, ClientEvent::ModelsChangeRequested { request, command })
}

fn replied(actions: &[Action]) -> Vec<(u64, bool)> {
    let of = |action: &Action| {
        let Action::Reply { request, result, .. } = action else { return None };
        Some((*request, result.is_ok()))
    };
    actions.iter().filter_map(of).collect()
}

fn commanded(actions: &[Action]) -> Vec<(WorkerId, u64)> {
    let of = |action: &Action| {
        let Action::Command { worker, number, .. } = action else { return None };
        Some((*worker, *number))
    };
    actions.iter().filter_map(of).collect()
}

#[test]
fn each_model_has_a_worker_of_its_own_and_the_death_of_one_costs_the_other_nothing() {
    let mut core = core(&["a", "b"]);
    let started = tell(&mut core, Event::TimePassed);
    assert_eq!(spawned(&started), [grid(1), of(0, 2), of(1, 3)]);
    comes_up(&mut core, of(0, 2), &["a"]);
    comes_up(&mut core, of(1, 3), &["b"]);
    assert_eq!(sent_to(&tell(&mut core, submitted(1, model("a")))), Some(of(0, 2)));
    assert_eq!(sent_to(&tell(&mut core, submitted(2, model("b")))), Some(of(1, 3)));
    let told = tell(&mut core, exited(of(0, 2), SIGSEGV));
    assert_eq!(killed(&told), []);
    // It waits for its own worker, and those of the other go on.
    assert_eq!(sent_to(&tell(&mut core, submitted(3, model("a")))), None);
    assert_eq!(sent_to(&tell(&mut core, submitted(4, model("b")))), Some(of(1, 3)));
    assert_eq!(spawned(&tell(&mut core, worker(of(0, 2), WorkerEvent::Reclaimed))), [of(0, 4)]);
    assert_eq!(sent_to(&comes_up(&mut core, of(0, 4), &["a"])), Some(of(0, 4)));
}

#[test]
fn models_of_one_group_share_a_worker() {
    let policy = PolicyTable::default();
    let models = [shared("a"), shared("b"), plan("c")];
    let mut core = Core::new(PoolConfig::DEFAULT, policy, &[DEVICE], &models, HelperLimits::of);
    let started = tell(&mut core, Event::TimePassed);
    let given: Vec<_> = started
        .iter()
        .filter_map(|action| {
            let Action::Spawn { worker, models } = action else { return None };
            Some((*worker, models.len()))
        })
        .collect();
    assert_eq!(given, [(grid(1), 0), (of(0, 2), 1), (of(1, 3), 2)]);
    let names: Vec<_> = core.groups().map(|(_, name, _)| name.to_owned()).collect();
    assert_eq!(names, ["grid", "c", "g"]);
}

#[test]
fn groups_change_side_by_side_and_a_group_one_at_a_time() {
    let mut core = core(&[]);
    tell(&mut core, Event::TimePassed);
    assert_eq!(spawned(&tell(&mut core, change(1, ModelCommand::Load(plan("a"))))), [of(0, 2)]);
    // Being loaded, whatever group it is to have now.
    assert_eq!(replied(&tell(&mut core, change(3, ModelCommand::Load(shared("a"))))), [(3, false)]);
    assert_eq!(spawned(&tell(&mut core, change(2, ModelCommand::Load(shared("b"))))), [of(1, 3)]);
    for refused in [plan("a"), shared("b"), shared("c")] {
        assert_eq!(replied(&tell(&mut core, change(3, ModelCommand::Load(refused)))), [(3, false)]);
    }
    let first = commanded(&comes_up(&mut core, of(0, 2), &[]));
    let second = commanded(&comes_up(&mut core, of(1, 3), &[]));
    for ((own, number), (request, name)) in
        first.into_iter().chain(second).zip([(1, "a"), (2, "b")])
    {
        let told = tell(&mut core, worker(own, WorkerEvent::ModelsReported(vec![ready(name)])));
        assert_eq!(told, []);
        let done = WorkerEvent::CommandEnded { number, result: Ok(()) };
        assert_eq!(replied(&tell(&mut core, worker(own, done))), [(request, true)]);
    }
    for (command, why) in [
        (ModelCommand::Unload { name: "x".to_owned() }, "there is no model `x`; there is a, b"),
        (ModelCommand::Load(plan("a:1")), "there is a version 1 of `a` already"),
        (
            ModelCommand::Unload { name: "a:2".to_owned() },
            "there is no version of `a` as in `a:2`; there is 1",
        ),
        (ModelCommand::Load(ModelPlan { path: "m".into(), ..plan("d") }), "not an absolute path"),
        (ModelCommand::Load(plan("grid")), "`grid` cannot be the name of a group"),
        (ModelCommand::Load(plan("g")), "`g` is the group that the model `b` has chosen"),
    ] {
        let told = tell(&mut core, change(4, command));
        let [Action::Reply { result: Err(Refusal::Invalid(said)), .. }] = &told[..] else {
            panic!("{told:?}")
        };
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_pipeline_gets_the_files_of_the_models_that_its_steps_name() {
    let steps = |model: &str| {
        let wires = |to: &str, from: &str| [(to.to_owned(), from.to_owned())].into();
        let model = StepModel { model: model.to_owned(), ..StepModel::default() };
        let (name, inputs) = ("s".to_owned(), wires("x", "x"));
        let step = Step { name, body: StepBody::Model(model), inputs };
        let pipeline =
            Pipeline { inputs: vec!["x".into()], steps: vec![step], outputs: wires("y", "s.y") };
        let options =
            ModelOptions { pipeline: Some(Box::new(pipeline)), ..ModelOptions::default() };
        change(1, ModelCommand::Load(ModelPlan { options, ..plan("line") }))
    };
    let mut core = core(&["detect"]);
    tell(&mut core, Event::TimePassed);
    let told = tell(&mut core, steps("detct"));
    let [Action::Reply { result: Err(Refusal::Invalid(why)), .. }] = &told[..] else {
        panic!("{told:?}")
    };
    let want = "pipeline `line`: its step `s` runs the model `detct`, and there is no such model; close to it: detect";
    assert!(why.starts_with(want), "{why}");
    let own = spawned(&tell(&mut core, steps("detect")))[0];
    let told = comes_up(&mut core, own, &[]);
    let loads = told.iter().find_map(|action| {
        let Action::Command { command, .. } = action else { return None };
        let ModelCommand::Load(plan) = &**command else { return None };
        plan.options.pipeline.clone()
    });
    let steps = loads.expect("it is to load").steps;
    assert_eq!(steps[0].model().expect("a model").path, Path::new("/m/detect.onnx"));
}

#[test]
fn a_group_without_models_gives_its_place_to_the_next_once_its_worker_is_gone() {
    let mut core = core(&["a"]);
    tell(&mut core, Event::TimePassed);
    comes_up(&mut core, of(0, 2), &["a"]);
    let unload = ModelCommand::Unload { name: "a".to_owned() };
    let [(own, number)] = commanded(&tell(&mut core, change(1, unload)))[..] else { panic!() };
    tell(&mut core, worker(own, WorkerEvent::ModelsReported(Vec::new())));
    tell(&mut core, worker(own, WorkerEvent::CommandEnded { number, result: Ok(()) }));
    // Its worker has not ended yet.
    assert_eq!(spawned(&tell(&mut core, change(2, ModelCommand::Load(plan("b"))))), [of(1, 3)]);
    tell(&mut core, exited(of(0, 2), ExitStatus::Code(0)));
    tell(&mut core, worker(of(0, 2), WorkerEvent::Reclaimed));
    assert_eq!(spawned(&tell(&mut core, change(3, ModelCommand::Load(plan("c"))))), [of(0, 4)]);
    assert_eq!(core.group_name(Group::Models(0)), "c");
}

#[test]
fn a_fault_of_the_device_is_one_for_later_groups_too() {
    let mut core = core(&[]);
    tell(&mut core, Event::TimePassed);
    let fault = FaultCode::Xid(79);
    tell(&mut core, Event::DeviceFault { device: DEVICE, fault });
    let told = tell(&mut core, change(1, ModelCommand::Load(plan("a"))));
    assert_eq!((spawned(&told), replied(&told)), (vec![], vec![(1, false)]));
    assert_eq!(out(&core), [Group::Grid]);
}
