//! What a worker, the gateway and the monitor may still do once they serve, and what they know of the
//! supervisor's environment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gridpool_ipc::sandbox::trespass;
use serde_json::Value;

use crate::cluster::host;
use crate::cluster::servers::{Servers, are_there};
use crate::command::gridpool;
use crate::infer::{has_runtime, model};
use crate::jobs::serves;
use crate::needs::is_root;
use crate::pool::{Pool, Setup, cpu};
use crate::stubbed::gpus;
use crate::traces::collector::{Answers, Collector};
use crate::wait::eventually;

/// A variable that no process of a pool needs, and its value.
const SECRET: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "planted-3f1c");

fn with_http(setup: Setup) -> Setup {
    setup.env("GRIDPOOL_HTTP", "127.0.0.1:0")
}

/// The processes of a pool that serve, by name.
fn processes(pool: &Pool) -> BTreeMap<String, u32> {
    let status = pool.until_status("helpers to be up", |status| {
        let monitor = status.monitor.as_ref().is_none_or(|monitor| monitor.up);
        monitor && status.http.as_ref().is_some_and(|http| http.up)
    });
    let workers = status.workers.iter().map(|row| (format!("{} {}", row.name, row.role), row.pid));
    let monitor = status.monitor.map(|monitor| ("monitor".to_owned(), monitor.pid));
    let gateway = status.http.map(|http| ("gateway".to_owned(), http.pid));
    workers.chain(monitor).chain(gateway).collect()
}

/// The values of a file of `/proc/PID` with lines such as `Seccomp: 2`.
fn proc_lines(path: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).expect("the process lives");
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[test]
fn a_secret_of_the_environment_reaches_no_process_of_the_pool() {
    let pool = with_http(gpus(1, "").env(SECRET.0, SECRET.1)).start();
    let processes = processes(&pool);
    assert_eq!(processes.len(), 3, "{processes:?}");
    for (name, pid) in processes {
        let environment = fs::read(format!("/proc/{pid}/environ")).expect("root may read it");
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(!environment.contains(SECRET.1), "{name}: {environment}");
        assert!(environment.contains("NO_COLOR=1"), "it has what it needs: {environment}");
    }
}

#[test]
fn each_thread_of_each_process_is_confined_before_it_serves() {
    let pool = with_http(gpus(1, "")).start();
    let cpu_pool = with_http(cpu(2)).start();
    serves(&cpu_pool.client());
    processes(&pool);
    let status = pool.status();
    let helpers =
        [status.monitor.expect("a GPU").protections, status.http.expect("up").protections];
    for said in helpers.into_iter().chain(status.workers.iter().map(|row| row.protections)) {
        assert!(said.no_new_privs && said.seccomp && said.no_capabilities, "{said:?}");
        assert_eq!(said.landlock, gridpool_ipc::sandbox::landlock_version());
    }
    for (name, pid) in processes(&pool).into_iter().chain(processes(&cpu_pool)) {
        is_confined(&name, pid, NO_CAPABILITY);
    }
}

const NO_CAPABILITY: &str = "0000000000000000";
/// `CAP_DAC_READ_SEARCH`.
const READS_ALL: &str = "0000000000000004";

/// Checks each thread of a process, which has these capabilities alone.
fn is_confined(name: &str, pid: u32, keeps: &str) {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let threads: Vec<_> = threads.map(|thread| thread.expect("a folder").path()).collect();
    assert!(threads.len() > 1 || name == "monitor", "{name} has threads");
    for thread in threads {
        let status = proc_lines(thread.join("status").to_str().expect("a readable path"));
        let of = |field: &str| status.get(field).map_or("", String::as_str);
        let got = ["NoNewPrivs", "Seccomp", "CapEff", "CapPrm", "CapInh", "CapAmb"].map(of);
        let none = NO_CAPABILITY;
        assert_eq!(got, ["1", "2", keeps, keeps, none, none], "{name} {}", of("Name"));
        assert_eq!(of("CapBnd"), keeps, "{name} {}", of("Name"));
    }
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it lives");
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let core: Vec<_> = core.expect("a limit").split_whitespace().skip(4).take(2).collect();
    assert_eq!(core, ["0", "0"], "{name} dumps no core");
}

