//! Tensors with names: their types, their shapes, and how a set of them lies in one buffer, inline or
//! in an arena. What a model is and what a run of it did is in [`model`], what may be said about one in
//! [`options`].
//!
//! ```
//! use gridpool_protocol::tensor::{DataType, Packed, Tensor, TensorLayout};
//!
//! let x = Tensor::new("x", DataType::Fp32, vec![2, 3])?;
//! let layout = TensorLayout::new(vec![x])?;
//! let bytes = layout.pack(&[&[0; 24]])?;
//! let back = Packed::read(&bytes)?;
//! assert_eq!(back.layout().tensors()[0].shape(), [2, 3]);
//! assert_eq!(back.data(0), [0; 24]);
//! # Ok::<(), gridpool_protocol::tensor::TensorError>(())
//! ```

mod datatype;
mod error;
pub mod model;
pub mod options;
mod packed;
mod spec;

pub use datatype::{DataType, ParseDataTypeError, bf16, fp16, numbers};
pub use error::{TensorError, bytes_needed};
pub(crate) use packed::HEAD_BYTES;
pub use packed::{DATA_ALIGNMENT, Packed, TensorLayout};
pub use spec::{ANY_SIZE, ShapeError, Tensor, TensorSpec};
