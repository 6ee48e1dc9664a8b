//! The monitor on a stub of NVML: the driver's reports about a device, and an NVML that hangs.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use gridpool_protocol::status::{CapsulesStatus, DeviceStatus, WorkerState};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::{gpus, make};
use crate::jobs::serves;
use crate::pool::{Pool, Setup};
use crate::processes::signal;
use crate::wait::eventually_so;

/// `nvmlEventTypeXidCriticalError` and `nvmlEventTypeGpuRecoveryAction`.
const XID: u64 = 0x8;
const RECOVERY: u64 = 0x8000;

/// A pool on `count` GPUs with a running monitor and an NVML with events.
fn watched(count: usize, script: &str) -> Pool {
    let setup = gpus(count, &format!("events=DIR/events; {script}"));
    mkfifo(&setup.folder().join("events"), Mode::S_IRWXU).expect("a FIFO can be made");
    up(setup)
}

fn up(setup: Setup) -> Pool {
    let pool = setup.start();
    pool.until_status("the monitor to be up", |status| status.monitor.is_some_and(|it| it.up));
    pool
}

/// The driver tells of something.
fn tell(pool: &Pool, gpu: u64, kind: u64, data: u64) {
    let fifo = File::options().write(true).open(pool.folder().join("events"));
    writeln!(fifo.expect("the monitor has it open"), "{gpu} {kind} {data}").expect("it has room");
}

fn gauges(pool: &Pool, gpu: usize) -> DeviceStatus {
    pool.status().devices.remove(gpu)
}

fn is_out(pool: &Pool, device: &str) -> String {
    pool.until(device, "out of service", |slot| slot.state == WorkerState::Quarantined).last_fault
}

#[test]
fn a_gpu_that_falls_off_the_bus_is_out_until_it_is_released_and_the_other_serves() {
    let pool = watched(2, "");
    tell(&pool, 0, XID, 79);
    assert!(is_out(&pool, "gpu0").starts_with("gpu0: xid 79 (off the bus): "));
    serves(&pool.client());
    assert_eq!((pool.slot("gpu1").restarts, gauges(&pool, 0).last_xid), (0, Some(79)));
    let shown = pool.cli(&["status"]).run().output();
    assert!(shown.contains("xid 79: the GPU has fallen off the bus"), "{shown}");
    pool.cli(&["release", "gpu0"]).run().output();
    pool.until("gpu0", "back", |slot| slot.state == WorkerState::Ready);
}

#[test]
fn an_xid_of_a_worker_itself_kills_no_worker_and_is_logged() {
    let pool = watched(1, "");
    for xid in [31, 13, 94, 63] {
        tell(&pool, 0, XID, xid);
    }
    pool.until_status("all to be told", |status| status.devices[0].xids == 4);
    serves(&pool.client());
    assert_eq!(pool.slot("gpu0").generation, 1);
    let words = "the driver says device=gpu0 fault=xid 94 name=\"contained error\"";
    assert!(pool.log().contains(words), "{}", pool.log());
}

#[test]
fn a_gpu_that_needs_a_reboot_is_quarantined_as_soon_as_nvml_reports_it() {
    let pool = watched(1, "call=nvmlDeviceGetFieldValues while-file=DIR/broken value=2");
    assert_eq!(gauges(&pool, 0).recovery, Some(0));
    make(pool.folder(), "broken");
    tell(&pool, 0, RECOVERY, 0);
    assert!(is_out(&pool, "gpu0").contains("recovery 2 (NODE_REBOOT): reboot the machine"));
    assert_eq!(gauges(&pool, 0).recovery, Some(2));
}

#[test]
fn gpu_utilization_is_shown_if_nvml_reports_it() {
    let busy = "call=nvmlDeviceGetUtilizationRates value=97; call=nvmlDeviceGetPowerUsage code=3";
    let pool = watched(1, busy);
    let gpu = gauges(&pool, 0);
    assert_eq!((gpu.busy_percent, gpu.power_mw, gpu.nvml_error), (Some(97), None, None));
    serves(&pool.client());
}

#[test]
fn a_gpu_that_nvml_has_lost_is_out() {
    let pool = watched(1, "call=nvmlDeviceGetMemoryInfo while-file=DIR/lost code=15");
    make(pool.folder(), "lost");
    assert!(is_out(&pool, "gpu0").contains("nvml 15 (NVML_ERROR_GPU_IS_LOST): "));
    assert_eq!(gauges(&pool, 0).nvml_error, Some(15));
}

#[test]
fn nvml_that_sticks_costs_a_monitor_and_no_job() {
    for call in ["nvmlDeviceGetMemoryInfo", "nvmlEventSetWait"] {
        // The first monitor alone, and from the moment on that the test says so.
        let rule = format!("call={call} once-file=DIR/first while-file=DIR/stuck hang");
        let pool = up(gpus(1, &rule));
        let first = pool.status().monitor.expect("a pool with GPUs has one").pid;
        make(pool.folder(), "stuck");
        serves(&pool.client());
        pool.until_status("another monitor", |status| {
            status.monitor.is_some_and(|it| it.up && it.pid != first)
        });
        serves(&pool.client());
        assert!(!fs::exists(format!("/proc/{first}")).expect("proc is there"), "{call}");
        assert_eq!(pool.slot("gpu0").generation, 1);
    }
}

