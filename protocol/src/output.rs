//! The packed results of a batch: what a worker writes and a client reads.
//!
//! ```text
//! every kind  [ status: (code, op) as u8, items pairs ]
//! grids       [ shapes: (h, w) as u8 ] [ cells: u8 ]
//! numbers     [ values: i32 ]
//! colours     [ palettes: 12 bytes: count, then up to 10 colours, then zeros ]
//! objects     [ shapes ] [ counts: u16 ] [ label low bytes: u8 ] [ label high bytes: u8 ] [ cells ]
//! ```
//!
//! Numbers are little-endian; each part starts at a multiple of [`PART_ALIGN`] bytes. The cells and
//! labels of item `i` start at the *input's* offset of item `i`: no op makes a grid grow, so results
//! lie in place. A label is 0 outside every object, else the object's number from 1, objects being
//! numbered by their first cell in row-major order; its high byte is read only where an item has
//! more than 255 objects. `cells` of `objects` is there only if ops before it changed the input.
//!
//! [`PART_ALIGN`]: crate::batch::PART_ALIGN

use std::ops::Range;

use crate::batch::{BatchLayout, Grid, Tables, align};
use crate::program::{Kind, Program};

/// Bytes of one palette: a count, ten colours, one byte of padding.
pub const PALETTE_BYTES: usize = 12;
/// Stands for the op in a status whose item was bad before the first op.
pub const NO_OP: u8 = u8::MAX;

/// Why one item has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ItemErrorCode {
    /// A cell of the input is no colour. Only a client that writes its arena itself can cause it.
    BadCell = 1,
}

impl ItemErrorCode {
    /// The code's name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadCell => "BadCell",
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::BadCell].into_iter().find(|&code| code as u8 == byte)
    }
}

/// The error of one item: its neighbours are untouched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {message}")]
pub struct ItemError {
    /// What kind of error.
    pub code: ItemErrorCode,
    /// The op that could not serve the item, or `input`.
    pub op: String,
    /// One sentence.
    pub message: String,
}

/// One cell of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectCell {
    /// Its colour.
    pub color: u8,
    /// Its row, from 0.
    pub row: u8,
    /// Its column, from 0.
    pub col: u8,
}

/// The cells of one object, row-major.
pub type Object = Vec<ObjectCell>;

/// The result of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A list of colours.
    Colors(Vec<u8>),
    /// A grid.
    Grid(Grid),
    /// A number.
    Number(i32),
    /// Objects in canonical order.
    Objects(Vec<Object>),
}

/// Bytes that are no result of the program they are said to come from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result of item {item} is malformed: {what}")]
pub struct MalformedOutput {
    /// The item.
    pub item: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// Where the parts of a result lie. Parts that the kind does not have are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLayout {
    kind: Kind,
    items: usize,
    cells: usize,
    with_cells: bool,
}

impl OutputLayout {
    /// The layout of what `program` gives for a batch.
    #[must_use]
    pub fn new(program: &Program, batch: BatchLayout) -> Self {
        let kind = program.gives();
        let with_cells = match kind {
            Kind::Colors | Kind::Number => false,
            Kind::Grid => true,
            Kind::Objects => program.changes_cells_before_last(),
        };
        Self { kind, items: batch.items(), cells: batch.cell_count(), with_cells }
    }

    /// The kind of result.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// `(code, op)` of every item; code 0 is success.
    #[must_use]
    pub fn status(&self) -> Range<usize> {
        0..2 * self.items
    }

    /// `(h, w)` of every grid, for grids and objects.
    #[must_use]
    pub fn shapes(&self) -> Range<usize> {
        let has = matches!(self.kind, Kind::Grid | Kind::Objects);
        after(&self.status(), if has { 2 * self.items } else { 0 })
    }

    /// A number for every item.
    #[must_use]
    pub fn values(&self) -> Range<usize> {
        after(&self.shapes(), if self.kind == Kind::Number { 4 * self.items } else { 0 })
    }

    /// A palette for every item.
    #[must_use]
    pub fn palettes(&self) -> Range<usize> {
        let has = self.kind == Kind::Colors;
        after(&self.values(), if has { PALETTE_BYTES * self.items } else { 0 })
    }

    /// How many objects every item has.
    #[must_use]
    pub fn counts(&self) -> Range<usize> {
        after(&self.palettes(), if self.kind == Kind::Objects { 2 * self.items } else { 0 })
    }

