//! Checks of the machine that need no worker: kernel, memory, folders, the pool's socket.
//!
//! Each check reads a value, and a pure function decides. Nothing here starts a process.

use std::fs;
use std::io;
use std::path::Path;

use gridpool_client::{Client, ClientError};
use gridpool_ipc::arena::Arena;
use gridpool_ipc::maps;
use gridpool_ipc::memory::available_bytes;
use gridpool_protocol::build;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::diagnose::{Check, Group};
use indicatif::BinaryBytes;
use nix::sys::statvfs::statvfs;
use nix::sys::utsname::uname;

use crate::shell::{self, ListenError, Shell};

/// The oldest kernel: `close_range` with CLOSE_RANGE_CLOEXEC.
const KERNEL_MIN: (u32, u32) = (5, 11);
/// Bytes of the arena that the check makes.
const ARENA_BYTES: u64 = 16 << 20;
/// With less memory for all arenas, a large job fails.
const ARENAS_BYTES_MIN: u64 = 128 << 20;
/// With less free space, /dev/shm counts as full.
const SHM_BYTES_MIN: u64 = 1 << 20;

/// The name of the check that all checks of devices need.
pub(super) const WORKER_BINARY: &str = "worker binary";

pub(super) fn pass(name: &str, says: String) -> Check {
    Check::pass(Group::Environment, name, says)
}

pub(super) fn fail(name: &str, says: String, next: impl Into<String>) -> Check {
    Check::fail(Group::Environment, name, says, next)
}

/// Checks the kernel's version.
pub(super) fn kernel() -> Check {
    match uname() {
        Ok(name) => judge_kernel(&name.release().to_string_lossy()),
        Err(errno) => fail("kernel", errno.to_string(), "run gridpool on Linux"),
    }
}

fn judge_kernel(release: &str) -> Check {
    let (major, minor) = KERNEL_MIN;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    let version: Option<(u32, u32)> = numbers.next().zip(numbers.next());
    match version {
        Some(version) if version >= KERNEL_MIN => pass("kernel", format!("Linux {release}")),
        Some(_) | None => fail(
            "kernel",
            format!("Linux {release} is older than {major}.{minor}, which workers need"),
            format!("boot a kernel of {major}.{minor} or later"),
        ),
    }
}

/// Checks that there is memory for arenas.
pub(super) fn memory() -> Check {
    judge_memory(available_bytes())
}

fn judge_memory(available: Option<u64>) -> Check {
    const NAME: &str = "memory";
    let Some(available) = available else {
        return fail(NAME, "the free memory is unknown".to_owned(), "mount /proc");
    };
    let arenas = shell::arena_bytes_max(available);
    let check = if arenas < ARENAS_BYTES_MIN {
        fail(
            NAME,
            format!(
                "{} are free, by memory and cgroup limit: too little for large batches",
                binary(available)
            ),
            "end processes that hold memory, or raise the cgroup's limit (MemoryMax=, docker --memory)",
        )
    } else {
        let (free, arenas) = (binary(available), binary(arenas));
        pass(NAME, format!("{free} are free, by memory and cgroup limit; arenas may take {arenas}"))
    };
    check.fact("available_bytes", available).fact("arena_bytes_max", arenas)
}

/// Checks that shared memory can be created, sealed and filled.
pub(super) fn shared_memory() -> Check {
    const NAME: &str = "shared memory";
    let made = Arena::create(ARENA_BYTES).and_then(|arena| arena.map().map(|map| map.populate()));
    match made {
        Ok(()) => pass(
            NAME,
            format!("a sealed memfd of {} can be created and filled", binary(ARENA_BYTES)),
        ),
        Err(error) => fail(
            NAME,
            format!("a sealed memfd of {} cannot be created: {error}", binary(ARENA_BYTES)),
            "end processes that hold memory, or let the sandbox allow memfd_create and its seals",
        ),
    }
}

/// Checks that /dev/shm is not full: gridpool does not use it, but its clients may.
pub(super) fn dev_shm() -> Check {
    const NAME: &str = "/dev/shm";
    match statvfs(NAME) {
        Ok(stat) => {
            let block = stat.fragment_size();
            judge_dev_shm(stat.blocks() * block, stat.blocks_available() * block)
        }
        Err(errno) => Check::skip(
            Group::Environment,
            NAME,
            format!("/dev/shm is missing ({errno}); gridpool does not use it"),
            "mount it if clients need POSIX shared memory: `mount -t tmpfs tmpfs /dev/shm`",
        ),
    }
}

