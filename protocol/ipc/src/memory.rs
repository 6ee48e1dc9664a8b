//! How much memory is available, from Linux.

use std::fs;

/// The available memory, bytes, within the cgroup's limit; `None` if it is unknown.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    [available_on_host(), available_in_cgroup()].into_iter().flatten().min()
}

fn available_on_host() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// The memory that the process's cgroup has left, bytes; `None` if it has no limit.
fn available_in_cgroup() -> Option<u64> {
    let path = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = path.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    Some(limit.saturating_sub(used))
}
