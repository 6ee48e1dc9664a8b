//! The gateway's process: its start, its replacement, its end with the pool.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use gridpool_protocol::status::WorkerState;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};

use super::{as_request, gateway_pid, get, http, post, post_aside, served, small, until_ready};
use crate::command::gridpool;
use crate::jobs::{serves, small_job};
use crate::pool::cpu;
use crate::processes::{all_gone, children, lives, maps, signal, stop};
use crate::wait::eventually_so;

#[test]
fn the_status_and_the_log_name_the_address() {
    let pool = served(cpu(1));
    let pid = gateway_pid(&pool);
    let status = pool.cli(&["status", "--json"]).run().document();
    let address = status["http"]["address"].as_str().expect("an address");
    assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
    assert_eq!(status["http"]["up"], true);
    assert_eq!(status["http"]["restarts"], 0);
    assert!(pool.log().contains(&format!("HTTP address={address}")), "{}", pool.log());
    let text = pool.cli(&["status"]).run().output();
    assert!(text.contains(&format!("http://{address}: served by pid {pid}")), "{text}");
    assert!(!maps(pid).contains("libcuda"));
    assert!(!maps(pool.supervisor.pid()).contains("libcuda"));
}

#[test]
fn a_pool_is_ready_whatever_the_quota_of_its_user() {
    let own = format!("{}:jobs=0", nix::unistd::geteuid());
    let pool = served(cpu(1).args(&["--quota", "default:jobs=0", "--quota", &own]));
    let refused = pool.client().submit(small_job(1).refuse_if_busy()).map(drop);
    assert!(refused.expect_err("no job is allowed").to_string().contains("by its quota"));
    let rows = pool.status().principals;
    let own = rows.iter().find(|row| row.principal == "gateway").expect("it had a job");
    assert!(own.done > 0 && own.quota.is_empty(), "{own:?}");
}

#[test]
fn a_pool_serves_no_http_unless_it_is_told_to() {
    let pool = cpu(1).start();
    assert_eq!(pool.status().http, None);
    assert_eq!(children(pool.supervisor.pid()), pool.pids());
}

#[test]
fn a_gateway_that_dies_or_hangs_is_replaced_and_the_pool_loses_nothing() {
    let pool = served(cpu(1));
    let first = gateway_pid(&pool);
    signal(first, Signal::SIGKILL);
    // The listening socket stays open, so connections wait meanwhile.
    assert_eq!(post(&pool, "/v2/models/rot90/infer", &as_request(&small())).status, 200);
    let second = gateway_pid(&pool);
    assert_ne!(first, second);
    assert_eq!(http(&pool).restarts, 1);
    let said = "the gateway is lost reason=it was ended by signal 9 (SIGKILL)";
    assert!(pool.log().contains(said), "{}", pool.log());
    stop(second);
    all_gone(&[second]);
    until_ready(&pool);
    assert_eq!(http(&pool).restarts, 2);
    let said = "the gateway has ended again: the next one starts in 200ms";
    assert!(pool.log().contains(said), "{}", pool.log());
    serves(&pool.client());
    assert_eq!(pool.slot("cpu0").generation, 1);
    pool.until_status("its connections to be gone", |status| status.supervisor.clients <= 7);
}

/// A descriptor of another process.
fn descriptor_of(pid: u32, number: i32) -> OwnedFd {
    let pid = libc::c_ulong::from(pid);
    let (own, other) = (0_usize, libc::c_long::from(number));
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the call takes plain numbers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, own) };
    let process = fd(process);
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the call takes plain numbers, and the descriptor is open.
    let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), other, own) };
    fd(taken)
}

fn fd(number: libc::c_long) -> OwnedFd {
    let number = Errno::result(number).expect("the system gives a descriptor");
    let number = i32::try_from(number).expect("descriptors fit i32");
    #[expect(unsafe_code, reason = "taking over a descriptor")]
    // SAFETY: the system has just made it for us.
    unsafe {
        OwnedFd::from_raw_fd(number)
    }
}

#[test]
fn a_listening_socket_that_was_shut_down_is_replaced() {
    let pool = served(cpu(1));
    let (first, address) = (gateway_pid(&pool), http(&pool).address);
    // As a gateway that was taken over could do it. It ends the socket for all who hold it.
    shutdown(descriptor_of(first, 0).as_raw_fd(), Shutdown::Both).expect("it listens");
    eventually_so("HTTP to be served again", || TcpStream::connect(&address).is_ok());
    until_ready(&pool);
    assert_ne!(gateway_pid(&pool), first);
    assert_eq!(http(&pool).address, address);
    assert!(pool.log().contains("HTTP: the socket was shut down, and is served again"));
    // Nor is the next gateway given a dead one.
    let second = gateway_pid(&pool);
    stop(second);
    shutdown(descriptor_of(second, 0).as_raw_fd(), Shutdown::Both).expect("it listens");
    signal(second, Signal::SIGKILL);
    eventually_so("HTTP to be served again", || TcpStream::connect(&address).is_ok());
    until_ready(&pool);
}