fn judge_dev_shm(total: u64, free: u64) -> Check {
    const NAME: &str = "/dev/shm";
    let check = if free < SHM_BYTES_MIN {
        let full = if free < total / 2 { "full" } else { "too small" };
        fail(
            NAME,
            format!(
                "{full}: {} of {} are free. gridpool does not use it, but its files take memory, and \
                 clients that use it (PyTorch, multiprocessing) fail",
                binary(free),
                binary(total)
            ),
            "list its files with `ls -l /dev/shm` and remove unused ones, or enlarge it: `mount -o \
             remount,size=1G /dev/shm`, docker --shm-size 1g",
        )
    } else {
        pass(NAME, format!("{} of {} are free", binary(free), binary(total)))
    };
    check.fact("free_bytes", free).fact("total_bytes", total)
}

/// Checks that a private pool can have its socket in the folder that was made for it in `folder`.
pub(super) fn temporary_folder(folder: &Path, socket: Result<&Path, &io::Error>) -> Check {
    const NAME: &str = "temporary folder";
    let place = folder.display();
    let next = "free space there, or name another folder with a short name by TMPDIR";
    let socket = match socket {
        Ok(socket) => socket,
        Err(error) => return fail(NAME, format!("{place} (TMPDIR): {error}"), next),
    };
    match Shell::claim(socket, None) {
        Ok(_claim) => pass(NAME, format!("{place} can hold the sockets of a pool")),
        Err(ListenError::TooLong(_)) => {
            let says = format!("{place} (TMPDIR) is too long for a socket in it");
            fail(NAME, says, next)
        }
        Err(error) => fail(NAME, format!("{place} (TMPDIR): {}", Chain(&error)), next),
    }
}

/// Checks that this process, which becomes a supervisor, holds no CUDA library.
pub(super) fn preloaded() -> Check {
    judge_preloaded(maps::own(), std::env::var("LD_PRELOAD").ok().as_deref())
}

fn judge_preloaded(maps: io::Result<String>, preload: Option<&str>) -> Check {
    const NAME: &str = "preloaded libraries";
    let next = match preload {
        Some(preload) => format!("remove it from LD_PRELOAD, which is `{preload}`"),
        None => {
            "find its loader with `LD_DEBUG=files gridpool --version`; look at /etc/ld.so.preload"
                .to_owned()
        }
    };
    let maps = match maps {
        Ok(maps) => maps,
        Err(error) => return fail(NAME, format!("/proc/self/maps: {error}"), "mount /proc"),
    };
    match maps::cuda_library(&maps) {
        None => pass(NAME, "no CUDA library in this process".to_owned()),
        Some(library) => fail(
            NAME,
            format!("{library} is loaded into every process here: no worker will start"),
            next,
        ),
    }
}

/// Checks that a pool runs at `socket`, or can.
pub(super) fn socket(socket: &Path) -> Check {
    const NAME: &str = "the pool's socket";
    let place = socket.display();
    match Client::connect(socket).and_then(|client| client.status()) {
        Ok(status) => {
            let (pid, workers) = (status.supervisor.pid, status.workers.len());
            let says = format!("a pool is running at {place}: pid {pid}, workers: {workers}");
            return pass(NAME, says).fact("pid", pid);
        }
        Err(ClientError::NoPool { .. }) => {}
        Err(error @ ClientError::Version { .. }) => {
            return fail(
                NAME,
                format!("another build of gridpool serves {place}: {error}"),
                "stop it with its own `gridpool drain`, then start this build",
            );
        }
        Err(error @ (ClientError::NotAllowed { .. } | ClientError::OtherUser { .. })) => {
            let next = "do what it says; or name another socket with --socket, and to every client";
            return fail(NAME, Chain(&error).to_string(), next);
        }
        Err(error) => {
            return fail(
                NAME,
                format!("the process that serves {place} does not answer: {error}"),
                format!("find it with `ss -xlp src {place}`"),
            );
        }
    }
    let is_stale = fs::symlink_metadata(socket).is_ok();
    match Shell::could_claim(socket) {
        Ok(()) => {
            let was =
                if is_stale { "; the socket of a killed supervisor does no harm" } else { "" };
            pass(NAME, format!("no pool runs at {place}, and one can start{was}"))
        }
        Err(error) => {
            let next = "do as it says, or name another socket with --socket, also to every client";
            fail(NAME, Chain(&error).to_string(), next)
        }
    }
}

/// Checks that the worker's binary is of this build, by the output of its `--version`.
pub(super) fn worker_version(program: &Path, printed: Result<String, String>) -> Check {
    let (place, ours) = (program.display(), build::text());
    let printed = match printed {
        Ok(printed) => printed,
        Err(error) => {
            let says = format!("{place} cannot be run: {error}");
            return fail(
                WORKER_BINARY,
                says,
                "build it with `cargo build --release` on this machine",
            );
        }
    };
    // The next lines are about its kernels.
    let printed = printed.trim().lines().next().unwrap_or_default();
    let theirs = printed.strip_prefix("gridpool-worker ").unwrap_or(printed);
    let check = if theirs == ours {
        pass(WORKER_BINARY, format!("{place}, {ours}, the same build as this program"))
    } else {
        fail(
            WORKER_BINARY,
            format!("{place} is {}, this program is {ours}", describe(theirs)),
            "build both with `cargo build --release`, or name the right one with --worker-bin",
        )
    };
    check.fact("path", place)
}

