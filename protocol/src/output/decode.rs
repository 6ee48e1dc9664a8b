//! The results of one job: packed bytes, decoded item by item when asked.

use std::ops::Range;
use std::sync::Arc;

use super::layout::OutputLayout;
use super::value::{ItemError, ItemErrorCode, Object, ObjectCell, Output, PatchCell};
use super::{HOLE, PALETTE_BYTES};
use crate::batch::{Grid, GridBatch};
use crate::limits::{COLOR_MAX, GRID_CELLS_MAX};
use crate::program::{Kind, Program, Step};

/// Bytes that are no result of the program they are said to come from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result of item {item} is malformed: {what}")]
pub struct MalformedOutput {
    /// The item.
    pub item: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// The results of one job: packed bytes, decoded item by item when asked.
#[derive(Clone, Debug)]
pub struct Outputs {
    program: Program,
    layout: OutputLayout,
    /// Its cells are looked at only for objects of the unchanged input.
    batch: Arc<GridBatch>,
    bytes: Vec<u8>,
}

/// The shape of one value and where its cells lie in the parts that have cells.
struct Place {
    h: usize,
    w: usize,
    cells: Range<usize>,
}

impl Outputs {
    /// The results of `program` over `batch`.
    ///
    /// # Errors
    /// [`MalformedOutput`] if `bytes` is not as long as the layout says, or there is none.
    pub fn new(
        program: Program,
        batch: Arc<GridBatch>,
        bytes: Vec<u8>,
    ) -> Result<Self, MalformedOutput> {
        let malformed = |what| MalformedOutput { item: 0, what };
        let layout = batch.layout().and_then(|layout| OutputLayout::new(&program, layout));
        let layout = layout.map_err(|_| malformed("the program has none for such a batch"))?;
        if bytes.len() != layout.bytes() {
            return Err(malformed("wrong length"));
        }
        Ok(Self { program, layout, batch, bytes })
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layout.values_count() / self.layout.width()
    }

    /// Never: a job has at least one item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packed bytes.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes one item.
    ///
    /// # Errors
    /// The outer error says that the bytes are malformed, the inner one that the program has no
    /// result for this item: of a tuple, that of its first element without one.
    ///
    /// # Panics
    /// If `item` is not below [`Outputs::len`].
    pub fn item(&self, item: usize) -> Result<Result<Output, ItemError>, MalformedOutput> {
        let width = self.layout.width();
        let values = item * width..(item + 1) * width;
        let malformed = |what| MalformedOutput { item, what };
        for value in values.clone() {
            if let Some(error) = self.error(value).map_err(malformed)? {
                return Ok(Err(error));
            }
        }
        if self.program.gives().tuple.is_none() {
            return self.value(values.start).map(Ok).map_err(malformed);
        }
        let elements: Result<Vec<_>, _> = values.map(|value| self.value(value)).collect();
        elements.map(|elements| Ok(Output::Tuple(elements))).map_err(malformed)
    }

    fn error(&self, value: usize) -> Result<Option<ItemError>, &'static str> {
        let [byte, at] = self.word(self.layout.status(), value);
        if byte == 0 {
            return Ok(None);
        }
        let code = ItemErrorCode::from_byte(byte).ok_or("unknown status code")?;
        let step = self.program.steps().get(usize::from(at));
        let op = step.map_or_else(|| "input".to_owned(), Step::to_string);
        Ok(Some(ItemError { code, op, message: code.message() }))
    }

