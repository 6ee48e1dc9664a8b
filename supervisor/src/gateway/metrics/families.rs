//! The table of metrics: each family's name, type, help text, labels, and the source of its numbers. To
//! add a family, add a row here and run `GRIDPOOL_WRITE=1 cargo test -p gridpool --lib generated`, which
//! writes the list in the book.

use std::sync::atomic::Ordering;

use gridpool_protocol::ids::Role;
use gridpool_protocol::status::{CapsulesStatus, NatsStatus, WorkerState};

use super::page::{Head, Kind, number};
use super::principals::{by_principal, jobs};
use super::sources::FamilySource::{
    Device, DeviceBy, Gateway, GatewayBy, Gpu, Model, Pool, PoolBy, Role as OfRole, RoleBy,
    RoleHistogram, Worker, WorkerBy,
};
use super::sources::{
    FamilySource, bridge, faults, faults_by_code, flag, helpers, one, seconds, spans,
};

/// What a bridge says that is no count of jobs.
const NO_JOBS: [&str; 3] = ["running", "batches_reused", "fetched_bytes"];

/// One family.
#[derive(Clone, Copy)]
pub(super) struct Family {
    pub(super) head: Head,
    pub(super) source: FamilySource,
}

macro_rules! families {
    ($($heading:literal { $($kind:ident $name:literal $help:literal $source:expr;)* })*) => {
        /// All families, in the order in which they are printed, under headings for readers.
        /// `nv_inference_pending_request_count` is missing: the gateway does not know when a job starts.
        pub(super) const FAMILIES: &[(&str, &[Family])] = &[$(
            ($heading, &[$(Family {
                head: Head { name: $name, kind: Kind::$kind, help: $help },
                source: $source,
            }),*])
        ),*];
    };
}

