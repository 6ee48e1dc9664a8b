//! Grids, batches and tensors of sizes that there are not, made with the client library: none of them
//! gets as far as the pool. Negative numbers are what other languages pass where ours has none.

use gridpool_protocol::batch::{BatchError, BatchLayout, Grid, GridBatch, GridError};
use gridpool_protocol::client::InferJob;
use gridpool_protocol::diagnose::Check;
use gridpool_protocol::limits::{
    JOB_CELLS_MAX, JOB_ITEMS_MAX, TENSOR_BYTES_MAX, TENSOR_RANK_MAX, TENSOR_SIDE_MAX,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::tensor::{DataType, Tensor, TensorError, TensorLayout};

use super::refusals::{Case, check, refused};

/// What -2^63 is where no sign is known.
const I64_MIN: u64 = i64::MIN.cast_unsigned();
/// What -1 is there.
const MINUS_1: u64 = u64::MAX;

/// Grids and batches.
pub(super) fn grids() -> Check {
    let grid = Grid::new;
    let empty = |error: &GridError| *error == GridError::Empty;
    let side = |error: &GridError| matches!(error, GridError::Side { .. });
    let large = |error: &GridError| matches!(error, GridError::TooLarge { .. });
    let length = |error: &GridError| matches!(error, GridError::Length { .. });
    let cell = |error: &GridError| matches!(error, GridError::Cell { .. });
    let minus_1 = usize::try_from(MINUS_1).unwrap_or(usize::MAX);
    let i64_min = usize::try_from(I64_MIN).unwrap_or(usize::MAX);
    let mut cases = vec![
        refused("a grid of 0 x 5", grid(0, 5, Vec::new()), empty),
        refused("a grid of 5 x 0", grid(5, 0, Vec::new()), empty),
        refused("a grid of -1 x 5", grid(minus_1, 5, Vec::new()), side),
        refused(
            "a grid of i64::MIN x 2, whose cells are 0 in 64 bits",
            grid(i64_min, 2, Vec::new()),
            side,
        ),
        refused(
            "a grid of 2^32 x 2^32, whose cells are 0 in 64 bits",
            grid(1 << 32, 1 << 32, Vec::new()),
            side,
        ),
        refused("a grid of 256 x 1", grid(256, 1, vec![0; 256]), side),
        refused(
            "a grid of 255 x 17, more cells than a grid has",
            grid(255, 17, vec![0; 4_335]),
            large,
        ),
        refused("a grid of 2 x 3 with 5 cells", grid(2, 3, vec![0; 5]), length),
        refused("a cell of -1", grid(1, 1, vec![u8::MAX]), cell),
        refused("a cell of 10", grid(1, 1, vec![10]), cell),
    ];
    cases.extend(batches());
    check("grid shapes, by the client", "the client library", &cases)
}

fn batches() -> Vec<Case> {
    let layout = BatchLayout::new;
    let empty = |error: &BatchError| *error == BatchError::Empty;
    let items = |error: &BatchError| matches!(error, BatchError::Items { .. });
    let cells = |error: &BatchError| matches!(error, BatchError::Cells { .. });
    let shape = |error: &BatchError| matches!(error, BatchError::Shape { .. });
    let rooms =
        |error: &BatchError| matches!(error, BatchError::Room { .. } | BatchError::Values { .. });
    let largest = layout(JOB_ITEMS_MAX, 1, JOB_CELLS_MAX);
    let upscaled = Program::compile("upscale(30)", Ties::Cpython);
    let upscaled = upscaled.expect("it is an example of the op table");
    let result = largest.and_then(|largest| OutputLayout::new(&upscaled, largest));
    vec![
        refused("a batch without items", GridBatch::of_items(1).layout(), empty),
        refused("a batch with an empty grid", GridBatch::from_grids([&Grid::empty()]), shape),
        refused("a job of 0 items", layout(0, 1, 0), empty),
        refused(
            "a job of more items than a job has",
            layout(JOB_ITEMS_MAX + 1, 1, JOB_CELLS_MAX),
            items,
        ),
        refused("a job of -1 items", layout(u32::MAX, 1, u32::MAX), items),
        refused("a job of more cells than a job has", layout(1, 1, JOB_CELLS_MAX + 1), cells),
        refused("a job of -1 cells", layout(1, 2, u32::MAX), cells),
        refused("a job of fewer cells than items", layout(2, 1, 1), cells),
        refused("a result that is larger than a job's may be", result, rooms),
    ]
}

/// Tensors and requests of models.
pub(super) fn tensors() -> Check {
    let tensor = |shape: &[u64]| Tensor::new("x", DataType::Fp32, shape.to_vec());
    let side = |error: &TensorError| matches!(error, TensorError::Side { .. });
    let bytes = |error: &TensorError| matches!(error, TensorError::Bytes { .. });
    let rank = |error: &TensorError| matches!(error, TensorError::Rank { .. });
    let data = |error: &TensorError| matches!(error, TensorError::Data { .. });
    let twice = || {
        let half = Tensor::new("x", DataType::Uint8, vec![TENSOR_BYTES_MAX - 64])?;
        let other = Tensor::new("y", DataType::Uint8, vec![TENSOR_BYTES_MAX - 64])?;
        TensorLayout::new(vec![half, other])
    };
    let short = tensor(&[2, 3]).and_then(|x| InferJob::new("m", vec![(x, vec![0; 23])]));
    let cases = [
        refused("a dimension of -1", tensor(&[2, MINUS_1]), side),
        refused("a dimension of i64::MIN", tensor(&[I64_MIN]), side),
        refused("a dimension of 2^63", tensor(&[1 << 63, 2]), side),
        refused("a dimension above the limit", tensor(&[TENSOR_SIDE_MAX + 1]), side),
        refused("2^32 x 2^32, which is 0 in 64 bits", tensor(&[1 << 32, 1 << 32]), bytes),
        refused("2^33 x 2^29 x 4 bytes, which is 0 in 64 bits", tensor(&[1 << 33, 1 << 29]), bytes),
        refused("more bytes than a set has", tensor(&[TENSOR_BYTES_MAX / 4 + 1]), bytes),
        refused("two tensors that are too much together", twice(), bytes),
        refused("more dimensions than a tensor has", tensor(&[1; TENSOR_RANK_MAX + 1]), rank),
        refused("data that is shorter than its shape says", short, data),
    ];
    let check = check("tensor shapes, by the client", "the client library", &cases);
    // Zero is a size of tensors, and nothing times what would overflow is nothing.
    match tensor(&[TENSOR_SIDE_MAX, 0, TENSOR_SIDE_MAX]) {
        Ok(none) if none.bytes() == 0 => check.fact("a dimension of 0", "allowed: it has no bytes"),
        Ok(some) => wrong_zero(format!("it has {} bytes", some.bytes())),
        Err(error) => wrong_zero(error.to_string()),
    }
}

fn wrong_zero(why: String) -> Check {
    check("tensor shapes, by the client", "", &[("a dimension of 0", Err(why))])
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn sizes_that_there_are_not_are_refused_by_the_library() {
        for check in [grids(), tensors()] {
            assert_eq!(check.outcome, Outcome::Pass, "{}", check.says);
            assert!(check.facts.len() > 9, "{check:?}");
        }
    }
}
