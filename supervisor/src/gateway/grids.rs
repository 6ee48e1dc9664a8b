//! Grids as tensors. A request has GRID `[N, 30, 30]` and SIZE `[N, 2]`; its response has both for the
//! results, and STATUS `[N]`: 0 for an item with a result, else the code of its error.

use gridpool_client::{Job, Outputs};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::limits::{COLOR_MAX, DEADLINE_DEFAULT};
use gridpool_protocol::output::{ItemError, ItemErrorCode, Output};
use gridpool_protocol::program::{Kind, Program, Type};
use gridpool_protocol::tensor::{DataType, Tensor};
use serde_json::{Value, json};

use super::failure::Failure;
use super::limits::{ERRORS_SHOWN_MAX, ITEMS_MAX, SIDE_MAX};
use super::request::Request;
use super::tensors;

/// The cells, row by row from the upper left. Cells outside of SIZE are ignored.
pub(super) const GRID: &str = "GRID";
/// Height and width of each grid.
pub(super) const SIZE: &str = "SIZE";
/// Whether an item has a result, and if not, why.
pub(super) const STATUS: &str = "STATUS";

/// The STATUS of a result that is larger than GRID's 30 x 30. Other codes are those of [`ItemErrorCode`].
const DOES_NOT_FIT: i32 = 100;
/// Cells of one item.
const CELLS: usize = SIDE_MAX * SIDE_MAX;
/// Bytes of one item in SIZE.
const SIZE_BYTES: usize = 2 * size_of::<i32>();

/// Makes the job that runs a program over the grids of a request.
pub(super) fn job(text: &str, request: &Request<'_>) -> Result<Job<Outputs>, Failure> {
    let program = Program::compile(text, request.ties)
        .map_err(|error| Failure::bad(format!("the program `{text}`: {error}")))?;
    let (takes, gives, grid) = (program.takes(), program.gives(), Type::one(Kind::Grid));
    if (takes, gives) != (grid, grid) {
        return Err(Failure::bad(format!(
            "the program `{text}` takes {takes} and gives {gives}; over HTTP a program takes {grid} and \
             gives {grid}"
        )));
    }
    let batch = batch(request)?;
    let job = Job::program(program, batch).map_err(|error| Failure::bad(error.to_string()))?;
    let job = job.with_priority(request.priority).refuse_if_busy().end_with_pool();
    Ok(job.with_deadline(request.deadline.unwrap_or(DEADLINE_DEFAULT)))
}

/// Reads and checks the grids of a request.
fn batch(request: &Request<'_>) -> Result<GridBatch, Failure> {
    let (grids, sizes) = (request.input(GRID)?, request.input(SIZE)?);
    let (items, others) = (grids.tensor.shape()[0], sizes.tensor.shape()[0]);
    if items != others {
        return Err(Failure::bad(format!("GRID has {items} items, SIZE has {others}")));
    }
    if items == 0 || items > ITEMS_MAX {
        return Err(Failure::bad(format!("GRID has {items} items; send 1 to {ITEMS_MAX} at once")));
    }
    let mut batch = GridBatch::of_items(1);
    let cells = grids.data.as_chunks::<CELLS>().0;
    let sizes = sizes.data.as_chunks::<SIZE_BYTES>().0;
    for (item, (cells, size)) in cells.iter().zip(sizes).enumerate() {
        let grid = grid(cells, size).map_err(|why| Failure::bad(format!("item {item}: {why}")))?;
        batch.push(&grid).map_err(|error| Failure::bad(format!("item {item}: {error}")))?;
    }
    Ok(batch)
}

/// Reads one item.
fn grid(cells: &[u8; CELLS], size: &[u8; SIZE_BYTES]) -> Result<Grid, String> {
    let [height, width] = [0, 1].map(|at| {
        let bytes: &[u8; 4] = &size.as_chunks().0[at];
        i32::from_le_bytes(*bytes)
    });
    let side = |side: i32| usize::try_from(side).ok().filter(|side| (1..=SIDE_MAX).contains(side));
    let (Some(h), Some(w)) = (side(height), side(width)) else {
        return Err(format!("SIZE is [{height}, {width}]; height and width are 1 to {SIDE_MAX}"));
    };
    let rows = cells.chunks_exact(SIDE_MAX).take(h);
    let mut kept = Vec::with_capacity(h * w);
    for (row, cells) in rows.enumerate() {
        if let Some(col) = cells[..w].iter().position(|&cell| cell > COLOR_MAX) {
            let value = cells[col];
            return Err(format!(
                "row {row}, column {col} of GRID: {value} is not a colour from 0 to {COLOR_MAX}"
            ));
        }
        kept.extend_from_slice(&cells[..w]);
    }
    Grid::new(h, w, kept).map_err(|error| error.to_string())
}

