//! The data of tensors: JSON numbers to little-endian bytes and back, exact for every integer.
//!
//! A number goes from its digits to its type at once: no integer is ever a floating-point number on the
//! way. Nothing here knows models.

use std::fmt;

use gridpool_protocol::client::InferOutputs;
use gridpool_protocol::tensor::{DataType, Tensor};
use serde::de::{DeserializeSeed, Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserializer, Serialize, Serializer};

/// Bytes of an output that are copied at a time from where a worker wrote them: a multiple of every
/// element's.
const CHUNK_BYTES: usize = 1 << 16;

/// One tensor of a response: little-endian, row-major.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) tensor: Tensor,
    data: Data,
}

/// Where the data of an output lies.
#[derive(Debug)]
enum Data {
    /// In memory of its own.
    Private(Vec<u8>),
    /// Where the worker wrote it; the number is that of the tensor there.
    Shared(InferOutputs, usize),
}

impl Output {
    pub(super) fn private(tensor: Tensor, data: Vec<u8>) -> Self {
        Self { tensor, data: Data::Private(data) }
    }

    /// What a model gave, each where it lies.
    pub(super) fn shared(outputs: &InferOutputs) -> Vec<Self> {
        let tensors = outputs.tensors().iter().enumerate();
        let of = |(at, tensor): (usize, &Tensor)| {
            let data = Data::Shared(outputs.clone(), at);
            Self { tensor: tensor.clone(), data }
        };
        tensors.map(of).collect()
    }

