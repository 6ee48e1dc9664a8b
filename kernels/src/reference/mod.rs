//! The reference implementation of every op, per grid, on plain slices.
//!
//! It says what right is: the kernels in `kernels/cuda` mirror it module by module, and a CPU
//! device runs it as it stands. So it is written to be read first and to be fast second; it
//! allocates nothing per grid. It knows nothing of threads, clocks or shared memory.

pub mod evaluate;
pub mod histogram;
pub mod label;
pub mod recolor;
pub mod symmetry;
pub mod ties;

use std::sync::LazyLock;

use gridpool_protocol::program::hex;
use sha2::{Digest, Sha256};

pub use evaluate::{Evaluator, run_batch};

/// Rows and columns of a grid.
pub type Shape = [u8; 2];

/// SHA-256 of the reference's sources, in hexadecimal: what a receipt of a CPU device names in the
/// place of the kernels' hash.
#[must_use]
pub fn source_hash() -> &'static str {
    static HASH: LazyLock<String> = LazyLock::new(|| {
        let mut digest = Sha256::new();
        for (name, text) in SOURCES {
            digest.update(format!("{name} {}\n{text}", text.len()));
        }
        hex(&digest.finalize())
    });
    &HASH
}

const SOURCES: &[(&str, &str)] = &[
    ("mod", include_str!("mod.rs")),
    ("evaluate", include_str!("evaluate.rs")),
    ("histogram", include_str!("histogram.rs")),
    ("label", include_str!("label.rs")),
    ("recolor", include_str!("recolor.rs")),
    ("symmetry", include_str!("symmetry.rs")),
    ("ties", include_str!("ties.rs")),
];
