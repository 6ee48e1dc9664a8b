//! Results as an Arrow file: a column `result`, and a column `error` that is null where there is a result.
//!
//! A grid is a list of lists of uint8, a number an int32, a flag a boolean, a vector two int32, a tuple a list of
//! fixed length. May not open files.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Int32Array, ListArray, RecordBatch,
    StringArray, UInt8Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};
use gridpool_protocol::program::Type;

use super::columns::{Columns, Values};
use crate::cli::results::Results;

/// Items of a record batch: the cells of so many tuples can be counted in 31 bits.
const BATCH_ITEMS: usize = 1 << 13;

/// Writes the items in record batches.
pub(super) fn write(
    out: impl Write,
    gives: Type,
    results: &Results,
    items: usize,
) -> io::Result<()> {
    let batch = |start: usize| {
        let columns = Columns::of(gives, results, start..items.min(start + BATCH_ITEMS))?;
        record_batch(columns).map_err(io::Error::other)
    };
    let first = batch(0)?;
    let mut writer = FileWriter::try_new(out, &first.schema()).map_err(io::Error::other)?;
    writer.write(&first).map_err(io::Error::other)?;
    for start in (0..items).step_by(BATCH_ITEMS).skip(1) {
        writer.write(&batch(start)?).map_err(io::Error::other)?;
    }
    writer.finish().map_err(io::Error::other)
}

fn record_batch(columns: Columns) -> Result<RecordBatch, ArrowError> {
    let Columns { items, width, values, errors } = columns;
    let mut texts = vec![None; items];
    for (item, text) in errors {
        texts[item] = Some(text);
    }
    let nulls: NullBuffer = texts.iter().map(Option::is_none).collect();
    // Of a tuple only the tuple is null.
    let own = width.is_none().then(|| nulls.clone());
    let mut result: ArrayRef = match values {
        Values::Flags(flags) => Arc::new(BooleanArray::new(flags.into(), own)),
        Values::Grids { cells, sizes } => Arc::new(grids(cells, &sizes, own)?),
        Values::Numbers(numbers) => Arc::new(Int32Array::new(numbers.into(), own)),
        Values::Vectors(vectors) => {
            let halves = Arc::new(Int32Array::from(vectors.into_flattened()));
            Arc::new(FixedSizeListArray::try_new(element(&*halves), 2, halves, own)?)
        }
    };
    if let Some(width) = width {
        let width =
            i32::try_from(width).map_err(|error| ArrowError::from_external_error(error.into()))?;
        let tuples = FixedSizeListArray::try_new(element(&*result), width, result, Some(nulls))?;
        result = Arc::new(tuples);
    }
    let fields = vec![
        Field::new("result", result.data_type().clone(), true),
        Field::new("error", DataType::Utf8, true),
    ];
    let errors = Arc::new(StringArray::from(texts));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![result, errors])
}

/// Lists of rows, which are lists of cells.
fn grids(
    cells: Vec<u8>,
    sizes: &[[usize; 2]],
    nulls: Option<NullBuffer>,
) -> Result<ListArray, ArrowError> {
    let cells = UInt8Array::from(cells);
    let widths = sizes.iter().flat_map(|&[h, w]| std::iter::repeat_n(w, h));
    let rows = OffsetBuffer::from_lengths(widths);
    let rows = ListArray::try_new(element(&cells), rows, Arc::new(cells), None)?;
    let heights = OffsetBuffer::from_lengths(sizes.iter().map(|[h, _]| *h));
    ListArray::try_new(element(&rows), heights, Arc::new(rows), nulls)
}

/// The elements of a list.
fn element(of: &dyn Array) -> FieldRef {
    Arc::new(Field::new_list_field(of.data_type().clone(), false))
}
