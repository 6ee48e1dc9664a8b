//! Cuts a batch into runs of neighbouring items that a device works on one after the other, so
//! that a batch may be larger than the device's memory. Plain arithmetic.

use std::ops::Range;

use gridpool_protocol::batch::Tables;

/// A run of neighbouring items and where their cells lie in the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) items: Range<usize>,
    pub(crate) cells: Range<usize>,
}

/// How large a chunk may be. One item is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Most items.
    pub items_max: usize,
    /// Most cells of all items together.
    pub cells_max: usize,
}

/// Cuts a batch into chunks, in order and as large as `limits` allow.
pub(crate) fn cut(tables: &Tables, limits: ChunkLimits) -> Vec<Chunk> {
    let offsets = tables.offsets();
    let items = tables.shapes().len();
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < items {
        let cells_end = (offsets[start] as usize).saturating_add(limits.cells_max);
        let fitting = offsets[start + 1..].partition_point(|&end| end as usize <= cells_end);
        let end = start + fitting.min(limits.items_max).max(1);
        let cells = offsets[start] as usize..offsets[end] as usize;
        chunks.push(Chunk { items: start..end, cells });
        start = end;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::{Grid, GridBatch};

    use super::*;

    #[test]
    fn chunks_follow_each_other_and_keep_the_limits() {
        let areas = [1, 1, 30, 900, 4_096, 1, 2, 3, 64, 64, 1];
        let grids = areas.map(|area| match area {
            4_096 => Grid::new(64, 64, vec![0; area]).unwrap(),
            900 => Grid::new(30, 30, vec![0; area]).unwrap(),
            _ => Grid::new(1, area, vec![0; area]).unwrap(),
        });
        let batch = GridBatch::from_grids(&grids).unwrap();
        for (items_max, cells_max) in [(1, 1), (3, 100), (100, 1_000), (2, 10_000), (2, usize::MAX)]
        {
            let limits = ChunkLimits { items_max, cells_max };
            let chunks = cut(batch.tables(), limits);
            assert_eq!(chunks[0].items.start, 0);
            assert_eq!(chunks.last().unwrap().items.end, areas.len());
            for pair in chunks.windows(2) {
                assert_eq!(pair[0].items.end, pair[1].items.start);
                assert_eq!(pair[0].cells.end, pair[1].cells.start);
                let with_next = pair[0].cells.len() + areas[pair[1].items.start];
                assert!(pair[0].items.len() == items_max || with_next > cells_max, "{pair:?}");
            }
            for chunk in &chunks {
                let cells: usize = areas[chunk.items.clone()].iter().sum();
                assert_eq!(chunk.cells.len(), cells);
                assert!(chunk.items.len() <= items_max);
                assert!(cells <= cells_max || chunk.items.len() == 1);
            }
        }
    }
}
