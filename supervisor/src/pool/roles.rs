//! Two pools over the same devices: one of workers that run programs over grids, one of workers that
//! hold models. A process has one role, so neither pool knows of the other: they share no process, no
//! job and no queue. What happens to a device or to everybody is told to both; anything else goes where
//! its job or its worker is.

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{ContentHash, DeviceId, Role, WorkerId};
use gridpool_protocol::status::{Counters, QueueStatus, WorkerStatus};

use super::Pool;
use super::Quarantine;
use super::event::{Action, Event, Timestamp};

/// Numbers of processes of two pools over one device: one odd, one even.
const STEP: u32 = 2;

/// All pools of a supervisor. To be called as [`Pool`] is.
#[derive(Debug)]
pub struct Pools {
    grid: Pool,
    infer: Pool,
    /// From this number on, even ones are of processes that hold models; before there were any, all
    /// numbers were of processes that run grids.
    mixed_from: Option<u32>,
    /// Pools that have ordered to leave.
    left: usize,
}

impl Pools {
    /// Pools over the same devices; `infer` [rests](Pool::resting) if there are no models yet.
    #[must_use]
    pub fn new(grid: Pool, infer: Pool) -> Self {
        let rests = infer.is_resting();
        let mut pools = Self { grid, infer, mixed_from: None, left: 0 };
        if !rests {
            pools.mix();
        }
        pools
    }

    /// From now on processes of both roles are numbered.
    fn mix(&mut self) {
        if self.mixed_from.is_none() {
            let latest = self.grid.latest_generation();
            let even = (latest + 1).next_multiple_of(STEP);
            let odd = latest.next_multiple_of(STEP) + 1;
            self.grid.number(odd, STEP);
            self.infer.number(even, STEP);
            self.mixed_from = Some(even);
        }
    }

    /// The role of a process.
    #[must_use]
    pub fn role(&self, worker: WorkerId) -> Role {
        let number = worker.generation;
        match self.mixed_from.is_some_and(|from| number >= from && number.is_multiple_of(STEP)) {
            true => Role::Infer,
            false => Role::Grid,
        }
    }

    /// Whether there are workers that hold models, or are to be.
    #[must_use]
    pub fn has_models(&self) -> bool {
        !self.infer.is_resting()
    }

    /// Whether a process that holds models is there, or about to be.
    #[must_use]
    pub fn has_model_workers(&self) -> bool {
        self.infer.has_processes()
    }

    /// Devices that serve models or may soon, and have no process that is READY.
    #[must_use]
    pub fn awaits_model_workers(&self) -> bool {
        self.infer.awaits_workers()
    }

    fn all(&self) -> [(Role, &Pool); 2] {
        [(Role::Grid, &self.grid), (Role::Infer, &self.infer)]
    }

    /// Those that have something to do.
    fn busy(&self) -> impl Iterator<Item = (Role, &Pool)> {
        self.all().into_iter().filter(|(_, pool)| !pool.is_resting() || pool.has_processes())
    }

    fn of(&mut self, role: Role) -> &mut Pool {
        match role {
            Role::Grid => &mut self.grid,
            Role::Infer => &mut self.infer,
        }
    }

    /// See [`Pool::handle`].
    pub fn handle(&mut self, now: Timestamp, event: Event) {
        // What follows the end of a worker of either role is news to neither.
        if let Event::DeviceFault { device, fault } = event
            && self.is_expected(now, device, fault)
        {
            return self.handle(now, Event::TimePassed);
        }
        let role = match &event {
            Event::CancelRequested { .. }
            | Event::ClientConnected { .. }
            | Event::ClientGone { .. }
            | Event::ContentHashed { .. }
            | Event::DeviceFault { .. }
            | Event::DrainRequested
            | Event::ReleaseRequested { .. }
            | Event::StopRequested
            | Event::TimePassed => {
                self.infer.handle(now, event.clone());
                return self.grid.handle(now, event);
            }
            Event::ModelsOffered { .. } | Event::RestRequested => Role::Infer,
            Event::WakeRequested => {
                self.mix();
                Role::Infer
            }
            // A key is one job's, whatever its role: who knows it says so.
            Event::JobSubmitted { request, .. } => {
                let knows = self.all().into_iter().find(|(_, pool)| pool.knows(request.key));
                knows.map_or(request.role, |(role, _)| role)
            }
            Event::BeaconLost { worker, .. }
            | Event::SpawnFailed { worker, .. }
            | Event::WorkerAnswered { worker, .. }
            | Event::WorkerExited { worker, .. }
            | Event::WorkerHeard { worker }
            | Event::WorkerReady { worker, .. }
            | Event::WorkerReclaimed { worker } => self.role(*worker),
        };
        self.of(role).handle(now, event);
    }