families! {
    "Supervisor" {
        Gauge "gridpool_up" "1 if the supervisor answered, else 0." Gateway(|view| flag(view.metrics.is_some()));
        Gauge "gridpool_build_info" "Always 1. The label is the supervisor's version."
            PoolBy(&["version"], |metrics| one([&metrics.status.supervisor.version], 1.0));
        Gauge "gridpool_uptime_seconds" "Time since the supervisor started. Its counters start then."
            Pool(|metrics| metrics.status.supervisor.uptime_s);
        Gauge "gridpool_draining" "1 while the supervisor finishes its jobs and accepts no new ones."
            Pool(|metrics| flag(metrics.status.supervisor.draining));
        Gauge "gridpool_connections" "Open connections to the pool's socket, including this gateway's."
            Pool(|metrics| f64::from(metrics.status.supervisor.clients));
        Counter "gridpool_socket_refused_total"
            "Connections and messages that were refused at the pool's socket, and connections that were ended there, \
             by reason. Jobs that were refused are gridpool_jobs_refused_total."
            PoolBy(&["reason"], |metrics| {
                let row = |(reason, count): (&String, &u64)| (vec![reason.clone()], number(*count));
                metrics.status.supervisor.refused.iter().map(row).collect()
            });
        Counter "gridpool_capsules_total"
            "Deaths of workers that their work may have caused: capsules written, and those that were lost."
            PoolBy(&["result"], |metrics| {
                let rows = |own: &CapsulesStatus| [("written", own.written), ("lost", own.lost)];
                let row = |(result, count): (&str, u64)| (vec![result.to_owned()], number(count));
                metrics.status.capsules.iter().flat_map(rows).map(row).collect()
            });
        Gauge "gridpool_arena_bytes" "Shared memory of all clients."
            Pool(|metrics| number(metrics.status.supervisor.arena_bytes));
        Gauge "gridpool_helper_up" "1 if the helper process (bridge, gateway, monitor or tracer) sends heartbeats."
            PoolBy(&["helper"], |metrics| helpers(metrics, |up, _| flag(up)));
        Counter "gridpool_helper_restarts_total" "Times that the helper process was restarted."
            PoolBy(&["helper"], |metrics| helpers(metrics, |_, restarts| f64::from(restarts)));
    }

    "Traces" {
        Counter "gridpool_trace_spans_total"
            "Spans that the collector took (exported) or did not (dropped), and jobs and requests that the tracer did \
             not take (unsent_jobs, unsent_requests). Only with --trace."
            GatewayBy(&["result"], spans);
    }

    "A cluster" {
        Counter "gridpool_cluster_jobs_total"
            "What became of jobs of the cluster here, as the bridge counts them since it started: taken, redelivered, \
             published, duplicates, unwanted, known, given_back, late."
            PoolBy(&["event"], |metrics| bridge(metrics, |name| !NO_JOBS.contains(&name)));
        Gauge "gridpool_cluster_connected" "1 if a NATS server answers the bridge."
            PoolBy(&["host"], |metrics| {
                let reaches = |nats: &NatsStatus| nats.up && !nats.server.is_empty();
                let row = |nats: &NatsStatus| (vec![nats.host.clone()], flag(reaches(nats)));
                metrics.status.nats.iter().map(row).collect()
            });
        Gauge "gridpool_cluster_jobs_running" "Jobs of the cluster that this host has now."
            PoolBy(&["host"], |metrics| {
                let running = |nats: &NatsStatus| nats.counts.get("running").copied().unwrap_or(0);
                let row = |nats: &NatsStatus| (vec![nats.host.clone()], number(running(nats)));
                metrics.status.nats.iter().map(row).collect()
            });
        Counter "gridpool_cluster_batches_total" "Large batches: bytes fetched, and jobs whose batch was here already."
            PoolBy(&["event"], |metrics| bridge(metrics, |name| NO_JOBS[1..].contains(&name)));
    }

    "Jobs, by role" {
        Counter "gridpool_jobs_accepted_total" "Jobs accepted. Each gets one verdict."
            OfRole(|role| number(role.counters.accepted));
        Counter "gridpool_jobs_total"
            "Jobs by verdict. The gateway's own health check, one job every 5 s, is among them."
            RoleBy("verdict", |role| {
                role.counters.verdicts().map(|(verdict, count)| (verdict.name(), count)).into()
            });
        Counter "gridpool_jobs_refused_total"
            "Submissions refused because a queue was full (busy) or their content is denylisted (poison)."
            RoleBy("reason", |role| {
                vec![("busy", role.counters.refused_busy), ("poison", role.counters.refused_poison)]
            });
        Gauge "gridpool_queue_jobs" "Jobs with a shard that waits for a worker."
            OfRole(|role| number(role.queue.jobs));
        Gauge "gridpool_queue_bytes" "Inline payload of all jobs without a verdict."
            OfRole(|role| number(role.queue.bytes));
        Gauge "gridpool_queue_oldest_seconds" "Time since the oldest waiting job was accepted; 0 if none waits."
            OfRole(|role| role.queue.oldest_us.map_or(0.0, seconds));
        Histogram "gridpool_job_queue_seconds" "Time of a job from acceptance to its first dispatch."
            RoleHistogram(|role| &role.queue);
        Histogram "gridpool_job_seconds" "Time of a job from acceptance to its verdict."
            RoleHistogram(|role| &role.total);
    }

    "Principals: users, tokens, all addresses together" {
        Gauge "gridpool_principal_connections" "Connections of the user to the pool's socket."
            PoolBy(&["principal"], |metrics| by_principal(metrics, |row| f64::from(row.connections)));
        Gauge "gridpool_principal_jobs" "Jobs without a verdict, by whether any part of them waits."
            PoolBy(&["principal", "state"], jobs);
        Gauge "gridpool_principal_bytes" "Bytes of the inputs and results of those jobs."
            PoolBy(&["principal"], |metrics| by_principal(metrics, |row| number(row.bytes)));
        Gauge "gridpool_principal_arena_bytes" "Shared memory of the user's connections."
            PoolBy(&["principal"], |metrics| by_principal(metrics, |row| number(row.arena_bytes)));
        Counter "gridpool_principal_jobs_done_total" "Jobs with a verdict."
            PoolBy(&["principal"], |metrics| by_principal(metrics, |row| number(row.done)));
        Counter "gridpool_principal_jobs_refused_total" "Submissions refused."
            PoolBy(&["principal"], |metrics| by_principal(metrics, |row| number(row.refused)));
        Counter "gridpool_principal_device_seconds_total"
            "Time that workers have spent on its jobs. Jobs that run together share it by their cost."
            PoolBy(&["principal"], |metrics| by_principal(metrics, |row| row.device_s));
    }

    "Attempts, by role" {
        Counter "gridpool_attempts_total" "Attempts started. An attempt runs one shard of a job on one worker."
            OfRole(|role| number(role.counters.attempts));
        Counter "gridpool_attempts_joined_total" "Attempts that were dispatched together with others."
            OfRole(|role| number(role.counters.joined));
        Counter "gridpool_dispatches_total" "Dispatches: messages that send attempts to a worker."
            OfRole(|role| number(role.counters.runs));
        Counter "gridpool_retries_total" "Attempts at shards that had been attempted before."
            OfRole(|role| number(role.sums.retries));
        Counter "gridpool_attempts_ended_total" "Attempts that ended, by outcome as receipts name it."
            RoleBy("outcome", |role| {
                role.ended.iter().map(|&(outcome, count)| (outcome.name(), count)).collect()
            });
        Counter "gridpool_stale_messages_total" "Messages from workers that arrived too late and were dropped."
            OfRole(|role| number(role.counters.stale));
        Histogram "gridpool_attempt_service_seconds"
            "Time of an answered attempt from its arrival in the worker to the answer."
            RoleHistogram(|role| &role.service);
        Histogram "gridpool_dispatch_attempts" "Attempts in one dispatch. Those on grids share a launch."
            RoleHistogram(|role| &role.dispatch_attempts);
        Histogram "gridpool_dispatch_items" "Items in one dispatch. A request of a model is one item."
            RoleHistogram(|role| &role.dispatch_items);
        Histogram "gridpool_failover_seconds"
            "Time from the first sign that a worker was lost to the next answer for a shard that it ran. The first \
             sign is the end of its beacon, the command to kill it, or its exit; for a silent worker it is that \
             command. Waiting and computing are included."
            RoleHistogram(|role| &role.failover);
    }

    "Faults" {
        Counter "gridpool_faults_total"
            "Faults that ended workers or that the driver reported, by class. See gridpool status --policy."
            PoolBy(&["class"], faults);
        Counter "gridpool_faults_by_code_total"
            "The same by fault. A number that gridpool has no row for counts as its family's other."
            PoolBy(&["class", "code"], faults_by_code);
        Counter "gridpool_worker_restarts_total" "Workers started to replace another, by what ended that one."
            RoleBy("reason", |role| {
                role.restarts.iter().map(|&(reason, count)| (reason.name(), count)).collect()
            });
        Histogram "gridpool_recovery_seconds"
            "Time from the first sign that a worker was lost to READY of its replacement. Failed starts, backoff and \
             quarantine are included."
            RoleHistogram(|role| &role.recovery);
        Histogram "gridpool_worker_start_seconds" "Time from the command to start a worker to READY."
            RoleHistogram(|role| &role.start);
    }

    "Workers" {
        Gauge "gridpool_worker_state"
            "Processes of a device and a role in each state. A device without a process counts once, in the state \
             that it waits in."
            WorkerBy("state", |worker| {
                let count = |state| worker.processes.iter().filter(|row| row.state == state).count();
                WorkerState::ALL.map(|state| (state.name(), count(state) as u64)).into()
            });
        Gauge "gridpool_worker_generation" "Generation of the latest process; 0 before the first."
            Worker(|worker| Some(f64::from(worker.row.generation)));
        Gauge "gridpool_worker_last_start_seconds"
            "Time that the latest READY process took to start. No row: none is READY."
            Worker(|worker| {
                let started =
                    worker.processes.iter().filter_map(|row| Some((row.generation, row.start_us?)));
                started.max().map(|(_, start_us)| seconds(start_us))
            });
        Counter "gridpool_worker_jobs_total" "Attempts that its processes answered."
            Worker(|worker| Some(number(worker.row.work.attempts)));
        Counter "gridpool_worker_items_total"
            "Items that got a result from its processes. A request of a model is one item."
            Worker(|worker| Some(number(worker.row.work.items)));
        Gauge "gridpool_worker_memory_bytes"
            "Memory of its processes: mapped arenas, device buffers, pinned buffers, arenas registered with the \
             driver, and resident host memory."
            WorkerBy("memory", |worker| {
                vec![
                    ("arenas", worker.sum(|row| row.arena_bytes)),
                    ("device", worker.sum(|row| row.memory.device_bytes)),
                    ("pinned", worker.sum(|row| row.memory.pinned_bytes)),
                    ("registered", worker.sum(|row| row.memory.registered_bytes)),
                    ("resident", worker.sum(|row| row.resident_bytes)),
                ]
            });
    }

    "Devices" {
        Gauge "gridpool_device_out" "1 if the device is quarantined for the role."
            Device(|row| Some(flag(row.is_out)));
        Counter "gridpool_device_quarantines_total" "Times that the device was quarantined for the role."
            Device(|row| Some(number(row.quarantines)));
        Counter "gridpool_device_copied_bytes_total"
            "Bytes that answered attempts copied, or read and wrote over the bus. A CPU device copies no grids."
            DeviceBy("direction", |row| {
                vec![("to_device", row.work.h2d_bytes), ("to_host", row.work.d2h_bytes)]
            });
        Counter "gridpool_kernel_launches_total"
            "Kernel launches of answered attempts. On a CPU device these are calls of the reference."
            Device(|row| (row.role == Role::Grid).then_some(row.work.launches));
        Counter "gridpool_device_busy_seconds_total"
            "Device time of those launches by CUDA events; on a CPU device the time of the calls. Launches that \
             overlap each count in full. Models are not included."
            Device(|row| (row.role == Role::Grid).then_some(row.work.busy_s));
        Counter "gridpool_model_runs_total"
            "Runs of ONNX Runtime for answered requests. A run that requests share counts once."
            Device(|row| (row.role == Role::Infer).then_some(row.work.runs));
        Counter "gridpool_model_graph_replays_total"
            "Those of these runs that were replays of CUDA graphs."
            Device(|row| (row.role == Role::Infer).then_some(row.work.graph_replays));
        Counter "gridpool_model_run_seconds_total"
            "Time of all runs by the worker's clock, including copies and nodes that run on the host. Device time \
             is not measured for models."
            Device(|row| (row.role == Role::Infer).then_some(row.work.run_s));
    }

    "GPUs, by NVML" {
        Gauge "nv_gpu_utilization" "GPU utilization rate (0.0 to 1.0), for all who use the GPU."
            Gpu(|gpu| Some(f64::from(gpu.known()?.busy_percent?) / 100.0));
        Gauge "nv_gpu_memory_total_bytes" "GPU total memory, in bytes."
            Gpu(|gpu| Some(number(gpu.known()?.memory_total)));
        Gauge "nv_gpu_memory_used_bytes" "GPU used memory, in bytes, for all who use the GPU."
            Gpu(|gpu| Some(number(gpu.known()?.memory_used)));
        Gauge "nv_gpu_power_usage" "GPU power usage in watts."
            Gpu(|gpu| Some(f64::from(gpu.known()?.power_mw?) / 1e3));
        Counter "gridpool_gpu_xids_total" "Xids that the driver reported since the pool started."
            Gpu(|gpu| Some(number(gpu.status.xids)));
    }

    "HTTP and gRPC" {
        Counter "gridpool_http_requests_total"
            "HTTP requests since the gateway started, by route and status. Gone: the client hung up before the \
             answer."
            GatewayBy(&["route", "status"], |view| view.requests.counts());
        Gauge "gridpool_http_requests_in_flight" "HTTP requests that are read or worked on now, including this one."
            Gateway(|view| number(view.requests.in_flight.load(Ordering::Relaxed)));
        Counter "gridpool_grpc_calls_total"
            "Calls of gRPC since the gateway started, by method and code. CANCELLED: the client gave up before the \
             answer, or did not read it."
            GatewayBy(&["method", "code"], |view| view.requests.calls());
        Gauge "gridpool_grpc_calls_in_flight" "Calls of gRPC, streams included, that are read or worked on now."
            Gateway(|view| number(view.requests.calls_in_flight.load(Ordering::Relaxed)));
        Counter "gridpool_http_refused_total"
            "Requests over HTTP and gRPC that were refused and connections that were ended since the gateway started, \
             by reason. Full: all clients together take all there is; own: one client takes its part."
            GatewayBy(&["reason"], |view| {
                let row = |&(reason, count): &(&str, u64)| (vec![reason.to_owned()], number(count));
                view.load.refused.iter().map(row).collect()
            });
        Gauge "gridpool_http_connections"
            "Open connections of HTTP and gRPC. Reserved ones are over the limit: only health and metrics are served \
             there."
            GatewayBy(&["seat"], |view| {
                let [ordinary, reserved] = view.load.connections.map(|count| number(count as u64));
                vec![(vec!["ordinary".to_owned()], ordinary), (vec!["reserved".to_owned()], reserved)]
            });
        Gauge "gridpool_http_body_bytes" "Memory that the bodies of requests and answers hold."
            Gateway(|view| number(view.load.body_bytes as u64));
        Gauge "gridpool_http_saturated" "1 if requests of every client are refused for want of room, else 0."
            Gateway(|view| flag(view.load.is_saturated));
    }

    "Models over HTTP and gRPC" {
        Counter "nv_inference_request_success" "Inference requests over HTTP and gRPC that got a result."
            Model(|numbers| numbers.success.count);
        Counter "nv_inference_request_failure" "Inference requests over HTTP and gRPC that failed or were refused."
            Model(|numbers| numbers.fail.count);
        Counter "nv_inference_count" "Inferences: items or rows of the requests that got a result."
            Model(|numbers| numbers.inferences);
        Counter "nv_inference_exec_count"
            "Executions for those requests. An execution that requests share counts once."
            Model(|numbers| numbers.whole_executions());
        Counter "nv_inference_request_duration_us" "Microseconds from a request's body to the body of its answer."
            Model(|numbers| numbers.success.micros());
        Counter "nv_inference_queue_duration_us"
            "Microseconds that requests waited in the pool, from acceptance to the first dispatch."
            Model(|numbers| numbers.queue.micros());
        Counter "nv_inference_compute_input_duration_us" "Microseconds in the gateway from a body to a job."
            Model(|numbers| numbers.input.micros());
        Counter "nv_inference_compute_infer_duration_us" "Microseconds in workers, for attempts that answered."
            Model(|numbers| numbers.infer.micros());
        Counter "nv_inference_compute_output_duration_us" "Microseconds in the gateway from a verdict to a body."
            Model(|numbers| numbers.output.micros());
        Gauge "gridpool_model_requests_in_flight"
            "Inference requests over HTTP and gRPC in progress, waiting or running."
            Model(|numbers| numbers.in_flight);
    }
}
