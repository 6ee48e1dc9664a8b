//! Invalid sizes and shapes: the client library must refuse each with the right error. Other languages pass
//! negative numbers as huge ones.

use std::fmt::Display;

use gridpool_client::ModelInput;
use gridpool_protocol::batch::{BatchError, BatchLayout, Grid, GridBatch, GridError};
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::limits::{
    JOB_CELLS_MAX, JOB_ITEMS_MAX, TENSOR_BYTES_MAX, TENSOR_RANK_MAX, TENSOR_SIDE_MAX,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::tensor::{DataType, Tensor, TensorError};

/// An input, and the error that refused it or what happened instead.
type Case = (&'static str, Result<String, String>);

/// A result that must be this kind of error.
macro_rules! refused {
    ($what:literal, $result:expr, $meant:pat) => {
        case($what, $result, |error| matches!(error, $meant))
    };
}

fn case<T, E: Display>(
    what: &'static str,
    result: Result<T, E>,
    is_meant: impl Fn(&E) -> bool,
) -> Case {
    let came = match result {
        Ok(_) => Err("it was accepted".to_owned()),
        Err(error) if is_meant(&error) => Ok(error.to_string()),
        Err(error) => Err(format!("it was refused with another error: {error}")),
    };
    (what, came)
}

/// The check that sums up these cases.
fn check(name: &str, cases: &[Case]) -> Check {
    for (what, came) in cases {
        if let Err(why) = came {
            let says = format!("{what}: {why}");
            let next = "report it with the versions of gridpool and gridpool-worker: sizes are computed \
                        wrongly";
            return Check::fail(Group::Allocation, name, says, next);
        }
    }
    let count = cases.len();
    let says = format!("{count} invalid sizes and shapes are refused by the client library");
    let check = Check::pass(Group::Allocation, name, says);
    cases.iter().fold(check, |check, (what, came)| {
        let said = match came {
            Ok(said) | Err(said) => said,
        };
        check.fact(what, said)
    })
}

/// Grids and batches.
pub(super) fn grids() -> Check {
    let (grid, layout) = (Grid::new, BatchLayout::new);
    let largest = layout(JOB_ITEMS_MAX, 1, JOB_CELLS_MAX);
    let program = Program::compile("upscale(30)", Ties::Cpython);
    let program = program.expect("it is an example of the op table");
    let result = largest.and_then(|largest| OutputLayout::new(&program, largest));
    let cases = [
        refused!("a grid of 0 x 5", grid(0, 5, Vec::new()), GridError::Empty),
        refused!("a grid of -1 x 5", grid(usize::MAX, 5, Vec::new()), GridError::Side { .. }),
        refused!("a grid of 256 x 1", grid(256, 1, vec![0; 256]), GridError::Side { .. }),
        refused!("a grid of 255 x 17", grid(255, 17, vec![0; 4_335]), GridError::TooLarge { .. }),
        refused!("a grid of 2 x 3 with 5 cells", grid(2, 3, vec![0; 5]), GridError::Length { .. }),
        refused!("a cell of 10", grid(1, 1, vec![10]), GridError::Cell { .. }),
        refused!("a batch without items", GridBatch::of_items(1).layout(), BatchError::Empty),
        refused!(
            "a job with too many items",
            layout(JOB_ITEMS_MAX + 1, 1, JOB_CELLS_MAX),
            BatchError::Items { .. }
        ),
        refused!(
            "a job with too many cells",
            layout(1, 1, JOB_CELLS_MAX + 1),
            BatchError::Cells { .. }
        ),
        refused!(
            "a result that is too large",
            result,
            BatchError::Capacity { .. } | BatchError::Values { .. }
        ),
    ];
    check("grid shapes, by the client", &cases)
}

/// Tensors and inference requests.
pub(super) fn tensors() -> Check {
    let tensor = |shape: &[u64]| Tensor::new("x", DataType::Fp32, shape.to_vec());
    let short = tensor(&[2, 3]).and_then(|x| ModelInput::from_bytes(x, vec![0; 23]));
    let cases = [
        refused!("a dimension of -1", tensor(&[2, u64::MAX]), TensorError::Side { .. }),
        refused!(
            "a dimension above the limit",
            tensor(&[TENSOR_SIDE_MAX + 1]),
            TensorError::Side { .. }
        ),
        refused!(
            "2^32 x 2^32, which is 0 in 64 bits",
            tensor(&[1 << 32, 1 << 32]),
            TensorError::Bytes { .. }
        ),
        refused!("too many bytes", tensor(&[TENSOR_BYTES_MAX / 4 + 1]), TensorError::Bytes { .. }),
        refused!(
            "too many dimensions",
            tensor(&[1; TENSOR_RANK_MAX + 1]),
            TensorError::Rank { .. }
        ),
        refused!("data shorter than its shape", short, TensorError::Data { .. }),
    ];
    check("tensor shapes, by the client", &cases)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn invalid_sizes_are_refused_by_the_library() {
        for check in [grids(), tensors()] {
            assert_eq!(check.outcome, Outcome::Pass, "{}", check.says);
            assert!(check.facts.len() >= 6, "{check:?}");
        }
    }

    #[test]
    fn a_case_that_is_accepted_or_refused_with_another_error_fails_the_check() {
        let right = refused!("nothing", Grid::new(0, 1, Vec::new()), GridError::Empty);
        assert_eq!(check("x", std::slice::from_ref(&right)).outcome, Outcome::Pass);
        let accepted = refused!("one", Grid::new(1, 1, vec![0]), GridError::Empty);
        let other = refused!("much", Grid::new(256, 1, vec![0; 256]), GridError::Empty);
        for wrong in [accepted, other] {
            let check = check("x", &[right.clone(), wrong]);
            assert_eq!(check.outcome, Outcome::Fail);
            assert!(check.says.contains(": it was"), "{}", check.says);
        }
    }
}
