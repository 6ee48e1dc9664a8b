//! How much memory a row may take, before it takes any.

use std::fs;

/// The share of the memory that is available which one row may take: one part of so many. The pool
/// gives a client a quarter of what was there at its start.
const SHARE: u64 = 2;

/// Whether `bytes` are there to be had; else a sentence that says why not.
pub(super) fn room_for(bytes: u64) -> Result<(), String> {
    let limit = [available(), available_in_cgroup()].into_iter().flatten().min();
    match limit.map(|available| available / SHARE) {
        Some(limit) if bytes > limit => Err(format!(
            "it needs {} MB of memory, and bench takes at most {} MB here, half of what is available",
            bytes >> 20,
            limit >> 20
        )),
        Some(_) | None => Ok(()),
    }
}

fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// What the cgroup of this process leaves; `None` if it has no limit.
fn available_in_cgroup() -> Option<u64> {
    let path = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = path.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_with_a_sentence() {
        assert_eq!(room_for(1), Ok(()));
        assert!(room_for(u64::MAX).unwrap_err().contains("MB of memory"));
    }
}
