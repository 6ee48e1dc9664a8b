//! How a set of named tensors lies in one buffer: a header with names, types and shapes, then the
//! data of each, in the same order, every one at a multiple of [`DATA_ALIGNMENT`] bytes.
//!
//! No offset travels: they follow from the shapes, so none can be wrong. The header is copied before it
//! is believed, because whoever shares the memory may change it; data is left where it is.
//!
//! All numbers are little-endian: `GPT1`, the number of tensors (u32), bytes of the header (u32), four
//! bytes of 0; then for each tensor the number of its type (u8), how many dimensions (u8), bytes of its
//! name (u16), the name, and each dimension (u64).

use std::collections::BTreeSet;
use std::ops::Range;

use super::spec::check_name;
use super::{DataType, Tensor, TensorError};
use crate::limits::{TENSOR_BYTES_MAX, TENSOR_RANK_MAX, TENSORS_HEADER_BYTES_MAX, TENSORS_MAX};
use crate::shared::SharedSlice;

/// The data of every tensor begins at a multiple of it, counted from the start of the buffer.
pub const DATA_ALIGNMENT: usize = 64;

const MAGIC: [u8; 4] = *b"GPT1";
/// Magic, count, bytes of the header, reserved.
pub(crate) const HEAD_BYTES: usize = 16;
/// Type, rank, bytes of the name.
const TENSOR_HEAD_BYTES: usize = 4;
const SIDE_BYTES: usize = 8;

/// Which tensors a set has and where the data of each lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    tensors: Vec<Tensor>,
    /// Where the data of each starts.
    starts: Vec<usize>,
    header_bytes: usize,
    bytes: usize,
}

impl TensorLayout {
    /// The layout of these tensors, in this order. A set may be empty.
    ///
    /// # Errors
    /// [`TensorError`] if there are too many, a name appears twice, or they are too large together.
    pub fn new(tensors: Vec<Tensor>) -> Result<Self, TensorError> {
        if tensors.len() > TENSORS_MAX {
            return Err(TensorError::TooMany { count: tensors.len() });
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = tensors.iter().find(|tensor| !names.insert(tensor.name())) {
            return Err(TensorError::Duplicate { name: twice.name().to_owned() });
        }
        let header_bytes = HEAD_BYTES + tensors.iter().map(header_bytes).sum::<usize>();
        let mut starts = Vec::with_capacity(tensors.len());
        let mut end = header_bytes;
        for tensor in &tensors {
            let start = end.next_multiple_of(DATA_ALIGNMENT);
            // Neither is more than TENSOR_BYTES_MAX and a header, so the sum does not wrap.
            end = start + tensor.bytes();
            if end as u64 > TENSOR_BYTES_MAX {
                let (name, bytes) = (tensor.name().to_owned(), tensor.bytes() as u64);
                return Err(TensorError::Bytes { name, bytes });
            }
            starts.push(start);
        }
        Ok(Self { tensors, starts, header_bytes, bytes: end })
    }

    /// What lies in `memory`, which somebody else wrote. It may be longer than the set.
    ///
    /// # Errors
    /// [`TensorError`] if it is no set of tensors, or is cut off.
    pub fn read(memory: &SharedSlice<'_>) -> Result<Self, TensorError> {
        let room = memory.bytes();
        let too_short = |want| TensorError::Memory { got: room, want };
        let mut head = [0; HEAD_BYTES];
        if room < HEAD_BYTES {
            return Err(too_short(HEAD_BYTES));
        }
        memory.read(0, &mut head);
        let header_bytes = Reader::new(&head).head()?.1;
        if header_bytes > room {
            return Err(too_short(header_bytes));
        }
        let mut header = vec![0; header_bytes];
        memory.read(0, &mut header);
        let layout = Self::decode(&header)?;
        if layout.bytes > room {
            return Err(too_short(layout.bytes));
        }
        Ok(layout)
    }

    /// What a header says.
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

    /// How many bytes the set takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the data of a tensor lies.
    ///
    /// # Panics
    /// If there is no such tensor.
    #[must_use]
    pub fn range(&self, tensor: usize) -> Range<usize> {
        let start = self.starts[tensor];
        start..start + self.tensors[tensor].bytes()
    }

    /// Which tensor has that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.tensors.iter().position(|tensor| tensor.name() == name)
    }

    /// The header, as it stands before the data.
    #[must_use]
    pub fn header(&self) -> Vec<u8> {
        let number = |n: usize| u32::try_from(n).expect("limits are below 2^32").to_le_bytes();
        let mut header = Vec::with_capacity(self.header_bytes);
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
            header.extend(tensor.shape().iter().flat_map(|side| side.to_le_bytes()));
        }
        header
    }

    /// Writes the header to `memory`, and 0 between it and the first data.
    ///
    /// # Errors
    /// [`TensorError::Memory`] if the set has no room there.
    pub fn write_header(&self, memory: &SharedSlice<'_>) -> Result<(), TensorError> {
        if memory.bytes() < self.bytes {
            return Err(TensorError::Memory { got: memory.bytes(), want: self.bytes });
        }
        memory.write(0, &self.header());
        let first = self.starts.first().copied().unwrap_or(self.header_bytes).min(self.bytes);
        memory.write(self.header_bytes, &vec![0; first.saturating_sub(self.header_bytes)]);
        Ok(())
    }

    /// Whether data of these lengths is that of the set.
    pub(crate) fn check(
        &self,
        lengths: impl ExactSizeIterator<Item = usize>,
    ) -> Result<(), TensorError> {
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

    /// The whole set in memory of its own. `data` has that of every tensor, in order.
    ///
    /// # Errors
    /// [`TensorError`] if there is more or less data than the layout says.
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

/// A set of tensors in private memory, read where it lies.
#[derive(Clone, Debug)]
pub struct Packed<'a> {
    layout: TensorLayout,
    bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    /// The set that `bytes` begin with.
    ///
    /// # Errors
    /// [`TensorError`] if it is no set of tensors, or is cut off.
    pub fn read(bytes: &'a [u8]) -> Result<Self, TensorError> {
        let room = bytes.len();
        let want = match bytes.get(..HEAD_BYTES) {
            Some(head) => Reader::new(head).head()?.1,
            None => HEAD_BYTES,
        };
        let header = bytes.get(..want).ok_or(TensorError::Memory { got: room, want })?;
        let layout = TensorLayout::decode(header)?;
        if layout.bytes > room {
            return Err(TensorError::Memory { got: room, want: layout.bytes });
        }
        Ok(Self { layout, bytes })
    }

    /// Which tensors there are.
    #[must_use]
    pub fn layout(&self) -> &TensorLayout {
        &self.layout
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
    TENSOR_HEAD_BYTES + tensor.name().len() + SIDE_BYTES * tensor.shape().len()
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

    /// How many tensors there are and how long the header says it is: neither is beyond its limit.
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
        let name = name.map_err(|_| TensorError::Name { tensor, reason: "is no UTF-8" })?;
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
        Tensor::new(name, datatype, sides.iter().map(|&side| u64::from_le_bytes(side)).collect())
    }
}

#[cfg(test)]
mod tests;
