//! A set of named tensors in one buffer: a header with names, types and shapes, then the data of each tensor in
//! that order, at multiples of [`DATA_ALIGNMENT`] bytes.
//!
//! Offsets follow from the shapes and are not sent, so none can be wrong. The reader copies the header before it
//! checks it, since another process may change shared memory. It leaves the data in place.
//!
//! The header is little-endian: `GPT1`, the number of tensors (u32), bytes of the header (u32), four bytes of 0.
//! Then for each tensor: the number of its type (u8), the number of dimensions (u8), bytes of its name (u16), the
//! name, and each dimension (u64). A BYTES tensor then has the bytes of its data (u64).

use std::collections::BTreeSet;
use std::ops::Range;

use super::spec::check_name;
use super::{DataType, Tensor, TensorError};
use crate::limits::{TENSOR_BYTES_MAX, TENSOR_RANK_MAX, TENSORS_HEADER_BYTES_MAX, TENSORS_MAX};
use crate::shared::SharedSlice;

/// The data of every tensor starts at a multiple of this, from the start of the buffer, bytes.
pub const DATA_ALIGNMENT: usize = 64;

const MAGIC: [u8; 4] = *b"GPT1";
/// Magic, count, bytes of the header, reserved.
const HEAD_BYTES: usize = 16;
/// Type, rank, bytes of the name.
const TENSOR_HEAD_BYTES: usize = 4;
/// Of a dimension, and of the size of a BYTES tensor.
const SIDE_BYTES: usize = 8;

/// The tensors of a set, and the place of each one's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    tensors: Vec<Tensor>,
    /// The start of each tensor's data.
    starts: Vec<usize>,
    header_bytes: usize,
    bytes: usize,
}

impl TensorLayout {
    /// The layout of these tensors, in this order. A set may be empty.
    ///
    /// # Errors
    /// [`TensorError`] if there are too many tensors, a name appears twice, or the set is too large.
    pub fn new(tensors: Vec<Tensor>) -> Result<Self, TensorError> {
        if tensors.len() > TENSORS_MAX {
            return Err(TensorError::TooMany { count: tensors.len() });
        }
        let mut names = BTreeSet::new();
        let mut is_taken = |name| tensors.len() > 1 && !names.insert(name);
        if let Some(twice) = tensors.iter().find(|tensor| is_taken(tensor.name())) {
            return Err(TensorError::Duplicate { name: twice.name().to_owned() });
        }
        let header_bytes = HEAD_BYTES + tensors.iter().map(header_bytes).sum::<usize>();
        let mut starts = Vec::with_capacity(tensors.len());
        let mut end = header_bytes;
        for tensor in &tensors {
            let start = end.next_multiple_of(DATA_ALIGNMENT);
            // Both are at most TENSOR_BYTES_MAX and a header, so the sum does not wrap.
            end = start + tensor.bytes();
            if end as u64 > TENSOR_BYTES_MAX {
                let (name, bytes) = (tensor.name().to_owned(), tensor.bytes() as u64);
                return Err(TensorError::Bytes { name, bytes });
            }
            starts.push(start);
        }
        Ok(Self { tensors, starts, header_bytes, bytes: end })
    }

    /// Reads the layout of a set in untrusted memory. The memory may be longer than the set.
    ///
    /// # Errors
    /// [`TensorError`] if the memory does not have a whole set of tensors.
    pub fn read(memory: &SharedSlice<'_>) -> Result<Self, TensorError> {
        let available = memory.bytes();
        let too_short = |want| TensorError::Memory { got: available, want };
        let mut head = [0; HEAD_BYTES];
        if available < HEAD_BYTES {
            return Err(too_short(HEAD_BYTES));
        }
        memory.read(0, &mut head);
        let header_bytes = Reader::new(&head).head()?.1;
        if header_bytes > available {
            return Err(too_short(header_bytes));
        }
        let mut header = vec![0; header_bytes];
        memory.read(0, &mut header);
        let layout = Self::decode(&header)?;
        if layout.bytes > available {
            return Err(too_short(layout.bytes));
        }
        Ok(layout)
    }

