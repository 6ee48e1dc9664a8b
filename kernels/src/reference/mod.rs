//! The reference implementation of every op, per value, on plain slices: one module per family.
//!
//! It defines the right results: the kernels in `kernels/cuda` mirror it module by module, and a CPU device
//! runs it unchanged. So readability comes first, and speed second; it allocates nothing per value. It knows
//! nothing of threads, clocks or shared memory.
//!
//! An op reads borrowed [`picture::Picture`]s and pushes its results to [`picture::Pictures`], or changes
//! cells in place if their number stays. [`evaluate`] maps ops to functions, and carries values from one step
//! to the next.

pub mod cut;
#[cfg(test)]
mod drawing;
pub mod evaluate;
pub mod frame;
pub mod histogram;
pub mod join;
pub mod label;
pub mod machine;
pub mod measure;
pub mod paint;
pub mod partition;
pub mod patch;
pub mod picture;
pub mod recolor;
pub mod scale;
pub mod search;
pub mod select;
pub mod symmetry;
pub mod ties;

use std::sync::LazyLock;

use gridpool_protocol::program::hex;
use sha2::{Digest, Sha256};

pub use evaluate::{Evaluator, run_batch};

/// Rows and columns of a grid.
pub type Shape = [u8; 2];

/// SHA-256 of the reference's sources, in hexadecimal. Receipts of CPU devices name it instead of the
/// kernels' hash.
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
    ("cut", include_str!("cut.rs")),
    ("evaluate", include_str!("evaluate.rs")),
    ("evaluate/result", include_str!("evaluate/result.rs")),
    ("evaluate/values", include_str!("evaluate/values.rs")),
    ("frame", include_str!("frame.rs")),
    ("histogram", include_str!("histogram.rs")),
    ("join", include_str!("join.rs")),
    ("label", include_str!("label.rs")),
    ("machine/mod", include_str!("machine/mod.rs")),
    ("machine/containers", include_str!("machine/containers.rs")),
    ("machine/convert", include_str!("machine/convert.rs")),
    ("machine/grids", include_str!("machine/grids.rs")),
    ("machine/measures", include_str!("machine/measures.rs")),
    ("machine/numbers", include_str!("machine/numbers.rs")),
    ("machine/objects", include_str!("machine/objects.rs")),
    ("machine/paint", include_str!("machine/paint.rs")),
    ("machine/patches", include_str!("machine/patches.rs")),
    ("machine/run", include_str!("machine/run.rs")),
    ("machine/runner", include_str!("machine/runner.rs")),
    ("machine/support", include_str!("machine/support.rs")),
    ("machine/ties", include_str!("machine/ties.rs")),
    ("machine/turns", include_str!("machine/turns.rs")),
    ("measure", include_str!("measure.rs")),
    ("paint", include_str!("paint.rs")),
    ("partition", include_str!("partition.rs")),
    ("patch", include_str!("patch.rs")),
    ("picture", include_str!("picture.rs")),
    ("picture/buffer", include_str!("picture/buffer.rs")),
    ("recolor", include_str!("recolor.rs")),
    ("scale", include_str!("scale.rs")),
    ("search", include_str!("search.rs")),
    ("select", include_str!("select.rs")),
    ("symmetry", include_str!("symmetry.rs")),
    ("ties", include_str!("ties.rs")),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    fn collect(folder: &Path, prefix: &str, names: &mut BTreeSet<String>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = format!("{prefix}{}", path.file_stem().unwrap().to_string_lossy());
            if path.is_dir() {
                collect(&path, &format!("{name}/"), names);
            } else if !name.ends_with("tests") && name != "drawing" {
                names.insert(name);
            }
        }
    }

    #[test]
    fn the_hash_is_of_every_source() {
        let mut names = BTreeSet::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reference");
        collect(&folder, "", &mut names);
        let hashed: BTreeSet<_> = SOURCES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(hashed, names);
    }
}
