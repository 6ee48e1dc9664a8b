//! The arrays of an `.npz`, which is a zip of `.npy` files, and outputs written as one.

use std::io::{self, Cursor, Read, Seek, Write};

use gridpool_protocol::client::InferOutputs;
use gridpool_protocol::limits::TENSORS_MAX;
use gridpool_protocol::tensor::Tensor;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::error::Flaw;
use super::{npy, value};
use crate::cli::input::npy::has_magic;

/// Largest INPUT that is read, and most bytes of all its arrays together, unpacked.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 30;
/// What every zip begins with; the last is one without entries.
const ZIP_MAGICS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// Where the name of an only array is not known yet.
const NAMELESS: &str = "array";
const SUFFIX: &str = ".npy";

/// What INPUT holds.
#[derive(Debug)]
pub(super) enum Arrays {
    /// An `.npz`.
    Named(Vec<(Tensor, Vec<u8>)>),
    /// An `.npy`: the model says what its name is.
    Nameless(Tensor, Vec<u8>),
}

impl Arrays {
    pub(super) fn read(bytes: Vec<u8>) -> Result<Self, Flaw> {
        if has_magic(&bytes) {
            let (tensor, data) = npy::read(NAMELESS, bytes)?;
            return Ok(Self::Nameless(tensor, data));
        }
        if !ZIP_MAGICS.iter().any(|magic| bytes.starts_with(magic)) {
            return Err(Flaw::Neither);
        }
        let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(Flaw::Zip)?;
        if zip.len() > TENSORS_MAX {
            return Err(Flaw::TooMany { count: zip.len() });
        }
        let mut arrays = Vec::with_capacity(zip.len());
        let mut left = FILE_BYTES_MAX;
        for at in 0..zip.len() {
            let file = zip.by_index(at).map_err(Flaw::Zip)?;
            let name = file.name().map_err(Flaw::Zip)?.into_owned();
            let Some(name) = name.strip_suffix(SUFFIX) else {
                return Err(Flaw::Foreign { name });
            };
            let mut bytes = Vec::new();
            file.take(left + 1).read_to_end(&mut bytes).map_err(Flaw::Read)?;
            left = left.checked_sub(bytes.len() as u64).ok_or(Flaw::ArraysTooLarge)?;
            arrays.push(npy::read(name, bytes)?);
        }
        Ok(Self::Named(arrays))
    }
}

/// Writes all outputs, not compressed, each straight from where it lies.
pub(super) fn write(out: impl Write + Seek, outputs: &InferOutputs) -> io::Result<()> {
    let mut zip = ZipWriter::new(out);
    for (at, tensor) in outputs.tensors().iter().enumerate() {
        let head = npy::head(tensor);
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
