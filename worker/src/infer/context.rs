//! One execution context of a model: what one run at a time needs of its own.

use std::ops::Range;
use std::sync::Arc;

use gridpool_protocol::tensor::{DataType, Tensor, TensorLayout};

use super::error::RuntimeFault;
use super::place::Source;
use super::seam::{Binding, SharedSession, Value};
use super::signature::Signature;

/// An execution context: a binding and the memory of its inputs, over a session that other contexts
/// run at the same time.
///
/// It belongs to one thread, which owns it; another may have it afterwards, and none can use it beside
/// the first, for that does not compile:
///
/// ```compile_fail,E0277
/// fn used_by_two_threads<T: Sync>() {}
/// used_by_two_threads::<gridpool_worker::infer::Context>();
/// ```
///
/// ```
/// fn handed_over<T: Send>() {}
/// handed_over::<gridpool_worker::infer::Context>();
/// ```
#[derive(Debug)]
pub struct Context {
    binding: Binding,
    session: SharedSession,
    signature: Arc<Signature>,
}

/// A request's part in a run.
#[derive(Clone, Debug)]
pub(super) struct Share<'a> {
    /// How its tensors lie.
    pub(super) layout: &'a TensorLayout,
    /// For each input of the model, which of them it is.
    pub(super) order: &'a [usize],
    /// Where they lie.
    pub(super) source: &'a Source,
    /// Which of its rows; none if the model has none.
    pub(super) rows: Option<Range<u64>>,
}

/// Why a run gave nothing that could be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// ONNX Runtime says so.
    #[error(transparent)]
    Fault(#[from] RuntimeFault),
    /// An output is not what the model said it would give.
    #[error("the model's output `{name}` {reason}")]
    Output {
        /// Which one.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// What a run gave.
#[derive(Debug)]
pub(super) struct Given {
    tensors: Vec<Tensor>,
    values: Vec<Value>,
    session: SharedSession,
}

impl Context {
    pub(super) fn new(
        session: &SharedSession,
        signature: &Arc<Signature>,
    ) -> Result<Self, RuntimeFault> {
        let inputs = Signature::names(&signature.inputs);
        let outputs = Signature::names(&signature.outputs);
        let binding = Binding::new(session, inputs, outputs)?;
        Ok(Self { binding, session: session.clone(), signature: Arc::clone(signature) })
    }

    /// Runs the model over the inputs of all shares, one behind the other.
    pub(super) fn run(&mut self, shares: &[Share<'_>]) -> Result<Given, RunError> {
        let first = shares.first().expect("a run has at least one share");
        assert!(shares.len() == 1 || first.rows.is_some(), "only rows share a run");
        let rows = |share: &Share<'_>| share.rows.as_ref().map_or(0, |rows| rows.end - rows.start);
        let all_rows: u64 = shares.iter().map(rows).sum();
        for (input, spec) in self.signature.inputs.iter().enumerate() {
            let mut shape = tensor(first, input).signed_shape();
            if first.rows.is_some() {
                shape[0] = all_rows.cast_signed();
            }
            let memory = self.binding.input(input, spec.datatype, &shape)?;
            let mut rest = memory;
            for share in shares {
                let range = bytes_of(share, input);
                let (mine, others) = rest.split_at_mut(range.len());
                share.source.read(range.start, mine);
                if spec.datatype == DataType::Bool {
                    // Anything but 0 and 1 is no `bool` of C++: 1 is meant.
                    mine.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                }
                rest = others;
            }
        }
        let values = self.binding.run()?;
        let given = self.given(values)?;
        match first.rows {
            Some(_) => given.has_rows(all_rows),
            None => Ok(given),
        }
    }

    /// What the values are; each must be what the model said.
    fn given(&self, values: Vec<Value>) -> Result<Given, RunError> {
        let mut tensors = Vec::with_capacity(values.len());
        for (spec, value) in self.signature.outputs.iter().zip(&values) {
            let wrong = |reason: String| RunError::Output { name: spec.name.clone(), reason };
            let (datatype, shape) = value.description(&self.session)?;
            if datatype != Some(spec.datatype) {
                return Err(wrong(format!("is not {}, as it says", spec.datatype)));
            }
            let sides = shape.iter().map(|&side| u64::try_from(side));
            let sides = sides.collect::<Result<Vec<_>, _>>();
            let sides = sides.map_err(|_| wrong(format!("has the shape {shape:?}")))?;
            let tensor = Tensor::new(&spec.name, spec.datatype, sides);
            tensors.push(tensor.map_err(|error| wrong(error.to_string()))?);
        }
        if tensors.len() < self.signature.outputs.len() {
            let name = self.signature.outputs[tensors.len()].name.clone();
            return Err(RunError::Output { name, reason: "was not given".to_owned() });
        }
        Ok(Given { tensors, values, session: self.session.clone() })
    }
}

fn tensor<'a>(share: &Share<'a>, input: usize) -> &'a Tensor {
    &share.layout.tensors()[share.order[input]]
}

/// Where the share's rows of an input lie in its set of tensors.
fn bytes_of(share: &Share<'_>, input: usize) -> Range<usize> {
    let whole = share.layout.range(share.order[input]);
    let Some(rows) = &share.rows else { return whole };
    part_of(whole, tensor(share, input).shape()[0], rows)
}

/// Of bytes that hold `all` rows, those of `rows`.
fn part_of(whole: Range<usize>, all: u64, rows: &Range<u64>) -> Range<usize> {
    let at = |row: u64| {
        let row = usize::try_from(row).expect("rows are counted in memory");
        let all = usize::try_from(all).expect("rows are counted in memory");
        whole.start + whole.len().checked_div(all).unwrap_or(0) * row
    };
    at(rows.start)..at(rows.end)
}

impl Given {
    pub(super) fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The bytes of an output, or of some of its rows.
    pub(super) fn bytes(
        &self,
        output: usize,
        rows: Option<&Range<u64>>,
    ) -> Result<&[u8], RuntimeFault> {
        let bytes = self.values[output].bytes(&self.session)?;
        // A tensor without elements has no memory, whatever its rows.
        let Some(rows) = rows.filter(|_| !bytes.is_empty()) else { return Ok(bytes) };
        Ok(&bytes[part_of(0..bytes.len(), self.tensors[output].shape()[0], rows)])
    }

    /// Itself, if every output has so many rows.
    fn has_rows(self, rows: u64) -> Result<Self, RunError> {
        match self.tensors.iter().find(|tensor| tensor.shape().first() != Some(&rows)) {
            None => Ok(self),
            Some(tensor) => Err(RunError::Output {
                name: tensor.name().to_owned(),
                reason: format!(
                    "has the shape {:?} after a run of {rows} rows: its requests cannot be joined, write \
                     max_batch = 1",
                    tensor.shape()
                ),
            }),
        }
    }
}
