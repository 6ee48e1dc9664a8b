//! The machine as this process finds it, without a worker: limits, memory, folders, the pool's socket.
//!
//! Each check reads one thing and has it judged by a plain function. Nothing here starts a process.

use std::fs;
use std::io;
use std::path::Path;

use gridpool_protocol::arena::Arena;
use gridpool_protocol::client::{Client, ClientError};
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::memory::available_bytes;
use gridpool_protocol::{build, maps};
use indicatif::BinaryBytes;
use nix::sys::resource::{Resource, getrlimit, rlim_t};
use nix::sys::statvfs::statvfs;
use nix::sys::utsname::uname;

use crate::shell::{self, Shell};

/// The oldest kernel: `close_range` with CLOSE_RANGE_CLOEXEC.
const KERNEL_MIN: (u32, u32) = (5, 11);
/// Bytes of the arena that is made to see that one can be.
const ARENA_BYTES: u64 = 16 << 20;
/// Less than this that all arenas may take together is too little for one large job.
const ARENAS_BYTES_MIN: u64 = 128 << 20;
/// Less room than this in /dev/shm is none.
const SHM_BYTES_MIN: u64 = 1 << 20;
/// Descriptors for a few clients with some arenas each, beside those that the pool needs itself.
const CLIENT_DESCRIPTORS_MIN: usize = 64;
/// Whoever has no limit.
const UNLIMITED: rlim_t = rlim_t::MAX;

/// The name of the check without which nothing is tried on a device.
pub(super) const WORKER_BINARY: &str = "worker binary";
const OPEN_FILES: &str = "open files";

fn pass(name: &str, says: String) -> Check {
    Check::pass(Group::Environment, name, says)
}

pub(super) fn fail(name: &str, says: String, next: impl Into<String>) -> Check {
    Check::fail(Group::Environment, name, says, next)
}

/// The kernel's version.
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

/// Whether a pool over so many devices has the descriptors that it needs, once it has raised its limit.
pub(super) fn open_files(devices: usize, standbys: u32) -> Check {
    shell::raise_descriptor_limit();
    let needed = Shell::descriptors_needed(devices, standbys) + CLIENT_DESCRIPTORS_MIN;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) => judge_open_files(soft, needed as u64, devices),
        Err(errno) => fail(OPEN_FILES, errno.to_string(), "raise it with `ulimit -n 4096`"),
    }
}

fn judge_open_files(limit: rlim_t, needed: u64, devices: usize) -> Check {
    let devices = match devices {
        1 => "one device".to_owned(),
        devices => format!("{devices} devices"),
    };
    let check = match limit >= needed {
        true => {
            let limit = if limit == UNLIMITED { "any number".into() } else { limit.to_string() };
            pass(OPEN_FILES, format!("{limit}; a pool of {devices} needs {needed}"))
        }
        false => fail(
            OPEN_FILES,
            format!("at most {limit} may be open; a pool of {devices} needs {needed}"),
            "type `ulimit -Hn 4096 && ulimit -n 4096` in the shell that starts the pool (root may \
             have to allow that), or write LimitNOFILE=65536 into its systemd unit",
        ),
    };
    check.fact("limit", limit).fact("needed", needed)
}

/// Limits that a CUDA process, or shared memory, does not survive.
pub(super) fn address_space(has_gpus: bool) -> Check {
    let of = |resource| getrlimit(resource).map_or(UNLIMITED, |(soft, _)| soft);
    judge_limits(of(Resource::RLIMIT_AS), of(Resource::RLIMIT_FSIZE), has_gpus)
}

fn judge_limits(address_space: rlim_t, file_size: rlim_t, has_gpus: bool) -> Check {
    const NAME: &str = "address space";
    if file_size < ARENA_BYTES {
        return fail(
            NAME,
            format!("files, and shared memory with them, may have {file_size} bytes (ulimit -f)"),
            "type `ulimit -f unlimited` in the shell that starts the pool",
        );
    }
    match address_space {
        UNLIMITED => pass(NAME, "not limited".to_owned()),
        bytes if has_gpus => fail(
            NAME,
            format!(
                "limited to {} (ulimit -v): CUDA reserves far more than it uses",
                binary(bytes)
            ),
            "type `ulimit -v unlimited` in the shell that starts the pool",
        ),
        bytes => pass(NAME, format!("limited to {}", binary(bytes))),
    }
}

/// Whether there is memory for arenas.
pub(super) fn memory() -> Check {
    judge_memory(available_bytes())
}