/// The version that an unknown program prints.
fn describe(version: &str) -> String {
    let line = version.lines().next().unwrap_or_default();
    match line.chars().take(60).collect::<String>() {
        nothing if nothing.is_empty() => "a program that prints no version".to_owned(),
        text => crate::cli::show::printable(&text),
    }
}

fn binary(bytes: u64) -> BinaryBytes {
    BinaryBytes(bytes)
}

/// Asserts that a check failed with these words and says what to do.
#[cfg(test)]
#[track_caller]
pub(super) fn fails(check: &Check, words: &str) {
    assert_eq!(check.outcome, gridpool_protocol::diagnose::Outcome::Fail, "{check:?}");
    assert!(check.says.contains(words), "{check:?}");
    assert!(!check.next.is_empty(), "{check:?}");
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn an_old_kernel_or_an_unreadable_version_fails() {
        for release in ["5.11.0", "6.8.0-45-generic", "10.0"] {
            assert_eq!(judge_kernel(release).outcome, Outcome::Pass, "{release}");
        }
        for release in ["5.10.9", "4.19.0-x", "", "x"] {
            fails(&judge_kernel(release), "older than 5.11");
        }
    }

    #[test]
    fn full_memory_and_full_dev_shm_fail() {
        fails(&judge_memory(Some(100 << 20)), "100.00 MiB are free");
        fails(&judge_memory(None), "unknown");
        assert_eq!(judge_memory(Some(1 << 30)).outcome, Outcome::Pass);
        fails(&judge_dev_shm(64 << 20, 0), "full: 0 B of 64.00 MiB");
        fails(&judge_dev_shm(64 << 10, 64 << 10), "too small: 64.00 KiB of 64.00 KiB");
        assert_eq!(judge_dev_shm(64 << 20, 2 << 20).outcome, Outcome::Pass);
    }

    #[test]
    fn a_preloaded_library_is_named() {
        let maps = |path: &str| Ok(format!("7f00-7f01 r-xp 00000000 08:01 42 {path}\n"));
        let check = judge_preloaded(maps("/x/libtorch_cuda.so"), Some("/x/libtorch_cuda.so"));
        fails(&check, "/x/libtorch_cuda.so is loaded into every process");
        assert_eq!(check.next, "remove it from LD_PRELOAD, which is `/x/libtorch_cuda.so`");
        fails(&judge_preloaded(maps("/x/libcuda.so.1"), None), "libcuda.so.1");
        assert_eq!(judge_preloaded(maps("/x/libc.so"), None).outcome, Outcome::Pass);
        fails(&judge_preloaded(Err(io::Error::other("gone")), None), "gone");
    }

    #[test]
    fn a_worker_of_another_build_is_found_by_its_version() {
        let program = Path::new("/bin/w");
        let version = |text: &str| worker_version(program, Ok(text.to_owned()));
        let ours = format!("gridpool-worker {}\nkernels 00 on a GPU\n", build::text());
        assert_eq!(version(&ours).outcome, Outcome::Pass);
        let old = "gridpool-worker 0.0.9 (protocol 8)";
        fails(&version(old), "/bin/w is 0.0.9 (protocol 8), this program is ");
        fails(&version("\x1b[1m"), "/bin/w is ");
        fails(&version(""), "prints no version");
        fails(&worker_version(program, Err("no".to_owned())), "/bin/w cannot be run: no");
    }

    #[test]
    fn the_checks_pass_or_fail_on_this_machine_as_they_should() {
        for check in [kernel(), shared_memory(), preloaded(), memory()] {
            assert_eq!(check.outcome, Outcome::Pass, "{check:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.sock");
        let check = temporary_folder(folder.path(), Ok(&path));
        assert_eq!(check.outcome, Outcome::Pass, "{check:?}");
        let long = folder.path().join("s".repeat(100));
        fails(&temporary_folder(folder.path(), Ok(&long)), "too long for a socket");
        let gone = io::Error::other("gone");
        fails(&temporary_folder(Path::new("/x"), Err(&gone)), "/x (TMPDIR): gone");
        let new = folder.path().join("new/deep/pool.sock");
        fails(&socket(&new), "there is no folder");
        assert!(!folder.path().join("new").exists(), "a check makes no folder");
        assert!(socket(&path).says.ends_with("and one can start"), "{:?}", socket(&path));
        fs::write(&path, "").unwrap();
        fails(&socket(&path), "exists and is not a socket");
        let check = socket(folder.path());
        fails(&check, "folder");
        assert!(!check.says.contains("remove"), "{check:?}");
    }
}
