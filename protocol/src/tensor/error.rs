//! The errors of sets of tensors.

use super::TextsError;
use crate::limits::{
    TENSOR_BYTES_MAX, TENSOR_NAME_BYTES_MAX, TENSOR_RANK_MAX, TENSOR_SIDE_MAX,
    TENSORS_HEADER_BYTES_MAX, TENSORS_MAX,
};

/// Why a set of tensors was refused. Tensors without a known name are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The set is too large.
    #[error("tensor `{name}` takes {bytes} bytes; a set of tensors has at most {TENSOR_BYTES_MAX}")]
    Bytes {
        /// The tensor that exceeds the limit.
        name: String,
        /// Bytes of that tensor, or the largest number.
        bytes: u64,
    },
    /// The data does not have the length of the shape.
    #[error("tensor `{name}`: {got} bytes of data; its shape and type take {want}")]
    Data {
        /// The tensor.
        name: String,
        /// Bytes given.
        got: usize,
        /// Bytes that it takes.
        want: usize,
    },
    /// The data of a BYTES tensor is not its elements.
    #[error("tensor `{name}`: {why}")]
    Texts {
        /// The tensor.
        name: String,
        /// Why.
        why: TextsError,
    },
    /// There is no such type.
    #[error("tensor `{name}`: there is no type with number {number}")]
    DataType {
        /// The tensor.
        name: String,
        /// The number of the type.
        number: u8,
    },
    /// A name appears twice.
    #[error("two tensors have the name `{name}`")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The header does not have the length that it names.
    #[error("the header of the tensors names {said} bytes but ends after {got}")]
    Header {
        /// The length that it names.
        said: usize,
        /// Where it ends.
        got: usize,
    },
    /// The header is too long.
    #[error("the header of the tensors has {got} bytes; at most {TENSORS_HEADER_BYTES_MAX}")]
    HeaderBytes {
        /// The length that it names.
        got: u32,
    },
    /// The bytes do not start like a set of tensors.
    #[error("these bytes are not packed tensors")]
    Magic,
    /// The memory is too short for the tensors.
    #[error("the tensors have {got} bytes; {want} are needed")]
    Memory {
        /// Available bytes.
        got: usize,
        /// Needed bytes.
        want: usize,
    },
    /// A name is empty, too long, or not valid text.
    #[error("tensor {tensor}: its name {reason} (at most {TENSOR_NAME_BYTES_MAX} bytes)")]
    Name {
        /// Which one.
        tensor: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// The data is of another number of tensors.
    #[error("the data of {got} tensors was given for a set of {want}")]
    Parts {
        /// Given.
        got: usize,
        /// In the set.
        want: usize,
    },
    /// It has too many dimensions.
    #[error("tensor `{name}` has {rank} dimensions; at most {TENSOR_RANK_MAX} are allowed")]
    Rank {
        /// The tensor.
        name: String,
        /// How many.
        rank: usize,
    },
    /// A dimension is too large.
    #[error("tensor `{name}`: dimension {axis} is {side}; at most {TENSOR_SIDE_MAX} is allowed")]
    Side {
        /// The tensor.
        name: String,
        /// Which dimension, from 0.
        axis: usize,
        /// Its size.
        side: u64,
    },
    /// There are too many.
    #[error("a set of {count} tensors; at most {TENSORS_MAX} are allowed")]
    TooMany {
        /// How many.
        count: usize,
    },
}

/// The needed bytes in a sentence: that of [`TensorError::Memory`], or that of a worker whose outputs did not fit a
/// message. Refusals travel as sentences.
#[must_use]
pub fn bytes_needed(text: &str) -> Option<u64> {
    let memory = || text.rsplit_once(" bytes; ")?.1.split_once(" are needed");
    let inline = || text.rsplit_once(" they take ")?.1.split_once(" bytes");
    memory().or_else(inline)?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_bytes_are_needed_is_found_in_the_sentences_that_say_so() {
        let error = TensorError::Memory { got: 4_096, want: 65_600 };
        assert_eq!(bytes_needed(&format!("the outputs have no room: {error}")), Some(65_600));
        let inline =
            "the outputs have no room: they take 5000 bytes, and at most 4096 travel inline";
        assert_eq!(bytes_needed(inline), Some(5_000));
        assert_eq!(bytes_needed(&TensorError::Magic.to_string()), None);
        assert_eq!(bytes_needed(""), None);
    }
}