fn judge_memory(available: Option<u64>) -> Check {
    const NAME: &str = "memory";
    let Some(available) = available else {
        return fail(NAME, "nothing says how much is free".to_owned(), "mount /proc");
    };
    let arenas = shell::arena_bytes_max(available);
    let check = if arenas < ARENAS_BYTES_MIN {
        fail(
            NAME,
            format!(
                "{} are free, the cgroup's limit included: too little for large batches",
                binary(available)
            ),
            "end what holds memory, or raise the limit of the cgroup (MemoryMax=, docker --memory)",
        )
    } else {
        let (free, arenas) = (binary(available), binary(arenas));
        pass(
            NAME,
            format!("{free} are free, the cgroup's limit included; arenas may take {arenas}"),
        )
    };
    check.fact("available_bytes", available).fact("arena_bytes_max", arenas)
}

/// Whether shared memory can be made, sealed and filled.
pub(super) fn shared_memory() -> Check {
    const NAME: &str = "shared memory";
    let made = Arena::create(ARENA_BYTES).and_then(|arena| arena.map().map(|map| map.populate()));
    match made {
        Ok(()) => {
            pass(NAME, format!("a sealed memfd of {} was made and filled", binary(ARENA_BYTES)))
        }
        Err(error) => fail(
            NAME,
            format!("a sealed memfd of {} cannot be made: {error}", binary(ARENA_BYTES)),
            "end what holds memory, or have the sandbox allow memfd_create and its seals",
        ),
    }
}

/// Whether /dev/shm is full: gridpool keeps nothing there, but what runs beside it does.
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
            format!("there is none here ({errno}); gridpool keeps nothing there"),
            "mount it if clients need POSIX shared memory: `mount -t tmpfs tmpfs /dev/shm`",
        ),
    }
}

fn judge_dev_shm(total: u64, free: u64) -> Check {
    const NAME: &str = "/dev/shm";
    let check = if free < SHM_BYTES_MIN {
        fail(
            NAME,
            format!(
                "full: {} of {} are free. gridpool keeps nothing there, but what lies there takes \
                 memory, and clients that use it (PyTorch, multiprocessing) fail",
                binary(free),
                binary(total)
            ),
            "see what it holds with `ls -l /dev/shm`, and remove what nobody uses",
        )
    } else {
        pass(NAME, format!("{} of {} are free", binary(free), binary(total)))
    };
    check.fact("free_bytes", free).fact("total_bytes", total)
}

/// Whether there is room for the sockets of private pools.
pub(super) fn temporary_folder() -> Check {
    const NAME: &str = "temporary folder";
    let folder = std::env::temp_dir();
    let made = tempfile::tempdir().and_then(|dir| fs::write(dir.path().join("try"), [0; 4_096]));
    match made {
        Ok(()) => pass(NAME, format!("{} can be written to", folder.display())),
        Err(error) => fail(
            NAME,
            format!("{} cannot be written to: {error}", folder.display()),
            "make room there, or name another folder with TMPDIR",
        ),
    }
}

/// Whether this process, which is a supervisor when it runs a pool, holds a CUDA library.
pub(super) fn preloaded() -> Check {
    judge_preloaded(maps::own(), std::env::var("LD_PRELOAD").ok().as_deref())
}

fn judge_preloaded(maps: io::Result<String>, preload: Option<&str>) -> Check {
    const NAME: &str = "preloaded libraries";
    let next = match preload {
        Some(preload) => format!("take it out of LD_PRELOAD, which is `{preload}`"),
        None => "see what loads it: `LD_DEBUG=files gridpool --version`; /etc/ld.so.preload may"
            .to_owned(),
    };
    let maps = match maps {
        Ok(maps) => maps,
        Err(error) => return fail(NAME, format!("/proc/self/maps: {error}"), "mount /proc"),
    };
    match maps::foreign_library(&maps).or_else(|| maps::driver_library(&maps)) {
        None => pass(NAME, "no CUDA library in this process".to_owned()),
        Some(library) => fail(
            NAME,
            format!("{library} is in every process that is started here: no worker will start"),
            next,
        ),
    }
}

/// Whether a pool can be had at `socket`, or is there.
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
                "stop it with its own `gridpool drain`, and start this one",
            );
        }
        Err(error) => {
            return fail(
                NAME,
                format!("what serves {place} does not answer: {error}"),
                format!("see who it is with `ss -xlp src {place}`"),
            );
        }
    }
    let is_stale = fs::symlink_metadata(socket).is_ok();
    match Shell::claim(socket) {
        Ok(_claim) => {
            let was = if is_stale { "; a killed supervisor's was removed" } else { "" };
            pass(NAME, format!("nobody serves {place}, and a pool can{was}"))
        }
        Err(error) => fail(NAME, error.to_string(), "do what it says, then run this again"),
    }
}

