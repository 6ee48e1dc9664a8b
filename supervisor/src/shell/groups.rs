//! A control group for each worker and for the gateway, with a limit of memory: one that runs away is killed by itself,
//! before the kernel has to choose among all processes of the machine.
//!
//! Only in a group that systemd has delegated to this service (`Delegate=memory`): others are not ours to divide.

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gridpool_ipc::memory;
use gridpool_protocol::ids::WorkerId;

/// Where version 2 is mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// The group of the supervisor and its helpers: a group with subgroups may hold no process itself.
const OWN: &str = "supervisor";
/// The attributes by which systemd marks a group that it has delegated.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// By which the unit says so itself: a user's manager sets neither mark (252 and 257), and before 251 the system's sets
/// only the one that root alone may read.
pub(crate) const DELEGATED: &str = "GRIDPOOL_DELEGATED";
/// Where the kernel tells what its buffers of TCP may have, and how much that usually is.
const TCP: &str = "/proc/sys/net/ipv4";
const SOCKET_BYTES_MAX: [(&str, u64); 2] = [("tcp_rmem", 6 << 20), ("tcp_wmem", 4 << 20)];
/// What a worker may not have of the memory that was available at the start: one part of this many.
const RESERVE: u64 = 8;

/// The groups of a pool's workers and of its gateway.
#[derive(Debug)]
pub(super) struct Groups {
    root: PathBuf,
    /// The supervisor: the one before it may still have workers of the same names.
    pid: u32,
    pub(super) bytes_max: u64,
}

impl Groups {
    /// Moves this process into a group beside those to come. `None` if workers get no groups; the log says why. The
    /// limit is at least `bytes_min`, that of the pool whose place this one takes: that one's workers make memory look
    /// scarce.
    pub(super) fn of_this_process(bytes_min: u64) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let declared = env::var_os(DELEGATED);
        let is_ours = |group: &Path| is_declared(declared.as_deref()) || is_marked(group);
        let found = delegated(Path::new(MOUNT), &groups, is_ours);
        let made = found.map_err(str::to_owned).and_then(|root| {
            let made = Self::divide(root, std::process::id(), bytes_min);
            made.map_err(|error| error.to_string())
        });
        match made {
            Ok(groups) => {
                let (root, bytes_max) = (groups.root.display(), groups.bytes_max);
                tracing::info!(%root, bytes_max, "each worker and the gateway have limits of memory");
                Some(groups)
            }
            Err(why) => {
                tracing::info!(
                    why,
                    "workers and the gateway have no limits of memory of their own"
                );
                None
            }
        }
    }

    /// Makes a group for `pid`, this process, and has others get limits of memory.
    fn divide(root: PathBuf, pid: u32, bytes_min: u64) -> io::Result<Self> {
        let own = root.join(OWN);
        make(&own)?;
        fs::write(own.join("cgroup.procs"), pid.to_string())?;
        fs::write(root.join("cgroup.subtree_control"), "+memory")?;
        let unknown = || io::Error::other("the available memory is unknown");
        let available = memory::available_bytes().ok_or_else(unknown)?;
        Ok(Self { root, pid, bytes_max: bytes_min.max(available - available / RESERVE) })
    }

    /// Moves a worker into a group of its own. It has read nothing of a client yet.
    pub(super) fn admit(&self, worker: WorkerId, pid: u32) {
        admit(&self.folder(worker), &worker, pid, self.bytes_max);
    }

    /// The same for a process of the gateway, which may have at most what a worker may.
    pub(super) fn admit_gateway(&self, pid: u32, bytes_max: u64) {
        admit(&self.gateway_folder(), &"the gateway", pid, self.bytes_max.min(bytes_max));
    }

    /// Removes the group of a worker that has ended.
    pub(super) fn remove(&self, worker: WorkerId) {
        remove(&self.folder(worker), &worker);
    }

    /// The same for the gateway.
    pub(super) fn remove_gateway(&self) {
        remove(&self.gateway_folder(), &"the gateway");
    }

    fn gateway_folder(&self) -> PathBuf {
        self.root.join(format!("gateway-{}", self.pid))
    }

    fn folder(&self, worker: WorkerId) -> PathBuf {
        let name = worker.to_string().replace('#', "-");
        self.root.join(format!("worker-{}-{}-{name}", self.pid, worker.group.role().name()))
    }
}

fn admit(folder: &Path, whose: &dyn Display, pid: u32, bytes_max: u64) {
    let admitted = make(folder).and_then(|()| {
        fs::write(folder.join("memory.max"), bytes_max.to_string())?;
        fs::write(folder.join("cgroup.procs"), pid.to_string())
    });
    if let Err(error) = admitted {
        let path = folder.display();
        tracing::warn!(process = %whose, %error, %path, "it has no limit of memory of its own");
    }
}

/// The most that the kernel holds for one TCP connection: what was received and not read, and what was written and not
/// acknowledged. It counts as memory of the process that has accepted it.
pub(super) fn bytes_of_socket() -> u64 {
    let read = |name: &str| fs::read_to_string(Path::new(TCP).join(name));
    let [received, sent] = SOCKET_BYTES_MAX.map(|(name, usual)| {
        let text = read(name).unwrap_or_default();
        largest(&text).unwrap_or(usual)
    });
    received.saturating_add(sent)
}

/// The last of the three numbers: the least, the first and the largest size.
fn largest(sizes: &str) -> Option<u64> {
    sizes.split_whitespace().nth(2)?.parse().ok()
}

