//! One tensor: the specification in a model ([`TensorSpec`]), and the tensor in a request ([`Tensor`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::texts::LENGTH_BYTES;
use super::{DataType, TensorError, Texts, TextsError};
use crate::limits::{
    BYTES_TENSOR_MAX, TENSOR_BYTES_MAX, TENSOR_NAME_BYTES_MAX, TENSOR_RANK_MAX, TENSOR_SIDE_MAX,
};

/// A dimension in a [`TensorSpec`] that every request chooses.
pub const ANY_SIZE: i64 = -1;

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Its name in the model.
    pub name: String,
    /// The type of its elements.
    pub datatype: DataType,
    /// The dimensions; [`ANY_SIZE`] for one that the model leaves open. A single number has none.
    pub shape: Vec<i64>,
    /// Whether the model leaves open even how many dimensions there are: `shape` is empty then. Only an output may.
    #[serde(default)]
    pub any_rank: bool,
}

/// Why a tensor does not match a model's input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// It has another type.
    #[error("`{name}` is {got}; the model takes {want}: with NumPy {}", cast(*want))]
    DataType {
        /// The tensor.
        name: String,
        /// In the request.
        got: DataType,
        /// In the model.
        want: DataType,
    },
    /// It has another shape.
    #[error("`{name}` has the shape {}; the model takes {}", Shape(got), Shape(want))]
    Shape {
        /// The tensor.
        name: String,
        /// In the request.
        got: Vec<i64>,
        /// In the model.
        want: Vec<i64>,
    },
}

/// What to type for an array of that type.
fn cast(want: DataType) -> String {
    match want {
        DataType::Bf16 => {
            "x.astype(ml_dtypes.bfloat16), or the bits as numpy.uint16 with .view('V2')".to_owned()
        }
        DataType::Bytes => "x.astype('U') for text, x.astype('S') for bytes".to_owned(),
        DataType::Bool
        | DataType::Fp16
        | DataType::Fp32
        | DataType::Fp64
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Uint8
        | DataType::Uint16
        | DataType::Uint32
        | DataType::Uint64 => format!("x.astype('{}')", want.descr().trim_start_matches('|')),
    }
}

impl TensorSpec {
    /// An input or output with so many dimensions.
    pub fn new(name: impl Into<String>, datatype: DataType, shape: impl Into<Vec<i64>>) -> Self {
        Self { name: name.into(), datatype, shape: shape.into(), any_rank: false }
    }

    /// Whether its elements are those of BYTES.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.datatype == DataType::Bytes
    }

    /// Its type and shape: `FP32 [?, 3]`, and `FP32 [...]` if it may have any number of dimensions.
    #[must_use]
    pub fn form(&self) -> String {
        match self.any_rank {
            true => format!("{} [...]", self.datatype),
            false => form(self.datatype, &self.shape),
        }
    }

    /// Checks that `tensor` matches, apart from its name.
    ///
    /// # Errors
    /// [`ShapeError`] if its type differs, or a dimension that the model fixes.
    pub fn accepts(&self, tensor: &Tensor) -> Result<(), ShapeError> {
        let name = || self.name.clone();
        if tensor.datatype != self.datatype {
            let (got, want) = (tensor.datatype, self.datatype);
            return Err(ShapeError::DataType { name: name(), got, want });
        }
        let got = &tensor.shape;
        let fits = |(got, want): (&u64, &i64)| *want == ANY_SIZE || got.cast_signed() == *want;
        if got.len() != self.shape.len() || !got.iter().zip(&self.shape).all(fits) {
            let (got, want) = (tensor.signed_shape(), self.shape.clone());
            return Err(ShapeError::Shape { name: name(), got, want });
        }
        Ok(())
    }
}

/// Prints `x FP32 [?, 3]`, and `x FP32 [...]` if it may have any number of dimensions.
impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.form())
    }
}

/// Prints `y FP32 [2, 3]`.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.datatype, Shape(&self.signed_shape()))
    }
}

/// A type and a shape: `FP32 [2, ?]`.
#[must_use]
pub fn form(datatype: DataType, shape: &[i64]) -> String {
    format!("{datatype} {}", Shape(shape))
}

