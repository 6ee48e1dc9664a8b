//! Tensors with their data: the inputs and outputs of a model.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use gridpool_protocol::output::Bytes;
use gridpool_protocol::tensor::{
    DataType, Element, Packed, Tensor, TensorError, TensorLayout, Texts, TextsError, put_text,
};

/// A named tensor with its data, row-major. Clones share the data, which is copied only when it is sent.
#[derive(Clone, Debug)]
pub struct ModelInput {
    tensor: Tensor,
    data: Arc<dyn Data>,
}

/// Elements of some type, as bytes.
trait Data: fmt::Debug + Send + Sync {
    fn bytes(&self) -> &[u8];
}

impl<T: Element> Data for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl ModelInput {
    /// Makes an input from its elements, row-major. An empty shape is a scalar.
    ///
    /// # Errors
    /// [`TensorError`] if `data` does not have as many elements as `shape`, or if the name or a dimension
    /// exceeds its limit.
    pub fn new<T: Element>(
        name: impl Into<String>,
        shape: impl Into<Vec<u64>>,
        data: Vec<T>,
    ) -> Result<Self, TensorError> {
        Self::of(Tensor::new(name, T::DATATYPE, shape.into())?, data)
    }

    /// Makes a BYTES input from its elements, row-major: texts, or any other bytes.
    ///
    /// # Errors
    /// [`TensorError`] if there are not as many elements as `shape` says, or a limit is exceeded.
    pub fn texts<T: AsRef<[u8]>>(
        name: impl Into<String>,
        shape: impl Into<Vec<u64>>,
        texts: &[T],
    ) -> Result<Self, TensorError> {
        let tensor = Tensor::new(name, DataType::Bytes, shape.into())?;
        let mut data = Vec::new();
        for (element, text) in texts.iter().enumerate() {
            put_text(text.as_ref(), element, &mut data)
                .map_err(|why| TensorError::Texts { name: tensor.name().to_owned(), why })?;
        }
        Self::from_bytes(tensor, data)
    }

    /// Makes an input from bytes: little-endian, row-major. An element of BYTES is its length as 4 bytes, then its
    /// bytes.
    ///
    /// # Errors
    /// [`TensorError::Data`] if `data` does not have as many bytes as `tensor`, [`TensorError::Texts`] if it is not
    /// the elements of a BYTES tensor.
    pub fn from_bytes(tensor: Tensor, data: Vec<u8>) -> Result<Self, TensorError> {
        Self::of(tensor.with_data(&data)?, data)
    }

    /// Makes inputs from tensors and their bytes.
    ///
    /// # Errors
    /// The first error of [`ModelInput::from_bytes`].
    pub fn from_tensors(
        tensors: impl IntoIterator<Item = (Tensor, Vec<u8>)>,
    ) -> Result<Vec<Self>, TensorError> {
        tensors.into_iter().map(|(tensor, data)| Self::from_bytes(tensor, data)).collect()
    }

    fn of<T: Element>(tensor: Tensor, data: Vec<T>) -> Result<Self, TensorError> {
        let (got, want) = (size_of_val(data.as_slice()), tensor.bytes());
        if got != want {
            return Err(TensorError::Data { name: tensor.name().to_owned(), got, want });
        }
        Ok(Self { tensor, data: Arc::new(data) })
    }

    /// The name, type and shape.
    #[must_use]
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }
}

/// Why [`TensorOutputs::values`] failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The model has no output of that name.
    #[error("the model has no output `{name}`; it has {}", has.join(", "))]
    Missing {
        /// The requested name.
        name: String,
        /// The names of the outputs.
        has: Vec<String>,
    },
    /// The output's elements have another type.
    #[error("the output `{name}` is {has}, not {wanted}")]
    DataType {
        /// The output.
        name: String,
        /// The requested type.
        wanted: DataType,
        /// Its type.
        has: DataType,
    },
    /// The data of a BYTES output is not its elements.
    #[error("the output `{name}`: {why}")]
    Texts {
        /// The output.
        name: String,
        /// Why.
        why: TextsError,
    },
}

