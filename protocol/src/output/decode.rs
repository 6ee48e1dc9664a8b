//! The results of one job: packed bytes that are decoded item by item.
//!
//! Owns the meaning of the bytes. From shared memory it copies each item's bytes once and checks the copy. Any
//! bytes give a value or an error.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::bytes::Bytes;
use super::layout::OutputLayout;
use super::value::{ItemError, Object, ObjectCell, Output, PatchCell};
use super::{HOLE, NO_OP, PALETTE_BYTES};
use crate::batch::{BatchSource, Grid, GridBatch, Tables};
use crate::limits::{COLOR_MAX, GRID_CELLS_MAX, RESULT_BYTES_MAX};
use crate::program::{Kind, Program};
use crate::receipt::ItemRange;

/// The error of bytes that cannot be a result of the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result of item {item} is malformed: {what}")]
pub struct MalformedOutput {
    /// The item.
    pub item: usize,
    /// The fault in it.
    pub what: &'static str,
}

/// The results of one job: packed bytes that are decoded item by item.
///
/// A large result stays in the shared memory that the worker wrote. Drop all clones to free it for the next job,
/// or copy it with [`Outputs::into_private`].
#[derive(Clone, Debug)]
pub struct Outputs {
    pub(super) program: Arc<Program>,
    pub(super) layout: OutputLayout,
    /// Its cells are read only for objects of the unchanged input.
    pub(super) source: Arc<dyn BatchSource>,
    pub(super) bytes: Bytes,
    /// The items that have results, if not all have.
    done: Option<Arc<[ItemRange]>>,
}

/// The shape of one value, and the place of its cells in the parts with cells.
pub(super) struct Place {
    pub(super) h: usize,
    pub(super) w: usize,
    pub(super) cells: Range<usize>,
}

impl Outputs {
    /// The results of `program` over `batch`.
    ///
    /// # Errors
    /// [`MalformedOutput`] if `bytes` does not have the length of the layout, or the program does not fit the
    /// batch.
    pub fn new(
        program: Program,
        batch: Arc<GridBatch>,
        bytes: Vec<u8>,
    ) -> Result<Self, MalformedOutput> {
        let layout = batch.layout().and_then(|layout| OutputLayout::new(&program, layout));
        let what = "the program has none for such a batch";
        let layout = layout.map_err(|_| MalformedOutput { item: 0, what })?;
        Self::placed(Arc::new(program), layout, batch, Bytes::Private(Arc::new(bytes)))
    }

    /// The results of `program` over a batch: in private memory of that length, or at the start of shared memory.
    ///
    /// # Errors
    /// [`MalformedOutput`] if the memory is too short.
    pub fn placed(
        program: Arc<Program>,
        layout: OutputLayout,
        source: Arc<dyn BatchSource>,
        bytes: Bytes,
    ) -> Result<Self, MalformedOutput> {
        let fits = match &bytes {
            Bytes::Shared(memory) => memory.bytes().bytes() >= layout.bytes(),
            Bytes::Private(bytes) => bytes.len() == layout.bytes(),
        };
        if !fits {
            return Err(MalformedOutput { item: 0, what: "wrong length" });
        }
        Ok(Self { program, layout, source, bytes, done: None })
    }

    /// The same results, of which only those of these items are there.
    #[must_use]
    pub fn with_only(self, done: Vec<ItemRange>) -> Self {
        Self { done: Some(done.into()), ..self }
    }

    /// Whether an item has a result or an error of its own: all have, unless the job was cut into shards and
    /// ended before the item's shard was done.
    #[must_use]
    pub fn has(&self, item: usize) -> bool {
        let holds = |range: &ItemRange| (range.start as usize..range.end as usize).contains(&item);
        self.done.as_ref().is_none_or(|done| done.iter().any(holds))
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layout.values_count() / self.layout.width()
    }

    /// Always `false`: a job has at least one item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The places of the parts.
    #[must_use]
    pub fn layout(&self) -> &OutputLayout {
        &self.layout
    }

    /// The program that gave them.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The bytes, for readers that copy nothing. In shared memory another process may still change them.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The start of each grid's cells in the batch, and the end of the last. In a result in place
    /// ([`OutputLayout::is_packed`]) cells and labels of value `v` start there.
    ///
    /// # Errors
    /// [`MalformedOutput`] if the tables of the batch were changed in shared memory.
    pub fn starts(&self) -> Result<&[u32], MalformedOutput> {
        let what = "the tables of its batch were changed";
        self.source.tables().map(Tables::offsets).map_err(|_| MalformedOutput { item: 0, what })
    }

