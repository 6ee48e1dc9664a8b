//! Compares outputs of a model with the reference: equal bytes, or close enough. Finds the first element that
//! is neither.
//!
//! On a CPU device the pool runs the same library on the same rows, so every byte must be equal. A GPU adds in
//! another order, and rounds once where a CPU rounds twice. The error of a sum of k terms grows as sqrt(k)
//! units of 2^-24 of its largest terms, which is 6e-5 for a million terms. So [`ABSOLUTE`] is relative to the
//! largest number of the output, for sums that cancel; [`RELATIVE`] is relative to the number itself, for
//! values computed from sums. Types of two bytes, and TF32, keep 8 to 11 bits.

use gridpool_client::TensorOutputs;
use gridpool_protocol::tensor::{DataType, Tensor, Texts, numbers};

/// How far a number may be from the reference, relative to it.
const RELATIVE: f64 = 1e-3;
/// How far a number may be from the reference, relative to the largest number of its output.
const ABSOLUTE: f64 = 1e-4;
/// Both are this many times larger for numbers with few bits.
const FEW_BITS: f64 = 20.0;

/// How outputs are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Comparison {
    /// Byte by byte.
    Same,
    /// Floats within the tolerance, which is larger if they may be multiplied as TF32.
    Close { tf32: bool },
}

/// The first difference, in words; `None` if there is no difference.
pub(super) fn difference(
    got: &TensorOutputs,
    want: &[(Tensor, Vec<u8>)],
    likeness: Comparison,
) -> Option<String> {
    if got.tensors().len() != want.len() {
        return Some(format!("{} outputs, must be {}", got.tensors().len(), want.len()));
    }
    let outputs = got.tensors().iter().zip((0..).map(|at| got.data(at)));
    outputs.zip(want).find_map(|((tensor, got), (known, want))| {
        if tensor != known {
            return Some(format!("an output is {tensor}, must be {known}"));
        }
        let (at, element) = first(tensor.datatype(), &got, want, likeness)?;
        let place = place(tensor.shape(), at);
        Some(format!("output `{}`, element {place} {element}", tensor.name()))
    })
}

/// The first element that differs, and how.
fn first(
    datatype: DataType,
    got: &[u8],
    want: &[u8],
    likeness: Comparison,
) -> Option<(usize, String)> {
    if got == want {
        return None;
    }
    if datatype == DataType::Bytes {
        let (got, want) = (Texts::new(got, usize::MAX), Texts::new(want, usize::MAX));
        let at = got.zip(want).position(|(got, want)| got != want)?;
        return Some((at, "is another text".to_owned()));
    }
    let size = datatype.bytes();
    let bytes = || {
        let at = got.chunks(size).zip(want.chunks(size)).position(|(got, want)| got != want)?;
        let range = at * size..(at + 1) * size;
        Some((at, format!("has the bytes {:?}, must have {:?}", &got[range.clone()], &want[range])))
    };
    let Some((got, want)) = numbers(datatype, got).zip(numbers(datatype, want)) else {
        return bytes();
    };
    let (relative, absolute) = match likeness {
        Comparison::Same => return bytes().map(|(at, _)| (at, exact(got[at], want[at]))),
        Comparison::Close { tf32 } => {
            let few = if tf32 || size == 2 { FEW_BITS } else { 1.0 };
            (few * RELATIVE, few * ABSOLUTE)
        }
    };
    let finite = want.iter().copied().filter(|number| number.is_finite());
    let scale = finite.fold(0.0, |most: f64, number| most.max(number.abs()));
    let is_close = |(got, want): (&f64, &f64)| {
        let room = relative * want.abs() + absolute * scale;
        got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= room
    };
    let at = got.iter().zip(&want).position(|pair| !is_close(pair))?;
    let says = format!(
        "is {}, must be {} within {relative} of it and {absolute} of {scale}",
        got[at], want[at]
    );
    Some((at, says))
}

fn exact(got: f64, want: f64) -> String {
    format!("is {got:e}, must be {want:e} to the last bit")
}

/// `[32, 5]`: the position of an element in its shape.
fn place(shape: &[u64], element: usize) -> String {
    let mut rest = element as u64;
    let mut place: Vec<String> = Vec::new();
    for &side in shape.iter().rev() {
        place.push((rest % side.max(1)).to_string());
        rest /= side.max(1);
    }
    place.reverse();
    format!("[{}]", place.join(", "))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::TensorLayout;

    use super::*;

    fn tensor(numbers: &[f32]) -> (Tensor, Vec<u8>) {
        let tensor = Tensor::new("y", DataType::Fp32, vec![numbers.len() as u64 / 2, 2]).unwrap();
        (tensor, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    fn outputs(numbers: &[f32]) -> TensorOutputs {
        let (tensor, data) = tensor(numbers);
        let packed = TensorLayout::new(vec![tensor]).unwrap().pack(&[&data]).unwrap();
        TensorOutputs::new(packed).unwrap()
    }

    const CLOSE: Comparison = Comparison::Close { tf32: false };

    #[test]
    fn a_cpu_must_agree_in_every_bit_and_a_gpu_within_the_tolerance() {
        let want = [tensor(&[100.0, 1.0, f32::NAN, -2.0])];
        let of = |numbers: &[f32], likeness| difference(&outputs(numbers), &want, likeness);
        let near = [100.05, 1.0, f32::NAN, -2.005];
        assert_eq!(of(&[100.0, 1.0, f32::NAN, -2.0], Comparison::Same), None);
        assert_eq!(of(&near, CLOSE), None);
        let says = of(&near, Comparison::Same).unwrap();
        assert!(says.starts_with("output `y`, element [0, 0] is 1.0005"), "{says}");
        let says = of(&[100.0, 1.0, f32::NAN, -2.1], CLOSE).unwrap();
        assert!(says.starts_with("output `y`, element [1, 1] is -2.0999"), "{says}");
        assert_eq!(of(&[100.0, 1.0, f32::NAN, -2.1], Comparison::Close { tf32: true }), None);
        let says = of(&[100.0, 1.0, 0.0, -2.0], CLOSE).unwrap();
        assert!(says.contains("element [1, 0] is 0, must be NaN"), "{says}");
    }

    #[test]
    fn whole_numbers_are_equal_or_wrong() {
        let of = |number: i64| {
            let tensor = Tensor::new("n", DataType::Int64, vec![1]).unwrap();
            (tensor, number.to_le_bytes().to_vec())
        };
        let (tensor, data) = of(1_000_000);
        let packed = TensorLayout::new(vec![tensor]).unwrap().pack(&[&data]).unwrap();
        let got = TensorOutputs::new(packed).unwrap();
        assert_eq!(difference(&got, &[of(1_000_000)], CLOSE), None);
        let says = difference(&got, &[of(1_000_001)], CLOSE).unwrap();
        assert!(says.starts_with("output `n`, element [0] has the bytes"), "{says}");
    }

    #[test]
    fn another_shape_or_another_number_of_outputs_is_a_difference() {
        let got = outputs(&[1.0, 2.0]);
        let says = difference(&got, &[tensor(&[1.0, 2.0, 3.0, 4.0])], CLOSE).unwrap();
        assert_eq!(says, "an output is y FP32 [1, 2], must be y FP32 [2, 2]");
        assert_eq!(difference(&got, &[], CLOSE).unwrap(), "1 outputs, must be 0");
    }
}
