//! The tables of a packed batch, against a model that walks the grids one by one.

use gridpool_protocol::batch::tables::read_range;
use gridpool_protocol::batch::{BatchLayout, Grid, GridBatch, Tables};
use gridpool_protocol::limits::GRID_CELLS_MAX;
use gridpool_protocol::shared::SharedSlice;

/// Two bytes for the items, one for what an item is, three for the cells; the others are the memory.
pub(crate) fn run(bytes: &[u8]) {
    let Some((head, memory)) = bytes.split_first_chunk::<6>() else { return };
    let items = u32::from(u16::from_le_bytes([head[0], head[1]]) % 300);
    let per_item = 1 + u32::from(head[2] & 1);
    let cells = u32::from_le_bytes([head[3], head[4], head[5], 0]) % 70_000;
    let Ok(layout) = BatchLayout::new(items, per_item, cells) else { return };
    let mut memory = memory.to_vec();
    if head[2] & 2 != 0 {
        // Most inputs are shorter than their tables: what is missing is zero.
        memory.resize(layout.bytes().max(memory.len()), 0);
    }
    let right = model(layout, &memory);
    let shared = SharedSlice::private(&mut memory);
    let read = Tables::read(layout, &shared);
    assert_eq!(read.is_ok(), right.is_some(), "{read:?}");
    match read {
        Ok(tables) => {
            assert_eq!(Some(tables.offsets().to_vec()), right);
            parts_read_as_the_whole(layout, &shared, &tables);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The offsets, if every shape and offset is right.
fn model(layout: BatchLayout, memory: &[u8]) -> Option<Vec<u32>> {
    let memory = memory.get(..layout.bytes())?;
    let (shapes, offsets) = (&memory[layout.shapes()], &memory[layout.offsets()]);
    let mut ends = vec![0_u32];
    for grid in 0..layout.grids() {
        let (h, w) = (usize::from(shapes[2 * grid]), usize::from(shapes[2 * grid + 1]));
        let may_miss = layout.grids_per_item() == 2 && grid % 2 == 1;
        let is_missing = may_miss && (h, w) == (0, 0);
        if !is_missing && (h * w == 0 || h * w > GRID_CELLS_MAX) {
            return None;
        }
        ends.push(ends[grid] + u32::try_from(h * w).ok()?);
    }
    let said = offsets.chunks_exact(4).map(|o| u32::from_le_bytes([o[0], o[1], o[2], o[3]]));
    let is_right = said.eq(ends.iter().copied());
    (is_right && *ends.last()? as usize == layout.cell_count()).then_some(ends)
}

fn parts_read_as_the_whole(layout: BatchLayout, memory: &SharedSlice<'_>, whole: &Tables) {
    let middle = layout.items() / 2;
    for items in [0..middle, middle..layout.items()] {
        if items.is_empty() {
            continue;
        }
        let per_item = layout.grids_per_item();
        let grids = items.start * per_item..items.end * per_item;
        let mut shapes = vec![[0; 2]; grids.len()];
        let mut offsets = vec![[0; 4]; grids.len() + 1];
        let cells = read_range(layout, items, memory, &mut shapes, &mut offsets);
        let cells = cells.expect("a part of what is right is right");
        assert_eq!(shapes, whole.shapes()[grids.clone()]);
        assert_eq!(cells.start, whole.offsets()[grids.start] as usize);
        assert_eq!(cells.end, whole.offsets()[grids.end] as usize);
    }
}

/// The tables of a batch of grids and of one of pairs.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let grids = [(2, 3), (1, 1), (1, 20), (5, 5)];
    let grids = grids.map(|(h, w)| Grid::new(h, w, vec![4; h * w]).expect("a small grid"));
    let pairs = [(&grids[0], Some(&grids[1])), (&grids[2], None), (&grids[3], Some(&grids[0]))];
    let singles = GridBatch::from_grids(&grids).expect("a small batch");
    let pairs = GridBatch::from_pairs(pairs).expect("a small batch");
    let packed = |(batch, per_item): (GridBatch, u8)| {
        let layout = batch.layout().expect("it has items");
        let mut memory = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut memory));
        let items = u16::try_from(layout.items()).expect("a few").to_le_bytes();
        let cells = u32::try_from(layout.cell_count()).expect("a few").to_le_bytes();
        let head = [items[0], items[1], per_item, cells[0], cells[1], cells[2]];
        [&head[..], &memory].concat()
    };
    [(singles, 0), (pairs, 1)].map(packed).into()
}