    /// Hands the data to `take`, piece by piece; no element is torn apart.
    pub(super) fn chunks<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match &self.data {
            Data::Private(data) => take(data),
            Data::Shared(outputs, tensor) => {
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

/// Reads the data of a tensor: either flat, or nested as its shape says.
pub(super) fn parse(json: &str, tensor: &Tensor) -> Result<Vec<u8>, serde_json::Error> {
    // No element takes less than two characters, so no small text makes room for a large tensor.
    let room = tensor.bytes().min(json.len() / 2 * tensor.datatype().bytes());
    let mut sink = Sink { tensor, bytes: Vec::with_capacity(room), leaves_at: None };
    let mut json = serde_json::Deserializer::from_str(json);
    Level { sink: &mut sink, depth: 0 }.deserialize(&mut json)?;
    json.end()?;
    if sink.bytes.len() == tensor.bytes() {
        return Ok(sink.bytes);
    }
    let got = sink.bytes.len() / tensor.datatype().bytes();
    Err(Error::custom(format!("it has {got} elements, its shape says {}", tensor.elements())))
}

/// Whether the numbers of that type have a form in JSON: there Triton refuses those of 16 bits, and so do
/// we.
pub(super) fn goes_as_json(datatype: DataType) -> bool {
    match datatype {
        DataType::Fp16 | DataType::Bf16 => false,
        DataType::Bool
        | DataType::Uint8
        | DataType::Uint16
        | DataType::Uint32
        | DataType::Uint64
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Fp32
        | DataType::Fp64 => true,
    }
}

struct Sink<'a> {
    tensor: &'a Tensor,
    bytes: Vec<u8>,
    /// How deep the numbers are.
    leaves_at: Option<usize>,
}

/// What stands at one depth: a list, or below the first a number.
struct Level<'a, 'b> {
    sink: &'a mut Sink<'b>,
    depth: usize,
}

impl Sink<'_> {
    fn take<E: Error>(&mut self, depth: usize, number: &Number) -> Result<(), E> {
        let rank = self.tensor.shape().len().max(1);
        if depth != 1 && depth != rank || *self.leaves_at.get_or_insert(depth) != depth {
            return Err(E::custom(format!(
                "numbers must stand in one flat list, or in lists nested {rank} deep"
            )));
        }
        if self.bytes.len() == self.tensor.bytes() {
            let elements = self.tensor.elements();
            return Err(E::custom(format!("it has more than {elements} elements")));
        }
        let datatype = self.tensor.datatype();
        if number.put(datatype, &mut self.bytes).is_some() {
            return Ok(());
        }
        if !goes_as_json(datatype) {
            return Err(E::custom(format!("{datatype} goes as binary data only, not as JSON")));
        }
        let at = self.bytes.len() / datatype.bytes();
        Err(E::custom(format!("element {at} is {number}, which is no {datatype}")))
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers, flat or nested as the shape says")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.sink.take(self.depth, &Number::Flag(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.sink.take(self.depth, &Number::Unsigned(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.sink.take(self.depth, &Number::Signed(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.sink.take(self.depth, &Number::Float(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Level { sink, depth } = self;
        let shape = sink.tensor.shape();
        if depth >= shape.len().max(1) {
            let rank = shape.len();
            return Err(A::Error::custom(format!(
                "it is nested deeper than its {rank} dimensions"
            )));
        }
        let mut length = 0;
        while list.next_element_seed(Level { sink: &mut *sink, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        // A flat list has any rank; its length is counted at the end.
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

/// A number as JSON has it.
enum Number {
    Flag(bool),
    Float(f64),
    Signed(i64),
    Unsigned(u64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(value) => value.fmt(f),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Signed(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
        }
    }
}

impl Number {
    /// Appends the number as an element of that type; `None` if it is none.
    fn put(&self, datatype: DataType, bytes: &mut Vec<u8>) -> Option<()> {
        match datatype {
            DataType::Bool => match self {
                Self::Flag(value) => bytes.push(u8::from(*value)),
                Self::Float(_) | Self::Signed(_) | Self::Unsigned(_) => return None,
            },
            DataType::Uint8 => bytes.push(u8::try_from(self.unsigned()?).ok()?),
            DataType::Uint16 => {
                bytes.extend(u16::try_from(self.unsigned()?).ok()?.to_le_bytes());
            }
            DataType::Uint32 => {
                bytes.extend(u32::try_from(self.unsigned()?).ok()?.to_le_bytes());
            }
            DataType::Uint64 => bytes.extend(self.unsigned()?.to_le_bytes()),
            DataType::Int8 => bytes.extend(i8::try_from(self.signed()?).ok()?.to_le_bytes()),
            DataType::Int16 => bytes.extend(i16::try_from(self.signed()?).ok()?.to_le_bytes()),
            DataType::Int32 => bytes.extend(i32::try_from(self.signed()?).ok()?.to_le_bytes()),
            DataType::Int64 => bytes.extend(self.signed()?.to_le_bytes()),
            DataType::Fp32 => bytes.extend(self.single()?.to_le_bytes()),
            DataType::Fp64 => bytes.extend(self.double()?.to_le_bytes()),
            DataType::Fp16 | DataType::Bf16 => return None,
        }
        Some(())
    }

    fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Unsigned(value) => Some(*value),
            Self::Signed(value) => u64::try_from(*value).ok(),
            Self::Flag(_) | Self::Float(_) => None,
        }
    }

    fn signed(&self) -> Option<i64> {
        match self {
            Self::Unsigned(value) => i64::try_from(*value).ok(),
            Self::Signed(value) => Some(*value),
            Self::Flag(_) | Self::Float(_) => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the nearest number of the type asked for")]
    fn double(&self) -> Option<f64> {
        match self {
            Self::Unsigned(value) => Some(*value as f64),
            Self::Signed(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Flag(_) => None,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the nearest number of the type asked for")]
    fn single(&self) -> Option<f32> {
        let single = self.double()? as f32;
        single.is_finite().then_some(single)
    }
}

/// The data of a tensor as JSON: one flat list.
pub(super) struct Flat<'a>(pub(super) &'a Output);

impl Serialize for Flat<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Output { tensor, .. } = self.0;
        let mut list = to.serialize_seq(Some(tensor.elements()))?;
        self.0.chunks(|chunk| put(tensor, chunk, &mut list))?;
        list.end()
    }
}

/// Appends the elements that these bytes are.
fn put<L: SerializeSeq>(tensor: &Tensor, chunk: &[u8], list: &mut L) -> Result<(), L::Error> {
    macro_rules! numbers {
        ($type:ty) => {
            for bytes in chunk.as_chunks().0 {
                list.serialize_element(&<$type>::from_le_bytes(*bytes))?;
            }
        };
    }
    macro_rules! floats {
        ($type:ty) => {
            for bytes in chunk.as_chunks().0 {
                let number = <$type>::from_le_bytes(*bytes);
                if !number.is_finite() {
                    return Err(no_json(tensor, number));
                }
                list.serialize_element(&number)?;
            }
        };
    }
    match tensor.datatype() {
        DataType::Bool => {
            for byte in chunk {
                list.serialize_element(&(*byte != 0))?;
            }
        }
        DataType::Uint8 => numbers!(u8),
        DataType::Uint16 => numbers!(u16),
        DataType::Uint32 => numbers!(u32),
        DataType::Uint64 => numbers!(u64),
        DataType::Int8 => numbers!(i8),
        DataType::Int16 => numbers!(i16),
        DataType::Int32 => numbers!(i32),
        DataType::Int64 => numbers!(i64),
        DataType::Fp32 => floats!(f32),
        DataType::Fp64 => floats!(f64),
        DataType::Fp16 | DataType::Bf16 => return Err(no_json(tensor, "numbers of 16 bits")),
    }
    Ok(())
}

/// Why a tensor cannot be said in JSON: null in place of a number would be another answer.
fn no_json<E: serde::ser::Error>(tensor: &Tensor, what: impl fmt::Display) -> E {
    let (name, datatype) = (tensor.name(), tensor.datatype());
    E::custom(format!(
        "output `{name}` ({datatype}) has {what} in it, for which JSON has no number: ask for it with \
         binary_data"
    ))
}

#[cfg(test)]
mod tests;
