//! The data of tensors: converts JSON numbers to little-endian bytes and back.
//!
//! A number is converted from its digits to its type directly, so every integer stays exact.

use std::fmt;

use gridpool_client::TensorOutputs;
use gridpool_protocol::tensor::{DataType, Element, Scalar, Tensor, Texts, Visitor, put_text};
use serde::de::{self, DeserializeSeed, Error, SeqAccess};
use serde::ser::SerializeSeq;
use serde::{Deserializer, Serialize, Serializer};

/// Bytes of an output that are copied from shared memory at a time: a multiple of every element's size.
const CHUNK_BYTES: usize = 1 << 16;

/// One tensor of a response: little-endian, row-major.
#[derive(Debug)]
pub(super) struct OutputTensor {
    pub(super) tensor: Tensor,
    data: OutputData,
}

/// Where the data of an output lies.
#[derive(Debug)]
enum OutputData {
    /// In memory of its own.
    Private(Vec<u8>),
    /// In the shared memory that the worker wrote, as the tensor of that index.
    Shared(TensorOutputs, usize),
}

impl OutputTensor {
    pub(super) fn private(tensor: Tensor, data: Vec<u8>) -> Self {
        Self { tensor, data: OutputData::Private(data) }
    }

    /// The outputs of a model, left in shared memory.
    pub(super) fn shared(outputs: &TensorOutputs) -> Vec<Self> {
        let tensors = outputs.tensors().iter().enumerate();
        let of = |(at, tensor): (usize, &Tensor)| {
            let data = OutputData::Shared(outputs.clone(), at);
            Self { tensor: tensor.clone(), data }
        };
        tensors.map(of).collect()
    }

    /// Passes the data to `take` in pieces: of whole elements, unless it is BYTES.
    pub(super) fn chunks<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match &self.data {
            OutputData::Private(data) => take(data),
            OutputData::Shared(outputs, tensor) => {
                let bytes = self.tensor.bytes();
                let mut chunk = vec![0; CHUNK_BYTES.min(bytes)];
                for at in (0..bytes).step_by(CHUNK_BYTES) {
                    let chunk = &mut chunk[..CHUNK_BYTES.min(bytes - at)];
                    outputs.copy_to(*tensor, at, chunk);
                    take(chunk)?;
                }
                Ok(())
            }
        }
    }
}

/// Parses the data of a tensor: one flat list, or lists nested as its shape says.
pub(super) fn parse(json: &str, tensor: &Tensor) -> Result<Vec<u8>, serde_json::Error> {
    // An element takes at least two characters, so a short text cannot reserve memory for a large tensor.
    let room = tensor.bytes().min(json.len() / 2 * tensor.datatype().bytes());
    let bytes = Vec::with_capacity(room);
    let mut sink = Sink { tensor, bytes, elements: 0, leaves_at: None };
    let mut json = serde_json::Deserializer::from_str(json);
    NestedData { sink: &mut sink, depth: 0 }.deserialize(&mut json)?;
    json.end()?;
    let got = sink.elements;
    if got == tensor.elements() {
        return Ok(sink.bytes);
    }
    Err(Error::custom(format!("it has {got} elements, but its shape says {}", tensor.elements())))
}

/// Whether numbers of that type can be sent as JSON. As in Triton, 16-bit floats cannot.
pub(super) fn goes_as_json(datatype: DataType) -> bool {
    !matches!(datatype, DataType::Fp16 | DataType::Bf16)
}

struct Sink<'a> {
    tensor: &'a Tensor,
    bytes: Vec<u8>,
    elements: usize,
    /// The depth at which the numbers stand.
    leaves_at: Option<usize>,
}

/// Parses what stands at one depth: a list, or below the first a number.
struct NestedData<'a, 'b> {
    sink: &'a mut Sink<'b>,
    depth: usize,
}

impl Sink<'_> {
    /// Counts one more element. Returns its number.
    fn count<E: Error>(&mut self, depth: usize) -> Result<usize, E> {
        let rank = self.tensor.shape().len().max(1);
        if depth != 1 && depth != rank || *self.leaves_at.get_or_insert(depth) != depth {
            return Err(E::custom(format!(
                "put the elements in one flat list, or in lists nested {rank} deep"
            )));
        }
        let (at, elements) = (self.elements, self.tensor.elements());
        if at == elements {
            return Err(E::custom(format!("it has more than {elements} elements")));
        }
        self.elements += 1;
        Ok(at)
    }

    fn take_text<E: Error>(&mut self, depth: usize, text: &str) -> Result<(), E> {
        let at = self.count(depth)?;
        let datatype = self.tensor.datatype();
        if datatype != DataType::Bytes {
            return Err(E::custom(format!("element {at} is a text, which is not a {datatype}")));
        }
        put_text(text.as_bytes(), at, &mut self.bytes).map_err(E::custom)
    }

    fn take<E: Error>(&mut self, depth: usize, number: Scalar) -> Result<(), E> {
        let at = self.count(depth)?;
        let datatype = self.tensor.datatype();
        if !goes_as_json(datatype) {
            return Err(E::custom(format!("{datatype} is sent as binary data only, not as JSON")));
        }
        if datatype.write(number, &mut self.bytes) {
            return Ok(());
        }
        if datatype == DataType::Bytes {
            return Err(E::custom(format!(
                "element {at} is {number}; an element of BYTES is a text in quotes"
            )));
        }
        Err(E::custom(format!("element {at} is {number}, which is not a {datatype}")))
    }
}

