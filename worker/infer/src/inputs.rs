//! What a run takes: the inputs of one request, or of several that share it.

use std::ops::Range;

use gridpool_protocol::tensor::{DataType, Tensor, TensorLayout};

use super::place::Source;

/// The inputs of one request in a run.
#[derive(Clone, Debug)]
pub(super) struct RunInputs<'a> {
    /// The layout of its tensors.
    pub(super) layout: &'a TensorLayout,
    /// For each input of the model, the index of the tensor.
    pub(super) order: &'a [usize],
    /// Its tensors.
    pub(super) source: &'a Source,
    /// The rows to run; none if the model has no rows.
    pub(super) rows: Option<Range<u64>>,
}

impl RunInputs<'_> {
    /// The elements of its FP32 inputs, of its own rows.
    pub(super) fn singles(&self) -> Vec<f32> {
        let of_input = |input| {
            let is_single = self.tensor(input).datatype() == DataType::Fp32;
            let range = Some(self.bytes_of(input)).filter(|_| is_single).unwrap_or_default();
            let mut bytes = vec![0; range.len()];
            self.source.read(range.start, &mut bytes);
            let elements = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            elements.collect::<Vec<_>>()
        };
        (0..self.order.len()).flat_map(of_input).collect()
    }

    /// The tensor of an input.
    pub(super) fn tensor(&self, input: usize) -> &Tensor {
        &self.layout.tensors()[self.order[input]]
    }

    /// Where its rows of an input lie in its tensors.
    pub(super) fn bytes_of(&self, input: usize) -> Range<usize> {
        let whole = self.layout.range(self.order[input]);
        let Some(rows) = &self.rows else { return whole };
        part_of(whole, self.tensor(input).shape()[0], rows)
    }
}

/// The first share, and the rows of all.
pub(super) fn first_and_rows<'a, 'b>(shares: &'b [RunInputs<'a>]) -> (&'b RunInputs<'a>, u64) {
    let first = shares.first().expect("a run has at least one share");
    assert!(shares.len() == 1 || first.rows.is_some(), "only rows share a run");
    let rows = |share: &RunInputs<'_>| share.rows.as_ref().map_or(0, |rows| rows.end - rows.start);
    (first, shares.iter().map(rows).sum())
}

/// The bytes of `rows`, if `whole` holds `all` rows.
pub(super) fn part_of(whole: Range<usize>, all: u64, rows: &Range<u64>) -> Range<usize> {
    let at = |row: u64| {
        let row = usize::try_from(row).expect("rows are counted in memory");
        let all = usize::try_from(all).expect("rows are counted in memory");
        whole.start + whole.len().checked_div(all).unwrap_or(0) * row
    };
    at(rows.start)..at(rows.end)
}
