//! The first runs of a context, before any request; and the check that a model's rows may share a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridpool_protocol::tensor::pipeline::STATUS;
use gridpool_protocol::tensor::{
    ANY_SIZE, DataType, Scalar, Tensor, TensorError, TensorLayout, numbers,
};

use super::context::{Context, RunError, RunOutputs};
use super::error::RuntimeFault;
use super::graphs::GraphsError;
use super::inputs::RunInputs;
use super::load::LoadError;
use super::place::Source;
use super::signature::Signature;

/// Why a warm-up did not run, or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WarmUpError {
    /// The run failed.
    #[error(
        "its warm-up with {shapes}, over zeros, fails; name shapes that it can run, such as 0 rows \
         (warm_up = [{{ {example} }}])"
    )]
    Run {
        /// The shapes that ran.
        shapes: String,
        /// The shapes as the option is written.
        example: String,
        /// Why.
        #[source]
        source: RunError,
    },
    /// The shapes do not match the model.
    #[error("its warm-up does not match the model: {reason}")]
    Shapes {
        /// Why not.
        reason: String,
    },
}

/// Why a model's rows may not share a run.
#[derive(Clone, Debug)]
pub(super) struct NotRows {
    pub(super) reason: String,
    /// The error of ONNX Runtime, if that is the reason.
    pub(super) fault: Option<RuntimeFault>,
}

impl From<String> for NotRows {
    fn from(reason: String) -> Self {
        Self { reason, fault: None }
    }
}

impl From<&str> for NotRows {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

impl From<RunError> for NotRows {
    fn from(error: RunError) -> Self {
        let reason = error.to_string();
        let fault = match error {
            RunError::Fault(fault) => Some(fault),
            RunError::Grid { .. }
            | RunError::Input { .. }
            | RunError::Output { .. }
            | RunError::Wire(_) => None,
        };
        Self { reason, fault }
    }
}

/// Inputs for a context to run.
#[derive(Clone, Debug)]
pub(super) struct WarmUp {
    layout: TensorLayout,
    order: Vec<usize>,
    rows: Option<u64>,
}

impl WarmUp {
    /// Inputs of these shapes. An unnamed input has 1 for every free dimension.
    pub(super) fn new(
        signature: &Signature,
        shapes: &BTreeMap<String, Vec<u64>>,
        has_rows: bool,
    ) -> Result<Self, WarmUpError> {
        let known = |name: &String| signature.inputs.iter().any(|spec| spec.name == *name);
        if let Some(name) = shapes.keys().find(|name| !known(name)) {
            let reason = format!("it has no input `{name}`");
            return Err(WarmUpError::Shapes { reason });
        }
        let smallest = |shape: &[i64]| {
            let side = |&side: &i64| if side == ANY_SIZE { 1 } else { side.unsigned_abs() };
            shape.iter().map(side).collect()
        };
        let tensors = signature.inputs.iter().map(|spec| {
            let shape = shapes.get(&spec.name).cloned();
            let shape = shape.unwrap_or_else(|| smallest(&spec.shape));
            Tensor::new(&spec.name, spec.datatype, shape)
        });
        let layout = tensors.collect::<Result<Vec<_>, _>>().and_then(TensorLayout::new);
        let wrong = |reason: String| WarmUpError::Shapes { reason };
        let layout = layout.map_err(|error| wrong(error.to_string()))?;
        let arranged = signature.arrange(&layout, has_rows);
        let arranged = arranged.map_err(|error| wrong(error.to_string()))?;
        Ok(Self { layout, order: arranged.order, rows: arranged.rows })
    }

    /// These inputs with another number of rows.
    pub(super) fn with_rows(&self, rows: u64) -> Result<Self, TensorError> {
        let tensors = self.layout.tensors().iter().map(|tensor| {
            let mut shape = tensor.shape().to_vec();
            shape[0] = rows;
            Tensor::new(tensor.name(), tensor.datatype(), shape)
        });
        let layout = TensorLayout::new(tensors.collect::<Result<Vec<_>, _>>()?)?;
        Ok(Self { layout, order: self.order.clone(), rows: Some(rows) })
    }