    /// Low bytes of the labels.
    #[must_use]
    pub fn labels_low(&self) -> Range<usize> {
        after(&self.counts(), if self.kind == Kind::Objects { self.cells } else { 0 })
    }

    /// High bytes of the labels, meant only for items with more than 255 objects.
    #[must_use]
    pub fn labels_high(&self) -> Range<usize> {
        after(&self.labels_low(), if self.kind == Kind::Objects { self.cells } else { 0 })
    }

    /// The cells of the result grids, or of the grids whose objects are listed.
    #[must_use]
    pub fn cells(&self) -> Range<usize> {
        after(&self.labels_high(), if self.with_cells { self.cells } else { 0 })
    }

    /// The length of the whole result.
    #[must_use]
    pub fn bytes(&self) -> usize {
        align(self.cells().end)
    }
}

fn after(part: &Range<usize>, bytes: usize) -> Range<usize> {
    let start = align(part.end);
    start..start + bytes
}

/// The results of one job: packed bytes, decoded item by item when asked.
#[derive(Clone, Debug)]
pub struct Outputs {
    program: Program,
    layout: OutputLayout,
    tables: Tables,
    input_cells: Vec<u8>,
    bytes: Vec<u8>,
}

impl Outputs {
    /// The results of `program` over a batch with these tables. `input_cells` are the batch's
    /// cells; they are looked at only for objects of the unchanged input.
    ///
    /// # Errors
    /// [`MalformedOutput`] if `bytes` is not as long as the layout says.
    pub fn new(
        program: Program,
        batch: BatchLayout,
        tables: Tables,
        input_cells: Vec<u8>,
        bytes: Vec<u8>,
    ) -> Result<Self, MalformedOutput> {
        let layout = OutputLayout::new(&program, batch);
        if bytes.len() != layout.bytes() {
            return Err(MalformedOutput { item: 0, what: "wrong length" });
        }
        Ok(Self { program, layout, tables, input_cells, bytes })
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.shapes().len()
    }

    /// Never: a job has at least one item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packed bytes, for byte-for-byte comparison.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes one item.
    ///
    /// # Errors
    /// The outer error says that the bytes are malformed, the inner one that the op had no result
    /// for this item.
    ///
    /// # Panics
    /// If `item` is not below [`Outputs::len`].
    pub fn item(&self, item: usize) -> Result<Result<Output, ItemError>, MalformedOutput> {
        if let Some(error) = self.item_error(item)? {
            return Ok(Err(error));
        }
        let output = match self.layout.kind {
            Kind::Colors => Output::Colors(self.palette(item)?),
            Kind::Grid => {
                let (h, w) = self.shape(item)?;
                let cells = self.plane(self.layout.cells(), item)[..h * w].to_vec();
                let what = "not a grid";
                Output::Grid(Grid::new(h, w, cells).map_err(|_| MalformedOutput { item, what })?)
            }
            Kind::Number => {
                Output::Number(i32::from_le_bytes(self.word(self.layout.values(), item)))
            }
            Kind::Objects => Output::Objects(self.objects(item)?),
        };
        Ok(Ok(output))
    }

    fn item_error(&self, item: usize) -> Result<Option<ItemError>, MalformedOutput> {
        let [byte, at] = self.word(self.layout.status(), item);
        if byte == 0 {
            return Ok(None);
        }
        let code = ItemErrorCode::from_byte(byte)
            .ok_or(MalformedOutput { item, what: "unknown status code" })?;
        let op = match self.program.ops().get(usize::from(at)) {
            Some(op) => op.to_string(),
            None => "input".to_owned(),
        };
        let message = match code {
            ItemErrorCode::BadCell => "a cell is not a colour from 0 to 9".to_owned(),
        };
        Ok(Some(ItemError { code, op, message }))
    }

    /// The `N` bytes of `item` in a part with one entry per item.
    fn word<const N: usize>(&self, part: Range<usize>, item: usize) -> [u8; N] {
        self.bytes[part].as_chunks::<N>().0[item]
    }

    /// The bytes of `item` in a part with one byte per cell.
    fn plane(&self, part: Range<usize>, item: usize) -> &[u8] {
        &self.bytes[part][self.tables.cells_of(item)]
    }

