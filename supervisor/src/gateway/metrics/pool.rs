//! What the supervisor has counted, family by family.

mod devices;

use gridpool_protocol::fault::{FaultClass, FaultCode};
use gridpool_protocol::metrics::{Histogram, Metrics, RestartReason, RoleMetrics, Spread};
use gridpool_protocol::receipt::AttemptOutcome;
use gridpool_protocol::status::{Counters, QueueStatus, Status};

use super::page::{Page, Row, labels};
use super::requests::number;

/// A family with a row for each role.
type PerRole = (&'static str, &'static str, fn(&Counters) -> u64);

const PER_ROLE: [PerRole; 5] = [
    ("gridpool_jobs_accepted_total", "Jobs accepted; each gets one verdict.", |c| c.accepted),
    ("gridpool_attempts_total", "Attempts at jobs or parts of jobs begun.", |c| c.attempts),
    (
        "gridpool_attempts_joined_total",
        "Attempts that were sent to a worker together with others.",
        |c| c.joined,
    ),
    ("gridpool_dispatches_total", "Orders to workers to run something.", |c| c.runs),
    (
        "gridpool_stale_messages_total",
        "Messages of workers that came too late to matter, dropped.",
        |c| c.stale,
    ),
];

/// A family of histograms with one for each role.
type Times = (&'static str, &'static str, fn(&Spread) -> &Histogram);

const TIMES: [Times; 7] = [
    (
        "gridpool_failover_seconds",
        "Of each part of a job whose worker was lost: from the first sign of that (the end of its \
         beacon, the order to kill it, or its exit) to the answer of the next worker that gave one, \
         wherever; waiting and computing included. Of a silent worker, the order to kill it comes \
         first.",
        |spread| &spread.failover,
    ),
    (
        "gridpool_recovery_seconds",
        "Of each process that was lost: from the first sign of that to READY of the next one in its \
         place; starts that fail, backoff and quarantine included.",
        |spread| &spread.recovery,
    ),
    ("gridpool_worker_start_seconds", "From the order to start a worker to READY.", |spread| {
        &spread.start
    }),
    (
        "gridpool_job_queue_seconds",
        "Of each job that was dispatched: from acceptance to the first dispatch.",
        |spread| &spread.queue,
    ),
    (
        "gridpool_attempt_service_seconds",
        "Of each attempt that was answered: from its arrival in the worker to the answer.",
        |spread| &spread.service,
    ),
    (
        "gridpool_dispatch_attempts",
        "Attempts in one order to a worker; of grids those that join one launch.",
        |spread| &spread.dispatch_attempts,
    ),
    (
        "gridpool_dispatch_items",
        "Items in one order to a worker; a request of a model is one.",
        |spread| &spread.dispatch_items,
    ),
];

/// Adds all families; of a pool that does not answer, that.
pub(super) fn add(page: &mut Page, metrics: Option<&Metrics>) {
    let up = if metrics.is_some() { 1.0 } else { 0.0 };
    page.gauges("gridpool_up", "Whether the supervisor has answered.", [(Vec::new(), up)]);
    let Some(metrics) = metrics else { return };
    supervisor(page, &metrics.status);
    jobs(page, &metrics.roles);
    queue(page, &metrics.roles);
    attempts(page, &metrics.roles);
    faults(page, &metrics.faults);
    for (name, help, of) in TIMES {
        let row = |role: &'_ RoleMetrics| labels([("role", &role.role.name())]);
        page.histograms(name, help, metrics.roles.iter().map(|role| (row(role), of(&role.spread))));
    }
    devices::workers(page, metrics);
    devices::devices(page, &metrics.devices);
    devices::gpus(page, &metrics.status);
}