/// Bytes that the output tensors take.
pub(super) fn bytes(outputs: &Outputs) -> usize {
    outputs.len() * (CELLS + SIZE_BYTES + size_of::<i32>())
}

/// The output tensors of a job, and the errors of the first items without a result.
pub(super) fn results(
    outputs: &Outputs,
) -> Result<(Vec<tensors::OutputTensor>, Vec<Value>), Failure> {
    let malformed = |error| Failure::internal(format!("{error}"));
    let items = outputs.len();
    let mut grids = vec![0; items * CELLS];
    let mut sizes = Vec::with_capacity(items * SIZE_BYTES);
    let mut statuses = Vec::with_capacity(items * size_of::<i32>());
    let mut errors = Vec::new();
    for (item, room) in grids.as_chunks_mut::<CELLS>().0.iter_mut().enumerate() {
        let result = match outputs.item(item).map_err(malformed)? {
            Ok(Output::Grid(grid)) => place(&grid, room).map(|()| grid),
            Ok(other) => return Err(Failure::internal(format!("item {item} is {other:?}"))),
            Err(error) => Err(Absent::of(&error)),
        };
        let (shape, status) = match result {
            Ok(grid) => ([grid.h(), grid.w()], 0),
            Err(absent) => {
                let status = absent.status;
                if errors.len() < ERRORS_SHOWN_MAX {
                    errors.push(absent.describe(item));
                }
                ([0, 0], status)
            }
        };
        for side in shape {
            sizes.extend(i32::try_from(side).expect("a side is small").to_le_bytes());
        }
        statuses.extend(status.to_le_bytes());
    }
    let (n, side) = (items as u64, SIDE_MAX as u64);
    let tensors = [
        (GRID, DataType::Uint8, vec![n, side, side], grids),
        (SIZE, DataType::Int32, vec![n, 2], sizes),
        (STATUS, DataType::Int32, vec![n], statuses),
    ];
    let tensors = tensors.into_iter().map(|(name, datatype, shape, data)| {
        let tensor = Tensor::new(name, datatype, shape);
        let tensor = tensor.map_err(|error| Failure::internal(error.to_string()))?;
        Ok(tensors::OutputTensor::private(tensor, data))
    });
    Ok((tensors.collect::<Result<_, Failure>>()?, errors))
}

/// The error of an item that has no result in GRID.
struct Absent {
    status: i32,
    code: &'static str,
    op: String,
    message: String,
}

impl Absent {
    fn of(error: &ItemError) -> Self {
        let ItemError { code, op, message } = error;
        let (op, message) = (op.clone(), message.clone());
        Self { status: status(*code), code: code.name(), op, message }
    }

    fn describe(self, item: usize) -> Value {
        let Self { status, code, op, message } = self;
        json!({ "item": item, "status": status, "code": code, "op": op, "message": message })
    }
}

fn status(code: ItemErrorCode) -> i32 {
    i32::from(code as u8)
}

/// Copies a grid to the upper left of its 30 x 30 cells.
fn place(grid: &Grid, room: &mut [u8; CELLS]) -> Result<(), Absent> {
    if grid.h() > SIDE_MAX || grid.w() > SIDE_MAX {
        return Err(Absent {
            status: DOES_NOT_FIT,
            code: "DoesNotFit",
            op: "output".to_owned(),
            message: format!(
                "the result is {} x {}, larger than GRID's {SIDE_MAX} x {SIDE_MAX}: a client of the \
                 pool's socket gets grids of any size",
                grid.h(),
                grid.w()
            ),
        });
    }
    for (row, place) in grid.rows().zip(room.chunks_exact_mut(SIDE_MAX)) {
        place[..row.len()].copy_from_slice(row);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