    /// Reads a header.
    fn decode(header: &[u8]) -> Result<Self, TensorError> {
        let mut reader = Reader::new(header);
        let (count, said) = reader.head()?;
        let mut tensors = Vec::with_capacity(count);
        for tensor in 0..count {
            tensors.push(reader.tensor(tensor)?);
        }
        if said != reader.at || header.len() != said {
            return Err(TensorError::Header { said, got: reader.at });
        }
        Self::new(tensors)
    }

    /// The tensors, in order.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The size of the set, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The place of a tensor's data.
    ///
    /// # Panics
    /// If there is no such tensor.
    #[must_use]
    pub fn range(&self, tensor: usize) -> Range<usize> {
        let start = self.starts[tensor];
        start..start + self.tensors[tensor].bytes()
    }

    /// The index of the tensor of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.tensors.iter().position(|tensor| tensor.name() == name)
    }

    /// The header as bytes.
    #[must_use]
    pub fn header(&self) -> Vec<u8> {
        let number = |n: usize| u32::try_from(n).expect("limits are below 2^32").to_le_bytes();
        // With room for the zeros up to the first data.
        let mut header = Vec::with_capacity(self.header_bytes.next_multiple_of(DATA_ALIGNMENT));
        header.extend(MAGIC);
        header.extend(number(self.tensors.len()));
        header.extend(number(self.header_bytes));
        header.extend([0; 4]);
        for tensor in &self.tensors {
            let rank = u8::try_from(tensor.shape().len()).expect("TENSOR_RANK_MAX fits u8");
            let name = tensor.name();
            let length = u16::try_from(name.len()).expect("TENSOR_NAME_BYTES_MAX fits u16");
            header.extend([tensor.datatype().number(), rank]);
            header.extend(length.to_le_bytes());
            header.extend(name.as_bytes());
            tensor.shape().iter().for_each(|side| header.extend(side.to_le_bytes()));
            if tensor.datatype() == DataType::Bytes {
                header.extend((tensor.bytes() as u64).to_le_bytes());
            }
        }
        header
    }

    /// Writes the header to `memory`, and zeros up to the first data.
    ///
    /// # Errors
    /// [`TensorError::Memory`] if the memory is too short for the set.
    pub fn write_header(&self, memory: &SharedSlice<'_>) -> Result<(), TensorError> {
        if memory.bytes() < self.bytes {
            return Err(TensorError::Memory { got: memory.bytes(), want: self.bytes });
        }
        let mut header = self.header();
        let first = self.starts.first().copied().unwrap_or(self.header_bytes).min(self.bytes);
        header.resize(first.max(self.header_bytes), 0);
        memory.write(0, &header);
        Ok(())
    }

    /// Erases the header of a set at the start of `memory`.
    ///
    /// # Panics
    /// If the memory is too short for any set.
    pub fn erase(memory: &SharedSlice<'_>) {
        memory.write(0, &[0; HEAD_BYTES]);
    }

    /// Checks the lengths of the tensors' data.
    ///
    /// # Errors
    /// [`TensorError::Parts`] or [`TensorError::Data`] if they differ from the layout's.
    pub fn check(&self, lengths: impl ExactSizeIterator<Item = usize>) -> Result<(), TensorError> {
        if lengths.len() != self.tensors.len() {
            return Err(TensorError::Parts { got: lengths.len(), want: self.tensors.len() });
        }
        for (tensor, got) in self.tensors.iter().zip(lengths) {
            if got != tensor.bytes() {
                let (name, want) = (tensor.name().to_owned(), tensor.bytes());
                return Err(TensorError::Data { name, got, want });
            }
        }
        Ok(())
    }

    /// Packs the whole set. `data` has the bytes of every tensor, in order.
    ///
    /// # Errors
    /// [`TensorError`] if the lengths differ from the layout's.
    pub fn pack(&self, data: &[&[u8]]) -> Result<Vec<u8>, TensorError> {
        self.check(data.iter().map(|data| data.len()))?;
        let mut bytes = vec![0; self.bytes];
        bytes[..self.header_bytes].copy_from_slice(&self.header());
        for (at, data) in data.iter().enumerate() {
            bytes[self.range(at)].copy_from_slice(data);
        }
        Ok(bytes)
    }
}

