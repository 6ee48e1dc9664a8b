//! For tests: a process tries what its sandbox must forbid, and says what became of it.

#![expect(unsafe_code, reason = "system calls that the sandbox forbids have no safe wrapper")]

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::thread;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

use gridpool_protocol::codec;
use gridpool_protocol::limits::{HANDSHAKE_TIMEOUT, PROTOCOL_VERSION};
use gridpool_protocol::message::{ClientMessage, ServerMessage};

use crate::frame::{self, FrameReader};

/// Names a folder with the file [`READABLE`]. A worker or gateway that has this variable tries everything once.
pub const VARIABLE: &str = "GRIDPOOL_TEST_TRESPASS";
/// For tests of a user who is not root: leaves the processes of a pool open to other processes of that user.
pub const INSPECTABLE: &str = "GRIDPOOL_TEST_INSPECTABLE";
/// A file in the folder.
pub const READABLE: &str = "model";
/// A link in the folder to the pool's socket.
pub const SOCKET: &str = "pool.sock";
/// The attempt to be a client of the pool.
pub const AS_CLIENT: &str = "be a client of the pool";

/// The last attempt of all.
pub const LAST: &str = "write in a thread";

/// What came of one attempt: its name, and whether the system allowed it.
pub type Attempt = (&'static str, io::Result<()>);

/// Tries everything, if the variable asks for it.
#[must_use]
pub fn of_this_process() -> Vec<Attempt> {
    let Some(folder) = env::var_os(VARIABLE).map(PathBuf::from) else { return Vec::new() };
    let mut attempts = with_files(&folder);
    attempts.extend(with_calls());
    // A thread that was started afterwards can do no more.
    let later = thread::spawn(move || File::create(folder.join("by a thread")).map(drop));
    attempts.push((LAST, later.join().unwrap_or(Ok(()))));
    attempts
}

/// The same for what the gateway may: a worker speaks to its pool as a client does, and sends a datagram.
#[must_use]
pub fn of_this_worker() -> Vec<Attempt> {
    let Some(folder) = env::var_os(VARIABLE).map(PathBuf::from) else { return Vec::new() };
    let datagrams = UnixDatagram::unbound().map(drop);
    vec![("a socket for datagrams", datagrams), (AS_CLIENT, greet(&folder.join(SOCKET)))]
}

/// Whether the pool welcomes a client.
fn greet(socket: &Path) -> io::Result<()> {
    let socket = UnixStream::connect(socket)?;
    let hello = frame::of(&ClientMessage::Hello { version: PROTOCOL_VERSION }, 0);
    frame::send_all(&socket, &hello.map_err(io::Error::other)?, &[])?;
    let answer = FrameReader::new(socket).read(Some(HANDSHAKE_TIMEOUT));
    let answer = answer.map_err(io::Error::other)?.ok_or(io::ErrorKind::TimedOut)?;
    match codec::decode(&answer.body) {
        Ok(ServerMessage::Closing { .. }) => Err(io::Error::from_raw_os_error(libc::EACCES)),
        answered => answered.map(|_: ServerMessage| ()).map_err(io::Error::other),
    }
}

fn with_files(folder: &Path) -> Vec<Attempt> {
    let file = folder.join(READABLE);
    vec![
        ("read a file", fs::read(&file).map(drop)),
        ("write a file", File::options().append(true).open(&file).map(drop)),
        ("make a file", File::create(folder.join("made")).map(drop)),
        ("make a folder", fs::create_dir(folder.join("folder"))),
        ("remove a file", fs::remove_file(folder.join("victim"))),
        ("write in /tmp", File::create(format!("/tmp/gridpool-trespass-{}", id())).map(drop)),
        ("write in /dev/shm", File::create(format!("/dev/shm/trespass-{}", id())).map(drop)),
        ("read /etc/passwd", fs::read("/etc/passwd").map(drop)),
        ("read the environment of the supervisor", of_the_supervisor("environ")),
        ("read the mappings of the supervisor", of_the_supervisor("maps")),
    ]
}

fn of_the_supervisor(file: &str) -> io::Result<()> {
    fs::read(format!("/proc/{}/{file}", getppid())).map(drop)
}

fn with_calls() -> Vec<Attempt> {
    let parent = getppid();
    let number = i64::from(parent.as_raw());
    vec![
        ("connect by TCP", TcpStream::connect("127.0.0.1:9").map(drop)),
        ("listen by TCP", TcpListener::bind("127.0.0.1:0").map(drop)),
        ("start a program", Command::new("/bin/true").status().map(drop)),
        ("fork", fork()),
        ("signal the supervisor", kill(parent, Signal::SIGCONT).map_err(Into::into)),
        ("signal another process", kill(Pid::from_raw(1), Signal::SIGCONT).map_err(Into::into)),
        ("trace the supervisor", call(libc::SYS_ptrace, [0x4206, number, 0])),
        ("read the memory of the supervisor", call(libc::SYS_process_vm_readv, [number, 0, 0])),
        ("open a handle on the supervisor", call(libc::SYS_pidfd_open, [number, 0, 0])),
        ("limit the supervisor", call(libc::SYS_prlimit64, [number, 7, 0])),
        ("mount", call(libc::SYS_mount, [0, 0, 0])),
        ("a namespace of its own", call(libc::SYS_unshare, [0x1000_0000, 0, 0])),
        ("bpf", call(libc::SYS_bpf, [0, 0, 0])),
        ("perf_event_open", call(libc::SYS_perf_event_open, [0, 0, 0])),
        ("keyctl", call(libc::SYS_keyctl, [0, -3, 0])),
        ("userfaultfd", call(libc::SYS_userfaultfd, [0, 0, 0])),
        ("io_uring", call(libc::SYS_io_uring_setup, [1, 0, 0])),
        ("load a module", call(libc::SYS_finit_module, [-1, 0, 0])),
        ("a packet socket", call(libc::SYS_socket, [17, 3, 0])),
        ("a UDP socket", call(libc::SYS_socket, [2, 2, 0])),
        ("be dumped again", call(libc::SYS_prctl, [4, 1, 0])),
        ("outlive the supervisor", call(libc::SYS_prctl, [1, 0, 0])),
        ("clone3", call(libc::SYS_clone3, [0, 0, 0])),
    ]
}

/// A call with arguments that are wrong, so that it fails in any case: EPERM, ENOSYS or another error tell.
fn call(number: libc::c_long, arguments: [i64; 3]) -> io::Result<()> {
    let [first, second, third] = arguments;
    // SAFETY: no argument is an address that the kernel could write to.
    let done = unsafe { libc::syscall(number, first, second, third) };
    nix::errno::Errno::result(done).map(drop).map_err(Into::into)
}

fn fork() -> io::Result<()> {
    // SAFETY: the child ends at once, without running a destructor.
    let child = unsafe { libc::fork() };
    match child {
        // SAFETY: it ends this child alone.
        0 => unsafe { libc::_exit(0) },
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether the sandbox refused it, as opposed to the call that failed for another reason.
#[must_use]
pub fn is_refused(attempt: &io::Result<()>) -> bool {
    let refusals = [libc::EPERM, libc::EACCES, libc::ENOSYS];
    let error = attempt.as_ref().err().and_then(io::Error::raw_os_error);
    error.is_some_and(|error| refusals.contains(&error))
}