/// Whether the worker's binary is of this build, by what its `--version` printed.
pub(super) fn worker_version(program: &Path, printed: io::Result<String>) -> Check {
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
    let printed = printed.trim();
    let theirs = printed.strip_prefix("gridpool-worker ").unwrap_or(printed);
    let check = if theirs == ours {
        pass(WORKER_BINARY, format!("{place}, {ours}, as this program"))
    } else {
        fail(
            WORKER_BINARY,
            format!("{place} is {}, this program is {ours}", describe(theirs)),
            "build both with `cargo build --release`, or name the right one with --worker-bin",
        )
    };
    check.fact("path", place)
}

/// What something calls itself that may be anything.
fn describe(version: &str) -> String {
    let line = version.lines().next().unwrap_or_default();
    match line.chars().take(60).collect::<String>() {
        nothing if nothing.is_empty() => "silent about its version".to_owned(),
        text => crate::cli::show::printable(&text),
    }
}

fn binary(bytes: u64) -> BinaryBytes {
    BinaryBytes(bytes)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    fn fails(check: &Check, words: &str) {
        assert_eq!(check.outcome, Outcome::Fail, "{check:?}");
        assert!(check.says.contains(words), "{check:?}");
        assert!(!check.next.is_empty(), "{check:?}");
    }

    #[test]
    fn an_old_kernel_or_none_that_can_be_read_fails() {
        for release in ["5.11.0", "6.8.0-45-generic", "10.0"] {
            assert_eq!(judge_kernel(release).outcome, Outcome::Pass, "{release}");
        }
        for release in ["5.10.9", "4.19.0-x", "", "x"] {
            fails(&judge_kernel(release), "older than 5.11");
        }
    }

    #[test]
    fn too_few_descriptors_fail_with_both_numbers() {
        fails(
            &judge_open_files(64, 200, 2),
            "at most 64 may be open; a pool of 2 devices needs 200",
        );
        assert_eq!(judge_open_files(200, 200, 1).outcome, Outcome::Pass);
        assert!(judge_open_files(UNLIMITED, 200, 1).says.starts_with("any number; a pool of one"));
    }

    #[test]
    fn a_limited_address_space_is_a_fault_for_gpus_alone() {
        fails(&judge_limits(1 << 30, UNLIMITED, true), "1.00 GiB");
        assert_eq!(judge_limits(1 << 30, UNLIMITED, false).outcome, Outcome::Pass);
        fails(&judge_limits(UNLIMITED, 1_024, false), "1024 bytes (ulimit -f)");
    }

    #[test]
    fn memory_and_dev_shm_that_are_full_fail() {
        fails(&judge_memory(Some(100 << 20)), "100.00 MiB are free");
        fails(&judge_memory(None), "nothing says");
        assert_eq!(judge_memory(Some(1 << 30)).outcome, Outcome::Pass);
        fails(&judge_dev_shm(64 << 20, 0), "full: 0 B of 64.00 MiB");
        assert_eq!(judge_dev_shm(64 << 20, 2 << 20).outcome, Outcome::Pass);
    }

    #[test]
    fn a_library_that_is_preloaded_is_named() {
        let maps = |path: &str| Ok(format!("7f00-7f01 r-xp 00000000 08:01 42 {path}\n"));
        let check = judge_preloaded(maps("/x/libtorch_cuda.so"), Some("/x/libtorch_cuda.so"));
        fails(&check, "/x/libtorch_cuda.so is in every process");
        assert_eq!(check.next, "take it out of LD_PRELOAD, which is `/x/libtorch_cuda.so`");
        fails(&judge_preloaded(maps("/x/libcuda.so.1"), None), "libcuda.so.1");
        assert_eq!(judge_preloaded(maps("/x/libc.so"), None).outcome, Outcome::Pass);
        fails(&judge_preloaded(Err(io::Error::other("gone")), None), "gone");
    }

    #[test]
    fn a_worker_of_another_build_is_told_by_what_it_prints() {
        let program = Path::new("/bin/w");
        let version = |text: &str| worker_version(program, Ok(text.to_owned()));
        let ours = format!("gridpool-worker {}\n", build::text());
        assert_eq!(version(&ours).outcome, Outcome::Pass);
        let old = "gridpool-worker 0.0.9 (protocol 8)";
        fails(&version(old), "/bin/w is 0.0.9 (protocol 8), this program is ");
        fails(&version("\x1b[1m"), "/bin/w is ");
        fails(&version(""), "silent about its version");
        fails(&worker_version(program, Err(io::Error::other("no"))), "/bin/w cannot be run: no");
    }

    #[test]
    fn what_this_machine_has_is_read() {
        for check in [kernel(), shared_memory(), temporary_folder(), preloaded(), memory()] {
            assert_eq!(check.outcome, Outcome::Pass, "{check:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.sock");
        assert!(socket(&path).says.ends_with("and a pool can"), "{:?}", socket(&path));
        fs::write(&path, "").unwrap();
        fails(&socket(&path), "exists and is not a socket");
    }
}
