//! Inputs of a model that are equal in every run of bench, and the check of its outputs.

use std::sync::{Arc, OnceLock};

use gridpool_client::TensorOutputs;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::{DataType, Tensor, TensorError, TensorLayout, numbers};

use crate::failure::Failure;
use crate::memory;
use crate::random::Random;

/// How far a number may be from that of the first answer, relative to the largest number of its tensor.
/// Kernels may add in another order on a GPU, and when requests share runs.
const TOLERANCE: f64 = 1e-3;
/// The tolerance for types of two bytes.
const TOLERANCE_SHORT: f64 = 2e-2;

/// One set of inputs, and its first outputs.
#[derive(Debug)]
pub(super) struct TestInput {
    number: u32,
    pub(super) tensors: Vec<(Tensor, Vec<u8>)>,
    /// The inputs in the engine's format.
    pub(super) packed: Arc<[u8]>,
    /// Its rows in a shared run; 1 if it never shares one.
    pub(super) rows: u32,
    is_exact: bool,
    first: OnceLock<Vec<(Tensor, Vec<u8>)>>,
}

/// `count` sets of inputs of the model's warm-up shapes. Floats are between -1 and 1 and look irregular;
/// integers and booleans are 0.
pub(super) fn test_inputs(
    info: &ModelInfo,
    kind: DeviceKind,
    count: u32,
) -> Result<Vec<Arc<TestInput>>, Failure> {
    let wrong = |error: TensorError| Failure::Wrong(error.to_string());
    let shapes = info.inputs.iter().zip(&info.warm_up_shapes);
    let tensors: Vec<Tensor> = shapes
        .map(|(spec, shape)| Tensor::new(spec.name.clone(), spec.datatype, shape.clone()))
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    let layout = TensorLayout::new(tensors.clone()).map_err(wrong)?;
    // Four copies: as tensors, packed, on the way to the pool, and outputs of about the same size.
    let bytes = 4 * layout.bytes() as u64;
    memory::check_available(bytes.saturating_mul(count.into())).map_err(Failure::Skipped)?;
    let first_side = tensors.first().and_then(|tensor| tensor.shape().first());
    let rows = first_side.filter(|_| info.max_batch > 1).copied().unwrap_or(1);
    let test_input = |number: u32| {
        let mut random = Random::new(u64::from(number) << 32);
        let data: Vec<Vec<u8>> = tensors.iter().map(|tensor| random.fill(tensor)).collect();
        let packed = layout.pack(&data.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Ok(Arc::new(TestInput {
            number,
            packed: packed.map_err(wrong)?.into(),
            tensors: tensors.iter().cloned().zip(data).collect(),
            rows: u32::try_from(rows).unwrap_or(u32::MAX),
            is_exact: kind == DeviceKind::Cpu && info.max_batch == 1,
            first: OnceLock::new(),
        }))
    };
    (0..count).map(test_input).collect()
}

impl TestInput {
    /// Compares outputs with the first ones. The first call stores them.
    pub(super) fn check(&self, outputs: &TensorOutputs, from: &str) -> Result<(), Failure> {
        let given = || outputs.tensors().iter().cloned().zip((0..).map(|at| outputs.data(at)));
        let first = self.first.get_or_init(|| given().collect());
        let wrong = |what: String| {
            let number = self.number;
            let why = format!("the answer to input {number} from {from} is not the first: {what}");
            Err(Failure::Wrong(why))
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

/// The first element that is too far from the right one.
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

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::TensorSpec;
    use gridpool_protocol::tensor::model::ModelState;

    use super::*;

    fn info(datatype: DataType, max_batch: u32) -> ModelInfo {
        ModelInfo {
            inputs: vec![TensorSpec::new("x", datatype, [-1, 500])],
            warm_up_shapes: vec![vec![2, 500]],
            steps: Vec::new(),
            max_batch,
            state: ModelState::Ready,
            ..ModelInfo::unavailable("m", String::new())
        }
    }

    fn ask(datatype: DataType, kind: DeviceKind, max_batch: u32) -> Vec<Arc<TestInput>> {
        test_inputs(&info(datatype, max_batch), kind, 3).unwrap()
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

    fn outputs(numbers: &[f32]) -> TensorOutputs {
        let tensor = Tensor::new("y", DataType::Fp32, vec![numbers.len() as u64]).unwrap();
        let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let packed = TensorLayout::new(vec![tensor]).unwrap().pack(&[&data]).unwrap();
        TensorOutputs::new(packed).unwrap()
    }

    #[test]
    fn answers_are_compared_with_the_first_bit_by_bit_or_within_the_tolerance() {
        let check = |kind, max_batch, numbers: &[f32]| {
            let test_input = &ask(DataType::Fp32, kind, max_batch)[1];
            test_input.check(&outputs(&[0.01, -0.02, f32::NAN]), "direct").unwrap();
            test_input.check(&outputs(numbers), "gpu0#1")
        };
        let (near, far) = ([0.010_001, -0.02, f32::NAN], [0.011, -0.02, f32::NAN]);
        assert!(check(DeviceKind::Cpu, 1, &[0.01, -0.02, f32::NAN]).is_ok());
        for (kind, max_batch) in [(DeviceKind::Gpu, 1), (DeviceKind::Cpu, 8)] {
            assert!(check(kind, max_batch, &near).is_ok());
            let Err(Failure::Wrong(why)) = check(kind, max_batch, &far) else {
                panic!("it is far")
            };
            assert!(
                why.contains("input 1 from gpu0#1") && why.contains("`y` differs in element 0")
            );
        }
        for numbers in [&near[..], &far[..], &[0.01][..], &[0.01, -0.02, 1.0][..]] {
            let Err(Failure::Wrong(_)) = check(DeviceKind::Cpu, 1, numbers) else {
                panic!("{numbers:?} is another")
            };
        }
    }
}