    /// The packed bytes; a copy if they are in shared memory.
    #[must_use]
    pub fn packed(&self) -> Cow<'_, [u8]> {
        self.bytes.all(self.layout.bytes())
    }

    /// Copies the results to private memory. The shared memory is free for another job once no other clone holds
    /// it.
    #[must_use]
    pub fn into_private(self) -> Self {
        let bytes = match &self.bytes {
            Bytes::Shared(_) => Bytes::Private(Arc::new(self.packed().into_owned())),
            Bytes::Private(bytes) => Bytes::Private(Arc::clone(bytes)),
        };
        Self { bytes, ..self }
    }

    /// Decodes one item.
    ///
    /// # Errors
    /// The outer error means that the bytes are malformed, the inner one that this item has no result. For a
    /// tuple it is the error of the first element without one.
    ///
    /// # Panics
    /// If `item` is not below [`Outputs::len`].
    pub fn item(&self, item: usize) -> Result<Result<Output, ItemError>, MalformedOutput> {
        if let Some(error) = self.item_error(item)? {
            return Ok(Err(error));
        }
        let malformed = |what| MalformedOutput { item, what };
        let values = self.values_of(item);
        if self.program.gives().tuple.is_none() {
            return self.value(values.start).map(Ok).map_err(malformed);
        }
        let elements: Result<Vec<_>, _> = values.map(|value| self.value(value)).collect();
        elements.map(|elements| Ok(Output::Tuple(elements))).map_err(malformed)
    }

    /// The error of an item without a result. For a tuple it is the error of the first element without one. This
    /// reads only the status.
    ///
    /// # Errors
    /// [`MalformedOutput`] if the status is invalid, or the item's shard was not done ([`Outputs::has`]).
    ///
    /// # Panics
    /// If `item` is not below [`Outputs::len`].
    pub fn item_error(&self, item: usize) -> Result<Option<ItemError>, MalformedOutput> {
        let malformed = |what| MalformedOutput { item, what };
        if !self.has(item) {
            return Err(malformed("its job ended before it was done"));
        }
        let mut errors = self.values_of(item).map(|value| self.error(value));
        errors.find_map(Result::transpose).transpose().map_err(malformed)
    }

    fn values_of(&self, item: usize) -> Range<usize> {
        let width = self.layout.width();
        item * width..(item + 1) * width
    }

    pub(super) fn error(&self, value: usize) -> Result<Option<ItemError>, &'static str> {
        let [byte, at] = self.word(self.layout.status(), value);
        if byte == 0 {
            return Ok(None);
        }
        let failed = ItemError::in_chain(&self.program, [byte, at]).ok_or("unknown status code")?;
        let Some(solver) = self.program.solver().filter(|_| at != NO_OP) else {
            return Ok(Some(failed));
        };
        let instruction = usize::try_from(self.number(value)).unwrap_or(usize::MAX);
        let (op, line) = solver.place(instruction).ok_or("it failed in no instruction")?;
        let (op, message) =
            (format!("{op} in line {line}"), solver.reason(instruction, failed.code));
        Ok(Some(ItemError { op, message, ..failed }))
    }

    pub(super) fn value(&self, value: usize) -> Result<Output, &'static str> {
        Ok(match self.layout.kind() {
            Kind::Colors => Output::Colors(self.palette(value)?),
            Kind::Flag => Output::Flag(self.number(value) != 0),
            Kind::Grid => Output::Grid(self.grid(value)?),
            Kind::Number => Output::Number(self.number(value)),
            Kind::Object => Output::Object(self.object(value)?),
            Kind::Objects => Output::Objects(self.objects(value)?),
            Kind::Value => self.solver_value(value)?,
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
            return Ok(Grid::of_shape(self.sides_without_cells(&place), Vec::new()));
        }
        let cells = self.plane(self.layout.cells(), &place);
        Grid::new(place.h, place.w, cells).map_err(|_| "not a grid")
    }

    /// Rows and columns of a grid without cells: of a chain it is the empty grid, of a solver it may have rows.
    pub(super) fn sides_without_cells(&self, place: &Place) -> [u8; 2] {
        let has_rows = self.program.solver().is_some();
        [u8::try_from(place.h).ok().filter(|_| has_rows).unwrap_or(0), 0]
    }

    fn object(&self, value: usize) -> Result<Object, &'static str> {
        let place = self.place(value)?;
        let [top, left] = vector(self.word(self.layout.origins(), value));
        let cells = self.plane(self.layout.cells(), &place).into_iter().enumerate();
        let cells = cells.filter(|&(_, color)| color != HOLE);
        let cells: Object = cells
            .map(|(at, color)| ObjectCell {
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
        let count = self.count(value);
        let labels = self.labels(&place, count)?;
        let colors = if self.layout.cells().is_empty() {
            let colors = self.source.cells(place.cells.clone());
            colors.ok_or("its shape does not fit its place")?
        } else {
            self.plane(self.layout.cells(), &place)
        };
        let mut objects: Vec<Object> = vec![Vec::new(); count];
        for (at, (label, color)) in labels.into_iter().zip(colors).enumerate() {
            if label > 0 {
                let (row, col) = (side(at / place.w), side(at % place.w));
                objects[usize::from(label) - 1].push(ObjectCell { color, row, col });
            }
        }
        if objects.iter().any(Vec::is_empty) { Err("an object without cells") } else { Ok(objects) }
    }

    /// A solver's value, read from its bytes.
    fn solver_value(&self, value: usize) -> Result<Output, &'static str> {
        let solver = self.program.solver().ok_or("only solvers give such values")?;
        let kind = solver.code().gives();
        let part = self.layout.cells();
        let start = u32::from_le_bytes(self.word(self.layout.offsets(), value)) as usize;
        let rest = part.len().checked_sub(start).ok_or("its place lies outside of the result")?;
        let mut bytes = vec![0; rest.min(RESULT_BYTES_MAX)];
        self.bytes.read(part.start + start, &mut bytes);
        let read = crate::solver::value::Value::from_bytes(kind, &bytes);
        let read = read.ok_or("its bytes are no value of its kind")?;
        Ok(Output::Value(kind.clone(), read))
    }

    /// The number of objects of a value, unchecked.
    pub(super) fn count(&self, value: usize) -> usize {
        usize::from(u16::from_le_bytes(self.word(self.layout.counts(), value)))
    }

    /// The labels of the cells of a value with `count` objects, checked against that count.
    pub(super) fn labels(&self, place: &Place, count: usize) -> Result<Vec<u16>, &'static str> {
        if count > place.cells.len() {
            return Err("more objects than cells");
        }
        let low = self.plane(self.layout.labels_low(), place).into_iter();
        let labels: Vec<u16> = if count > usize::from(u8::MAX) {
            let high = self.plane(self.layout.labels_high(), place);
            low.zip(high).map(|(low, high)| u16::from_le_bytes([low, high])).collect()
        } else {
            low.map(u16::from).collect()
        };
        if labels.iter().any(|&label| usize::from(label) > count) {
            return Err("a label above the count");
        }
        Ok(labels)
    }

    /// The shape of a value and the place of its cells, checked to be inside the parts.
    pub(super) fn place(&self, value: usize) -> Result<Place, &'static str> {
        let [h, w] = self.word(self.layout.shapes(), value);
        let (h, w) = (usize::from(h), usize::from(w));
        let (start, end) = if self.layout.is_packed() {
            let start = u32::from_le_bytes(self.word(self.layout.offsets(), value)) as usize;
            (start, self.layout.capacity())
        } else {
            let tables =
                self.source.tables().map_err(|_| "the tables of its batch were changed")?;
            let cells = tables.cells_of(value);
            (cells.start, cells.end)
        };
        if h * w > GRID_CELLS_MAX || start + h * w > end {
            return Err("its shape does not fit its place");
        }
        Ok(Place { h, w, cells: start..start + h * w })
    }

    /// The `N` bytes of a value in a part with one entry per value.
    pub(super) fn word<const N: usize>(&self, part: Range<usize>, value: usize) -> [u8; N] {
        assert!(N * (value + 1) <= part.len(), "the results have no value {value}");
        let mut word = [0; N];
        self.bytes.read(part.start + N * value, &mut word);
        word
    }

    /// The bytes of a value in a part with one byte per cell.
    fn plane(&self, part: Range<usize>, place: &Place) -> Vec<u8> {
        let mut plane = Vec::new();
        self.plane_into(part, place, &mut plane);
        plane
    }

    /// The bytes of a value in a part with one byte per cell. They replace the contents of `plane`.
    pub(super) fn plane_into(&self, part: Range<usize>, place: &Place, plane: &mut Vec<u8>) {
        assert!(place.cells.end <= part.len(), "`place` checks against the capacity");
        plane.resize(place.cells.len(), 0);
        self.bytes.read(part.start + place.cells.start, plane);
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
mod tests;