impl<'de> DeserializeSeed<'de> for NestedData<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for NestedData<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of elements, flat or nested as the shape says")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.sink.take(self.depth, Scalar::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.sink.take(self.depth, Scalar::Unsigned(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.sink.take(self.depth, Scalar::Signed(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.sink.take(self.depth, Scalar::Double(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.sink.take_text(self.depth, text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let NestedData { sink, depth } = self;
        let shape = sink.tensor.shape();
        if depth >= shape.len().max(1) {
            let rank = shape.len();
            return Err(A::Error::custom(format!(
                "it is nested deeper than its {rank} dimensions"
            )));
        }
        let mut length = 0;
        while list.next_element_seed(NestedData { sink: &mut *sink, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        // A flat list is valid for any rank. Its length is checked at the end.
        let is_flat = sink.leaves_at == Some(1);
        match shape.get(depth) {
            Some(&want) if !is_flat && length != want && sink.tensor.elements() > 0 => {
                Err(A::Error::custom(format!(
                    "a list of dimension {depth} has {length} entries, the shape says {want}"
                )))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Writes the data of a tensor as JSON: one flat list.
pub(super) struct Flat<'a>(pub(super) &'a OutputTensor);

impl Serialize for Flat<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let OutputTensor { tensor, .. } = self.0;
        let mut list = to.serialize_seq(Some(tensor.elements()))?;
        let datatype = tensor.datatype();
        if datatype == DataType::Bytes {
            put_texts(self.0, &mut list)?;
            return list.end();
        }
        self.0.chunks(|chunk| {
            datatype.visit(Put { tensor, chunk, list: &mut list }).unwrap_or(Ok(()))
        })?;
        list.end()
    }
}

/// Appends the elements of a BYTES tensor to a list.
fn put_texts<L: SerializeSeq>(output: &OutputTensor, list: &mut L) -> Result<(), L::Error> {
    let OutputTensor { tensor, .. } = output;
    let mut data = Vec::with_capacity(tensor.bytes());
    output.chunks(|chunk| {
        data.extend(chunk);
        Ok(())
    })?;
    for text in Texts::new(&data, tensor.elements()) {
        let text = text.map_err(serde::ser::Error::custom)?;
        let text = str::from_utf8(text).map_err(|_| no_json(tensor, "bytes that are not UTF-8"))?;
        list.serialize_element(text)?;
    }
    Ok(())
}

/// Appends the elements in `chunk` to a list.
struct Put<'a, L> {
    tensor: &'a Tensor,
    chunk: &'a [u8],
    list: &'a mut L,
}

impl<L: SerializeSeq> Visitor for Put<'_, L> {
    type Output = Result<(), L::Error>;

    fn visit<T: Element>(self) -> Self::Output {
        let Self { tensor, chunk, list } = self;
        if !goes_as_json(T::DATATYPE) {
            return Err(no_json(tensor, "numbers of 16 bits"));
        }
        chunk.chunks_exact(size_of::<T>()).try_for_each(|bytes| {
            match T::from_le(bytes).to_scalar() {
                Scalar::Bool(value) => list.serialize_element(&value),
                Scalar::Signed(value) => list.serialize_element(&value),
                Scalar::Unsigned(value) => list.serialize_element(&value),
                Scalar::Single(value) if value.is_finite() => list.serialize_element(&value),
                Scalar::Single(value) => Err(no_json(tensor, value)),
                Scalar::Double(value) if value.is_finite() => list.serialize_element(&value),
                Scalar::Double(value) => Err(no_json(tensor, value)),
            }
        })
    }
}

/// The error for a tensor that JSON cannot express. Null in place of a number would be a wrong answer.
fn no_json<E: serde::ser::Error>(tensor: &Tensor, what: impl fmt::Display) -> E {
    let (name, datatype) = (tensor.name(), tensor.datatype());
    E::custom(format!(
        "output `{name}` ({datatype}) contains {what}, which JSON cannot express: ask for it with \
         binary_data"
    ))
}

#[cfg(test)]
mod tests;
