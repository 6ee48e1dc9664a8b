//! Checks the memory that a row needs before it is allocated.

use gridpool_ipc::memory::available_bytes;

/// A row may take one part in this many of the available memory. The pool gives a client a quarter of the
/// memory that was available at its start.
const SHARE: u64 = 2;

/// Checks that `bytes` are available.
///
/// # Errors
/// A sentence that says how much is missing.
pub fn check_available(bytes: u64) -> Result<(), String> {
    match available_bytes().map(|available| available / SHARE) {
        Some(limit) if bytes > limit => Err(format!(
            "it needs {} MB of memory, and at most {} MB are taken here, half of what is available",
            bytes >> 20,
            limit >> 20
        )),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_any_machine_has_is_refused() {
        assert_eq!(check_available(1), Ok(()));
        assert!(check_available(u64::MAX).unwrap_err().contains("MB of memory"));
    }
}
