//! An Arrow file on standard input: what comes after the magic.

use super::inputs::input;

const MAGIC: &[u8] = b"ARROW1";
/// Grids as `gridpool run --output` writes them, and pairs as pyarrow does.
const FILES: [&[u8]; 2] =
    [include_bytes!("../../data/few.arrow"), include_bytes!("../../data/few_pairs.arrow")];

pub(crate) fn run(bytes: &[u8]) {
    input(&[MAGIC, bytes].concat());
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    FILES.iter().filter_map(|file| file.strip_prefix(MAGIC)).map(<[u8]>::to_vec).collect()
}
