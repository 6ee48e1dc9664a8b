//! Processes as the kernel shows them.

use std::fs::{self, DirEntry};
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::wait::eventually;

/// A child that does not outlive its test.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Takes a child over.
    pub fn new(child: Child) -> Self {
        Self { child }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// Waits for its end.
    pub fn exit(&mut self) -> ExitStatus {
        eventually("a process to end", || {
            self.child.try_wait().expect("a child can be waited for").ok_or("it runs")
        })
    }

    /// Kills it, for good and with no time for last words, and waits for its end.
    pub fn kill(&mut self) {
        signal(self.pid(), Signal::SIGKILL);
        self.exit();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have been waited for already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends a signal to a process that is there.
pub fn signal(pid: u32, signal: Signal) {
    let sent = kill(Pid::from_raw(i32::try_from(pid).expect("process numbers fit")), signal);
    assert!(matches!(sent, Ok(()) | Err(Errno::ESRCH)), "{signal} to {pid}: {sent:?}");
}

/// Stops a process and waits until it stands still.
pub fn stop(pid: u32) {
    signal(pid, Signal::SIGSTOP);
    // The signal takes a moment to reach a thread that runs.
    eventually("a process to stand still", || {
        let states = thread_states(pid);
        let stand = !states.is_empty() && states.iter().all(|&state| state == 'T');
        if stand { Ok(()) } else { Err(format!("{pid} is in states {states:?}")) }
    });
}

/// Lets a stopped process go on.
pub fn go_on(pid: u32) {
    signal(pid, Signal::SIGCONT);
}

/// Whether a process is there and has not ended.
pub fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Waits until none of these is left.
pub fn all_gone(pids: &[u32]) {
    eventually("processes to be gone", || {
        let left: Vec<_> = pids.iter().filter(|&&pid| lives(pid)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} live")) }
    });
}

/// The children of a process.
pub fn children(parent: u32) -> Vec<u32> {
    let is_child = |&pid: &u32| stat(pid).is_some_and(|stat| stat[1] == parent.to_string());
    everybody().filter(is_child).filter(|&pid| lives(pid)).collect()
}

/// Every process of the machine that we may see.
fn everybody() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").expect("/proc can be listed");
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Processor time that a process has used, in ticks of 10 ms.
pub fn ticks(pid: u32) -> u64 {
    let stat = stat(pid).unwrap_or_default();
    stat.iter().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// The parent of a process that is there.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// Children that have ended and were not waited for.
pub fn zombies(parent: u32) -> usize {
    let of_it = |&pid: &u32| stat(pid).is_some_and(|s| s[0] == "Z" && s[1] == parent.to_string());
    everybody().filter(of_it).count()
}

/// Processes whose command line has all of these words.
pub fn with_arguments(words: &[&str]) -> Vec<u32> {
    let has_all = |&pid: &u32| {
        let line = fs::read_to_string(proc(pid, "cmdline")).unwrap_or_default();
        words.iter().all(|word| line.split('\0').any(|argument| argument == *word))
    };
    everybody().filter(has_all).collect()
}

/// The memory that a process holds now, bytes, without the pages of its binary and libraries: those come
/// with the first use of a function, and the kernel drops them when it likes.
pub fn held(pid: u32) -> u64 {
    memory_but_files(pid, "VmRSS:")
}

/// The most memory that a process ever held, without the same.
pub fn most_held(pid: u32) -> u64 {
    memory_but_files(pid, "VmHWM:")
}

fn memory_but_files(pid: u32, all: &str) -> u64 {
    let status = fs::read_to_string(proc(pid, "status")).expect("the process lives");
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.expect("the kernel says so").parse::<u64>().expect("a number") << 10
    };
    bytes(all) - bytes("RssFile:")
}

/// Open descriptors, without the two files of the job log, which are there from the first verdict of their kind on.
pub fn descriptors(pid: u32) -> usize {
    let is_of_log = |entry: &io::Result<DirEntry>| {
        let name = entry.as_ref().ok().and_then(|entry| fs::read_link(entry.path()).ok());
        name.is_some_and(|name| name.extension().is_some_and(|it| it == "jsonl"))
    };
    let entries = fs::read_dir(proc(pid, "fd")).expect("the process lives");
    entries.filter(|entry| !is_of_log(entry)).count()
}

/// Open descriptors of arenas.
pub fn arenas(pid: u32) -> usize {
    let is_arena = |entry: &io::Result<DirEntry>| {
        // One that has been closed meanwhile has no name.
        let name = entry.as_ref().ok().and_then(|entry| fs::read_link(entry.path()).ok());
        name.is_some_and(|name| name.starts_with("/memfd:gridpool-arena (deleted)"))
    };
    fs::read_dir(proc(pid, "fd")).expect("the process lives").filter(is_arena).count()
}

/// Threads.
pub fn threads(pid: u32) -> usize {
    fs::read_dir(proc(pid, "task")).expect("the process lives").count()
}

/// What is mapped.
pub fn maps(pid: u32) -> String {
    fs::read_to_string(proc(pid, "maps")).expect("the process lives")
}

fn state(pid: u32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

/// The states of its threads that have not ended.
fn thread_states(pid: u32) -> Vec<char> {
    let threads = fs::read_dir(proc(pid, "task")).into_iter().flatten().flatten();
    let own = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    own.filter_map(state).filter(|state| !matches!(state, 'Z' | 'X')).collect()
}

/// The fields of `/proc/PID/stat` from the state on: the name before it may hold anything.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(proc(pid, "stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn proc(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Ports that are free now. Another process may take one before the server does; then the test fails.
///
/// # Panics
/// If no port is free.
pub fn free_ports(count: usize) -> Vec<u16> {
    let listen = |_| TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listeners: Vec<_> = (0..count).map(listen).collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    listeners.iter().map(port).collect()
}