fn flag(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

/// Microseconds in seconds.
fn seconds(us: u64) -> f64 {
    number(us) / 1e6
}

fn supervisor(page: &mut Page, status: &Status) {
    let own = &status.supervisor;
    page.gauges(
        "gridpool_build_info",
        "Always 1; the supervisor's version.",
        [(labels([("version", &own.version)]), 1.0)],
    );
    let one = |value: f64| [(Vec::new(), value)];
    page.gauges(
        "gridpool_uptime_seconds",
        "How long the supervisor has run: what it counts is since then.",
        one(own.uptime_s),
    );
    page.gauges(
        "gridpool_draining",
        "Whether it finishes what it has and accepts nothing new.",
        one(flag(own.draining)),
    );
    page.gauges(
        "gridpool_connections",
        "Connections to the pool's socket, those of this gateway included.",
        one(f64::from(own.clients)),
    );
    page.gauges(
        "gridpool_arena_bytes",
        "Shared memory of all clients.",
        one(number(own.arena_bytes)),
    );
    let http = status.http.as_ref().map(|http| ("gateway", http.up, http.restarts));
    let monitor = status.monitor.map(|monitor| ("monitor", monitor.up, monitor.restarts));
    let helpers: Vec<_> = http.into_iter().chain(monitor).collect();
    page.gauges(
        "gridpool_helper_up",
        "Whether a process beside the workers has given a sign of life.",
        helpers.iter().map(|(name, up, _)| (labels([("helper", name)]), flag(*up))),
    );
    page.counters(
        "gridpool_helper_restarts_total",
        "Processes of it that were started after the first.",
        helpers.iter().map(|(name, _, count)| (labels([("helper", name)]), f64::from(*count))),
    );
}

fn jobs(page: &mut Page, roles: &[RoleMetrics]) {
    let verdicts = |role: &RoleMetrics| {
        let name = role.role.name();
        let row = move |(verdict, count)| {
            (labels([("role", &name), ("verdict", &verdict)]), number(count))
        };
        role.counters.verdicts().map(row)
    };
    page.counters(
        "gridpool_jobs_total",
        "Jobs that got their verdict; the gateway's own known job, one in 5 s, is among them.",
        roles.iter().flat_map(verdicts),
    );
    let refusals = |role: &RoleMetrics| {
        let name = role.role.name();
        let row = move |(why, count)| (labels([("role", &name), ("reason", &why)]), number(count));
        [("busy", role.counters.refused_busy), ("poison", role.counters.refused_poison)].map(row)
    };
    page.counters(
        "gridpool_jobs_refused_total",
        "Submissions that were not accepted: a queue was full, or the content was convicted.",
        roles.iter().flat_map(refusals),
    );
}

fn queue(page: &mut Page, roles: &[RoleMetrics]) {
    let rows = |of: fn(&QueueStatus) -> f64| {
        let row = move |role: &RoleMetrics| -> Row {
            (labels([("role", &role.role.name())]), of(&role.queue))
        };
        roles.iter().map(row)
    };
    page.gauges(
        "gridpool_queue_jobs",
        "Jobs of which something waits for a worker.",
        rows(|queue| number(queue.jobs)),
    );
    page.gauges(
        "gridpool_queue_bytes",
        "Inline payload of all jobs without a verdict.",
        rows(|queue| number(queue.bytes)),
    );
    page.gauges(
        "gridpool_queue_oldest_seconds",
        "How long ago the oldest job that waits was accepted; 0 if none waits.",
        rows(|queue| queue.oldest_us.map_or(0.0, seconds)),
    );
}

fn attempts(page: &mut Page, roles: &[RoleMetrics]) {
    let role_of = |role: &RoleMetrics| labels([("role", &role.role.name())]);
    for (name, help, of) in PER_ROLE {
        let row = |role: &RoleMetrics| (role_of(role), number(of(&role.counters)));
        page.counters(name, help, roles.iter().map(row));
    }
    page.counters(
        "gridpool_retries_total",
        "Attempts at what had been attempted before.",
        roles.iter().map(|role| (role_of(role), number(role.retries))),
    );
    let ended = |role: &RoleMetrics| {
        let name = role.role.name();
        let row = move |&(outcome, count): &(AttemptOutcome, u64)| {
            (labels([("role", &name), ("outcome", &outcome.name())]), number(count))
        };
        role.ended.iter().map(row).collect::<Vec<_>>()
    };
    page.counters(
        "gridpool_attempts_ended_total",
        "Attempts that ended, by how; as receipts say it.",
        roles.iter().flat_map(ended),
    );
    let restarts = |role: &RoleMetrics| {
        let name = role.role.name();
        let row = move |&(reason, count): &(RestartReason, u64)| {
            (labels([("role", &name), ("reason", &reason.name())]), number(count))
        };
        role.restarts.iter().map(row).collect::<Vec<_>>()
    };
    page.counters(
        "gridpool_worker_restarts_total",
        "Workers started in the place of others, by what had ended those.",
        roles.iter().flat_map(restarts),
    );
}

fn faults(page: &mut Page, faults: &[(FaultCode, u64)]) {
    let of_class = |class: FaultClass| {
        let counts = faults.iter().filter(|(fault, _)| fault.class() == class);
        (labels([("class", &class)]), number(counts.map(|(_, count)| count).sum()))
    };
    page.counters(
        "gridpool_faults_total",
        "Faults that ended workers or that the driver told of, by class: see gridpool status \
         --policy.",
        FaultClass::ALL.map(of_class),
    );
    let others = FaultCode::others();
    let of_code = |&(fault, count): &(FaultCode, u64)| {
        let other = others.iter().find(|(other, _)| *other == fault);
        let code = other.map_or_else(|| fault.to_string(), |(_, words)| (*words).to_owned());
        (labels([("class", &fault.class()), ("code", &code)]), number(count))
    };
    page.counters(
        "gridpool_faults_by_code_total",
        "The same by fault; a number that gridpool has no row for counts for its family's other.",
        faults.iter().map(of_code),
    );
}
