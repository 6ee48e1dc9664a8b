//! Inputs of a model that are the same in every run of bench, and the judgement of what it gives for
//! them.

use std::sync::{Arc, OnceLock};

use gridpool_protocol::client::InferOutputs;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::{DataType, Tensor, TensorError, TensorLayout, numbers};

use crate::bench::load::Trouble;
use crate::bench::memory;

/// How far a number may be from that of the first answer, in parts of the largest number of its
/// tensor, where kernels may add in another order: on a GPU, and where requests share runs.
const TOLERANCE: f64 = 1e-3;
/// The same for types of two bytes.
const TOLERANCE_SHORT: f64 = 2e-2;

/// One set of inputs, and what must come of it.
#[derive(Debug)]
pub(super) struct Question {
    number: u32,
    pub(super) tensors: Vec<(Tensor, Vec<u8>)>,
    /// The same, as the engine takes them.
    pub(super) packed: Arc<[u8]>,
    /// Rows by which it shares a run; 1 if it never does.
    pub(super) rows: u32,
    is_exact: bool,
    first: OnceLock<Vec<(Tensor, Vec<u8>)>>,
}

/// So many sets of inputs of the shapes that warmed the model: numbers between -1 and 1 that look
/// irregular; whole numbers and truth values are 0.
pub(super) fn questions(
    info: &ModelInfo,
    kind: DeviceKind,
    count: u32,
) -> Result<Vec<Arc<Question>>, Trouble> {
    let wrong = |error: TensorError| Trouble::Wrong(error.to_string());
    let shapes = info.inputs.iter().zip(&info.trial_shapes);
    let tensors: Vec<Tensor> = shapes
        .map(|(spec, shape)| Tensor::new(spec.name.clone(), spec.datatype, shape.clone()))
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    let layout = TensorLayout::new(tensors.clone()).map_err(wrong)?;
    // One of each: as tensors, packed, on its way to the pool, and its outputs, which are no smaller
    // matter in some models.
    let bytes = 4 * layout.bytes() as u64;
    memory::room_for(bytes.saturating_mul(count.into())).map_err(Trouble::Skipped)?;
    let first_side = tensors.first().and_then(|tensor| tensor.shape().first());
    let rows = first_side.filter(|_| info.max_batch > 1).copied().unwrap_or(1);
    let question = |number: u32| {
        let mut random = Random::new(u64::from(number) << 32);
        let data: Vec<Vec<u8>> = tensors.iter().map(|tensor| random.fill(tensor)).collect();
        let packed = layout.pack(&data.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Ok(Arc::new(Question {
            number,
            packed: packed.map_err(wrong)?.into(),
            tensors: tensors.iter().cloned().zip(data).collect(),
            rows: u32::try_from(rows).unwrap_or(u32::MAX),
            is_exact: kind == DeviceKind::Cpu && info.max_batch == 1,
            first: OnceLock::new(),
        }))
    };
    (0..count).map(question).collect()
}

impl Question {
    /// Compares outputs with those that came first; the first are what the others are compared with.
    pub(super) fn judge(&self, outputs: &InferOutputs, from: &str) -> Result<(), Trouble> {
        let given = || outputs.tensors().iter().cloned().zip((0..).map(|at| outputs.data(at)));
        let first = self.first.get_or_init(|| given().collect());
        let wrong = |what: String| {
            let number = self.number;
            let why = format!("the answer to input {number} from {from} is not the first: {what}");
            Err(Trouble::Wrong(why))
        };
        if outputs.tensors().len() != first.len() {
            return wrong(format!("{} outputs, not {}", outputs.tensors().len(), first.len()));
        }
        for ((tensor, got), (known, want)) in given().zip(first) {
            if tensor != *known {
                let (got, want) = (tensor.shape(), known.shape());
                return wrong(format!("`{}` has the shape {got:?}, not {want:?}", tensor.name()));
            }
            if got == *want {
                continue;
            }
            let far = far(tensor.datatype(), &got, want);
            if self.is_exact || far.is_some() {
                let at = far.map_or_else(|| "some bits".to_owned(), |at| format!("element {at}"));
                return wrong(format!("`{}` differs in {at}", tensor.name()));
            }
        }
        Ok(())
    }
}

/// The first element that is too far from the one that is wanted.
fn far(datatype: DataType, got: &[u8], want: &[u8]) -> Option<usize> {
    let Some((got, want)) = numbers(datatype, got).zip(numbers(datatype, want)) else {
        let size = datatype.bytes();
        return got.chunks(size).zip(want.chunks(size)).position(|(got, want)| got != want);
    };
    let finite = want.iter().copied().filter(|number| number.is_finite());
    let largest = finite.fold(0.0, |most: f64, number| most.max(number.abs()));
    let part = if datatype.bytes() == 2 { TOLERANCE_SHORT } else { TOLERANCE };
    let is_close = |(got, want): (&f64, &f64)| {
        got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= part * largest
    };
    got.iter().zip(&want).position(|pair| !is_close(pair))
}

/// Bits from a seed (Steele et al., `SplitMix64`).
pub(crate) struct Random(u64);

impl Random {
    /// The bits that belong to a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Data of a tensor: numbers between -1 and 1; whole numbers and truth values are 0.
    pub(crate) fn fill(&mut self, tensor: &Tensor) -> Vec<u8> {
        let mut data = vec![0; tensor.bytes()];
        // Bits of the exponent and of the fraction.
        let (exponent, fraction) = match tensor.datatype() {
            DataType::Fp64 => (11, 52),
            DataType::Fp32 => (8, 23),
            DataType::Bf16 => (8, 7),
            DataType::Fp16 => (5, 10),
            DataType::Bool
            | DataType::Uint8
            | DataType::Uint16
            | DataType::Uint32
            | DataType::Uint64
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64 => return data,
        };
        let size = tensor.datatype().bytes();
        for place in data.chunks_exact_mut(size) {
            let bits = self.number(exponent, fraction);
            place.copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        data
    }

    /// The bits of a number from 1/16 up to 1, or its negative.
    fn number(&mut self, exponent: u32, fraction: u32) -> u64 {
        let bits = self.next();
        let bias = (1 << (exponent - 1)) - 1;
        let scale = bias - 1 - (bits >> 62);
        let sign = bits >> 61 & 1;
        sign << (exponent + fraction) | scale << fraction | bits & ((1 << fraction) - 1)
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::TensorSpec;
    use gridpool_protocol::tensor::model::ModelState;

    use super::*;

    fn info(datatype: DataType, max_batch: u32) -> ModelInfo {
        ModelInfo {
            inputs: vec![TensorSpec { name: "x".into(), datatype, shape: vec![-1, 500] }],
            trial_shapes: vec![vec![2, 500]],
            max_batch,
            state: ModelState::Ready,
            ..ModelInfo::unavailable("m", String::new())
        }
    }

    fn ask(datatype: DataType, kind: DeviceKind, max_batch: u32) -> Vec<Arc<Question>> {
        questions(&info(datatype, max_batch), kind, 3).unwrap()
    }

    #[test]
    fn numbers_are_irregular_and_between_one_sixteenth_and_one_in_every_type() {
        for datatype in [DataType::Fp64, DataType::Fp32, DataType::Bf16, DataType::Fp16] {
            let [a, b, _] = &ask(datatype, DeviceKind::Cpu, 1)[..] else { unreachable!() };
            let all = numbers(datatype, &a.tensors[0].1).unwrap();
            assert_eq!(all.len(), 1_000);
            assert!(all.iter().all(|n| (1.0 / 16.0..1.0).contains(&n.abs())), "{datatype}");
            assert!(all.iter().any(|&n| n < -0.5) && all.iter().any(|&n| n > 0.5), "{datatype}");
            assert_ne!(a.packed, b.packed);
            assert_eq!(a.packed, ask(datatype, DeviceKind::Cpu, 1)[0].packed, "from a seed");
        }
        let whole = &ask(DataType::Int64, DeviceKind::Cpu, 1)[2];
        assert!(whole.tensors[0].1.iter().all(|&byte| byte == 0));
        assert_eq!((whole.rows, ask(DataType::Int64, DeviceKind::Gpu, 8)[0].rows), (1, 2));
    }

    fn outputs(numbers: &[f32]) -> InferOutputs {
        let tensor = Tensor::new("y", DataType::Fp32, vec![numbers.len() as u64]).unwrap();
        let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let packed = TensorLayout::new(vec![tensor]).unwrap().pack(&[&data]).unwrap();
        InferOutputs::new(packed).unwrap()
    }

    #[test]
    fn answers_are_compared_with_the_first_bit_by_bit_or_within_the_tolerance() {
        let judge = |kind, max_batch, numbers: &[f32]| {
            let question = &ask(DataType::Fp32, kind, max_batch)[1];
            question.judge(&outputs(&[0.01, -0.02, f32::NAN]), "direct").unwrap();
            question.judge(&outputs(numbers), "gpu0#1")
        };
        let (near, far) = ([0.010_001, -0.02, f32::NAN], [0.011, -0.02, f32::NAN]);
        assert!(judge(DeviceKind::Cpu, 1, &[0.01, -0.02, f32::NAN]).is_ok());
        for (kind, max_batch) in [(DeviceKind::Gpu, 1), (DeviceKind::Cpu, 8)] {
            assert!(judge(kind, max_batch, &near).is_ok());
            let Err(Trouble::Wrong(why)) = judge(kind, max_batch, &far) else {
                panic!("it is far")
            };
            assert!(
                why.contains("input 1 from gpu0#1") && why.contains("`y` differs in element 0")
            );
        }
        for numbers in [&near[..], &far[..], &[0.01][..], &[0.01, -0.02, 1.0][..]] {
            let Err(Trouble::Wrong(_)) = judge(DeviceKind::Cpu, 1, numbers) else {
                panic!("{numbers:?} is another")
            };
        }
    }
}