/// A folder in which processes of a pool try what they may not do.
fn for_trespass(setup: &Setup) -> PathBuf {
    let folder = setup.folder().join("trespass");
    fs::create_dir(&folder).expect("a folder can be made");
    for file in ["model", "victim"] {
        fs::write(folder.join(file), "weights").expect("a file can be made");
    }
    folder
}

/// The log of a pool of which so many processes have tried everything once, and given so many orders.
fn after_trespass(pool: &Pool, processes: usize, orders: usize) -> String {
    let log = eventually("all to have tried", || {
        let log = pool.log();
        let done = log.matches(trespass::LAST).count();
        let ordered = log.matches("trespass what=an order").count();
        if done == processes && ordered == orders {
            Ok(log)
        } else {
            Err(format!("{done} of {processes}, {ordered} of {orders}:\n{log}"))
        }
    });
    let tried = log.matches("trespass what=").count();
    assert!(tried >= 30 * processes, "{log}");
    log
}

/// What was not refused, and how often.
fn allowed(log: &str) -> BTreeMap<&str, usize> {
    let tried = log.lines().filter(|line| !line.contains("refused=true"));
    let mut allowed = BTreeMap::new();
    for what in tried.filter_map(|line| line.split_once("trespass what=")) {
        *allowed.entry(what.1.split_once(" refused=").expect("a word").0).or_default() += 1;
    }
    allowed
}

/// The files of a folder. Nothing came, nothing went.
fn is_untouched(folder: &Path) {
    let files = fs::read_dir(folder).expect("it is there");
    let files = files.map(|entry| entry.expect("a file").file_name());
    assert_eq!(files.collect::<BTreeSet<_>>(), BTreeSet::from(["model".into(), "victim".into()]));
}

#[test]
fn the_bridge_the_tracer_and_a_worker_with_models_may_do_what_they_need_and_no_more() {
    let servers = are_there().then(|| Servers::start(1));
    let collector = Collector::open(Answers::Status(200));
    let setup = servers.as_ref().map_or_else(|| cpu(1), |servers| host(servers, "one", ""));
    let folder = for_trespass(&setup);
    let setup = setup.args(&["--trace", &collector.url()]);
    let mut setup = setup.env(trespass::VARIABLE, folder.to_str().expect("UTF-8"));
    let with_models = usize::from(has_runtime());
    if with_models > 0 {
        setup = setup.args(&["--model", &format!("mlp={}", model("mlp").display())]);
    }
    let pool = setup.start();
    // Beside the worker of grids and the tracer.
    let bridges = usize::from(servers.is_some());
    let log = after_trespass(&pool, 2 + bridges + with_models, 4 * bridges);
    let networked = 1 + bridges;
    let mut may =
        BTreeMap::from([("\"a UDP socket\"", networked), ("\"connect by TCP\"", networked)]);
    if with_models > 0 {
        may.extend([("\"read a file\"", 1), ("\"read /etc/passwd\"", 1)]);
    }
    assert_eq!(allowed(&log), may);
    assert!(log.contains("the tracer is a process of this pool, and no client of it"), "{log}");
    is_untouched(&folder);
    let status = pool.status();
    is_confined("tracer", status.tracer.expect("it sends traces").pid, NO_CAPABILITY);
    if bridges > 0 {
        is_confined("bridge", status.nats.expect("it is a host").pid, NO_CAPABILITY);
    }
    for worker in status.workers {
        let reads = worker.role == "infer" && nix::unistd::geteuid().is_root();
        is_confined(&worker.name, worker.pid, if reads { READS_ALL } else { NO_CAPABILITY });
    }
    serves(&pool.client());
}

