//! The bytes of an Arrow table's columns: messages, record batches, lists and integers.
//!
//! The readers of the crate `arrow-ipc` panic at some broken files, so only its verified metadata is used here. Every
//! length is checked before it is believed. May not know grids.

use std::ops::Range;

use arrow_ipc::{Endianness, Field, Message, RecordBatch, Schema, Type, root_as_message};

use super::super::npy::integer;
use super::{Cause, Diagnostic};

/// The first bytes of a file, and the last; between them are a stream and a footer.
const FILE_MAGIC: &[u8] = b"ARROW1";
/// Stands before each message.
const CONTINUATION: &[u8] = b"\xff\xff\xff\xff";

pub(in crate::cli::input) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(FILE_MAGIC) || bytes.starts_with(CONTINUATION)
}

pub(super) fn broken(reason: &str) -> Box<Diagnostic> {
    Cause::NotArrow { reason: reason.to_owned() }.into()
}

/// The fields in a field.
pub(super) fn children<'a>(field: Field<'a>) -> impl Iterator<Item = Field<'a>> {
    field.children().into_iter().flatten()
}

/// A schema, and the record batches of a stream.
pub(super) struct Table<'a> {
    schema: Schema<'a>,
    batches: Vec<(Message<'a>, &'a [u8])>,
}

impl<'a> Table<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Box<Diagnostic>> {
        // Writers pad the magic to 8 bytes or to 64.
        let padded = bytes.strip_prefix(FILE_MAGIC).map(|rest| rest.iter().position(|&b| b != 0));
        // Cut between two record batches it would be a shorter table.
        if padded.is_some() && !bytes.ends_with(FILE_MAGIC) {
            return Err(broken("it ends too early"));
        }
        let mut rest = match padded {
            Some(padding) => &bytes[FILE_MAGIC.len() + padding.unwrap_or(0)..],
            None => bytes,
        };
        let (first, _) = message(&mut rest)?.ok_or_else(|| broken("it has no schema"))?;
        let schema = first.header_as_schema().ok_or_else(|| broken("it has no schema"))?;
        if schema.endianness() != Endianness::Little {
            return Err(broken("it is big-endian"));
        }
        let mut batches = Vec::new();
        while let Some(next) = message(&mut rest)? {
            batches.push(next);
        }
        Ok(Self { schema, batches })
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = Field<'a>> {
        self.schema.fields().into_iter().flatten()
    }

    /// The columns of each record batch. Dictionaries are passed over.
    pub(super) fn batches(&self) -> impl Iterator<Item = Result<Columns<'a>, Box<Diagnostic>>> {
        let batches = self.batches.iter().filter_map(|&(message, body)| {
            message.header_as_record_batch().map(|batch| (batch, body))
        });
        batches.map(|(batch, body)| match batch.compression() {
            Some(_) => Err(broken("it is compressed")),
            None => Ok(Columns { batch, body, node: 0, buffer: 0, view: 0 }),
        })
    }
}

/// The next message and its body; `None` at the end of the stream.
fn message<'a>(rest: &mut &'a [u8]) -> Result<Option<(Message<'a>, &'a [u8])>, Box<Diagnostic>> {
    let early = || broken("it ends too early");
    if rest.is_empty() {
        return Ok(None);
    }
    let after =
        rest.strip_prefix(CONTINUATION).ok_or_else(|| broken("it has no Arrow messages"))?;
    let (length, after) = after.split_first_chunk::<4>().ok_or_else(early)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 {
        return Ok(None);
    }
    let (metadata, after) = after.split_at_checked(length).ok_or_else(early)?;
    let message = root_as_message(metadata).map_err(|error| broken(&error.to_string()))?;
    let bytes = usize::try_from(message.bodyLength()).map_err(|_| early())?;
    let (body, after) = after.split_at_checked(bytes).ok_or_else(early)?;
    *rest = after;
    Ok(Some((message, body)))
}

/// A walk over the columns of a record batch, in the order of the schema.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    batch: RecordBatch<'a>,
    body: &'a [u8],
    node: usize,
    buffer: usize,
    view: usize,
}

impl<'a> Columns<'a> {
    /// The number of elements of the next column.
    fn node(&mut self) -> Result<usize, Box<Diagnostic>> {
        let nodes = self.batch.nodes().filter(|nodes| self.node < nodes.len());
        let node = nodes.ok_or_else(|| broken("a column is missing"))?.get(self.node);
        self.node += 1;
        let length = usize::try_from(node.length()).ok();
        // Each element that is read has at least one byte somewhere.
        length
            .filter(|&length| length <= self.body.len())
            .ok_or_else(|| broken("a column is longer than the file"))
    }

