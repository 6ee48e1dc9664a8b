//! The status of the pool: the core's view, with what the shell adds about processes and jobs.

use std::sync::atomic::Ordering;

use gridpool_ipc::account::Account;
use gridpool_protocol::ids::{DeviceId, Role, WorkerId};
use gridpool_protocol::message::{JobSelector, JobView};
use gridpool_protocol::metrics::{Metrics, News};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::status::{
    QuarantineStatus, RUN_TEXT_MAX, RunStatus, Status, SupervisorStatus, WorkerStatus,
};

use super::capsules::Capsules;
use super::core::Core;
use super::processes::Usage;
use super::{Shared, Shell};
use crate::job_log::JobLog;
use gridpool_core::Quarantine;
use gridpool_core::event::{Helper, Timestamp};

impl Shell {
    /// The workers of these roles now, on devices that the pool before this one does not have.
    #[must_use]
    pub fn workers(&self, roles: &[Role]) -> Vec<WorkerStatus> {
        let core = self.shared.lock();
        let is_wanted = |row: &WorkerStatus| {
            let device = DeviceId { kind: row.device.kind, index: row.device.index };
            roles.iter().any(|role| role.name() == row.role) && !core.pool.is_held(device)
        };
        core.pool.workers().into_iter().map(|(_, row)| row).filter(is_wanted).collect()
    }
}

/// Who asks for the status, and whose programs and models it shows to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Viewer {
    /// An operator, or the process itself.
    All,
    /// Anybody else sees what they run themselves.
    Own(Principal),
}

impl Viewer {
    fn sees(&self, principal: &Principal) -> bool {
        match self {
            Self::All => true,
            Self::Own(own) => own == principal,
        }
    }
}

impl Shared {
    /// What was counted.
    pub(super) fn metrics(&self, viewer: &Viewer) -> Metrics {
        let status = self.status(viewer);
        let core = self.lock();
        let (roles, devices, faults) = core.pool.metrics(self.timestamp());
        drop(core);
        let verdict = self.job_log.get().map_or(0, JobLog::latest);
        let news = News { death: self.deaths.latest(), verdict };
        Metrics { status, roles, devices, faults, news }
    }

    /// What a job is doing, if the viewer may know.
    pub(super) fn job(&self, viewer: &Viewer, job: JobSelector) -> Option<Box<JobView>> {
        let now = self.timestamp();
        let own = match viewer {
            Viewer::All => None,
            Viewer::Own(own) => Some(own),
        };
        self.lock().pool.job_view(now, job, own).map(Box::new)
    }