#[test]
fn a_worker_and_the_gateway_are_refused_all_that_they_must_not_do() {
    let setup = with_http(cpu(1));
    let folder = for_trespass(&setup);
    let pool = setup.env(trespass::VARIABLE, folder.to_str().expect("UTF-8")).start();
    let log = after_trespass(&pool, 2, 4);
    assert_eq!(allowed(&log), BTreeMap::new());
    is_untouched(&folder);
    // The filter's word: there is no such socket.
    let kept =
        format!("trespass what=\"{}\" refused=true came=Err(Os {{ code: 1,", trespass::AS_CLIENT);
    assert!(log.contains(&kept), "{log}");
    serves(&pool.client());
}

#[test]
fn a_worker_that_may_connect_is_no_client_of_its_pool() {
    let setup = gpus(1, "");
    let folder = setup.folder().join("trespass");
    fs::create_dir(&folder).expect("a folder can be made");
    symlink(setup.socket(), folder.join(trespass::SOCKET)).expect("a link can be made");
    let pool = setup.env(trespass::VARIABLE, folder.to_str().expect("UTF-8")).start();
    let log = eventually("the worker to have tried", || {
        let log = pool.log();
        if log.contains(trespass::LAST) { Ok(log) } else { Err(log) }
    });
    let refused =
        format!("trespass what=\"{}\" refused=true came=Err(Os {{ code: 13,", trespass::AS_CLIENT);
    assert!(log.contains(&refused), "{log}");
    assert!(log.contains("gpu0#1 is a process of this pool, and no client of it"), "{log}");
    assert_eq!(pool.status().supervisor.refused["handshake"], 1);
    serves(&pool.client());
}

#[test]
fn a_process_of_the_same_user_cannot_look_into_a_worker_or_the_gateway() {
    const NOBODY: u32 = 65_534;
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
    let socket = folder.path().join("pool.sock");
    let serve = gridpool(["serve", "--devices", "cpu:1", "--http", "127.0.0.1:0", "--socket"]);
    let serve = serve.arg(&socket).env("HOME", folder.path()).of_user(NOBODY).start();
    let pids = eventually("worker and gateway", || {
        let status = gridpool(["status", "--json", "--socket"]).arg(&socket).of_user(NOBODY).run();
        let status: Value = serde_json::from_str(&status.stdout).map_err(|e| e.to_string())?;
        let (worker, gateway) = (&status["workers"][0], &status["http"]);
        let is_up = worker["state"] == "ready" && gateway["up"] == true;
        if is_up {
            Ok([worker["pid"].clone(), gateway["pid"].clone()])
        } else {
            Err(status.to_string())
        }
    });
    for (pid, file) in
        pids.iter().flat_map(|pid| ["environ", "maps", "mem"].map(|file| (pid, file)))
    {
        let path = format!("/proc/{pid}/{file}");
        let read = Command::new("cat").arg(&path).uid(NOBODY).gid(NOBODY).output().expect("cat");
        let said = String::from_utf8_lossy(&read.stderr).into_owned();
        assert!(said.contains("Permission denied"), "{path}: {said}");
    }
    gridpool(["drain", "--socket"]).arg(&socket).of_user(NOBODY).run().output();
    assert_eq!(serve.finish().code, Some(0));
}

#[test]
fn a_gpu_worker_keeps_the_drivers_kernels_in_a_folder_of_the_pool() {
    let pool = gpus(1, "").start();
    let environment = fs::read(format!("/proc/{}/environ", pool.pid("gpu0"))).expect("it lives");
    let folder = pool.folder().join("gridpool/kernels/grid");
    let named = format!("CUDA_CACHE_PATH={}\0", folder.display());
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(environment.contains(&named), "{environment}");
    assert_eq!(fs::metadata(&folder).expect("it was made").mode() & 0o777, 0o700);
}

#[test]
fn a_pool_without_a_sandbox_inherits_all_and_confines_nothing() {
    let pool = with_http(cpu(1).env(SECRET.0, SECRET.1).env("GRIDPOOL_SANDBOX", "off")).start();
    for (name, pid) in processes(&pool) {
        let environment = fs::read(format!("/proc/{pid}/environ")).expect("root may read it");
        assert!(String::from_utf8_lossy(&environment).contains(SECRET.1), "{name}");
        assert_eq!(proc_lines(&format!("/proc/{pid}/status"))["Seccomp"], "0", "{name}");
    }
}
