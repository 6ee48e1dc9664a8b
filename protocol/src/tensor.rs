//! Named tensors: types, shapes, and the packing of a set of tensors in one buffer. [`model`] describes models
//! and their runs, [`options`] the options of a model, [`pipeline`] models as steps, [`version`] the names of versions.
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

mod contexts;
mod datatype;
mod element;
mod error;
pub mod model;
pub mod options;
mod packed;
pub mod pipeline;
pub mod placement;
mod spec;
mod texts;
pub mod version;

pub use contexts::Contexts;
pub use datatype::{DataType, ParseDataTypeError};
pub use element::{Element, Scalar, Visitor, numbers};
pub use error::{TensorError, bytes_needed};
pub use packed::{DATA_ALIGNMENT, Packed, TensorLayout};
pub use spec::{ANY_SIZE, ShapeError, Tensor, TensorSpec, form};
pub use texts::{Texts, TextsError, put_text};