    fn value(&self, value: usize) -> Result<Output, &'static str> {
        Ok(match self.layout.kind() {
            Kind::Colors => Output::Colors(self.palette(value)?),
            Kind::Flag => Output::Flag(self.number(value) != 0),
            Kind::Grid => Output::Grid(self.grid(value)?),
            Kind::Number => Output::Number(self.number(value)),
            Kind::Object => Output::Object(self.object(value)?),
            Kind::Objects => Output::Objects(self.objects(value)?),
            Kind::Patch => {
                let places = self.object(value)?.into_iter();
                Output::Patch(
                    places.map(|cell| PatchCell { row: cell.row, col: cell.col }).collect(),
                )
            }
            Kind::Vector => {
                let [row, col] = vector(self.word(self.layout.numbers(), value));
                Output::Vector { row, col }
            }
        })
    }

    fn number(&self, value: usize) -> i32 {
        i32::from_le_bytes(self.word(self.layout.numbers(), value))
    }

    fn palette(&self, value: usize) -> Result<Vec<u8>, &'static str> {
        let palette: [u8; PALETTE_BYTES] = self.word(self.layout.palettes(), value);
        let colors = palette[1..11].get(..usize::from(palette[0]));
        colors.map(<[u8]>::to_vec).ok_or("more than ten colours")
    }

    fn grid(&self, value: usize) -> Result<Grid, &'static str> {
        let place = self.place(value)?;
        if place.cells.is_empty() {
            return Ok(Grid::empty());
        }
        let cells = self.plane(self.layout.cells(), &place).to_vec();
        Grid::new(place.h, place.w, cells).map_err(|_| "not a grid")
    }

    fn object(&self, value: usize) -> Result<Object, &'static str> {
        let place = self.place(value)?;
        let [top, left] = vector(self.word(self.layout.origins(), value));
        let cells = self.plane(self.layout.cells(), &place).iter().enumerate();
        let cells = cells.filter(|&(_, &color)| color != HOLE);
        let cells: Object = cells
            .map(|(at, &color)| ObjectCell {
                color,
                row: top + side(at / place.w),
                col: left + side(at % place.w),
            })
            .collect();
        if cells.iter().any(|cell| cell.color > COLOR_MAX) {
            Err("not a colour")
        } else {
            Ok(cells)
        }
    }

    fn objects(&self, value: usize) -> Result<Vec<Object>, &'static str> {
        let place = self.place(value)?;
        let count = usize::from(u16::from_le_bytes(self.word(self.layout.counts(), value)));
        if count > place.cells.len() {
            return Err("more objects than cells");
        }
        let low = self.plane(self.layout.labels_low(), &place);
        let high = self.plane(self.layout.labels_high(), &place);
        let colors = if self.layout.cells().is_empty() {
            let cells = self.batch.cells().get(place.cells.clone());
            cells.ok_or("its shape does not fit its place")?
        } else {
            self.plane(self.layout.cells(), &place)
        };
        let mut objects: Vec<Object> = vec![Vec::new(); count];
        for (at, &color) in colors.iter().enumerate() {
            let high = if count > usize::from(u8::MAX) { high[at] } else { 0 };
            let label = usize::from(u16::from_le_bytes([low[at], high]));
            if label == 0 {
                continue;
            }
            let object = objects.get_mut(label - 1).ok_or("a label above the count")?;
            object.push(ObjectCell { color, row: side(at / place.w), col: side(at % place.w) });
        }
        if objects.iter().any(Vec::is_empty) { Err("an object without cells") } else { Ok(objects) }
    }

    /// The shape of a value and where its cells lie, all of them within the parts.
    fn place(&self, value: usize) -> Result<Place, &'static str> {
        let [h, w] = self.word(self.layout.shapes(), value);
        let (h, w) = (usize::from(h), usize::from(w));
        let (start, end) = if self.layout.is_packed() {
            let start = u32::from_le_bytes(self.word(self.layout.offsets(), value)) as usize;
            (start, self.layout.room())
        } else {
            let cells = self.batch.tables().cells_of(value);
            (cells.start, cells.end)
        };
        if h * w > GRID_CELLS_MAX || start + h * w > end {
            return Err("its shape does not fit its place");
        }
        Ok(Place { h, w, cells: start..start + h * w })
    }

    /// The `N` bytes of a value in a part with one entry per value.
    fn word<const N: usize>(&self, part: Range<usize>, value: usize) -> [u8; N] {
        self.bytes[part].as_chunks::<N>().0[value]
    }

    /// The bytes of a value in a part with one byte per cell.
    fn plane(&self, part: Range<usize>, place: &Place) -> &[u8] {
        &self.bytes[part][place.cells.clone()]
    }
}

/// A row and a column.
fn vector([a, b, c, d]: [u8; 4]) -> [i32; 2] {
    [i16::from_le_bytes([a, b]).into(), i16::from_le_bytes([c, d]).into()]
}

fn side(n: usize) -> i32 {
    i32::try_from(n).expect("a grid's sides fit a byte")
}

#[cfg(test)]
mod tests {
    use super::super::NO_OP;
    use super::*;
    use crate::program::Ties;

    fn outputs(text: &str, edit: impl Fn(&OutputLayout, &mut Vec<u8>)) -> Outputs {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        let grid = Grid::from_rows(&[[1, 1, 0], [0, 2, 2]]).unwrap();
        let batch = if program.grids_per_item() == 2 {
            GridBatch::from_pairs([(&grid, Some(&grid))])
        } else {
            GridBatch::from_grids([&grid])
        };
        let batch = Arc::new(batch.unwrap());
        let parts = OutputLayout::new(&program, batch.layout().unwrap()).unwrap();
        let mut bytes = vec![0; parts.bytes()];
        edit(&parts, &mut bytes);
        Outputs::new(program, batch, bytes).unwrap()
    }

