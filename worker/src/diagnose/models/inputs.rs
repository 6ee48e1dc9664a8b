//! Inputs of a model, from a seed and the number of rows.

use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::{ANY_SIZE, DataType, Tensor, TensorError};

use crate::bench::models::question::Random;

/// Whether a request of this model can have as many rows as one likes: the first dimension of every
/// input is free.
pub(super) fn has_rows(info: &ModelInfo) -> bool {
    let is_free = |shape: &[i64]| shape.first() == Some(&ANY_SIZE);
    !info.inputs.is_empty() && info.inputs.iter().all(|spec| is_free(&spec.shape))
}

/// A set of inputs of the shapes that warmed the model, with so many rows if it has rows.
pub(super) fn inputs(
    info: &ModelInfo,
    rows: u32,
    seed: u64,
    whole: Whole,
) -> Result<Vec<(Tensor, Vec<u8>)>, TensorError> {
    let has_rows = has_rows(info);
    let mut random = Random::new(seed << 32);
    let specs = info.inputs.iter().zip(&info.trial_shapes);
    specs
        .map(|(spec, shape)| {
            let mut shape = shape.clone();
            if let Some(first) = shape.first_mut().filter(|_| has_rows) {
                *first = rows.into();
            }
            let tensor = Tensor::new(spec.name.clone(), spec.datatype, shape)?;
            let mut data = random.fill(&tensor);
            if whole == Whole::ZerosAndOnes {
                set_ones(&mut random, tensor.datatype(), &mut data);
            }
            Ok((tensor, data))
        })
        .collect()
}

/// What whole numbers and truth values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// 0 or 1: nearly every model takes both.
    ZerosAndOnes,
    /// 0 alone, where 1 is no valid index.
    Zeros,
}

fn set_ones(random: &mut Random, datatype: DataType, data: &mut [u8]) {
    match datatype {
        DataType::Bool
        | DataType::Uint8
        | DataType::Uint16
        | DataType::Uint32
        | DataType::Uint64
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64 => {
            for number in data.chunks_exact_mut(datatype.bytes()) {
                number[0] = u8::from(random.next() >> 63 == 1);
            }
        }
        DataType::Fp64 | DataType::Fp32 | DataType::Bf16 | DataType::Fp16 => {}
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::TensorSpec;

    use super::*;

    fn info(first: i64, datatype: DataType) -> ModelInfo {
        ModelInfo {
            inputs: vec![TensorSpec { name: "x".into(), datatype, shape: vec![first, 100] }],
            trial_shapes: vec![vec![1, 100]],
            ..ModelInfo::unavailable("m", String::new())
        }
    }

    #[test]
    fn a_free_first_dimension_has_as_many_rows_as_are_asked_for() {
        let shape = |first, rows| {
            let info = info(first, DataType::Fp32);
            inputs(&info, rows, 1, Whole::Zeros).unwrap()[0].0.shape().to_vec()
        };
        assert_eq!((shape(ANY_SIZE, 33), shape(1, 33)), (vec![33, 100], vec![1, 100]));
    }

    #[test]
    fn inputs_come_from_their_seed() {
        let data = |seed, whole| {
            inputs(&info(ANY_SIZE, DataType::Int32), 3, seed, whole).unwrap().remove(0).1
        };
        assert_eq!(data(1, Whole::ZerosAndOnes), data(1, Whole::ZerosAndOnes));
        assert_ne!(data(1, Whole::ZerosAndOnes), data(2, Whole::ZerosAndOnes));
        assert!(data(1, Whole::ZerosAndOnes).iter().all(|&byte| byte < 2));
        assert!(data(1, Whole::Zeros).iter().all(|&byte| byte == 0));
    }
}
