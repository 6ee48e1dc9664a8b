//! Large arrays as batches: `[N, H, W]`, or `(cells, sizes)`. Their cells are checked and copied once, straight into
//! shared memory, on several threads if they are many.

use gridpool_client::{BatchLayout, ClientError, LoadedBatch, PRIVATE_BYTES_MAX, Refusal};
use gridpool_protocol::shared::SharedSlice;
use numpy::{Element, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::errors;
use crate::input::{check_shape, not_a_color, sizes};
use crate::process::detached;

/// Cells that are checked and copied at a time: they fit the first-level cache.
const CELLS_AT_ONCE: usize = 16 * 1_024;
/// Cells that are worth a thread, and most threads of one copy.
const CELLS_PER_THREAD: usize = 4 << 20;
const THREADS_MAX: usize = 8;

/// Rows and columns of the grids that follow each other in an array.
enum Shapes {
    Same { grids: usize, h: usize, w: usize },
    Each(Vec<[usize; 2]>),
}

impl Shapes {
    fn grids(&self) -> usize {
        match self {
            Self::Same { grids, .. } => *grids,
            Self::Each(sizes) => sizes.len(),
        }
    }

    /// All of them as bytes, if grids may have them.
    fn checked(&self, py: Python<'_>) -> PyResult<Vec<[u8; 2]>> {
        match *self {
            Self::Same { grids, h, w } => Ok(vec![check_shape(py, 0, h, w)?; grids]),
            Self::Each(ref sizes) => {
                let sizes = sizes.iter().enumerate();
                sizes.map(|(grid, &[h, w])| check_shape(py, grid, h, w)).collect()
            }
        }
    }

    /// The grid, row and column of a cell.
    fn place(&self, cell: usize) -> [usize; 3] {
        match self {
            Self::Same { h, w, .. } => [cell / (h * w), cell % (h * w) / w, cell % w],
            Self::Each(sizes) => {
                let mut rest = cell;
                for (grid, &[h, w]) in sizes.iter().enumerate() {
                    if rest < h * w {
                        return [grid, rest / w, rest % w];
                    }
                    rest -= h * w;
                }
                [sizes.len(), 0, 0]
            }
        }
    }
}

/// Calls a function with an array of the type that it has.
macro_rules! with_type {
    ($array:expr, $take:expr, $($type:ty)*) => {
        $(if let Ok(array) = $array.cast::<PyArrayDyn<$type>>() {
            return $take(array);
        })*
    };
}

/// The batch of a large array of integers in row-major order; `None` for anything else, and if the pool has no shared
/// memory to lend now.
pub(crate) fn placed(
    py: Python<'_>,
    client: &gridpool_client::Client,
    grids: &Bound<'_, PyAny>,
) -> PyResult<Option<LoadedBatch>> {
    let pair = grids.extract::<(Bound<'_, PyUntypedArray>, Bound<'_, PyAny>)>().ok();
    let (array, sizes_of) = match &pair {
        Some((cells, sizes)) => (cells, Some(sizes)),
        None => match grids.cast::<PyUntypedArray>() {
            Ok(array) => (array, None),
            Err(_) => return Ok(None),
        },
    };
    if array.len() <= PRIVATE_BYTES_MAX || !array.is_c_contiguous() {
        return Ok(None);
    }
    let shapes = match (array.shape(), sizes_of) {
        (&[grids, h, w], None) => Shapes::Same { grids, h, w },
        (&[cells], Some(given)) => Shapes::Each(sizes(py, given, cells)?),
        (_, _) => return Ok(None),
    };
    with_type!(array, |array| place(py, client, array, &shapes), u8 i64 i32 i8 i16 u16 u32 u64);
    Ok(None)
}

fn place<T>(
    py: Python<'_>,
    client: &gridpool_client::Client,
    array: &Bound<'_, PyArrayDyn<T>>,
    shapes: &Shapes,
) -> PyResult<Option<LoadedBatch>>
where
    T: Element + Copy + Sync + TryInto<u8> + Into<i128>,
{
    let sides = shapes.checked(py)?;
    let readonly = array.readonly();
    let cells = readonly.as_slice().map_err(|error| PyTypeError::new_err(error.to_string()))?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let layout = BatchLayout::new(count(shapes.grids()), 1, count(cells.len()));
    let layout = layout.map_err(|error| errors::batch(py, &error))?;
    let mut wrong = None;
    let built = detached(py, || {
        client.build(layout, |writer| {
            wrong = copy_all(cells, writer.reserve(sides)?);
            Ok(())
        })
    });
    if let Some(at) = wrong {
        let [grid, row, column] = shapes.place(at);
        return Err(not_a_color(py, cells[at].into(), grid, row, column));
    }
    match built {
        Ok(batch) => Ok(Some(batch)),
        Err(ClientError::Refused(Refusal::Busy(_))) => Ok(None),
        Err(error) => Err(errors::client(py, &error)),
    }
}

/// Copies all cells. Returns the first that is no colour; then the copy is not complete.
fn copy_all<T: Copy + Sync + TryInto<u8>>(cells: &[T], room: SharedSlice<'_>) -> Option<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cells.len() / CELLS_PER_THREAD).clamp(1, cores.min(THREADS_MAX));
    if threads == 1 {
        return copy(cells, room, 0);
    }
    let share = cells.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let parts = cells.chunks(share).enumerate();
        let parts = parts.map(|(part, cells)| scope.spawn(move || copy(cells, room, part * share)));
        let parts: Vec<_> = parts.collect();
        // A thread that has panicked has not copied its cells.
        let ended = parts.into_iter().enumerate().map(|(part, thread)| match thread.join() {
            Ok(wrong) => wrong,
            Err(_) => Some(part * share),
        });
        ended.fold(None, Option::or)
    })
}

/// Copies cells to their place. Returns the first that is no colour.
fn copy<T: Copy + TryInto<u8>>(cells: &[T], room: SharedSlice<'_>, first: usize) -> Option<usize> {
    let mut narrow = [0; CELLS_AT_ONCE];
    for (chunk, at) in cells.chunks(CELLS_AT_ONCE).zip((first..).step_by(CELLS_AT_ONCE)) {
        let narrow = &mut narrow[..chunk.len()];
        for (to, &cell) in narrow.iter_mut().zip(chunk) {
            *to = cell.try_into().unwrap_or(u8::MAX);
        }
        if narrow.iter().fold(0, |most, &cell| most.max(cell)) > 9 {
            return narrow.iter().position(|&cell| cell > 9).map(|place| at + place);
        }
        room.write(at, narrow);
    }
    None
}