    fn buffer(&mut self) -> Result<&'a [u8], Box<Diagnostic>> {
        let buffers = self.batch.buffers().filter(|buffers| self.buffer < buffers.len());
        let buffer = buffers.ok_or_else(|| broken("a column has too few parts"))?.get(self.buffer);
        self.buffer += 1;
        let (start, length) = (usize::try_from(buffer.offset()), usize::try_from(buffer.length()));
        let range = start
            .ok()
            .zip(length.ok())
            .and_then(|(start, length)| self.body.get(start..start.checked_add(length)?));
        range.ok_or_else(|| broken("a part of a column lies outside of the file"))
    }

    /// Passes over a column of any type.
    pub(super) fn skip(&mut self, field: Field<'_>) -> Result<(), Box<Diagnostic>> {
        let kind = field.type_type();
        let buffers = match kind {
            _ if field.dictionary().is_some() => 2,
            Type::Null | Type::RunEndEncoded => 0,
            Type::Int
            | Type::FloatingPoint
            | Type::Bool
            | Type::Decimal
            | Type::Date
            | Type::Time
            | Type::Timestamp
            | Type::Interval
            | Type::Duration
            | Type::FixedSizeBinary
            | Type::List
            | Type::LargeList
            | Type::Map => 2,
            Type::Utf8 | Type::LargeUtf8 | Type::Binary | Type::LargeBinary => 3,
            Type::Struct_ | Type::FixedSizeList => 1,
            Type::Utf8View | Type::BinaryView => {
                let counts = self.batch.variadicBufferCounts();
                let counts = counts.filter(|counts| self.view < counts.len());
                let count = counts.and_then(|counts| usize::try_from(counts.get(self.view)).ok());
                self.view += 1;
                2_usize.saturating_add(count.ok_or_else(|| broken("a column has too few parts"))?)
            }
            _ => return Err(broken(&format!("{kind:?} is a type that it cannot pass over"))),
        };
        self.node += 1;
        self.buffer = self.buffer.saturating_add(buffers);
        if field.dictionary().is_some() {
            return Ok(());
        }
        children(field).try_for_each(|child| self.skip(child))
    }

    /// The next column, which is of lists.
    pub(super) fn lists(&mut self, field: Field<'_>) -> Result<Lists, Box<Diagnostic>> {
        let length = self.node()?;
        let valid = Valid::new(self.buffer()?, length)?;
        let width = match field.type_type() {
            Type::LargeList => 8,
            _ => 4,
        };
        if let Some(list) = field.type_as_fixed_size_list() {
            let size = usize::try_from(list.listSize());
            let size = size.map_err(|_| broken("a list has a negative length"))?;
            let starts = (0..=length).map(|at| at.checked_mul(size)).collect::<Option<Vec<_>>>();
            let starts = starts.ok_or_else(|| broken("a column is longer than the file"))?;
            return Ok(Lists { starts, valid: valid.bits() });
        }
        let offsets = self.buffer()?;
        if length == 0 {
            return Ok(Lists { starts: vec![0], valid: Vec::new() });
        }
        let offsets =
            offsets.get(..(length + 1) * width).ok_or_else(|| broken("a list has no end"))?;
        let starts = offsets.chunks_exact(width).map(|bytes| usize::try_from(integer(bytes, true)));
        let starts: Vec<usize> = starts
            .collect::<Result<_, _>>()
            .map_err(|_| broken("a list begins before its column"))?;
        if !starts.is_sorted() {
            return Err(broken("a list ends before it begins"));
        }
        Ok(Lists { starts, valid: valid.bits() })
    }

    /// The next column, which is of integers.
    pub(super) fn integers(&mut self, field: Field<'_>) -> Result<Cells<'a>, Box<Diagnostic>> {
        let length = self.node()?;
        let valid = Valid::new(self.buffer()?, length)?;
        let kind = field.type_as_int().ok_or_else(|| broken("a column is not of its type"))?;
        let width = match kind.bitWidth() {
            8 => 1,
            16 => 2,
            32 => 4,
            64 => 8,
            _ => return Err(broken("a column is not of its type")),
        };
        let data = self.buffer()?.get(..length * width);
        let data = data.ok_or_else(|| broken("a column has too few cells"))?;
        Ok(Cells { data, width, is_signed: kind.is_signed(), valid })
    }
}

/// Which elements of a column are there.
struct Valid<'a> {
    bits: &'a [u8],
    length: usize,
}

impl<'a> Valid<'a> {
    /// Without bits, all are there.
    fn new(bits: &'a [u8], length: usize) -> Result<Self, Box<Diagnostic>> {
        match bits.is_empty() || bits.len() >= length.div_ceil(8) {
            true => Ok(Self { bits, length }),
            false => Err(broken("a column has too few parts")),
        }
    }

    fn has(&self, at: usize) -> bool {
        self.bits.get(at / 8).is_none_or(|byte| byte >> (at % 8) & 1 == 1)
    }

    fn bits(&self) -> Vec<bool> {
        (0..self.length).map(|at| self.has(at)).collect()
    }
}

/// Where each list begins and ends in the elements of all.
pub(super) struct Lists {
    starts: Vec<usize>,
    valid: Vec<bool>,
}

impl Lists {
    pub(super) fn len(&self) -> usize {
        self.valid.len()
    }

    /// The end of the last.
    pub(super) fn end(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The elements of a list; `None` is a null.
    pub(super) fn get(&self, at: usize) -> Option<Range<usize>> {
        self.valid[at].then(|| self.starts[at]..self.starts[at + 1])
    }
}

/// Integers of any width.
pub(super) struct Cells<'a> {
    data: &'a [u8],
    width: usize,
    is_signed: bool,
    valid: Valid<'a>,
}

impl Cells<'_> {
    pub(super) fn len(&self) -> usize {
        self.valid.length
    }

    /// `None` is a null.
    pub(super) fn get(&self, at: usize) -> Option<i128> {
        let bytes = &self.data[at * self.width..][..self.width];
        self.valid.has(at).then(|| integer(bytes, self.is_signed))
    }
}
