//! Two pools over the same devices: one of workers that run programs over grids, one of workers that
//! hold models. A process has one role, so neither pool knows of the other: they share no process, no
//! job and no queue. What happens to a device or to everybody is told to both; anything else goes where
//! its job or its worker is.

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{ContentHash, DeviceId, Role, WorkerId};
use gridpool_protocol::metrics::{DeviceMetrics, RoleMetrics};
use gridpool_protocol::status::{Counters, QueueStatus, WorkerStatus};

use super::Pool;
use super::event::{Action, Event, Timestamp};
use super::meters::Faults;
use super::{Death, InHand, KillReason, Quarantine};

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
    /// What the drivers have told of devices.
    told: Faults,
}

impl Pools {
    /// Pools over the same devices; `infer` [rests](Pool::resting) if there are no models yet.
    #[must_use]
    pub fn new(grid: Pool, infer: Pool) -> Self {
        let rests = infer.is_resting();
        let mut pools = Self { grid, infer, mixed_from: None, left: 0, told: Faults::default() };
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
        self.route(now, event);
        for (role, other) in [(Role::Grid, Role::Infer), (Role::Infer, Role::Grid)] {
            for device in self.of(role).take_given_up() {
                let why = self.of(role).device(device).last_fault.clone();
                self.of(other).give_up_too(now, device, why);
            }
        }
    }

    fn route(&mut self, now: Timestamp, event: Event) {
        if let Event::DeviceFault { device, fault } = event {
            self.grid.note_driver(now, device, fault);
            self.infer.note_driver(now, device, fault);
            // What follows the end of a worker of either role is news to neither.
            if self.is_expected(now, device, fault) {
                return self.route(now, Event::TimePassed);
            }
        }
        if let Event::DeviceFault { fault, .. } = event {
            self.told.note(fault);
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
            Event::RestRequested => Role::Infer,
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
            | Event::ModelsOffered { worker, .. }
            | Event::ModelsOrdered { worker }
            | Event::ModelsSettled { worker }
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
                oldest_us: None,
            },
        )
    }

    /// See [`Pool::waits_since`].
    #[must_use]
    pub fn waits_since(&self) -> Option<Timestamp> {
        self.all().into_iter().filter_map(|(_, pool)| pool.waits_since()).min()
    }

    /// See [`Pool::in_hand`].
    #[must_use]
    pub fn in_hand(&self, worker: WorkerId) -> Option<InHand> {
        self.all().into_iter().find_map(|(_, pool)| pool.in_hand(worker))
    }

    /// Sums over all of them.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.all()
            .map(|(_, pool)| pool.counters())
            .into_iter()
            .fold(Counters::default(), Counters::plus)
    }

    /// What was counted: for each role, for each device and role, and faults.
    #[must_use]
    pub fn metrics(
        &self,
        now: Timestamp,
    ) -> (Vec<RoleMetrics>, Vec<DeviceMetrics>, Vec<(FaultCode, u64)>) {
        let all = self.all();
        let roles = all.iter().map(|(role, pool)| pool.role_metrics(now, *role)).collect();
        let of = |id| all.iter().map(move |(role, pool)| pool.device_metrics(*role, id));
        let mut faults = self.told.clone();
        all.iter().for_each(|(_, pool)| faults.add(pool.faults()));
        (roles, self.devices().flat_map(of).collect(), faults.into_rows())
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

    /// The death that the last event told of, once.
    pub fn take_death(&mut self) -> Option<Death> {
        self.grid.take_death().or_else(|| self.infer.take_death())
    }

    /// See [`Pool::lost_lately`]; and whether no other process of any role is on the device, so that
    /// what the driver says is about that one.
    #[must_use]
    pub fn lost_lately(&self, now: Timestamp, id: DeviceId) -> Option<(WorkerId, bool)> {
        let all = self.all();
        let worker = all.iter().find_map(|(_, pool)| pool.lost_lately(now, id))?;
        Some((worker, !all.iter().any(|(_, pool)| pool.has_other_process(id, worker))))
    }

    /// See [`Pool::kill_reason`].
    #[must_use]
    pub fn kill_reason(&self, worker: WorkerId) -> Option<KillReason> {
        self.all().into_iter().find_map(|(_, pool)| pool.kill_reason(worker))
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
mod tests;
