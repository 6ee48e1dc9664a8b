//! Inputs of a model, from a seed and the number of rows.

use gridpool_bench::random::Random;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::{ANY_SIZE, DataType, Tensor, TensorError};

/// Whether a request of this model can have any number of rows: the first dimension of every input is free.
pub(super) fn has_rows(info: &ModelInfo) -> bool {
    let is_free = |shape: &[i64]| shape.first() == Some(&ANY_SIZE);
    !info.inputs.is_empty() && info.inputs.iter().all(|spec| is_free(&spec.shape))
}

/// A set of inputs of the model's warm-up shapes, with `rows` rows if the model has rows.
pub(super) fn inputs(
    info: &ModelInfo,
    rows: u32,
    seed: u64,
    whole: IntegerValues,
) -> Result<Vec<(Tensor, Vec<u8>)>, TensorError> {
    let has_rows = has_rows(info);
    let mut random = Random::new(seed << 32);
    let specs = info.inputs.iter().zip(&info.warm_up_shapes);
    specs
        .map(|(spec, shape)| {
            let mut shape = shape.clone();
            if let Some(first) = shape.first_mut().filter(|_| has_rows) {
                *first = rows.into();
            }
            let tensor = Tensor::new(spec.name.clone(), spec.datatype, shape)?;
            let mut data = random.fill(&tensor);
            if whole == IntegerValues::ZerosAndOnes {
                set_ones(&mut random, tensor.datatype(), &mut data);
            }
            Ok((tensor, data))
        })
        .collect()
}

/// The values of integers and booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntegerValues {
    /// 0 or 1: nearly every model accepts both.
    ZerosAndOnes,
    /// Only 0, if 1 is not a valid index.
    Zeros,
}

fn set_ones(random: &mut Random, datatype: DataType, data: &mut [u8]) {
    // Texts stay empty.
    if datatype.float_bits().is_none() && datatype != DataType::Bytes {
        for number in data.chunks_exact_mut(datatype.bytes()) {
            number[0] = u8::from(random.bits() >> 63 == 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::TensorSpec;

    use super::*;

    fn info(first: i64, datatype: DataType) -> ModelInfo {
        ModelInfo {
            inputs: vec![TensorSpec::new("x", datatype, [first, 100])],
            warm_up_shapes: vec![vec![1, 100]],
            steps: Vec::new(),
            ..ModelInfo::unavailable("m", String::new())
        }
    }

    #[test]
    fn a_free_first_dimension_gets_the_requested_rows() {
        let shape = |first, rows| {
            let info = info(first, DataType::Fp32);
            inputs(&info, rows, 1, IntegerValues::Zeros).unwrap()[0].0.shape().to_vec()
        };
        assert_eq!((shape(ANY_SIZE, 33), shape(1, 33)), (vec![33, 100], vec![1, 100]));
    }

    #[test]
    fn inputs_come_from_their_seed() {
        let data = |seed, whole| {
            inputs(&info(ANY_SIZE, DataType::Int32), 3, seed, whole).unwrap().remove(0).1
        };
        assert_eq!(data(1, IntegerValues::ZerosAndOnes), data(1, IntegerValues::ZerosAndOnes));
        assert_ne!(data(1, IntegerValues::ZerosAndOnes), data(2, IntegerValues::ZerosAndOnes));
        assert!(data(1, IntegerValues::ZerosAndOnes).iter().all(|&byte| byte < 2));
        assert!(data(1, IntegerValues::Zeros).iter().all(|&byte| byte == 0));
    }
}
