//! A pool whose socket a service manager has opened (`LISTEN_FDS`), with the test in the manager's place.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use gridpool_ipc::account::Account;
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};

use crate::jobs::serves;
use crate::pool::cpu;
use crate::wait::{eventually_so, within};

#[test]
fn a_pool_serves_the_socket_that_it_is_given_and_leaves_it_when_it_ends() {
    let setup = cpu(1);
    let listener = UnixListener::bind(setup.socket()).expect("a socket can be bound");
    // It comes before there is a pool.
    let early = UnixStream::connect(setup.socket()).expect("the manager listens");
    let given = listener.try_clone().expect("a descriptor can be copied");
    let pool = setup.passed(given, "1").start();
    serves(&pool.client());
    let late = UnixStream::connect(pool.socket()).expect("the pool listens");
    let (_, pid) = Account::and_pid_of_peer(&late).expect("the kernel knows");
    assert_eq!(pid, pool.supervisor.pid(), "clients see the pool behind the socket");
    let client = within("the early connection to be served", move || {
        gridpool_client::Client::builder().connect_over(early)
    });
    serves(&client.expect("it has waited for the pool"));
    // Another pool is refused, although it is given the same socket.
    let mut second = pool.setup().serve();
    assert_eq!(second.exit().code(), Some(69), "{}", pool.log());
    let environment = fs::read(format!("/proc/{}/environ", pool.pid("cpu0")));
    let environment = environment.expect("a worker's environment can be read");
    assert!(!String::from_utf8_lossy(&environment).contains("LISTEN_"));

    // The next pool is given it again, and clients have waited. So is the one that takes its place.
    let client = pool.client();
    pool.signal(Signal::SIGTERM);
    let setup = pool.ended();
    assert!(setup.socket().exists(), "it is the manager's");
    let waiting = std::thread::spawn(move || serves(&client));
    let pool = setup.start();
    within("the client", move || waiting.join().expect("it is served"));
    pool.cli(&["upgrade"]).run().output();
    let successor = pool.client().status().expect("a status").supervisor.pid;
    crate::processes::signal(successor, Signal::SIGTERM);
    crate::processes::all_gone(&[successor]);
    assert!(pool.socket().exists(), "it is still the manager's");
}

#[test]
fn a_pool_that_was_given_its_socket_keeps_it_when_its_lock_is_removed() {
    let setup = cpu(1);
    let listener = UnixListener::bind(setup.socket()).expect("a socket can be bound");
    let pool = setup.passed(listener, "1").start();
    let made = || fs::metadata(pool.socket()).expect("it is there").ino();
    let (before, lock) = (made(), pool.folder().join("pool.sock.lock"));
    fs::remove_file(&lock).expect("it is there");
    // The file is there a moment before it is locked.
    let is_locked = || pool.log().contains("was removed, and is there again");
    eventually_so("the lock to be there again", is_locked);
    let mut second = pool.setup().serve();
    assert_eq!(second.exit().code(), Some(69), "{}", pool.log());
    serves(&pool.client());
    assert_eq!(made(), before);
}

#[test]
fn a_pool_goes_on_while_another_process_has_its_lock_and_then_takes_it_again() {
    let pool = cpu(1).start();
    let made = || fs::metadata(pool.socket()).expect("it is there").ino();
    let (before, lock) = (made(), pool.folder().join("pool.sock.lock"));
    // As a second pool does it, before it finds the socket served.
    let other = pool.folder().join("other.lock");
    let taken = File::create(&other).expect("a file can be made");
    taken.lock().expect("nobody else knows it");
    fs::rename(&other, &lock).expect("a file can be renamed");
    eventually_so("the pool to notice", || pool.log().contains("cannot be made again yet"));
    serves(&pool.client());
    fs::remove_file(&lock).expect("it is there");
    drop(taken);
    eventually_so("the lock", || pool.log().contains("was removed, and is there again"));
    serves(&pool.client());
    assert_eq!(made(), before);
}