fn remove(folder: &Path, whose: &dyn Display) {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let events = read("memory.events");
    let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
    if kills.is_some_and(|count| count.trim() != "0") {
        let bytes_max = read("memory.max");
        let bytes_max = bytes_max.trim();
        tracing::warn!(process = %whose, bytes_max, "the kernel killed it at its limit of memory");
    }
    if let Err(error) = fs::remove_dir(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(process = %whose, %error, "its group stays");
    }
}

/// The delegated group of a process, from the text of its `/proc/PID/cgroup`; the error says why it has none.
fn delegated(
    mount: &Path,
    groups: &str,
    is_ours: impl Fn(&Path) -> bool,
) -> Result<PathBuf, &'static str> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let group = group.ok_or("there is no control group of version 2")?;
    let mut root = mount.join(group);
    // `DelegateSubgroup=` has moved this process already.
    if root.file_name().is_some_and(|name| name == OWN) {
        root.pop();
    }
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    if !controllers.split_whitespace().any(|controller| controller == "memory") {
        return Err("its control group has no controller of memory");
    }
    if !is_ours(&root) {
        return Err("its control group is not delegated: a systemd unit needs Delegate=memory");
    }
    Ok(root)
}

/// Whether the unit says that its group is delegated.
fn is_declared(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| value == "1")
}

/// Whether systemd says that it has delegated a group.
fn is_marked(group: &Path) -> bool {
    let is_one = |name: &&str| {
        let mut value = [0; 8];
        rustix::fs::getxattr(group, *name, &mut value).is_ok_and(|len| value[..len] == *b"1")
    };
    MARKS.iter().any(is_one)
}

fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::ids::{DeviceId, DeviceKind, Group};

    use super::*;
    use crate::gateway::memory_max;

    /// A tree as the kernel has it, but of ordinary files: nothing here limits anything.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("system.slice/gridpool.service");
        fs::create_dir_all(group.join(OWN)).unwrap();
        fs::write(group.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        (mount, group)
    }

    #[test]
    fn only_a_delegated_group_with_memory_is_divided() {
        let (mount, group) = tree();
        let of = |groups: &str, is_marked| delegated(mount.path(), groups, |_| is_marked);
        let line = "0::/system.slice/gridpool.service\n";
        assert_eq!(of(line, true), Ok(group.clone()));
        assert_eq!(
            of(&format!("4:memory:/x\n0::/system.slice/gridpool.service/{OWN}\n"), true),
            Ok(group.clone())
        );
        assert!(of(line, false).unwrap_err().contains("Delegate=memory"));
        assert!(of("4:memory:/x\n", true).unwrap_err().contains("version 2"));
        assert!(of("0::/\n", true).unwrap_err().contains("no controller"));
        assert!(!is_marked(&group));
        assert!(is_declared(Some(OsStr::new("1"))));
        assert!(!is_declared(Some(OsStr::new("0"))) && !is_declared(None));
    }

    /// A variable without the setting would have the pool divide what is not its own.
    #[test]
    fn the_unit_delegates_what_it_declares() {
        let unit = include_str!("../../systemd/gridpool.service");
        assert!(unit.contains(&format!("\nDelegate=memory\nEnvironment={DELEGATED}=1\n")));
    }

    #[test]
    fn the_gateways_limit_has_room_for_full_sockets() {
        assert_eq!(largest("4096\t131072\t6291456\n"), Some(6 << 20));
        assert_eq!(largest("4096\t131072\n"), None);
        let limit = |of_socket| memory_max(false, of_socket).unwrap();
        assert!(bytes_of_socket() > 0);
        assert_eq!(limit(10 << 20) - limit(0), 576 * (10 << 20));
        // Files of its clients would count.
        assert_eq!(memory_max(true, 10 << 20), None);
    }

    #[test]
    fn each_worker_has_a_group_with_a_limit() {
        let (_mount, group) = tree();
        let groups = Groups::divide(group.clone(), 7, 0).unwrap();
        assert_eq!(fs::read_to_string(group.join(OWN).join("cgroup.procs")).unwrap(), "7");
        assert_eq!(fs::read_to_string(group.join("cgroup.subtree_control")).unwrap(), "+memory");
        let device = DeviceId { kind: DeviceKind::Cpu, index: 0 };
        let worker = WorkerId { device, group: Group::Grid, generation: 3 };
        groups.admit(worker, 42);
        let folder = group.join("worker-7-grid-cpu0-3");
        assert_eq!(fs::read_to_string(folder.join("cgroup.procs")).unwrap(), "42");
        let limit: u64 = fs::read_to_string(folder.join("memory.max")).unwrap().parse().unwrap();
        assert!(limit > 0 && limit == groups.bytes_max);
        // The gateway may have less, and never more.
        for (bytes_max, most) in [(1 << 20, 1 << 20), (u64::MAX, limit)] {
            groups.admit_gateway(43, bytes_max);
            let folder = group.join("gateway-7");
            assert_eq!(fs::read_to_string(folder.join("cgroup.procs")).unwrap(), "43");
            assert_eq!(fs::read_to_string(folder.join("memory.max")).unwrap(), most.to_string());
        }
        let heir = |bytes_min| Groups::divide(group.clone(), 8, bytes_min).unwrap().bytes_max;
        assert_eq!(heir(u64::MAX), u64::MAX, "the limit of the pool before");
        assert!((2..u64::MAX).contains(&heir(1)));
    }
}