/// A packed set of tensors in private memory.
#[derive(Clone, Debug)]
pub struct Packed<'a> {
    layout: TensorLayout,
    bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Reads the set at the start of `bytes`.
    ///
    /// # Errors
    /// [`TensorError`] if there is no whole set.
    pub fn read(bytes: &'a [u8]) -> Result<Self, TensorError> {
        let available = bytes.len();
        let want = match bytes.get(..HEAD_BYTES) {
            Some(head) => Reader::new(head).head()?.1,
            None => HEAD_BYTES,
        };
        let header = bytes.get(..want).ok_or(TensorError::Memory { got: available, want })?;
        let layout = TensorLayout::decode(header)?;
        if layout.bytes > available {
            return Err(TensorError::Memory { got: available, want: layout.bytes });
        }
        Ok(Self { layout, bytes })
    }

    /// The layout of the set.
    #[must_use]
    pub fn layout(&self) -> &TensorLayout {
        &self.layout
    }

    /// The same, to keep.
    #[must_use]
    pub fn into_layout(self) -> TensorLayout {
        self.layout
    }

    /// The data of a tensor.
    ///
    /// # Panics
    /// If there is no such tensor.
    #[must_use]
    pub fn data(&self, tensor: usize) -> &'a [u8] {
        &self.bytes[self.layout.range(tensor)]
    }

    /// The tensor of that name, with its data.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(&Tensor, &'a [u8])> {
        let at = self.layout.find(name)?;
        Some((&self.layout.tensors[at], self.data(at)))
    }
}

fn header_bytes(tensor: &Tensor) -> usize {
    let sides = tensor.shape().len() + usize::from(tensor.datatype() == DataType::Bytes);
    TENSOR_HEAD_BYTES + tensor.name().len() + SIDE_BYTES * sides
}

/// Reads a header from its start.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], TensorError> {
        let end = self.at + count;
        let taken = self.bytes.get(self.at..end);
        self.at = end;
        taken.ok_or(TensorError::Header { said: self.bytes.len(), got: end })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TensorError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many as were taken"))
    }

    /// Reads the number of tensors and the length of the header, and checks both against their limits.
    fn head(&mut self) -> Result<(usize, usize), TensorError> {
        if self.array()? != MAGIC {
            return Err(TensorError::Magic);
        }
        let count = u32::from_le_bytes(self.array()?) as usize;
        let header_bytes = u32::from_le_bytes(self.array()?);
        if count > TENSORS_MAX {
            return Err(TensorError::TooMany { count });
        }
        if header_bytes as usize > TENSORS_HEADER_BYTES_MAX {
            return Err(TensorError::HeaderBytes { got: header_bytes });
        }
        if self.array()? != [0; 4] {
            return Err(TensorError::Magic);
        }
        let said = header_bytes as usize;
        if said < HEAD_BYTES {
            return Err(TensorError::Header { said, got: HEAD_BYTES });
        }
        Ok((count, said))
    }

    fn tensor(&mut self, tensor: usize) -> Result<Tensor, TensorError> {
        let [datatype, rank] = self.array()?;
        let length = u16::from_le_bytes(self.array()?);
        let name = std::str::from_utf8(self.take(length.into())?);
        let name = name.map_err(|_| TensorError::Name { tensor, reason: "is not valid UTF-8" })?;
        check_name(tensor, name)?;
        let name = name.to_owned();
        let rank = usize::from(rank);
        if rank > TENSOR_RANK_MAX {
            return Err(TensorError::Rank { name, rank });
        }
        let Some(datatype) = DataType::from_number(datatype) else {
            return Err(TensorError::DataType { name, number: datatype });
        };
        let sides = self.take(SIDE_BYTES * rank)?.as_chunks().0;
        let shape = sides.iter().map(|&side| u64::from_le_bytes(side)).collect();
        let tensor = Tensor::new(name, datatype, shape)?;
        if datatype != DataType::Bytes {
            return Ok(tensor);
        }
        let size = u64::from_le_bytes(self.array()?);
        tensor.with_size(usize::try_from(size).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests;
