//! Python objects as batches: nested lists and tuples, NumPy's arrays, loaded batches.
//!
//! Anything else (tasks, paths, frames of other libraries) is brought into that form by `gridpool._inputs.flatten`.

use gridpool_client::{GridBatch, LoadedBatch};
use gridpool_protocol::limits::{GRID_CELLS_MAX, SIDE_MAX};
use numpy::{PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::arrays;
use crate::client::Loaded;
use crate::colors::Colors;
use crate::errors::{self, bad_input};

/// A batch, wherever it is.
pub(crate) enum Source {
    Batch(GridBatch),
    Loaded(LoadedBatch),
}

/// The batch that Python gave. A large array is copied into memory of `lender`.
pub(crate) fn source(
    py: Python<'_>,
    lender: Option<&gridpool_client::Client>,
    grids: &Bound<'_, PyAny>,
    pairs: bool,
) -> PyResult<Source> {
    if let Ok(loaded) = grids.cast::<Loaded>() {
        let loaded = loaded.get();
        if !loaded.batch.is_mine() {
            let text = "the batch was loaded by the parent process: load it again after the fork";
            return Err(PyTypeError::new_err(text));
        }
        return Ok(Source::Loaded(loaded.batch.clone()));
    }
    if !pairs
        && let Some(lender) = lender
        && let Some(placed) = arrays::placed(py, lender, grids)?
    {
        return Ok(Source::Loaded(placed));
    }
    batch(py, grids, pairs).map(Source::Batch)
}

/// The same in private memory.
pub(crate) fn batch(py: Python<'_>, grids: &Bound<'_, PyAny>, pairs: bool) -> PyResult<GridBatch> {
    let mut reader = Reader::new(py, pairs);
    if reader.batch(grids)? {
        return Ok(reader.batch);
    }
    let flatten = py.import("gridpool._inputs")?.getattr("flatten")?;
    let flat = flatten.call1((grids, pairs))?;
    let mut reader = Reader::new(py, pairs);
    if reader.batch(&flat)? {
        return Ok(reader.batch);
    }
    let name = grids.get_type().name()?;
    Err(bad_input(py, &format!("{name} is no batch of grids"), None, None, None))
}

pub(crate) fn not_a_color(
    py: Python<'_>,
    value: i128,
    grid: usize,
    row: usize,
    column: usize,
) -> PyErr {
    let why =
        format!("grid {grid}, row {row}, column {column}: {value} is not a colour from 0 to 9");
    bad_input(py, &why, Some(grid), Some(row), Some(column))
}

/// Rows and columns as bytes, if a grid may have them.
pub(crate) fn check_shape(py: Python<'_>, grid: usize, h: usize, w: usize) -> PyResult<[u8; 2]> {
    let why = if h == 0 || w == 0 {
        format!("grid {grid} is empty: it needs at least one row and one column")
    } else if h > SIDE_MAX || w > SIDE_MAX {
        format!("grid {grid} is {h} x {w}; a side has at most {SIDE_MAX} cells")
    } else if h * w > GRID_CELLS_MAX {
        format!("grid {grid} is {h} x {w}; at most {GRID_CELLS_MAX} cells are allowed")
    } else {
        let side = |side| u8::try_from(side).unwrap_or(u8::MAX);
        return Ok([side(h), side(w)]);
    };
    Err(bad_input(py, &why, Some(grid), None, None))
}

/// Calls a function with the elements of an array of any integer type, row-major.
macro_rules! with_elements {
    ($array:expr, $take:expr, $($type:ty)*) => {
        $(if let Ok(array) = $array.cast::<PyArrayDyn<$type>>() {
            let readonly = array.readonly();
            let view = readonly.as_array();
            return $take(&mut view.iter().map(|&cell| i128::from(cell)));
        })*
    };
}

/// The rows and columns of grids that have so many cells in all: an array `[N, 2]`, or pairs.
pub(crate) fn sizes(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    cells: usize,
) -> PyResult<Vec<[usize; 2]>> {
    let sizes = match given.cast::<PyUntypedArray>() {
        Ok(array) if matches!(array.shape(), [_, 2]) => flat(py, array.as_any())?,
        Ok(_) | Err(_) => given.extract().map_err(|error: PyErr| {
            let why = "beside cells are no sizes: write the rows and columns of each grid, [(2, 3), (1, 5)]";
            let raised = bad_input(py, why, None, None, None);
            raised.set_cause(py, Some(error));
            raised
        })?,
    };
    let want: usize = sizes.iter().map(|[h, w]| h.saturating_mul(*w)).sum();
    if want == cells {
        return Ok(sizes);
    }
    let why = format!("the sizes say {want} cells, there are {cells}");
    Err(bad_input(py, &why, None, None, None))
}

/// An array `[N, 2]` of any integer type.
fn flat(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Vec<[usize; 2]>> {
    let take = |sides: &mut dyn Iterator<Item = i128>| {
        let sides: Result<Vec<usize>, _> = sides.map(usize::try_from).collect();
        let sides = sides.map_err(|_| bad_input(py, "a size is negative", None, None, None))?;
        Ok(sides.as_chunks::<2>().0.to_vec())
    };
    with_elements!(array, take, u8 i64 i32 i8 i16 u16 u32 u64 bool);
    array.call_method0("tolist")?.extract()
}

/// Reads a batch.
struct Reader<'py> {
    py: Python<'py>,
    colors: &'static Colors,
    pairs: bool,
    batch: GridBatch,
    cells: Vec<u8>,
    grids: usize,
}

impl<'py> Reader<'py> {
    fn new(py: Python<'py>, pairs: bool) -> Self {
        Self {
            py,
            colors: Colors::get(py),
            pairs,
            batch: GridBatch::of_items(if pairs { 2 } else { 1 }),
            cells: Vec::new(),
            grids: 0,
        }
    }

    /// Reads all items. Returns `false` if they are in no form that this knows.
    fn batch(&mut self, grids: &Bound<'py, PyAny>) -> PyResult<bool> {
        if let Ok(array) = grids.cast::<PyUntypedArray>() {
            return self.array(array);
        }
        if let Ok(list) = grids.cast_exact::<PyList>() {
            if is_row(list.get_item(0).ok().as_ref()) {
                return self.only(grids);
            }
            for item in list.iter() {
                if !self.item(&item)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let Ok(tuple) = grids.cast_exact::<PyTuple>() else { return Ok(false) };
        if is_row(tuple.get_item(0).ok().as_ref()) {
            return self.only(grids);
        }
        if let Some(done) = self.ragged(tuple)? {
            return Ok(done);
        }
        for item in tuple.iter() {
            if !self.item(&item)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One grid is a batch of one.
    fn only(&mut self, grid: &Bound<'py, PyAny>) -> PyResult<bool> {
        if self.pairs { Ok(false) } else { self.grid(grid) }
    }

    /// An array: `[N, H, W]`, or one grid.
    fn array(&mut self, array: &Bound<'py, PyUntypedArray>) -> PyResult<bool> {
        match (array.shape(), self.pairs) {
            (&[h, w], false) => self.cells_of(array.as_any(), std::iter::once([h, w])),
            (&[items, h, w], false) => {
                self.cells_of(array.as_any(), std::iter::repeat_n([h, w], items))
            }
            (_, _) => Ok(false),
        }
    }

    /// `(cells, sizes)`: the cells of all grids, and the rows and columns of each.
    fn ragged(&mut self, tuple: &Bound<'py, PyTuple>) -> PyResult<Option<bool>> {
        if self.pairs || tuple.len() != 2 {
            return Ok(None);
        }
        let (cells, given) = (tuple.get_item(0)?, tuple.get_item(1)?);
        let Ok(array) = cells.cast::<PyUntypedArray>() else { return Ok(None) };
        if array.ndim() != 1 {
            return Ok(None);
        }
        let sizes = sizes(self.py, &given, array.len())?;
        self.cells_of(&cells, sizes.into_iter()).map(Some)
    }

    /// Grids of these shapes, whose cells follow each other in an array.
    fn cells_of(
        &mut self,
        array: &Bound<'py, PyAny>,
        shapes: impl Iterator<Item = [usize; 2]>,
    ) -> PyResult<bool> {
        let take = |cells: &mut dyn Iterator<Item = i128>| -> PyResult<bool> {
            for [h, w] in shapes {
                self.next(h, w, cells)?;
            }
            Ok(true)
        };
        with_elements!(array, take, u8 i64 i32 i8 i16 u16 u32 u64 bool);
        Ok(false)
    }

    /// The next grid, from cells of any integer type.
    fn next(&mut self, h: usize, w: usize, cells: &mut dyn Iterator<Item = i128>) -> PyResult<()> {
        let [rows, columns] = check_shape(self.py, self.grids, h, w)?;
        self.cells.clear();
        for (at, cell) in cells.take(h * w).enumerate() {
            match u8::try_from(cell) {
                Ok(color) if color <= 9 => self.cells.push(color),
                Ok(_) | Err(_) => {
                    return Err(not_a_color(self.py, cell, self.grids, at / w, at % w));
                }
            }
        }
        self.push(rows, columns)
    }

    fn push(&mut self, h: u8, w: u8) -> PyResult<()> {
        let pushed = self.batch.push_cells(h, w, &self.cells);
        self.grids += 1;
        pushed.map_err(|error| errors::batch(self.py, &error))
    }

    /// A grid, or a pair.
    fn item(&mut self, item: &Bound<'py, PyAny>) -> PyResult<bool> {
        if !self.pairs {
            return self.grid(item);
        }
        let (input, output) = match (item.cast_exact::<PyTuple>(), item.cast_exact::<PyList>()) {
            (Ok(pair), _) if pair.len() == 2 => (pair.get_item(0)?, pair.get_item(1)?),
            (_, Ok(pair)) if pair.len() == 2 => (pair.get_item(0)?, pair.get_item(1)?),
            (_, _) => return Ok(false),
        };
        if !self.grid(&input)? {
            return Ok(false);
        }
        if output.is_none() {
            self.grids += 1;
            let missing = self.batch.push_missing();
            return missing.map(|()| true).map_err(|error| errors::batch(self.py, &error));
        }
        self.grid(&output)
    }

    /// Rows of cells, or an array.
    fn grid(&mut self, grid: &Bound<'py, PyAny>) -> PyResult<bool> {
        self.cells.clear();
        let (h, w) = if let Ok(rows) = grid.cast_exact::<PyTuple>() {
            let first = if rows.is_empty() { 0 } else { width(&rows.get_item(0)?) };
            for (at, row) in rows.iter_borrowed().enumerate() {
                if !self.row(&row, at, first)? {
                    return Ok(false);
                }
            }
            (rows.len(), first)
        } else if let Ok(rows) = grid.cast_exact::<PyList>() {
            let first = if rows.is_empty() { 0 } else { width(&rows.get_item(0)?) };
            for (at, row) in rows.iter().enumerate() {
                if !self.row(&row, at, first)? {
                    return Ok(false);
                }
            }
            (rows.len(), first)
        } else if let Ok(array) = grid.cast::<PyUntypedArray>() {
            let &[h, w] = array.shape() else { return Ok(false) };
            return self.cells_of(grid, std::iter::once([h, w]));
        } else {
            return Ok(false);
        };
        let [rows, columns] = check_shape(self.py, self.grids, h, w)?;
        self.push(rows, columns)?;
        Ok(true)
    }

    /// The cells of one row, which has as many as the first.
    fn row(&mut self, row: &Bound<'py, PyAny>, at: usize, want: usize) -> PyResult<bool> {
        let start = self.cells.len();
        if let Ok(row) = row.cast_exact::<PyTuple>() {
            for (column, cell) in row.iter_borrowed().enumerate() {
                if !self.cell(&cell, at, column)? {
                    return Ok(false);
                }
            }
        } else if let Ok(row) = row.cast_exact::<PyList>() {
            for (column, cell) in row.iter().enumerate() {
                if !self.cell(&cell.as_borrowed(), at, column)? {
                    return Ok(false);
                }
            }
        } else if let Ok(array) = row.cast::<PyUntypedArray>()
            && array.ndim() == 1
        {
            let list = array.call_method0("tolist")?;
            return self.row(&list, at, want);
        } else {
            return Ok(false);
        }
        let got = self.cells.len() - start;
        if got != want {
            let grid = self.grids;
            let why = format!("grid {grid}: row {at} has {got} cells, row 0 has {want}");
            return Err(bad_input(self.py, &why, Some(grid), Some(at), None));
        }
        Ok(true)
    }

    #[inline]
    fn cell(
        &mut self,
        cell: &Borrowed<'_, 'py, PyAny>,
        row: usize,
        column: usize,
    ) -> PyResult<bool> {
        if let Some(color) = self.colors.of(cell) {
            self.cells.push(color);
            return Ok(true);
        }
        // A deeper list is another form; a number that is no colour is an error at its place.
        if cell.cast::<PyList>().is_ok() || cell.cast::<PyTuple>().is_ok() {
            return Ok(false);
        }
        if let Ok(value) = cell.extract::<i64>() {
            if let Ok(color @ 0..=9) = u8::try_from(value) {
                self.cells.push(color);
                return Ok(true);
            }
            return Err(not_a_color(self.py, value.into(), self.grids, row, column));
        }
        let (grid, shown) = (self.grids, cell.repr()?);
        let why =
            format!("grid {grid}, row {row}, column {column}: {shown} is not a colour from 0 to 9");
        Err(bad_input(self.py, &why, Some(grid), Some(row), Some(column)))
    }
}

/// Whether this is a row of cells, so that what holds it is a grid.
fn is_row(first: Option<&Bound<'_, PyAny>>) -> bool {
    let Some(first) = first else { return false };
    let cell = match (first.cast_exact::<PyTuple>(), first.cast_exact::<PyList>()) {
        (Ok(row), _) => row.get_item(0),
        (_, Ok(row)) => row.get_item(0),
        (_, _) => return false,
    };
    cell.is_ok_and(|cell| cell.extract::<i64>().is_ok())
}

fn width(row: &Bound<'_, PyAny>) -> usize {
    row.len().unwrap_or(0)
}