/// Prints `[2, ?, 3]`.
struct Shape<'a>(&'a [i64]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |&side: &i64| if side < 0 { "?".to_owned() } else { side.to_string() };
        write!(f, "[{}]", self.0.iter().map(side).collect::<Vec<_>>().join(", "))
    }
}

/// A tensor without its data. It is within every limit, so its sizes do not overflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    name: String,
    datatype: DataType,
    shape: Vec<u64>,
    bytes: usize,
}

impl Tensor {
    /// A tensor of that name, type and shape. An empty shape is a scalar. A dimension may be 0. The elements of a BYTES
    /// tensor are empty at first; [`Tensor::with_data`] sets the size of others.
    ///
    /// # Errors
    /// [`TensorError`] if the name, a dimension or the size exceeds its limit.
    pub fn new(
        name: impl Into<String>,
        datatype: DataType,
        shape: Vec<u64>,
    ) -> Result<Self, TensorError> {
        let name = name.into();
        check_name(0, &name)?;
        if shape.len() > TENSOR_RANK_MAX {
            return Err(TensorError::Rank { name, rank: shape.len() });
        }
        if let Some((axis, &side)) = shape.iter().enumerate().find(|&(_, &s)| s > TENSOR_SIDE_MAX) {
            return Err(TensorError::Side { name, axis, side });
        }
        let bytes = if shape.contains(&0) { Some(0) } else { size(datatype, &shape) };
        let is_text = datatype == DataType::Bytes;
        let most = if is_text { BYTES_TENSOR_MAX as u64 } else { TENSOR_BYTES_MAX };
        let bytes = match bytes {
            Some(bytes) if bytes <= most => bytes,
            other => return Err(TensorError::Bytes { name, bytes: other.unwrap_or(u64::MAX) }),
        };
        let bytes = usize::try_from(bytes).expect("TENSOR_BYTES_MAX fits usize");
        Ok(Self { name, datatype, shape, bytes })
    }

    /// The tensor for this data, which must have the size that its shape and type take, and be the elements of a BYTES
    /// tensor.
    ///
    /// # Errors
    /// [`TensorError::Data`] or [`TensorError::Texts`] if it is not.
    pub fn with_data(self, data: &[u8]) -> Result<Self, TensorError> {
        let sized = self.with_size(data.len())?;
        if sized.datatype == DataType::Bytes {
            let checked = Texts::new(data, sized.elements()).check();
            checked.map_err(|why| TensorError::Texts { name: sized.name.clone(), why })?;
        }
        Ok(sized)
    }

    /// The tensor with data of so many bytes. Only a BYTES tensor can have another number than its shape says.
    pub(super) fn with_size(self, got: usize) -> Result<Self, TensorError> {
        let elements = self.elements();
        if self.datatype != DataType::Bytes {
            return match got == self.bytes {
                true => Ok(self),
                false => Err(TensorError::Data { name: self.name, got, want: self.bytes }),
            };
        }
        let why = if got > BYTES_TENSOR_MAX {
            TextsError::Tensor
        } else if got < elements * LENGTH_BYTES || (elements == 0 && got > 0) {
            TextsError::Count { got: got / LENGTH_BYTES, want: elements }
        } else {
            return Ok(Self { bytes: got, ..self });
        };
        Err(TensorError::Texts { name: self.name, why })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its elements.
    #[must_use]
    pub fn datatype(&self) -> DataType {
        self.datatype
    }

    /// The dimensions.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The dimensions as signed numbers.
    #[must_use]
    pub fn signed_shape(&self) -> Vec<i64> {
        self.shape.iter().map(|side| side.cast_signed()).collect()
    }

    /// The size of its data, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of its elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        if self.datatype != DataType::Bytes {
            return self.bytes / self.datatype.bytes();
        }
        // Its size was checked with elements of the fewest bytes.
        let sides = self.shape.iter().map(|&side| usize::try_from(side).unwrap_or(usize::MAX));
        sides.fold(1, usize::saturating_mul)
    }
}

fn size(datatype: DataType, shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(datatype.bytes() as u64, |bytes, &side| bytes.checked_mul(side))
}