#[test]
fn a_unix_socket_that_was_shut_down_is_replaced() {
    let setup = cpu(1);
    let path = setup.folder().join("http.sock");
    let pool = setup.args(&["--http", &format!("unix:{}", path.display())]).start();
    let first = gateway_pid(&pool);
    shutdown(descriptor_of(first, 0).as_raw_fd(), Shutdown::Read).expect("it listens");
    assert!(UnixStream::connect(&path).is_err(), "it is dead");
    eventually_so("HTTP to be served again", || UnixStream::connect(&path).is_ok());
    eventually_so("another gateway", || gateway_pid(&pool) != first);
    assert!(pool.log().contains("HTTP: the socket was shut down, and is served again"));
    pool.observer().drain().expect("the pool accepts the command");
    pool.ends_well();
    assert!(!path.exists(), "it is removed in the end");
}

#[test]
fn a_gateway_that_hangs_does_not_hold_up_the_end_of_the_pool() {
    let pool = served(cpu(1));
    let gateway = gateway_pid(&pool);
    stop(gateway);
    pool.observer().drain().expect("the pool accepts the command");
    pool.ends_well();
    all_gone(&[gateway]);
}

#[test]
fn only_open_requests_are_lost_when_the_gateway_dies() {
    let pool = served(cpu(1));
    let worker = pool.stop("cpu0");
    let before = pool.status().counters;
    let lost = post_aside(&pool, "/v2/models/rot90/infer", &as_request(&small()));
    pool.until_status("the job", |status| status.counters.accepted > before.accepted);
    signal(gateway_pid(&pool), Signal::SIGKILL);
    assert!(lost.join().is_err(), "no gateway is there to answer");
    pool.until_status("its job to be cancelled", |s| s.counters.cancelled > before.cancelled);
    crate::processes::go_on(worker);
    pool.until("cpu0", "ready", |slot| slot.state == WorkerState::Ready);
    until_ready(&pool);
    serves(&pool.client());
}

#[test]
fn a_gateway_does_not_outlive_its_supervisor() {
    let pool = served(cpu(1));
    let gateway = gateway_pid(&pool);
    assert!(lives(gateway));
    let setup = pool.killed();
    all_gone(&[gateway]);
    let again = setup.start();
    until_ready(&again);
    let gateway = gateway_pid(&again);
    again.signal(Signal::SIGTERM);
    again.ends_well();
    all_gone(&[gateway]);
}

#[test]
fn an_address_that_cannot_be_served_is_refused_before_any_worker_starts() {
    // If the address were accepted, the missing worker binary would be the next error.
    let serve = |address: &str| {
        let socket = tempfile::tempdir().expect("a folder");
        let call = gridpool(["serve", "--devices", "cpu:1", "--worker-bin", "/none"]);
        let call = call.args(&["--http", address, "--insecure", "--socket"]);
        call.arg(socket.path().join("pool.sock")).run()
    };
    serve("8000").complains(2, &["--http: `8000` is not an address and port", "127.0.0.1:8000"]);
    serve("nohost:80").complains(2, &["`nohost:80` is not an address and port"]);
    // An address reserved for documentation: no machine has it.
    serve("192.0.2.1:8000").complains(78, &["HTTP cannot be served at 192.0.2.1:8000", "--http"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    serve(&address).complains(69, &["HTTP cannot be served", &address, "in use", "port 0"]);
}

#[test]
fn a_gateway_is_not_started_by_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    let call = gridpool(["gateway", "--supervisor-pid", "1", "--socket"]);
    let finished = call.arg(folder.path().join("pool.sock")).run();
    finished.complains(2, &["is started by `gridpool serve --http ADDR`"]);
    let pid = std::process::id().to_string();
    let call = gridpool(["gateway", "--supervisor-pid", &pid, "--socket"]);
    let finished = call.arg(folder.path().join("pool.sock")).run();
    finished.complains(2, &["is started by `gridpool serve --http ADDR`"]);
}

#[test]
fn the_supervisor_of_a_gateway_has_no_async_runtime() {
    let pool = served(cpu(1));
    for _ in 0..20 {
        assert_eq!(get(&pool, "/v2/health/ready").status, 200);
    }
    let threads = |pid: u32| -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        tasks.filter_map(|task| name(task.ok()?).ok()).collect()
    };
    let is_runtime = |name: &String| name.starts_with("tokio");
    assert!(!threads(pool.supervisor.pid()).iter().any(is_runtime));
    eventually_so("the gateway to have one", || threads(gateway_pid(&pool)).iter().any(is_runtime));
}
