//! Memory of the machine, from Linux: how much is available, and who is killed if there is none.

use std::fs;
use std::io;
use std::path::Path;

/// Where the controllers of control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// If the machine runs out of memory, lets the kernel kill this process before its supervisor and before other
/// programs of the user.
///
/// # Errors
/// The system's.
pub fn volunteer_for_the_oom_killer() -> io::Result<()> {
    /// Of at most 1,000. It is added to the share of memory that the process holds.
    const SCORE: &str = "500";
    fs::write("/proc/self/oom_score_adj", SCORE)
}

/// The available memory, bytes, within the limits of the process's control groups; `None` if it is unknown.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    [available_on_host(), available_in(Path::new(CGROUPS), &groups)].into_iter().flatten().min()
}

/// [`available_bytes`], or a gibibyte if it is unknown: for limits that there must be.
#[must_use]
pub fn available_or_assumed_bytes() -> u64 {
    /// What small machines have.
    const ASSUMED_BYTES: u64 = 1 << 30;
    available_bytes().unwrap_or(ASSUMED_BYTES)
}

fn available_on_host() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    kib(&text, "MemAvailable:")
}

fn kib(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// The names of one version's files.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` with the bytes of files that the kernel drops first.
    droppable: &'static str,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    droppable: "total_inactive_file ",
};

const V2: Files =
    Files { limit: "memory.max", used: "memory.current", droppable: "inactive_file " };

/// The memory that the process's control groups have left, bytes; `None` if none has a limit. `groups` is the
/// text of `/proc/self/cgroup`.
fn available_in(root: &Path, groups: &str) -> Option<u64> {
    let left = groups.lines().filter_map(|line| {
        // The number of the hierarchy, its controllers, and the path of the group.
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        if controllers.is_empty() {
            return least_left(root, group, &V2);
        }
        let of_memory = controllers.split(',').any(|controller| controller == "memory");
        of_memory.then(|| least_left(&root.join("memory"), group, &V1))?
    });
    left.min()
}

/// The least that `group` and its ancestors have left. In a container the mount's root may be the group itself,
/// whatever its path: folders that are not there have no limit.
fn least_left(mount: &Path, group: &str, files: &Files) -> Option<u64> {
    let group = group.strip_prefix('/').unwrap_or(group);
    let limited = Path::new(group).ancestors().filter_map(|group| left(&mount.join(group), files));
    limited.min()
}

/// What one group has left; `None` if it has no limit.
fn left(group: &Path, files: &Files) -> Option<u64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    let limit: u64 = read(files.limit)?.trim().parse().ok()?;
    let used: u64 = read(files.used)?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let droppable = stat.lines().find_map(|line| line.strip_prefix(files.droppable)?.parse().ok());
    Some(limit.saturating_sub(used.saturating_sub(droppable.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a group's files below `root`.
    fn group(root: &Path, path: &str, files: &[(&str, &str)]) {
        let folder = root.join(path);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_tightest_ancestor_counts_in_version_2() {
        let root = tempfile::tempdir().unwrap();
        group(root.path(), "a/b", &[("memory.max", "max\n"), ("memory.current", "10\n")]);
        let stat = "anon 5\ninactive_file 30\n";
        let files = [("memory.max", "100\n"), ("memory.current", "70\n"), ("memory.stat", stat)];
        group(root.path(), "a", &files);
        assert_eq!(available_in(root.path(), "0::/a/b\n"), Some(60));
        assert_eq!(available_in(root.path(), "0::/\n"), None);
    }

    #[test]
    fn version_1_has_its_own_mount_and_names() {
        let root = tempfile::tempdir().unwrap();
        let files = |limit| [("memory.limit_in_bytes", limit), ("memory.usage_in_bytes", "40\n")];
        // In a container without a namespace of its own, its group is the root of the mount.
        group(root.path(), "memory", &files("90\n"));
        let groups = "5:cpu,cpuacct:/docker/x\n4:hugetlb,memory:/docker/x\n0::/docker/x\n";
        assert_eq!(available_in(root.path(), groups), Some(50));
        group(root.path(), "memory/docker/x", &files("60\n"));
        assert_eq!(available_in(root.path(), groups), Some(20));
    }
}