    fn decoded(text: &str, edit: impl Fn(&OutputLayout, &mut Vec<u8>)) -> Output {
        outputs(text, edit).item(0).unwrap().unwrap()
    }

    fn put(bytes: &mut [u8], part: Range<usize>, start: &[u8]) {
        bytes[part][..start.len()].copy_from_slice(start);
    }

    #[test]
    fn objects_decode_from_labels_and_the_inputs_colours() {
        let objects = decoded("o_g(5)", |parts, bytes| {
            put(bytes, parts.shapes(), &[2, 3]);
            put(bytes, parts.counts(), &[2, 0]);
            put(bytes, parts.labels_low(), &[1, 1, 0, 0, 2, 2]);
            assert!(parts.cells().is_empty() && parts.offsets().is_empty());
        });
        let cell = |color, row, col| ObjectCell { color, row, col };
        let first = vec![cell(1, 0, 0), cell(1, 0, 1)];
        assert_eq!(objects, Output::Objects(vec![first, vec![cell(2, 1, 1), cell(2, 1, 2)]]));
    }

    #[test]
    fn packed_grids_lie_where_their_offsets_say() {
        let grid = decoded("upscale(2)", |parts, bytes| {
            assert_eq!(parts.cells().len(), 24);
            put(bytes, parts.shapes(), &[1, 2]);
            put(bytes, parts.offsets(), &[22, 0, 0, 0]);
            bytes[parts.cells()][22..].copy_from_slice(&[7, 8]);
        });
        assert_eq!(grid, Output::Grid(Grid::from_rows(&[[7, 8]]).unwrap()));
        assert_eq!(decoded("trim", |_, _| {}), Output::Grid(Grid::empty()));
    }

    #[test]
    fn objects_and_patches_lie_at_their_origin_and_have_holes() {
        let fill = |parts: &OutputLayout, bytes: &mut Vec<u8>| {
            put(bytes, parts.shapes(), &[2, 2]);
            put(bytes, parts.origins(), &[0xff, 0xff, 5, 0]);
            put(bytes, parts.cells(), &[3, HOLE, HOLE, 0]);
        };
        let cell = |color, row, col| ObjectCell { color, row, col };
        assert_eq!(decoded("asobject", fill), Output::Object(vec![cell(3, -1, 5), cell(0, 0, 6)]));
        let place = |row, col| PatchCell { row, col };
        assert_eq!(decoded("asindices", fill), Output::Patch(vec![place(-1, 5), place(0, 6)]));
    }

    #[test]
    fn numbers_flags_vectors_and_tuples_decode() {
        let set = |parts: &OutputLayout, bytes: &mut Vec<u8>| {
            put(bytes, parts.numbers(), &[1, 0, 0xfe, 0xff]);
        };
        assert_eq!(decoded("square", set), Output::Flag(true));
        assert_eq!(decoded("shape", set), Output::Vector { row: 1, col: -2 });
        let pair = Output::Tuple(vec![Output::Number(1), Output::Number(0)]);
        let first = |parts: &OutputLayout, bytes: &mut Vec<u8>| put(bytes, parts.numbers(), &[1]);
        assert_eq!(decoded("apply(width)", first), pair);
    }

    #[test]
    fn scribbled_results_are_errors_and_never_panic() {
        let texts = ["rot90", "upscale(3)", "palette", "mostcolor", "o_g(5)", "rot90 | o_g(5)"];
        let more =
            ["ofcolor(1)", "first | o_g(5)", "apply(o_g(4))", "hsplit(3)", "asobject | center"];
        for text in texts.into_iter().chain(more) {
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
    fn an_item_error_names_the_op_and_the_first_element_wins() {
        let status = |codes: [u8; 4]| {
            outputs("apply(rot90) | apply(trim)", move |parts, bytes| {
                put(bytes, parts.status(), &codes);
            })
        };
        let error = |codes| status(codes).item(0).unwrap().unwrap_err();
        let bad = error([0, 0, 1, NO_OP]);
        assert_eq!((bad.code, bad.op.as_str()), (ItemErrorCode::BadCell, "input"));
        let empty = error([4, 1, 1, NO_OP]);
        assert_eq!((empty.code, empty.op.as_str()), (ItemErrorCode::EmptyArg, "apply(trim)"));
        assert!(status([99, 0, 0, 0]).item(0).is_err());
    }

    #[test]
    fn a_batch_of_other_items_has_no_results() {
        let program = Program::compile("first", Ties::Cpython).unwrap();
        let grid = Grid::from_rows(&[[1]]).unwrap();
        let batch = Arc::new(GridBatch::from_grids([&grid]).unwrap());
        assert!(Outputs::new(program, batch, vec![0; 64]).is_err());
    }
}