/// The outputs of a model. Large outputs stay in the shared memory that the worker wrote. Drop all clones to
/// free it for the next job.
#[derive(Clone, Debug)]
pub struct TensorOutputs {
    layout: TensorLayout,
    bytes: Bytes,
}

impl TensorOutputs {
    /// Reads outputs that a worker has packed.
    ///
    /// # Errors
    /// [`TensorError`] if the bytes are malformed.
    pub fn new(packed: Vec<u8>) -> Result<Self, TensorError> {
        Self::read(Bytes::Private(Arc::new(packed)))
    }

    pub(super) fn read(bytes: Bytes) -> Result<Self, TensorError> {
        let layout = match &bytes {
            Bytes::Shared(memory) => TensorLayout::read(&memory.bytes())?,
            Bytes::Private(bytes) => Packed::read(bytes)?.into_layout(),
        };
        Ok(Self { layout, bytes })
    }

    /// The tensors, in the model's order.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        self.layout.tensors()
    }

    /// The index of the tensor of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.layout.find(name)
    }

    /// Copies the elements of the output `name` out of shared memory.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such output, or its elements have another type.
    pub fn values<T: Element>(&self, name: &str) -> Result<Values<T>, ReadError> {
        let at = self.of_type(name, T::DATATYPE)?;
        let tensor = &self.tensors()[at];
        let data = T::fill(tensor.elements(), |bytes| self.copy_to(at, 0, bytes));
        Ok(Values { shape: tensor.shape().to_vec(), data })
    }

    /// Copies the elements of the BYTES output `name` out of shared memory.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such output, its elements have another type, or a worker wrote others than it said.
    pub fn texts(&self, name: &str) -> Result<Values<Vec<u8>>, ReadError> {
        let at = self.of_type(name, DataType::Bytes)?;
        let (tensor, data) = (&self.tensors()[at], self.data(at));
        let texts = Texts::new(&data, tensor.elements()).map(|text| text.map(<[u8]>::to_vec));
        let texts = texts.collect::<Result<_, _>>();
        let texts = texts.map_err(|why| ReadError::Texts { name: name.to_owned(), why })?;
        Ok(Values { shape: tensor.shape().to_vec(), data: texts })
    }

    /// The index of the output of that name, if it has that type.
    fn of_type(&self, name: &str, wanted: DataType) -> Result<usize, ReadError> {
        let Some(at) = self.find(name) else {
            let has = self.tensors().iter().map(|tensor| tensor.name().to_owned()).collect();
            return Err(ReadError::Missing { name: name.to_owned(), has });
        };
        let has = self.tensors()[at].datatype();
        match has == wanted {
            true => Ok(at),
            false => Err(ReadError::DataType { name: name.to_owned(), wanted, has }),
        }
    }

    /// Copies the data of a tensor: little-endian, row-major.
    ///
    /// # Panics
    /// If there is no such tensor.
    #[must_use]
    pub fn data(&self, tensor: usize) -> Vec<u8> {
        let mut data = vec![0; self.tensors()[tensor].bytes()];
        self.copy_to(tensor, 0, &mut data);
        data
    }

    /// Copies `into.len()` bytes of the data of a tensor, from byte `at` on.
    ///
    /// # Panics
    /// If there is no such tensor, or it has fewer bytes.
    pub fn copy_to(&self, tensor: usize, at: usize, into: &mut [u8]) {
        let range = self.layout.range(tensor);
        let fits = at.checked_add(into.len()).is_some_and(|end| end <= range.len());
        assert!(fits, "{} bytes at {at} of a tensor of {}", into.len(), range.len());
        self.bytes.read(range.start + at, into);
    }
}

/// The elements of one output, row-major, in private memory. It derefs to a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Values<T> {
    shape: Vec<u64>,
    data: Vec<T>,
}

impl<T> Values<T> {
    /// The dimensions; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The elements.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.data
    }
}

impl<T> Deref for Values<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.data
    }
}
