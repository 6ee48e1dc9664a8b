//! Why a set of tensors was refused.

use crate::limits::{
    TENSOR_BYTES_MAX, TENSOR_NAME_BYTES_MAX, TENSOR_RANK_MAX, TENSOR_SIDE_MAX,
    TENSORS_HEADER_BYTES_MAX, TENSORS_MAX,
};

/// Why a set of tensors was refused. Tensors count from 0 where their name is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// It is more than a set may be.
    #[error("tensor `{name}` takes {bytes} bytes; a set of tensors has at most {TENSOR_BYTES_MAX}")]
    Bytes {
        /// The tensor with which it is too much.
        name: String,
        /// Bytes of that tensor, as far as they can be counted.
        bytes: u64,
    },
    /// Its data is not as long as its shape says.
    #[error("tensor `{name}`: {got} bytes of data; its shape and type take {want}")]
    Data {
        /// The tensor.
        name: String,
        /// Bytes given.
        got: usize,
        /// Bytes that it takes.
        want: usize,
    },
    /// Its type is none.
    #[error("tensor `{name}`: {number} is the number of no type")]
    DataType {
        /// The tensor.
        name: String,
        /// What stands for its type.
        number: u8,
    },
    /// A name appears twice.
    #[error("two tensors have the name `{name}`")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The header is not as long as it says.
    #[error("the header of the tensors says it has {said} bytes and ends after {got}")]
    Header {
        /// What it says.
        said: usize,
        /// Where it ends.
        got: usize,
    },
    /// The header would be longer than any may be.
    #[error("the header of the tensors has {got} bytes; at most {TENSORS_HEADER_BYTES_MAX}")]
    HeaderBytes {
        /// What it says.
        got: u32,
    },
    /// It does not begin as a set of tensors does.
    #[error("these bytes are no packed tensors")]
    Magic,
    /// The memory is shorter than what is said to lie in it.
    #[error("the tensors lie in {got} bytes; {want} are needed")]
    Memory {
        /// Bytes there are.
        got: usize,
        /// Bytes that are needed.
        want: usize,
    },
    /// A name is empty, too long, or no text that another library could take.
    #[error("tensor {tensor}: its name {reason} (at most {TENSOR_NAME_BYTES_MAX} bytes)")]
    Name {
        /// Which one.
        tensor: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// Other than what was announced was written.
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

/// How many bytes are needed, if `text` has the words of [`TensorError::Memory`], or those of a worker
/// whose outputs did not fit a message: refusals travel as sentences.
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
