//! `--output FILE` of `infer`: the outputs of a model in a file, whose name tells the format.
//!
//! Owns the formats, and what each can hold. Numbers go straight from shared memory into the file.

use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use gridpool_client::{Answer, TensorOutputs, Values};
use gridpool_protocol::tensor::DataType;

use super::error::{FILE_BYTES_MAX, InferError};
use super::{answer, value};
use crate::cli::CommandError;
use crate::cli::export::{Format, buffered, start_array, write_archive};
use crate::cli::npy::head;
use crate::cli::output::Output;

/// The flag that names the file.
pub(super) const FLAG: &str = "--output";

/// The formats of outputs.
#[derive(Clone, Copy, Debug)]
enum Form {
    Json,
    Npy,
    Npz,
}

impl Form {
    /// The format of a file with this name. One without an end, such as `-` or a FIFO, has all arrays.
    fn of(path: &Path) -> Option<Self> {
        if path.extension().is_none() {
            return Some(Self::Npz);
        }
        match Format::of(path)? {
            Format::Json => Some(Self::Json),
            Format::Npy => Some(Self::Npy),
            Format::Npz => Some(Self::Npz),
            Format::Arrow | Format::JsonLines => None,
        }
    }
}

/// A file for outputs, before the request is sent.
#[derive(Debug)]
pub(super) struct OutputFile {
    path: PathBuf,
    form: Form,
    pub(super) place: Output,
}

impl OutputFile {
    /// Checks the path; `has_document` as for [`Output::open`].
    pub(super) fn open(path: &Path, has_document: bool) -> Result<Self, CommandError> {
        let form = Form::of(path).ok_or_else(|| InferError::Format { path: path.to_owned() })?;
        Ok(Self { path: path.to_owned(), form, place: Output::open(FLAG, path, has_document)? })
    }

    /// Checks that the format holds so many outputs.
    pub(super) fn holds(&self, outputs: usize) -> Result<(), InferError> {
        match self.form {
            Form::Npy if outputs != 1 => {
                Err(InferError::Several { path: self.path.clone(), outputs })
            }
            Form::Json | Form::Npy | Form::Npz => Ok(()),
        }
    }

    /// Writes the outputs of an answer that has them.
    pub(super) fn write(self, answer: &Answer<TensorOutputs>) -> Result<(), CommandError> {
        let Some(outputs) = answer.outputs() else { return Ok(()) };
        self.holds(outputs.tensors().len())?;
        let Self { path: _, form, place } = self;
        match form {
            Form::Json => place.write(buffered(|out| answer::write_json(out, answer, true))),
            Form::Npy => place.write(|out| write_npy(out, outputs)),
            Form::Npz => place.write(|out| write_npz(out, outputs)),
        }
        .map_err(CommandError::from)
    }
}

/// Writes the only output.
pub(super) fn write_npy(mut out: impl Write, outputs: &TensorOutputs) -> io::Result<()> {
    Array::of(outputs, 0)?.write(&mut out)
}

/// Writes all outputs, uncompressed.
pub(super) fn write_npz(out: impl Write + Seek, outputs: &TensorOutputs) -> io::Result<()> {
    write_archive(out, |zip| {
        outputs.tensors().iter().enumerate().try_for_each(|(at, tensor)| {
            let array = Array::of(outputs, at)?;
            start_array(zip, tensor.name(), array.data_bytes())?;
            array.write(zip)
        })
    })
}

/// An output as an array of NumPy. BYTES are of its type `S`, whose elements are filled up with zeros to one length.
struct Array<'a> {
    outputs: &'a TensorOutputs,
    at: usize,
    /// The elements of BYTES, and the length of the longest.
    texts: Option<(Values<Vec<u8>>, usize)>,
}

impl<'a> Array<'a> {
    fn of(outputs: &'a TensorOutputs, at: usize) -> io::Result<Self> {
        let tensor = &outputs.tensors()[at];
        if tensor.datatype() != DataType::Bytes {
            return Ok(Self { outputs, at, texts: None });
        }
        let name = tensor.name();
        let bad =
            |why: String| Err(io::Error::other(format!("output `{name}`: {why}; a .json has it")));
        let texts = outputs.texts(name).map_err(io::Error::other)?;
        if let Some(at) = texts.iter().position(|text| text.last() == Some(&0)) {
            return bad(format!("element {at} ends with a zero byte, which NumPy drops"));
        }
        let size = texts.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let array = Self { outputs, at, texts: Some((texts, size)) };
        match array.data_bytes() {
            bytes if bytes > FILE_BYTES_MAX => bad(format!(
                "it would take {bytes} bytes, {size} for each of its {} elements",
                tensor.elements()
            )),
            _ => Ok(array),
        }
    }

    fn data_bytes(&self) -> u64 {
        let bytes = match &self.texts {
            Some((texts, size)) => texts.len().saturating_mul(*size),
            None => self.outputs.tensors()[self.at].bytes(),
        };
        bytes as u64
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let tensor = &self.outputs.tensors()[self.at];
        let Some((texts, size)) = &self.texts else {
            out.write_all(&head(tensor.datatype().descr(), tensor.shape()))?;
            return value::chunks(self.outputs, self.at, |chunk| out.write_all(chunk));
        };
        out.write_all(&head(&format!("|S{size}"), tensor.shape()))?;
        let mut padded = vec![0; *size];
        texts.iter().try_for_each(|text| {
            padded[..text.len()].copy_from_slice(text);
            padded[text.len()..].fill(0);
            out.write_all(&padded)
        })
    }
}