    /// Runs the model over zeros. Of a pipeline every step runs, even if its program fails for grids of zeros.
    pub(super) fn run(&self, context: &mut Context) -> Result<(), WarmUpError> {
        let zeros = vec![0; self.layout.bytes()];
        match self.run_over(context, zeros) {
            Ok(_) | Err(RunError::Grid { .. }) => Ok(()),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn failed(&self, source: RunError) -> WarmUpError {
        WarmUpError::Run {
            shapes: self.named_shapes(),
            example: self.written(|tensor| format!("{} = {:?}", tensor.name(), tensor.shape())),
            source,
        }
    }

    fn named_shapes(&self) -> String {
        self.written(|tensor| format!("`{}` {:?}", tensor.name(), tensor.shape()))
    }

    /// The shape of every input, in the model's order.
    pub(super) fn signed_shapes(&self) -> Vec<Vec<i64>> {
        self.order.iter().map(|&at| self.layout.tensors()[at].signed_shape()).collect()
    }

    /// Checks that the replay of a CUDA graph gives, bit for bit, what a run gives. If two runs differ, what they give
    /// need only be close.
    pub(super) fn check_replay(&self, context: &mut Context) -> Result<(), LoadError> {
        let rows = self.rows.unwrap_or(1);
        [0, rows].into_iter().try_for_each(|first| {
            self.check_replay_of(&(first..first + rows).collect::<Vec<_>>(), context)
        })
    }

    fn check_replay_of(&self, rows: &[u64], context: &mut Context) -> Result<(), LoadError> {
        let bytes = self.irregular(rows);
        let run = |context: &mut Context| match self.run_over(context, bytes.clone()) {
            Err(RunError::Grid { step, grid, why }) => Ok(Err((step, grid, why))),
            ran => ran.map(Ok).map_err(|error| self.failed(error)),
        };
        let replayed = run(context)?;
        let runs = [context.without_graphs(run)?, context.without_graphs(run)?];
        let output = match (replayed, runs) {
            (Ok(replayed), [Ok(one), Ok(other)]) => {
                if !replayed.is_replay() {
                    return Err(GraphsError::Unused { shapes: self.named_shapes() }.into());
                }
                differing(&replayed, &[one, other])?
            }
            // A step has no result for one of these grids, whoever runs it.
            (Err(replayed), [Err(one), Err(other)]) if replayed == one && replayed == other => None,
            (Err((step, ..)), _) | (_, [Err((step, ..)), _] | [_, Err((step, ..))]) => {
                Some(format!("{step}.{STATUS}"))
            }
        };
        match output {
            None => Ok(()),
            Some(output) => {
                Err(GraphsError::Differs { output, shapes: self.named_shapes() }.into())
            }
        }
    }

    /// The shape of every input, in the model's order.
    pub(super) fn shapes(&self) -> Vec<Vec<u64>> {
        self.order.iter().map(|&at| self.layout.tensors()[at].shape().to_vec()).collect()
    }

    fn written(&self, write: impl FnMut(&Tensor) -> String) -> String {
        self.layout.tensors().iter().map(write).collect::<Vec<_>>().join(", ")
    }

    fn run_over(&self, context: &mut Context, bytes: Vec<u8>) -> Result<RunOutputs, RunError> {
        let source = Source::Inline(Arc::from(bytes));
        let (layout, order) = (&self.layout, &self.order[..]);
        let share = RunInputs { layout, order, source: &source, rows: self.rows.map(|n| 0..n) };
        let stop = context.new_stop()?;
        context.run(&[share], &stop)
    }

    /// Its bytes, where row `r` is row `rows[r]` of an endless table of irregular numbers.
    fn irregular(&self, rows: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.layout.bytes());
        for (at, tensor) in self.layout.tensors().iter().enumerate() {
            bytes.resize(self.layout.range(at).start, 0);
            let in_row = tensor.elements().checked_div(rows.len()).unwrap_or(0);
            for element in 0..tensor.elements() {
                let (row, column) = (rows[element / in_row.max(1)], element % in_row.max(1));
                let row = usize::try_from(row).expect("one of two rows");
                let seed = 31 * row + 7 * column + at;
                put_irregular(tensor.datatype(), seed, &mut bytes);
            }
        }
        bytes.resize(self.layout.bytes(), 0);
        bytes
    }

    /// Checks that two rows in one run give what each gives alone: that they are independent rows and not, say,
    /// steps in time.
    pub(super) fn rows_are_independent(&self, context: &mut Context) -> Result<(), NotRows> {
        let one = self.with_rows(1).map_err(|error| error.to_string())?;
        let two = self.with_rows(2).map_err(|error| error.to_string())?;
        let mut run =
            |warm_up: &Self, rows: &[u64]| warm_up.run_over(context, warm_up.irregular(rows));
        let together = run(&two, &[0, 1])?;
        for row in 0..2 {
            let alone = run(&one, &[row])?;
            for (output, tensor) in together.tensors().iter().enumerate() {
                let range = row..row + 1;
                let joined = together.bytes(output, Some(&range)).map_err(RunError::from)?;
                let alone = alone.bytes(output, None).map_err(RunError::from)?;
                if !is_close(tensor.datatype(), joined, alone) {
                    let name = tensor.name();
                    let reason = format!("row {row} of `{name}` changes if two rows share a run");
                    return Err(reason.into());
                }
            }
        }
        Ok(())
    }
}

/// The output of a replay that differs from that of two runs over the same inputs: in any bit, unless the runs differ
/// from each other; then they need only be close.
pub(super) fn differing(
    replay: &RunOutputs,
    [one, other]: &[RunOutputs; 2],
) -> Result<Option<String>, RuntimeFault> {
    for (output, tensor) in one.tensors().iter().enumerate() {
        let bytes = |of: &RunOutputs| of.bytes(output, None).map(<[u8]>::to_vec);
        let [replay, one, other] = [bytes(replay)?, bytes(one)?, bytes(other)?];
        let is_right = match one == other {
            true => replay == one,
            false => is_close(tensor.datatype(), &replay, &one),
        };
        if !is_right {
            return Ok(Some(tensor.name().to_owned()));
        }
    }
    Ok(None)
}

/// Appends a small number that looks irregular: between -1 and 1, 0 or 1, or a colour.
fn put_irregular(datatype: DataType, seed: usize, to: &mut Vec<u8>) {
    // In units of 1/64 below 1, exact in every type.
    let unit = (seed * 29 + seed / 5) % 127;
    let number = (f64::from(u8::try_from(unit).expect("below 127")) - 63.0) / 64.0;
    let is_odd = unit % 2 == 1;
    let number = if datatype.float_bits().is_some() {
        Scalar::Double(number)
    } else if datatype == DataType::Bool {
        Scalar::Bool(is_odd)
    } else if datatype == DataType::Uint8 {
        // No index has this type, and many a grid: they may be any colours.
        Scalar::Unsigned(unit as u64 % 10)
    } else {
        Scalar::Unsigned(is_odd.into())
    };
    assert!(datatype.write(number, to), "every type has such small numbers");
}

/// Whether two rows of an output are equal, apart from the rounding of another order of addition.
pub(super) fn is_close(datatype: DataType, a: &[u8], b: &[u8]) -> bool {
    // A few thousand additions in another order, at the precision of the type.
    let is_short = datatype.bytes() == 2;
    let tolerance = if is_short { 0.05 } else { 1e-3 };
    match numbers(datatype, a).zip(numbers(datatype, b)) {
        None => a == b,
        Some((a, b)) => {
            let close = |(a, b): (&f64, &f64)| {
                (a - b).abs() <= tolerance * a.abs().max(1.0)
                    || a == b
                    || (a.is_nan() && b.is_nan())
            };
            a.len() == b.len() && a.iter().zip(&b).all(close)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_by_value_and_counts_exactly() {
        let fp32 =
            |numbers: &[f32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
        let close = |a: &[f32], b: &[f32]| is_close(DataType::Fp32, &fp32(a), &fp32(b));
        assert!(close(&[1.0, f32::NAN, f32::INFINITY], &[1.000_5, f32::NAN, f32::INFINITY]));
        assert!(!close(&[1.0], &[1.1]));
        assert!(!close(&[1.0], &[1.0, 1.0]));
        assert!(!close(&[f32::NAN], &[1.0]));
        assert!(!is_close(DataType::Int32, &[1, 0, 0, 0], &[2, 0, 0, 0]));
        assert!(is_close(DataType::Bf16, &[0x80, 0x3f], &[0x81, 0x3f]));
        assert!(!is_close(DataType::Fp16, &[0x00, 0x3c], &[0x00, 0x40]));
    }

    #[test]
    fn irregular_numbers_differ_between_rows() {
        for datatype in [DataType::Fp16, DataType::Bf16, DataType::Fp32, DataType::Fp64] {
            let row = |row: usize| {
                let mut bytes = Vec::new();
                (0..8).for_each(|c| put_irregular(datatype, 31 * row + 7 * c, &mut bytes));
                bytes
            };
            assert_ne!(row(0), row(1), "{datatype}");
        }
        for seed in 0..200 {
            let mut bytes = Vec::new();
            put_irregular(DataType::Int64, seed, &mut bytes);
            assert!(bytes[0] <= 1 && bytes[1..] == [0; 7]);
            put_irregular(DataType::Uint8, seed, &mut bytes);
            assert!(bytes[8] <= 9);
        }
    }
}
