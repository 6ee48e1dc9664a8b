//! The arrays of an `.npz`, which is a zip of `.npy` files.

use std::io::{Cursor, Read};

use gridpool_protocol::limits::TENSORS_MAX;
use gridpool_protocol::tensor::Tensor;
use zip::ZipArchive;

use super::error::{ArraysError, FILE_BYTES_MAX};
use super::npy;
use crate::cli::input::format::is_zip;
use crate::cli::input::npz::SUFFIX;
use crate::cli::npy::has_magic;

/// Stands for the name of an only array until the model gives it one.
const NAMELESS: &str = "array";

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
