//! Whether outputs of a model are those of the reference: the same bytes, or close enough, and where
//! the first is that is not.
//!
//! On a CPU device the pool runs the same library on the same rows, so every byte must be the same. A
//! GPU adds in another order and rounds once where a CPU rounds twice. Of a sum of k terms the error grows
//! as sqrt(k) units of 2^-24 of its largest terms, which for a million of them is 6e-5: hence
//! [`ABSOLUTE`] of the largest number of the output, for sums that cancel, and [`RELATIVE`] of the
//! number itself for what is computed from them. Types of two bytes, and TF32, keep 8 to 11 bits.

use gridpool_protocol::client::InferOutputs;
use gridpool_protocol::tensor::{DataType, Tensor, numbers};

/// How far a number may be from the reference's, in parts of it.
const RELATIVE: f64 = 1e-3;
/// The same in parts of the largest number of its output.
const ABSOLUTE: f64 = 1e-4;
/// Both so many times where numbers keep few bits.
const FEW_BITS: f64 = 20.0;

/// How alike outputs must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Likeness {
    /// Byte for byte.
    Same,
    /// Numbers with fractions within the tolerance; where they may be multiplied as TF32, within more.
    Close { tf32: bool },
}

/// The first difference, in words; nothing if there is none.
pub(super) fn difference(
    got: &InferOutputs,
    want: &[(Tensor, Vec<u8>)],
    likeness: Likeness,
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

/// Which element is the first that differs, and how.
fn first(
    datatype: DataType,
    got: &[u8],
    want: &[u8],
    likeness: Likeness,
) -> Option<(usize, String)> {
    if got == want {
        return None;
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
        Likeness::Same => return bytes().map(|(at, _)| (at, exact(got[at], want[at]))),
        Likeness::Close { tf32 } => {
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

/// `[32, 5]`: where an element lies in its shape.
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

    fn outputs(numbers: &[f32]) -> InferOutputs {
        let (tensor, data) = tensor(numbers);
        let packed = TensorLayout::new(vec![tensor]).unwrap().pack(&[&data]).unwrap();
        InferOutputs::new(packed).unwrap()
    }

    const CLOSE: Likeness = Likeness::Close { tf32: false };

    #[test]
    fn a_cpu_must_give_every_bit_and_a_gpu_come_close() {
        let want = [tensor(&[100.0, 1.0, f32::NAN, -2.0])];
        let of = |numbers: &[f32], likeness| difference(&outputs(numbers), &want, likeness);
        let near = [100.05, 1.0, f32::NAN, -2.005];
        assert_eq!(of(&[100.0, 1.0, f32::NAN, -2.0], Likeness::Same), None);
        assert_eq!(of(&near, CLOSE), None);
        let says = of(&near, Likeness::Same).unwrap();
        assert!(says.starts_with("output `y`, element [0, 0] is 1.0005"), "{says}");
        let says = of(&[100.0, 1.0, f32::NAN, -2.1], CLOSE).unwrap();
        assert!(says.starts_with("output `y`, element [1, 1] is -2.0999"), "{says}");
        assert_eq!(of(&[100.0, 1.0, f32::NAN, -2.1], Likeness::Close { tf32: true }), None);
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
        let got = InferOutputs::new(packed).unwrap();
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