#[test]
fn what_is_given_and_is_no_socket_of_the_pool_is_named() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let other = folder.path().join("other.sock");
    let unix = || OwnedFd::from(UnixListener::bind(folder.path().join("x")).expect("a socket"));
    let elsewhere = OwnedFd::from(UnixListener::bind(&other).expect("a socket can be bound"));
    let tcp = OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a port is free"));
    let file = OwnedFd::from(File::open("/dev/null").expect("it is always there"));
    let wrong = [
        (unix(), "2", "LISTEN_FDS is \"2\": a pool takes one socket"),
        (tcp, "1", "is no Unix stream socket that listens at a path: write ListenStream="),
        (file, "1", "is no Unix stream socket that listens at a path: write ListenStream="),
    ];
    for (descriptor, count, words) in wrong {
        let setup = cpu(1).passed(descriptor, count);
        assert_eq!(setup.serve().exit().code(), Some(78), "{}", setup.log());
        assert!(setup.log().contains(words), "{}", setup.log());
    }
    // The folder has a socket of the pool's name, but another was passed; or it has none.
    for has_own in [true, false] {
        let setup = cpu(1);
        let bind = || UnixListener::bind(setup.socket()).expect("a socket can be bound");
        let _own = has_own.then(bind);
        let given = elsewhere.try_clone().expect("a descriptor can be copied");
        let setup = setup.clone().passed(given, "1");
        assert_eq!(setup.serve().exit().code(), Some(78), "{}", setup.log());
        let words =
            format!("the service manager listens at {}, and the pool's socket is", other.display());
        assert!(setup.log().contains(&words), "{}", setup.log());
    }
}

/// What becomes of a socket's file, and the listener that is there then.
type Loses<'a> = &'a dyn Fn(&Path) -> Option<UnixListener>;

#[test]
fn a_socket_that_nobody_reaches_is_no_socket_of_the_pool() {
    let removed = |path: &Path| {
        fs::remove_file(path).expect("it was just made");
        None
    };
    let replaced = |path: &Path| {
        fs::remove_file(path).expect("it was just made");
        Some(UnixListener::bind(path).expect("a socket can be bound"))
    };
    let unserved = |path: &Path| {
        drop(replaced(path));
        None
    };
    let nothing = |_: &Path| None;
    let ways: [(&str, Loses<'_>, bool); 4] = [
        ("removed", &removed, false),
        ("replaced by another's", &replaced, false),
        ("replaced by one that nobody serves", &unserved, false),
        ("shut down", &nothing, true),
    ];
    for (what, lose, is_shut) in ways {
        let setup = cpu(1);
        let listener = UnixListener::bind(setup.socket()).expect("a socket can be bound");
        let other = lose(&setup.socket());
        if is_shut {
            shutdown(listener.as_raw_fd(), Shutdown::Both).expect("it is a socket");
        }
        let kept = listener.try_clone().expect("a descriptor can be copied");
        let setup = setup.passed(listener, "1");
        assert_eq!(setup.serve().exit().code(), Some(78), "{what}: {}", setup.log());
        let words = "does not reach the socket that the service manager gives";
        assert!(setup.log().contains(words), "{what}: {}", setup.log());
        // A connection that waits would have the manager start a pool again.
        for listener in other.iter().chain([&kept]) {
            listener.set_nonblocking(true).expect("an option can be set");
            assert!(listener.accept().is_err(), "{what}: the pool has connected");
        }
    }
}

#[test]
fn a_pool_whose_given_socket_is_shut_down_or_replaced_serves_its_own() {
    for is_shut in [true, false] {
        let setup = cpu(1);
        let listener = UnixListener::bind(setup.socket()).expect("a socket can be bound");
        let kept = listener.try_clone().expect("a descriptor can be copied");
        let pool = setup.passed(listener, "1").start();
        if is_shut {
            shutdown(kept.as_raw_fd(), Shutdown::Both).expect("it is a socket");
        } else {
            let new = pool.folder().join("new.sock");
            drop(UnixListener::bind(&new).expect("a socket can be bound"));
            fs::rename(&new, pool.socket()).expect("a file can be renamed");
        }
        let told = if is_shut { "the socket was shut down" } else { "the socket was removed" };
        eventually_so("the pool to notice", || pool.log().contains(told));
        serves(&pool.client());
    }
}

#[test]
fn what_is_meant_for_another_process_is_not_taken() {
    let setup = cpu(1).env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    let pool = setup.start();
    serves(&pool.client());
    let setup = pool.setup().clone();
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
    eventually_so("the socket to be gone", || !setup.socket().exists());
}
