//! Connects to workers. ipc-channel leaks a socket each time that it connects to a worker that has ended, and waits
//! without end for one whose backlog is full.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::{AcceptConn, SockType};
use nix::sys::socket::{self, UnixAddr, getpeername, getsockopt};

use crate::mutex::Mutex;

/// The sockets that ipc-channel makes, while they are not connected.
static SOCKETS: Mutex<Sockets> = Mutex::new(Sockets { making: 0, has_leaked: false });

#[derive(Debug)]
struct Sockets {
    /// Calls that make one now.
    making: usize,
    /// Whether one of them has failed since there were none.
    has_leaked: bool,
}

/// Has ipc-channel connect to a listener, if that takes a connection in time. One whose backlog is full takes none. The
/// thread that waits for it ends with the listener.
pub(super) fn connect<T: Send + 'static>(
    timeout: Duration,
    connect: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (done, connected) = mpsc::channel();
    // If nobody waits any more, the connection ends here.
    let connect = move || drop(done.send(making(connect)));
    thread::Builder::new().name("connect".into()).spawn(connect)?;
    connected.recv_timeout(timeout).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => {
            let why = format!("its listener takes no connection within {timeout:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
        RecvTimeoutError::Disconnected => {
            Err(io::Error::other("the thread that was to connect has panicked"))
        }
    })
}

/// Has ipc-channel make a socket. What it leaks is closed by the last of such calls at a time: nobody else may be about
/// to connect then.
pub(super) fn making<T>(make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    SOCKETS.lock().making += 1;
    // A panic is a failure, too.
    let made = panic::catch_unwind(AssertUnwindSafe(make));
    let mut sockets = SOCKETS.lock();
    sockets.making -= 1;
    sockets.has_leaked |= !matches!(made, Ok(Ok(_)));
    if sockets.making == 0 && sockets.has_leaked {
        match close() {
            Ok(()) => sockets.has_leaked = false,
            // The next such call tries again.
            Err(error) => tracing::warn!(%error, "sockets to workers that have ended stay open"),
        }
    }
    drop(sockets);
    made.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Closes them. The caller has locked [`SOCKETS`], and none is being made.
fn close() -> io::Result<()> {
    for fd in unconnected()? {
        #[expect(unsafe_code, reason = "ipc-channel has forgotten the descriptor")]
        // SAFETY: nobody owns it. Only ipc-channel makes sockets of this type; it returned an error instead of
        // this one, and it makes no other while the caller holds the lock.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    Ok(())
}

/// The sequenced-packet sockets of this process that neither are connected nor listen.
fn unconnected() -> io::Result<Vec<RawFd>> {
    let entries = fs::read_dir("/proc/self/fd")?.map_while(Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&fd| is_unconnected(fd)).collect())
}

fn is_unconnected(fd: RawFd) -> bool {
    #[expect(unsafe_code, reason = "the number of a descriptor that another thread may close")]
    // SAFETY: it is only asked what it is; a number that is closed meanwhile gives an error.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    getsockopt(&socket, SockType) == Ok(socket::SockType::SeqPacket)
        && getsockopt(&socket, AcceptConn) == Ok(false)
        && getpeername::<UnixAddr>(fd) == Err(Errno::ENOTCONN)
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use gridpool_protocol::message::ToWorker;
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType};

    use super::super::{IpcSender, Listener, Sender};
    use super::*;
    use crate::clock;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Looks at the sockets again and again, until there is something to say of them.
    fn eventually<T>(say: impl Fn(&Sockets) -> Option<T>) -> T {
        let began = clock::now();
        while began.elapsed() < TIMEOUT {
            if let Some(said) = say(&SOCKETS.lock()) {
                return said;
            }
            thread::yield_now();
        }
        panic!("not within {TIMEOUT:?}: {:?}", SOCKETS.lock());
    }

    /// The leaked sockets, once no other test makes one.
    fn leaked() -> Vec<RawFd> {
        eventually(|sockets| (sockets.making == 0).then(|| unconnected().unwrap()))
    }

    /// A listener that nobody accepts from, and a connection that fills its backlog.
    fn full_listener(path: &Path) -> io::Result<(OwnedFd, OwnedFd)> {
        let new = |flags| socket::socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
        let address = UnixAddr::new(path)?;
        let listener = new(SockFlag::SOCK_CLOEXEC)?;
        socket::bind(listener.as_raw_fd(), &address)?;
        socket::listen(&listener, Backlog::new(0)?)?;
        let first = new(SockFlag::SOCK_NONBLOCK)?;
        socket::connect(first.as_raw_fd(), &address)?;
        let second = new(SockFlag::SOCK_NONBLOCK)?;
        assert_eq!(socket::connect(second.as_raw_fd(), &address), Err(Errno::EAGAIN));
        Ok((listener, first))
    }

    #[test]
    fn a_listener_that_takes_no_connection_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full");
        let (listener, _first) = making(|| full_listener(&path)).unwrap();
        let connect_to = path.to_str().unwrap().to_owned();
        let blocked = thread::spawn(move || {
            connect(TIMEOUT, move || IpcSender::<()>::connect(connect_to).map(drop))
        });
        eventually(|sockets| (sockets.making > 0).then_some(()));
        let (done, others) = mpsc::channel();
        thread::spawn(move || {
            let (listener, name) = Listener::open(&env::temp_dir()).unwrap();
            Sender::connect(&name).unwrap().send(&ToWorker::Stop).unwrap();
            done.send(listener.accept().unwrap().recv().unwrap()).unwrap();
        });
        assert_eq!(others.recv_timeout(TIMEOUT), Ok(ToWorker::Stop), "another is connected to");
        // It ends with its listener, and what was leaked is closed.
        drop(listener);
        let error = blocked.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
        assert_eq!(leaked(), []);
    }

    #[test]
    fn a_connection_that_is_not_taken_in_time_is_an_error_that_says_so() {
        let (end, ends) = mpsc::channel::<()>();
        let late = connect(Duration::from_millis(1), move || Ok(ends.recv().is_err()));
        assert_eq!(late.unwrap_err().to_string(), "its listener takes no connection within 1ms");
        drop(end);
    }

    #[test]
    fn a_panic_is_told_apart_from_a_timeout_and_leaves_nothing_behind() {
        let error = connect(TIMEOUT, || -> io::Result<()> { panic!("on purpose") }).unwrap_err();
        assert_eq!(error.to_string(), "the thread that was to connect has panicked");
        assert_eq!(leaked(), []);
    }

    #[test]
    fn a_worker_that_ended_before_it_was_connected_to_costs_no_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        // The name of a socket that nothing listens at.
        let name = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&name).unwrap());
        for _ in 0..20 {
            assert!(Sender::connect(name.to_str().unwrap()).is_err());
        }
        assert_eq!(leaked(), []);
    }
}