    /// See [`Pool::poll_action`]. `Leave` comes once, when all have left.
    pub fn poll_action(&mut self) -> Option<Action> {
        loop {
            match self.grid.poll_action().or_else(|| self.infer.poll_action())? {
                Action::Leave => {
                    self.left += 1;
                    if self.left == self.all().len() {
                        return Some(Action::Leave);
                    }
                }
                action @ (Action::Accept { .. }
                | Action::Discard { .. }
                | Action::Dispatch { .. }
                | Action::Finish { .. }
                | Action::HashContent { .. }
                | Action::Kill { .. }
                | Action::Refuse { .. }
                | Action::Replay { .. }
                | Action::Spawn { .. }
                | Action::Stop { .. }
                | Action::Withdraw { .. }) => return Some(action),
            }
        }
    }

    /// See [`Pool::poll_deadline`].
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Timestamp> {
        self.all().into_iter().filter_map(|(_, pool)| pool.poll_deadline()).min()
    }

    /// See [`Pool::workers`]; device by device, grids before models.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let named = |(role, pool): (Role, &Pool)| {
            let mut rows = pool.workers();
            rows.iter_mut().for_each(|row| role.name().clone_into(&mut row.role));
            rows
        };
        let mut rows: Vec<_> = self.busy().flat_map(named).collect();
        let order: Vec<_> = self.devices().map(|id| (id.kind, id.index)).collect();
        let place = |row: &WorkerStatus| {
            order.iter().position(|&id| id == (row.device.kind, row.device.index))
        };
        rows.sort_by_key(place);
        rows
    }

    /// See [`Pool::worker_on`]: the one that runs grids, if there is one.
    #[must_use]
    pub fn worker_on(&self, device: DeviceId) -> Option<WorkerId> {
        self.all().into_iter().find_map(|(_, pool)| pool.worker_on(device))
    }

    /// What waits in all queues.
    #[must_use]
    pub fn queue(&self) -> QueueStatus {
        self.all().map(|(_, pool)| pool.queue()).into_iter().fold(
            QueueStatus::default(),
            |sum, queue| QueueStatus {
                jobs: sum.jobs + queue.jobs,
                jobs_high: sum.jobs_high + queue.jobs_high,
                bytes: sum.bytes + queue.bytes,
                bytes_high: sum.bytes_high + queue.bytes_high,
            },
        )
    }

    /// Sums over all of them.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.all()
            .map(|(_, pool)| pool.counters())
            .into_iter()
            .fold(Counters::default(), Counters::plus)
    }

    /// See [`Pool::quarantine_count`].
    #[must_use]
    pub fn quarantine_count(&self) -> u64 {
        self.all().map(|(_, pool)| pool.quarantine_count()).into_iter().sum()
    }

    /// Whether grids can never be served. What is wrong with models alone ends no pool.
    #[must_use]
    pub fn is_misconfigured(&self) -> bool {
        self.grid.is_misconfigured()
    }

    /// See [`Pool::misconfigured`].
    #[must_use]
    pub fn misconfigured(&self) -> Option<Vec<String>> {
        self.grid.misconfigured()
    }

    /// Whether they have stopped accepting.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.grid.is_draining()
    }

    /// All devices.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.grid.devices()
    }

    /// Why a device is out of service for a role and when it is tried again, if it is.
    pub fn quarantines(&self, id: DeviceId) -> impl Iterator<Item = (Role, Quarantine<'_>)> {
        self.busy().filter_map(move |(role, pool)| Some((role, pool.quarantine(id)?)))
    }

    /// Whether a device is out of service for any role; `None` if there is no such device.
    #[must_use]
    pub fn is_quarantined(&self, id: DeviceId) -> Option<bool> {
        let grid = self.grid.is_quarantined(id)?;
        Some(grid || self.busy().any(|(_, pool)| pool.is_quarantined(id) == Some(true)))
    }

    /// Whether a device serves a role, or may.
    #[must_use]
    pub fn is_open(&self, id: DeviceId, role: Role) -> bool {
        let mut own = self.busy().filter(|&(other, _)| other == role);
        own.any(|(_, pool)| pool.is_quarantined(id) == Some(false))
    }

    /// See [`Pool::is_convicted`].
    #[must_use]
    pub fn is_convicted(&self, content: ContentHash) -> bool {
        self.all().iter().any(|(_, pool)| pool.is_convicted(content))
    }

    /// See [`Pool::looks_convicted`].
    #[must_use]
    pub fn looks_convicted(&self, program_hash: &str, items: u32) -> bool {
        self.all().iter().any(|(_, pool)| pool.looks_convicted(program_hash, items))
    }

    /// Every content that is refused.
    pub fn convicts(&self) -> impl Iterator<Item = ContentHash> {
        self.all().into_iter().flat_map(|(_, pool)| pool.convicts())
    }

    /// See [`Pool::is_expected`].
    #[must_use]
    pub fn is_expected(&self, now: Timestamp, id: DeviceId, fault: FaultCode) -> bool {
        self.all().iter().any(|(_, pool)| pool.is_expected(now, id, fault))
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            [1, 2, 3, 4].map(|n| pools.role(worker(n)).name()),
            ["grid", "infer"].repeat(2)[..]
        );
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
}