/// Checks that ONNX Runtime and every client can use `name`.
pub(super) fn check_name(tensor: usize, name: &str) -> Result<(), TensorError> {
    let reason = match name {
        "" => "is empty",
        _ if name.len() > TENSOR_NAME_BYTES_MAX => "is too long",
        _ if name.contains('\0') => "has a zero byte",
        _ => return Ok(()),
    };
    Err(TensorError::Name { tensor, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[u64]) -> Result<Tensor, TensorError> {
        Tensor::new("x", DataType::Fp32, shape.to_vec())
    }

    #[test]
    fn sizes_are_counted_and_never_wrap() {
        assert_eq!(tensor(&[]).unwrap().bytes(), 4);
        assert_eq!(tensor(&[2, 3]).unwrap().bytes(), 24);
        assert_eq!(tensor(&[2, 3]).unwrap().elements(), 6);
        assert_eq!(tensor(&[TENSOR_SIDE_MAX, 0, TENSOR_SIDE_MAX]).unwrap().bytes(), 0);
        // 2^32 times 2^32 is 0 in 64 bits.
        let wraps = tensor(&[1 << 32, 1 << 32]).unwrap_err();
        assert!(matches!(wraps, TensorError::Bytes { bytes: u64::MAX, .. }), "{wraps}");
        assert!(matches!(tensor(&[1 << 32]).unwrap_err(), TensorError::Bytes { .. }));
        let side = tensor(&[1, TENSOR_SIDE_MAX + 1]).unwrap_err();
        assert!(matches!(side, TensorError::Side { axis: 1, .. }), "{side}");
        assert!(matches!(tensor(&[0, u64::MAX]).unwrap_err(), TensorError::Side { .. }));
        let ranks = tensor(&[1; TENSOR_RANK_MAX + 1]).unwrap_err();
        assert_eq!(ranks, TensorError::Rank { name: "x".into(), rank: TENSOR_RANK_MAX + 1 });
    }

    #[test]
    fn names_that_no_library_takes_are_refused() {
        let named = |name: &str| Tensor::new(name, DataType::Bool, vec![]);
        assert!(named("input:0/é").is_ok());
        assert!(named("").unwrap_err().to_string().contains("its name is empty"));
        assert!(named("a\0b").unwrap_err().to_string().contains("zero byte"));
        let long = "n".repeat(TENSOR_NAME_BYTES_MAX);
        assert!(named(&long).is_ok());
        assert!(named(&format!("{long}n")).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn a_model_takes_what_has_its_type_and_fits_its_open_dimensions() {
        let spec = |shape: &[i64]| TensorSpec::new("x", DataType::Fp32, shape);
        let given = tensor(&[4, 3]).unwrap();
        assert_eq!(spec(&[ANY_SIZE, 3]).accepts(&given), Ok(()));
        assert_eq!(spec(&[4, 3]).accepts(&given), Ok(()));
        assert_eq!(spec(&[ANY_SIZE, 3]).to_string(), "x FP32 [?, 3]");
        assert_eq!(TensorSpec { any_rank: true, ..spec(&[]) }.to_string(), "x FP32 [...]");
        assert_eq!(given.to_string(), "x FP32 [4, 3]");
        let error = spec(&[ANY_SIZE, 5]).accepts(&given).unwrap_err();
        assert_eq!(error.to_string(), "`x` has the shape [4, 3]; the model takes [?, 5]");
        assert!(spec(&[ANY_SIZE]).accepts(&given).is_err());
        assert!(spec(&[]).accepts(&given).is_err());
        let of = |datatype| TensorSpec { datatype, ..spec(&[4, 3]) };
        let said = |datatype| of(datatype).accepts(&given).unwrap_err().to_string();
        let int8 = "`x` is FP32; the model takes INT8: with NumPy x.astype('i1')";
        assert_eq!(said(DataType::Int8), int8);
        let bf16 = "x.astype(ml_dtypes.bfloat16), or the bits as numpy.uint16 with .view('V2')";
        assert!(said(DataType::Bf16).ends_with(bf16), "{}", said(DataType::Bf16));
        let text =
            "the model takes BYTES: with NumPy x.astype('U') for text, x.astype('S') for bytes";
        assert!(said(DataType::Bytes).ends_with(text), "{}", said(DataType::Bytes));
    }
}
