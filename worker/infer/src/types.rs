//! Converts between our element types and ONNX Runtime's.

use gridpool_protocol::tensor::DataType;
use ort::value::TensorElementType;

/// ONNX Runtime's type.
pub(super) fn to_runtime(datatype: DataType) -> TensorElementType {
    match datatype {
        DataType::Bool => TensorElementType::Bool,
        DataType::Uint8 => TensorElementType::Uint8,
        DataType::Uint16 => TensorElementType::Uint16,
        DataType::Uint32 => TensorElementType::Uint32,
        DataType::Uint64 => TensorElementType::Uint64,
        DataType::Int8 => TensorElementType::Int8,
        DataType::Int16 => TensorElementType::Int16,
        DataType::Int32 => TensorElementType::Int32,
        DataType::Int64 => TensorElementType::Int64,
        DataType::Fp16 => TensorElementType::Float16,
        DataType::Bf16 => TensorElementType::Bfloat16,
        DataType::Fp32 => TensorElementType::Float32,
        DataType::Fp64 => TensorElementType::Float64,
        DataType::Bytes => TensorElementType::String,
    }
}

/// Our type, if we have it.
pub(super) fn from_runtime(element: TensorElementType) -> Option<DataType> {
    DataType::ALL.into_iter().find(|&datatype| to_runtime(datatype) == element)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_ours_converts_both_ways_and_no_other_does() {
        for datatype in DataType::ALL {
            assert_eq!(from_runtime(to_runtime(datatype)), Some(datatype));
        }
        for other in [TensorElementType::Int4, TensorElementType::Complex64] {
            assert_eq!(from_runtime(other), None);
        }
    }
}
