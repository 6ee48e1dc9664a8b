//! How much memory a row may take, before it takes any.

use gridpool_protocol::memory::available_bytes;

/// The share of the memory that is available which one row may take: one part of so many. The pool
/// gives a client a quarter of what was there at its start.
const SHARE: u64 = 2;

/// Whether `bytes` are there to be had; else a sentence that says why not.
pub(crate) fn room_for(bytes: u64) -> Result<(), String> {
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
    fn what_no_machine_has_is_refused_with_a_sentence() {
        assert_eq!(room_for(1), Ok(()));
        assert!(room_for(u64::MAX).unwrap_err().contains("MB of memory"));
    }
}
