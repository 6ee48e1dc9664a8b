//! `--output FILE` of `run` and `submit`: the results in a file, whose name tells the format.
//!
//! Owns the formats, and what each can hold. Items follow each other in the order of the inputs.

mod arrow;
mod columns;
mod numpy;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::program::{Kind, Program, Type};

use super::CommandError;
use super::document;
use super::error::system;
use super::input::Inputs;
use super::output::Output;
use super::results::Results;
use columns::{Columns, Values};
pub(super) use numpy::{start_array, write_archive};

const FLAG: &str = "--output";
/// Bytes that are collected before a write.
const BUFFER_BYTES: usize = 1 << 18;

/// The formats, by the extension of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Arrow,
    Json,
    JsonLines,
    Npy,
    Npz,
}

impl Format {
    /// The format that a file's name tells.
    pub(super) fn of(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "arrow" => Self::Arrow,
            "json" => Self::Json,
            "jsonl" => Self::JsonLines,
            "npy" => Self::Npy,
            "npz" => Self::Npz,
            _ => return None,
        })
    }

    /// Whether it holds values of a kind.
    fn holds(self, kind: Kind) -> bool {
        match self {
            Self::Json | Self::JsonLines => true,
            Self::Arrow | Self::Npy | Self::Npz => Values::none(kind).is_some(),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arrow => ".arrow",
            Self::Json => ".json",
            Self::JsonLines => ".jsonl",
            Self::Npy => ".npy",
            Self::Npz => ".npz",
        })
    }
}

/// Why results cannot be written as the file's name says.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// The name has another ending.
    #[error(
        "{FLAG} {}: the end of the name tells the format: write .npz, .npy, .jsonl, .arrow or .json",
        path.display()
    )]
    Format { path: PathBuf },
    /// The format has no form for such values.
    #[error(
        "{FLAG} {}: the program gives {gives}, and a file {format} holds grids, numbers, flags and vectors: \
         write .jsonl or .json",
        path.display()
    )]
    Kind { path: PathBuf, format: Format, gives: Type },
    /// The items make no array.
    #[error("{FLAG} {}: {what}: write .npz, .jsonl, .arrow or .json", path.display())]
    Ragged { path: PathBuf, what: String },
}

impl ExportError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Format { .. } | Self::Kind { .. } => exit::USAGE,
            Self::Ragged { .. } => exit::DATA,
        }
    }
}

/// A file for results, before the program runs.
#[derive(Debug)]
pub(super) struct Export {
    path: PathBuf,
    format: Format,
    gives: Type,
    file: Output,
}

impl Export {
    /// Checks the path, and that its format holds what the program gives.
    pub(super) fn open(path: &Path, program: &Program) -> Result<Self, CommandError> {
        let typed = || path.to_owned();
        let format = Format::of(path).ok_or_else(|| ExportError::Format { path: typed() })?;
        let gives = program.gives();
        if !format.holds(gives.kind) {
            return Err(ExportError::Kind { path: typed(), format, gives }.into());
        }
        Ok(Self { path: typed(), format, gives, file: Output::open(FLAG, path, false)? })
    }

    /// Writes all results.
    pub(super) fn write(self, inputs: &Inputs, results: &Results) -> Result<(), CommandError> {
        let Self { path, format, gives, file } = self;
        let items = inputs.item_count();
        let columns = || Columns::of(gives, results, 0..items).map_err(system("the results"));
        match format {
            Format::Arrow => file.write(buffered(|out| arrow::write(out, gives, results, items))),
            Format::Json => file.write(buffered(|out| document::write(out, inputs, results))),
            Format::JsonLines => {
                file.write(buffered(|out| document::write_lines(out, items, results)))
            }
            Format::Npy => {
                let columns = columns()?;
                let array = numpy::Array::of(&columns);
                let array = array.map_err(|what| ExportError::Ragged { path, what })?;
                file.write(buffered(|out| array.write(out)))
            }
            Format::Npz => {
                let columns = columns()?;
                file.write(buffered(|out| numpy::write_npz(out, &columns)))
            }
        }
        .map_err(CommandError::from)
    }
}

/// Collects what is written, and writes it in few calls.
pub(super) fn buffered(
    write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
) -> impl FnOnce(&mut File) -> io::Result<()> {
    move |file| {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        write(&mut out)?;
        out.flush()
    }
}
