//! The arrays of an `.npz`, which is a zip of `.npy` files, and outputs written as one.

use std::io::{self, Cursor, Read, Seek, Write};

use gridpool_client::TensorOutputs;
use gridpool_protocol::limits::TENSORS_MAX;
use gridpool_protocol::tensor::{DataType, Tensor};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::error::{ArraysError, FILE_BYTES_MAX};
use super::{npy, value};
use crate::cli::input::format::is_zip;
use crate::cli::npy::{has_magic, head};

/// Stands for the name of an only array until the model gives it one.
const NAMELESS: &str = "array";
const SUFFIX: &str = ".npy";

/// The content of INPUT.
#[derive(Debug)]
pub(super) enum Arrays {
    /// An `.npz`.
    Named(Vec<(Tensor, Vec<u8>)>),
    /// An `.npy`, whose name comes from the model.
    Nameless(Tensor, Vec<u8>),
}

impl Arrays {
    pub(super) fn read(bytes: Vec<u8>) -> Result<Self, ArraysError> {
        if has_magic(&bytes) {
            let (tensor, data) = npy::read(NAMELESS, bytes)?;
            return Ok(Self::Nameless(tensor, data));
        }
        if !is_zip(&bytes) {
            return Err(ArraysError::Neither);
        }
        let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(ArraysError::Zip)?;
        if zip.len() > TENSORS_MAX {
            return Err(ArraysError::TooMany { count: zip.len() });
        }
        let mut arrays = Vec::with_capacity(zip.len());
        let mut left = FILE_BYTES_MAX;
        for at in 0..zip.len() {
            let file = zip.by_index(at).map_err(ArraysError::Zip)?;
            let name = file.name().map_err(ArraysError::Zip)?.into_owned();
            let Some(name) = name.strip_suffix(SUFFIX) else {
                return Err(ArraysError::Foreign { name });
            };
            let mut bytes = Vec::new();
            file.take(left + 1).read_to_end(&mut bytes).map_err(ArraysError::Read)?;
            left = left.checked_sub(bytes.len() as u64).ok_or(ArraysError::ArraysTooLarge)?;
            arrays.push(npy::read(name, bytes)?);
        }
        Ok(Self::Named(arrays))
    }
}

/// Writes all outputs uncompressed, straight from shared memory.
pub(super) fn write(out: impl Write + Seek, outputs: &TensorOutputs) -> io::Result<()> {
    let mut zip = ZipWriter::new(out);
    for (at, tensor) in outputs.tensors().iter().enumerate() {
        if tensor.datatype() == DataType::Bytes {
            write_texts(&mut zip, outputs, tensor)?;
            continue;
        }
        let head = head(tensor.datatype().descr(), tensor.shape());
        let is_large = u32::try_from(head.len() + tensor.bytes()).is_err();
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(is_large);
        zip.start_file(format!("{}{SUFFIX}", tensor.name()), options)?;
        zip.write_all(&head)?;
        value::chunks(outputs, at, |chunk| zip.write_all(chunk))?;
    }
    zip.finish()?;
    Ok(())
}

/// Writes a BYTES output as NumPy's type `S`, whose elements are filled up with zeros to the same length.
fn write_texts(
    zip: &mut ZipWriter<impl Write + Seek>,
    outputs: &TensorOutputs,
    tensor: &Tensor,
) -> io::Result<()> {
    let name = tensor.name();
    let bad = |why: String| io::Error::other(format!("output `{name}`: {why}; --json has it"));
    let texts = outputs.texts(name).map_err(io::Error::other)?;
    if let Some(at) = texts.iter().position(|text| text.last() == Some(&0)) {
        return Err(bad(format!("element {at} ends with a zero byte, which NumPy drops")));
    }
    let size = texts.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let bytes = (size as u64).saturating_mul(texts.len() as u64);
    if bytes > FILE_BYTES_MAX {
        return Err(bad(format!(
            "it would take {bytes} bytes, {size} for each of its {} elements",
            texts.len()
        )));
    }
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    zip.start_file(format!("{name}{SUFFIX}"), options.large_file(u32::try_from(bytes).is_err()))?;
    zip.write_all(&head(&format!("|S{size}"), tensor.shape()))?;
    let mut padded = vec![0; size];
    for text in texts.iter() {
        padded[..text.len()].copy_from_slice(text);
        padded[text.len()..].fill(0);
        zip.write_all(&padded)?;
    }
    Ok(())
}