    pub(super) fn status(&self, viewer: &Viewer) -> Status {
        let cuda_mapped = self.has_cuda(viewer);
        let helpers = {
            let core = self.lock();
            [Helper::Monitor, Helper::Gateway, Helper::Bridge, Helper::Tracer]
                .map(|helper| core.pool.helper(helper))
        };
        let monitor = self.monitor.get().map(|monitor| monitor.status(helpers[0]));
        let (monitor, devices) = monitor.unzip();
        let http = self.gateway.get().map(|gateway| gateway.status(helpers[1]));
        let nats = self.bridge.get().map(|bridge| bridge.status(helpers[2]));
        let tracer = self.tracer.get().map(|tracer| tracer.status(helpers[3]));
        let core = self.lock();
        let now = self.timestamp();
        let complete = |(worker, mut row): (Option<WorkerId>, WorkerStatus)| {
            row.run = worker.and_then(|worker| run_of(&core, worker, now, viewer));
            if let Some(link) = worker.and_then(|worker| core.workers.get(&worker)) {
                row.pid = link.pid;
                row.arena_bytes = link.arena_bytes();
                row.memory = link.memory;
            }
            row
        };
        let workers = core.pool.workers().into_iter().map(complete).collect();
        let (arena_bytes, arena_bytes_high) = self.budget.bytes();
        let arenas = self.budget.users();
        let users = self.seats.users();
        let connected = users.keys().chain(arenas.keys()).map(|&uid| Principal::Uid(uid)).collect();
        let mut principals = core.pool.principals(now, &connected);
        let mut queue = core.pool.queue();
        queue.oldest_us = core.pool.waits_since().map(|at| micros(now, at));
        let mut status = Status {
            supervisor: SupervisorStatus {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_s: self.started.elapsed().as_secs_f64(),
                socket: self.socket.display().to_string(),
                cuda_mapped,
                // One that is replaced answers what is still asked of it.
                draining: core.pool.is_draining() && !core.pool.is_replaced(),
                clients: u32::try_from(core.clients.len()).unwrap_or(u32::MAX),
                arena_bytes,
                arena_bytes_high,
                outbox_bytes_high: self.outbox_bytes_high.load(Ordering::Relaxed),
                refused: self.users.refusals.counts().map(|(why, n)| (why.to_owned(), n)).collect(),
            },
            workers,
            monitor,
            http,
            nats,
            tracer,
            devices: devices.unwrap_or_default(),
            models: core.pool.expected_models(),
            loads: core.pool.loads(),
            missing: core.pool.missing(now),
            principals: Vec::new(),
            capsules: self.capsules.get().map(Capsules::status).map(|status| match viewer {
                Viewer::All => status,
                Viewer::Own(_) => status.counts(),
            }),
            denylist: match viewer {
                Viewer::All => core.pool.denylist(now),
                Viewer::Own(_) => core.pool.denylist(now).without_work(),
            },
            quarantines: core.pool.quarantines().map(|out| quarantine(&core, now, &out)).collect(),
            queue,
            counters: core.pool.counters(),
        };
        // Files are not read under the core's lock.
        drop(core);
        for (principal, row) in &mut principals {
            if let Some(Principal::Uid(uid)) = *principal {
                row.name = Account::new(uid).name().unwrap_or_default();
                let own = users.get(&uid).copied().unwrap_or(0);
                row.connections = u32::try_from(own).unwrap_or(u32::MAX);
                row.arena_bytes = arenas.get(&uid).copied().unwrap_or(0);
            }
        }
        status.principals = principals.into_iter().map(|(_, row)| row).collect();
        for row in status.workers.iter_mut().filter(|row| row.pid != 0) {
            let Usage { cpu_us, resident_bytes } = self.usage(row.pid, viewer);
            (row.cpu_us, row.resident_bytes) = (cpu_us, resident_bytes);
            row.protections = self.protections(row.pid, viewer);
        }
        if let Some(monitor) = &mut status.monitor {
            monitor.protections = self.protections(monitor.pid, viewer);
        }
        if let Some(http) = &mut status.http {
            http.protections = self.protections(http.pid, viewer);
        }
        status
    }
}

/// A device that is out of service for a group: why, and for how long.
fn quarantine(core: &Core, now: Timestamp, out: &Quarantine<'_>) -> QuarantineStatus {
    QuarantineStatus {
        device: out.device.to_string(),
        role: out.group.role().name().to_owned(),
        group: core.pool.group_name(out.group).to_owned(),
        why: out.why.to_owned(),
        tried_in_us: out.probe_at.map(|at| micros(at, now)),
    }
}

/// The job that a worker runs, as a viewer may see it.
fn run_of(core: &Core, worker: WorkerId, now: Timestamp, viewer: &Viewer) -> Option<RunStatus> {
    let current_dispatch = core.pool.current_dispatch(worker)?;
    let held = core.held(current_dispatch.job).filter(|held| viewer.sees(&held.principal));
    let what = held.map_or("", |held| held.submission.work.text());
    Some(RunStatus {
        job: current_dispatch.job.to_string(),
        what: what.chars().take(RUN_TEXT_MAX).collect(),
        jobs: u32::try_from(current_dispatch.jobs).unwrap_or(u32::MAX),
        items: current_dispatch.items,
        for_us: micros(now, current_dispatch.since),
    })
}

fn micros(now: Timestamp, since: Timestamp) -> u64 {
    u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX)
}
