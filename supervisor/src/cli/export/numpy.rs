//! Results as an `.npy`, or as the arrays of an `.npz`. May not open files.
//!
//! An `.npz` has for grids `cells` (uint8) and `sizes` (int32), as [`npz`] reads them, else `values`. If items have
//! no result, `error_items` and `error_texts` tell which and why; their values are blank. A tuple is one more axis
//! after the items.

use std::borrow::Cow;
use std::io::{self, Seek, Write};
use std::mem;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::columns::{Columns, Values};
use crate::cli::input::npz::{self, SUFFIX};
use crate::cli::npy::head;

const VALUES: &str = "values";
const ERROR_ITEMS: &str = "error_items";
const ERROR_TEXTS: &str = "error_texts";

/// One array.
#[derive(Debug)]
pub(super) struct Array<'a> {
    descr: String,
    shape: Vec<u64>,
    data: Cow<'a, [u8]>,
}

impl<'a> Array<'a> {
    /// The values of all items. The error says why they make no array.
    pub(super) fn of(columns: &'a Columns) -> Result<Self, String> {
        if let Some((item, error)) = columns.errors.first() {
            return Err(format!("item {item} has no value for an array ({error})"));
        }
        let Values::Grids { cells, sizes } = &columns.values else {
            return Ok(Self::plain(columns));
        };
        let first = sizes.first().copied().unwrap_or_default();
        let width = columns.width.unwrap_or(1);
        if let Some(at) = sizes.iter().position(|size| *size != first) {
            let ([h, w], [first_h, first_w]) = (sizes[at], first);
            return Err(format!(
                "item {} is {h} x {w}, item 0 is {first_h} x {first_w}, and an array has grids of one shape",
                at / width
            ));
        }
        Ok(Self::new("|u1", columns, &first.map(|side| side as u64), Cow::Borrowed(cells)))
    }

    /// Values that all have one shape.
    fn plain(columns: &Columns) -> Self {
        let halves =
            |numbers: &[i32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        match &columns.values {
            Values::Flags(flags) => {
                Self::new("|b1", columns, &[], flags.iter().map(|&flag| u8::from(flag)).collect())
            }
            Values::Grids { sizes, .. } => {
                let sides = sizes.as_flattened().iter();
                // A side has at most 255 cells.
                let sides: Vec<_> =
                    sides.map(|&side| i32::try_from(side).unwrap_or(i32::MAX)).collect();
                Self::new("<i4", columns, &[2], halves(&sides))
            }
            Values::Numbers(numbers) => Self::new("<i4", columns, &[], halves(numbers)),
            Values::Vectors(vectors) => {
                Self::new("<i4", columns, &[2], halves(vectors.as_flattened()))
            }
        }
    }

    /// An array over items and the values of each, with these axes after them.
    fn new(descr: &str, columns: &Columns, axes: &[u64], data: Cow<'a, [u8]>) -> Self {
        let width = columns.width.map(|width| width as u64);
        let shape = std::iter::once(columns.items as u64).chain(width).chain(axes.iter().copied());
        Self { descr: descr.to_owned(), shape: shape.collect(), data }
    }

    fn list(descr: String, elements: usize, data: Cow<'a, [u8]>) -> Self {
        Self { descr, shape: vec![elements as u64], data }
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&head(&self.descr, &self.shape))?;
        out.write_all(&self.data)
    }
}

/// Writes all arrays, uncompressed.
pub(super) fn write_npz(out: impl Write + Seek, columns: &Columns) -> io::Result<()> {
    let mut arrays = Vec::new();
    if let Values::Grids { cells, .. } = &columns.values {
        let cells = Array::list("|u1".to_owned(), cells.len(), Cow::Borrowed(cells));
        arrays.extend([(npz::CELLS, cells), (npz::SIZES, Array::plain(columns))]);
    } else {
        arrays.push((VALUES, Array::plain(columns)));
    }
    if !columns.errors.is_empty() {
        let count = columns.errors.len();
        let items = columns.errors.iter().flat_map(|(item, _)| (*item as u64).to_le_bytes());
        arrays.push((ERROR_ITEMS, Array::list("<i8".to_owned(), count, items.collect())));
        arrays.push((ERROR_TEXTS, texts(columns.errors.iter().map(|(_, text)| text.as_str()))));
    }
    write_archive(out, |zip| {
        arrays.iter().try_for_each(|(name, array)| {
            start_array(zip, name, array.data.len() as u64)?;
            array.write(zip)
        })
    })
}

/// Writes an `.npz`: `write` starts and writes each of its arrays.
pub(in crate::cli) fn write_archive<W: Write + Seek>(
    out: W,
    write: impl FnOnce(&mut ZipWriter<W>) -> io::Result<()>,
) -> io::Result<()> {
    let mut zip = ZipWriter::new(out);
    let written = write(&mut zip);
    // What the end of the archive adds stays in the buffer of `out`.
    if let Err(error) = written.and_then(|()| zip.flush()) {
        // Dropped, it would try to end the archive, and print that it cannot.
        mem::forget(zip);
        return Err(error);
    }
    zip.finish()?.flush()
}

/// Starts an array of an `.npz`, uncompressed, with so many bytes of data.
pub(in crate::cli) fn start_array(
    zip: &mut ZipWriter<impl Write + Seek>,
    name: &str,
    data_bytes: u64,
) -> io::Result<()> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .large_file(u32::try_from(data_bytes + SIZE_MARGIN).is_err());
    Ok(zip.start_file(format!("{name}{SUFFIX}"), options)?)
}

/// More bytes than the header of an array has.
const SIZE_MARGIN: u64 = 1 << 12;

/// Texts in NumPy's form: UTF-32, all as long as the longest.
fn texts<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Array<'static> {
    let longest = texts.clone().map(|text| text.chars().count()).max().unwrap_or(0);
    let padded = |text: &'a str| {
        let characters = text.chars().map(u32::from).chain(std::iter::repeat(0));
        characters.take(longest).flat_map(u32::to_le_bytes)
    };
    let count = texts.clone().count();
    Array::list(format!("<U{longest}"), count, texts.flat_map(padded).collect())
}

#[cfg(test)]
mod tests {
    use std::io::{BufWriter, Cursor, SeekFrom};

    use super::*;

    /// A disk with room for 50 bytes.
    #[derive(Default)]
    struct Disk {
        file: Cursor<Vec<u8>>,
        is_full: bool,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert!(!self.is_full, "an archive that could not be written is left alone");
            self.is_full = self.file.position() + bytes.len() as u64 > 50;
            if self.is_full {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                self.file.write(bytes)
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.file.seek(to)
        }
    }

    #[test]
    fn the_end_of_an_archive_is_not_tried_again_on_a_full_disk() {
        for items in [10, 10_000] {
            let values = Values::Numbers(vec![0; items]);
            let columns = Columns { items, width: None, values, errors: Vec::new() };
            let mut out = BufWriter::with_capacity(1 << 10, Disk::default());
            let error = write_npz(&mut out, &columns).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            // Otherwise it would write what it has left.
            drop(out.into_parts());
        }
    }
}