    fn shape(&self, item: usize) -> Result<(usize, usize), MalformedOutput> {
        let [h, w] = self.word(self.layout.shapes(), item);
        let (h, w) = (usize::from(h), usize::from(w));
        if h * w == 0 || h * w > self.tables.cells_of(item).len() {
            return Err(MalformedOutput { item, what: "its shape does not fit its place" });
        }
        Ok((h, w))
    }

    fn palette(&self, item: usize) -> Result<Vec<u8>, MalformedOutput> {
        let palette: [u8; PALETTE_BYTES] = self.word(self.layout.palettes(), item);
        let count = usize::from(palette[0]);
        let colors = palette[1..11].get(..count);
        colors.map(<[u8]>::to_vec).ok_or(MalformedOutput { item, what: "more than ten colours" })
    }

    fn objects(&self, item: usize) -> Result<Vec<Object>, MalformedOutput> {
        let (h, w) = self.shape(item)?;
        let count = usize::from(u16::from_le_bytes(self.word(self.layout.counts(), item)));
        let low = &self.plane(self.layout.labels_low(), item)[..h * w];
        let high = &self.plane(self.layout.labels_high(), item)[..h * w];
        let colors = if self.layout.with_cells {
            &self.plane(self.layout.cells(), item)[..h * w]
        } else {
            &self.input_cells[self.tables.cells_of(item)][..h * w]
        };
        let mut objects: Vec<Object> = vec![Vec::new(); count];
        for (at, &color) in colors.iter().enumerate() {
            let high = if count > usize::from(u8::MAX) { high[at] } else { 0 };
            let label = usize::from(u16::from_le_bytes([low[at], high]));
            if label == 0 {
                continue;
            }
            let object = objects
                .get_mut(label - 1)
                .ok_or(MalformedOutput { item, what: "a label above the count" })?;
            let side = |n: usize| u8::try_from(n).expect("a grid's sides fit a byte");
            object.push(ObjectCell { color, row: side(at / w), col: side(at % w) });
        }
        if objects.iter().any(Vec::is_empty) {
            return Err(MalformedOutput { item, what: "an object without cells" });
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::GridBatch;
    use crate::program::Ties;

    fn outputs(text: &str, edit: impl Fn(&OutputLayout, &mut Vec<u8>)) -> Outputs {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        let grid = Grid::from_rows(&[[1, 1, 0], [0, 2, 2]]).unwrap();
        let batch = GridBatch::from_grids([&grid]).unwrap();
        let layout = batch.layout().unwrap();
        let parts = OutputLayout::new(&program, layout);
        let mut bytes = vec![0; parts.bytes()];
        edit(&parts, &mut bytes);
        Outputs::new(program, layout, batch.tables().clone(), batch.cells().to_vec(), bytes)
            .unwrap()
    }

    #[test]
    fn objects_decode_from_labels_and_the_inputs_colours() {
        let outputs = outputs("o_g(5)", |parts, bytes| {
            bytes[parts.shapes()].copy_from_slice(&[2, 3]);
            bytes[parts.counts()].copy_from_slice(&[2, 0]);
            bytes[parts.labels_low()].copy_from_slice(&[1, 1, 0, 0, 2, 2]);
            assert!(parts.cells().is_empty());
        });
        let cell = |color, row, col| ObjectCell { color, row, col };
        assert_eq!(
            outputs.item(0).unwrap().unwrap(),
            Output::Objects(vec![
                vec![cell(1, 0, 0), cell(1, 0, 1)],
                vec![cell(2, 1, 1), cell(2, 1, 2)]
            ])
        );
    }

    #[test]
    fn scribbled_results_are_errors_and_never_panic() {
        for text in ["rot90", "palette", "mostcolor", "o_g(5)", "rot90 | o_g(5)"] {
            for seed in 0..64_u8 {
                let outputs = outputs(text, |_, bytes| {
                    let mut next = seed;
                    for byte in bytes {
                        next = next.wrapping_mul(13).wrapping_add(seed);
                        *byte = next;
                    }
                });
                let _decoded = outputs.item(0);
            }
        }
    }

    #[test]
    fn an_item_error_names_the_op() {
        let outputs = outputs("rot90", |_, bytes| bytes[..2].copy_from_slice(&[1, NO_OP]));
        let error = outputs.item(0).unwrap().unwrap_err();
        assert_eq!((error.code, error.op.as_str()), (ItemErrorCode::BadCell, "input"));
    }
}
