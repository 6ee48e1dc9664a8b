//! Two pools over the same devices.

use std::time::Duration;

use gridpool_protocol::ids::{ClientId, DeviceKind, JobId, JobKey};
use gridpool_protocol::message::Priority;
use gridpool_protocol::receipt::DeviceInfo;

use super::*;
use crate::pool::config::PoolConfig;
use crate::pool::event::{Exit, ExitStatus, JobRequest};

const DEVICE: DeviceId = DeviceId { kind: DeviceKind::Gpu, index: 0 };
const CLIENT: ClientId = ClientId(1);

fn worker(generation: u32) -> WorkerId {
    WorkerId { device: DEVICE, generation }
}

fn tell(pools: &mut Pools, event: Event) -> Vec<Action> {
    pools.handle(Timestamp::default(), event);
    std::iter::from_fn(|| pools.poll_action()).collect()
}

/// Both roles on one device, READY.
fn both() -> Pools {
    let pool = || Pool::new(PoolConfig::DEFAULT, &[DEVICE]);
    let mut pools = Pools::new(pool(), pool().windowed(8));
    let started = tell(&mut pools, Event::TimePassed);
    assert_eq!(started, [1, 2].map(|n| Action::Spawn { worker: worker(n) }));
    for generation in [1, 2] {
        let device = DeviceInfo {
            kind: DEVICE.kind,
            index: DEVICE.index,
            name: String::new(),
            uuid: String::new(),
            driver: String::new(),
        };
        let ready = Event::WorkerReady { worker: worker(generation), device };
        assert_eq!(tell(&mut pools, ready), []);
    }
    tell(&mut pools, Event::ClientConnected { client: CLIENT });
    pools
}

fn submitted(job: u64, role: Role) -> Event {
    let request = JobRequest {
        job: JobId(job),
        role,
        model: None,
        key: JobKey(job.into()),
        label: "p".into(),
        program_hash: "p".into(),
        items: 1,
        cost: 1,
        inline_bytes: 0,
        deadline: Duration::from_secs(30),
        priority: Priority::Normal,
        idempotent: true,
        divisible: false,
        answer_inline: true,
        content: None,
    };
    Event::JobSubmitted { client: CLIENT, request }
}

fn sent_to(actions: &[Action]) -> Option<WorkerId> {
    actions.iter().find_map(|action| {
        if let Action::Dispatch { worker, .. } = action { Some(*worker) } else { None }
    })
}

#[test]
fn a_job_goes_to_a_worker_of_its_role_and_a_death_costs_that_role_alone() {
    let mut pools = both();
    assert_eq!([1, 2, 3, 4].map(|n| pools.role(worker(n)).name()), ["grid", "infer"].repeat(2)[..]);
    assert_eq!(sent_to(&tell(&mut pools, submitted(1, Role::Infer))), Some(worker(2)));
    assert_eq!(sent_to(&tell(&mut pools, submitted(2, Role::Infer))), Some(worker(2)));
    assert_eq!(sent_to(&tell(&mut pools, submitted(3, Role::Grid))), Some(worker(1)));
    let exit = Exit { status: ExitStatus::Signal(11), fault: None, last_words: None };
    tell(&mut pools, Event::WorkerExited { worker: worker(2), exit });
    let again = tell(&mut pools, Event::WorkerReclaimed { worker: worker(2) });
    assert_eq!(again, [Action::Spawn { worker: worker(4) }], "even numbers hold models");
    let rows: Vec<_> = pools.workers().into_iter().map(|row| (row.name, row.role)).collect();
    let want = [("gpu0#1", "grid"), ("gpu0#4", "infer")];
    assert_eq!(rows, want.map(|(name, role)| (name.to_owned(), role.to_owned())));
    assert_eq!((pools.counters().accepted, pools.counters().attempts), (3, 3));
}

#[test]
fn models_that_cannot_be_served_end_no_pool_and_a_lost_device_is_lost_to_both() {
    let mut pools = both();
    let exit = Exit { status: ExitStatus::Code(73), fault: None, last_words: None };
    tell(&mut pools, Event::WorkerExited { worker: worker(2), exit });
    assert!(!pools.is_misconfigured());
    assert!(pools.is_open(DEVICE, Role::Grid) && !pools.is_open(DEVICE, Role::Infer));
    let out: Vec<_> = pools.quarantines(DEVICE).map(|(role, _)| role).collect();
    assert_eq!(out, [Role::Infer]);
    let told = tell(&mut pools, submitted(1, Role::Infer));
    assert!(told.iter().any(|action| matches!(action, Action::Finish { .. })), "{told:?}");
    let fault = FaultCode::Xid(79);
    let told = tell(&mut pools, Event::DeviceFault { device: DEVICE, fault });
    assert_eq!(told, [Action::Kill { worker: worker(1) }]);
    assert!(!pools.is_open(DEVICE, Role::Grid));
}

#[test]
fn a_key_is_one_jobs_whatever_its_role() {
    let mut pools = both();
    tell(&mut pools, submitted(1, Role::Infer));
    let Event::JobSubmitted { client, mut request } = submitted(2, Role::Grid) else {
        unreachable!("it is one")
    };
    (request.key, request.program_hash) = (JobKey(1), "q".into());
    let told = tell(&mut pools, Event::JobSubmitted { client, request });
    assert!(matches!(told[..], [Action::Refuse { .. }]), "{told:?}");
}