#[test]
fn a_worker_that_is_killed_is_replaced_once_its_memory_is_back() {
    let setup = gpus(1, "registry=DIR/registry").env("GRIDPOOL_LOG", "gridpool=debug");
    fs::create_dir(setup.folder().join("registry")).expect("a folder can be made");
    let pool = up(setup);
    let pid = pool.pid("gpu0");
    let knows = |status: &gridpool_protocol::status::Status| status.devices[0].processes == [pid];
    pool.until_status("the monitor to list the worker", knows);
    signal(pid, Signal::SIGKILL);
    pool.until("gpu0", "back", |slot| slot.generation == 2 && slot.state == WorkerState::Ready);
    let words = format!("memory of a dead process device=gpu0 pid={pid} reclaimed=true");
    assert!(pool.log().contains(&words), "{}", pool.log());
    serves(&pool.client());
}

#[test]
fn a_monitor_that_is_killed_is_started_again_and_a_killed_supervisor_leaves_none() {
    let pool = up(gpus(1, ""));
    let first = pool.status().monitor.expect("a pool with GPUs has one").pid;
    signal(first, Signal::SIGKILL);
    let status = pool.until_status("another monitor", |status| {
        status.monitor.is_some_and(|it| it.up && it.pid != first)
    });
    let second = status.monitor.expect("it is up").pid;
    pool.killed();
    crate::wait::eventually("the monitor to end with its supervisor", || {
        let there = fs::exists(format!("/proc/{second}")).expect("proc is there");
        if there { Err("it is there".to_owned()) } else { Ok(()) }
    });
}

#[test]
fn the_death_of_a_worker_is_reported_with_its_cuda_code_and_the_drivers_report() {
    let script = "events=DIR/events; call=cuLaunchKernel once-file=DIR/once while-file=DIR/go nth=1 \
                  code=700 sticky";
    // However slow the machine, what is said belongs together.
    let setup = gpus(1, script).limits("incident_window_s = 600\n");
    mkfifo(&setup.folder().join("events"), Mode::S_IRWXU).expect("a FIFO can be made");
    let pool = up(setup);
    tell(&pool, 0, XID, 31);
    pool.until_status("the first to be told", |status| status.devices[0].xids == 1);
    make(pool.folder(), "go");
    serves(&pool.client());
    pool.until("gpu0", "replaced", |slot| slot.generation == 2 && slot.state == WorkerState::Ready);
    let log = pool.log();
    let (_, block) = log.split_once("worker died worker=gpu0#1 ").expect("its death is told");
    let block: Vec<_> = block.lines().skip(1).map_while(|l| l.strip_prefix("    ")).collect();
    for words in [
        "ended      exit code 70 (STICKY): a sticky CUDA error: the context is lost",
        "said       cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700)",
        "fault      cuda 700 (CUDA_ERROR_ILLEGAL_ADDRESS): ",
        "driver     xid 31 (",
        "job        job",
    ] {
        let is_there = block.iter().any(|line| line.starts_with(words));
        assert!(is_there, "`{words}` is not in {block:#?}");
    }
    assert!(block.iter().any(|line| line.contains(", met by job")), "{block:#?}");
    let is_written = |own: &CapsulesStatus| own.written == 1;
    let kept =
        pool.until_status("its capsule", |status| status.capsules.as_ref().is_some_and(is_written));
    let kept = kept.capsules.expect("it keeps capsules");
    let path = Path::new(&kept.folder).join(format!("{}.json", kept.latest[0].name));
    let text = fs::read_to_string(path).expect("it is there");
    let capsule: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&capsule["cuda"], &capsule["death"]["driver"]["code"]),
        (&"12.0".into(), &"xid 31".into())
    );
    let worker = capsule["worker"].as_str().expect("a text");
    assert!(worker.contains(" on a GPU") && worker.contains("kernels "), "{worker}");
    // What the driver says a little later may be about the worker that is gone, or about the next one;
    // and once is enough.
    tell(&pool, 0, XID, 43);
    tell(&pool, 0, XID, 43);
    pool.until_status("all to be told", |status| status.devices[0].xids == 3);
    // The log is written after the status shows it.
    eventually_so("it to be told", || pool.log().contains("fault=xid 43 "));
    let log = pool.log();
    let line = log.lines().find(|line| line.contains("fault=xid 43 ")).expect("it is told");
    assert!(line.contains("as expected") && line.ends_with(" after_death_of=gpu0#1"), "{line}");
    assert_eq!(log.matches("fault=xid 43 ").count(), 1, "{log}");
    // Of the next one nothing is known but what was said since it is there.
    assert!(!line.contains(" worker="), "{line}");
}