#[test]
fn what_follows_the_end_of_a_worker_of_one_role_ends_none_of_the_other() {
    let mut pools = both();
    let exit = Exit { status: ExitStatus::Signal(9), fault: None, last_words: None };
    tell(&mut pools, Event::WorkerExited { worker: worker(2), exit });
    let fault = FaultCode::Xid(109);
    assert_eq!(tell(&mut pools, Event::DeviceFault { device: DEVICE, fault }), []);
    let fault = FaultCode::Xid(48);
    let told = tell(&mut pools, Event::DeviceFault { device: DEVICE, fault });
    assert!(told.contains(&Action::Kill { worker: worker(1) }), "that is news: {told:?}");
}

#[test]
fn all_leave_together() {
    let mut pools = both();
    let orders = tell(&mut pools, Event::DrainRequested);
    assert_eq!(orders, [1, 2].map(|n| Action::Stop { worker: worker(n) }));
    let gone = |generation| {
        let exit = Exit { status: ExitStatus::Code(0), fault: None, last_words: None };
        Event::WorkerExited { worker: worker(generation), exit }
    };
    assert_eq!(tell(&mut pools, gone(1)), []);
    assert_eq!(tell(&mut pools, gone(2)), [Action::Leave]);
}

#[test]
fn a_device_that_is_stuck_with_a_worker_of_one_role_is_out_for_the_other() {
    let mut pools = both();
    tell(&mut pools, Event::BeaconLost { worker: worker(1), last_words: None });
    let soon = Timestamp(PoolConfig::DEFAULT.kill_timeout);
    pools.handle(soon, Event::WorkerHeard { worker: worker(2) });
    pools.handle(soon, Event::TimePassed);
    let told: Vec<_> = std::iter::from_fn(|| pools.poll_action()).collect();
    assert!(told.contains(&Action::Kill { worker: worker(2) }), "{told:?}");
    assert!(!pools.is_open(DEVICE, Role::Grid) && !pools.is_open(DEVICE, Role::Infer));
    let whys: Vec<_> = pools.quarantines(DEVICE).map(|(_, out)| out.why.to_owned()).collect();
    assert_eq!(whys, ["gpu0#1 does not die: SIGKILL had no effect in time"; 2]);
}

#[test]
fn the_first_model_may_come_late_and_the_last_may_go() {
    let pool = || Pool::new(PoolConfig::DEFAULT, &[DEVICE]);
    let mut pools = Pools::new(pool(), pool().windowed(8).resting());
    assert_eq!(tell(&mut pools, Event::TimePassed), [Action::Spawn { worker: worker(1) }]);
    assert_eq!(pools.workers().len(), 1);
    assert_eq!(tell(&mut pools, Event::WakeRequested), [Action::Spawn { worker: worker(2) }]);
    assert_eq!([1, 2].map(|n| pools.role(worker(n)).name()), ["grid", "infer"]);
    assert_eq!((pools.workers().len(), pools.awaits_model_workers()), (2, true));
    let exit = Exit { status: ExitStatus::Signal(9), fault: None, last_words: None };
    tell(&mut pools, Event::WorkerExited { worker: worker(1), exit });
    let again = tell(&mut pools, Event::WorkerReclaimed { worker: worker(1) });
    assert_eq!(again, [Action::Spawn { worker: worker(3) }], "odd numbers run grids");
    let told = tell(&mut pools, Event::RestRequested);
    assert_eq!(told, [Action::Stop { worker: worker(2) }]);
    let exit = Exit { status: ExitStatus::Code(0), fault: None, last_words: None };
    tell(&mut pools, Event::WorkerExited { worker: worker(2), exit });
    assert_eq!((pools.workers().len(), pools.has_models()), (1, false));
}

#[test]
fn a_device_that_ran_grids_twice_before_its_first_model_tells_roles_apart() {
    let pool = || Pool::new(PoolConfig::DEFAULT, &[DEVICE]);
    let mut pools = Pools::new(pool(), pool().windowed(8).resting());
    tell(&mut pools, Event::TimePassed);
    let exit = Exit { status: ExitStatus::Signal(9), fault: None, last_words: None };
    tell(&mut pools, Event::WorkerExited { worker: worker(1), exit });
    let again = tell(&mut pools, Event::WorkerReclaimed { worker: worker(1) });
    assert_eq!(again, [Action::Spawn { worker: worker(2) }]);
    assert_eq!(tell(&mut pools, Event::WakeRequested), [Action::Spawn { worker: worker(4) }]);
    assert_eq!([2, 3, 4].map(|n| pools.role(worker(n)).name()), ["grid", "grid", "infer"]);
}

#[test]
fn what_the_driver_tells_is_counted_once_for_both_roles_and_not_if_it_was_to_be_expected() {
    let mut pools = both();
    let told = |pools: &Pools| {
        let (_, _, faults) = pools.metrics(Timestamp::default());
        faults.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!(told(&pools), []);
    for fault in [FaultCode::Xid(63), FaultCode::Recovery(0), FaultCode::Nvml(999)] {
        tell(&mut pools, Event::DeviceFault { device: DEVICE, fault });
    }
    assert_eq!(told(&pools), [(FaultCode::Xid(63), 1), (FaultCode::Nvml(999), 1)]);
    let exit = Exit { status: ExitStatus::Signal(11), fault: None, last_words: None };
    tell(&mut pools, Event::WorkerExited { worker: worker(2), exit });
    tell(&mut pools, Event::DeviceFault { device: DEVICE, fault: FaultCode::Xid(43) });
    let all = told(&pools);
    assert!(all.contains(&(FaultCode::Signal(11), 1)), "{all:?}");
    assert_eq!(all.len(), 3, "{all:?}");
    let (roles, devices, _) = pools.metrics(Timestamp::default());
    assert_eq!(roles.iter().map(|row| row.role).collect::<Vec<_>>(), [Role::Grid, Role::Infer]);
    assert_eq!(devices.iter().map(|row| row.generation).collect::<Vec<_>>(), [1, 2]);
}
