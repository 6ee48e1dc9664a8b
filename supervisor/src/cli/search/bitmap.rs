//! A NumPy file of bits: a row of bytes for each program, a bit for each pair, the lowest bit first.
//!
//! The number of rows is known only at the end, so the head has room for any, and is written again then.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use gridpool_protocol::search::PairStatus;

use crate::cli::error::CommandError;
use crate::cli::output::OutputError;

/// What names the file.
const FLAG: &str = "--bitmap";

/// Bytes of the head, as NumPy aligns it.
const HEAD_BYTES: usize = 128;

/// See the module's text.
pub(super) struct Bitmap {
    path: PathBuf,
    file: BufWriter<File>,
    pairs: usize,
    rows: u64,
}

impl Bitmap {
    pub(super) fn create(path: &Path, pairs: usize) -> Result<Self, CommandError> {
        let path = path.to_owned();
        let file = match File::create(&path) {
            Ok(file) => BufWriter::new(file),
            Err(source) => return Err(OutputError::Open { flag: FLAG, path, source }.into()),
        };
        let mut this = Self { path, file, pairs, rows: 0 };
        let written = this.file.write_all(&head(0, this.row_bytes()));
        this.written(written)?;
        Ok(this)
    }

    fn row_bytes(&self) -> usize {
        self.pairs.div_ceil(8)
    }

    /// Adds the row of a program; without statuses it solves nothing.
    pub(super) fn row(&mut self, statuses: &[u8]) -> Result<(), CommandError> {
        let mut row = vec![0; self.row_bytes()];
        for (pair, status) in statuses.iter().enumerate() {
            row[pair / 8] |= u8::from(*status == PairStatus::EQUAL) << (pair % 8);
        }
        self.rows += 1;
        let written = self.file.write_all(&row);
        self.written(written)
    }

    /// Writes the number of rows.
    pub(super) fn finish(mut self) -> Result<(), CommandError> {
        let head = head(self.rows, self.row_bytes());
        let written = self
            .file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.write_all(&head))
            .and_then(|()| self.file.flush());
        self.written(written)
    }

    fn written(&self, result: io::Result<()>) -> Result<(), CommandError> {
        let path = || self.path.clone();
        Ok(result.map_err(|source| OutputError::Incomplete { flag: FLAG, path: path(), source })?)
    }
}

/// The head of a NumPy file, version 1.0.
fn head(rows: u64, columns: usize) -> [u8; HEAD_BYTES] {
    let mut head = [b' '; HEAD_BYTES];
    head[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
    let length = u16::try_from(HEAD_BYTES - 10).unwrap_or(u16::MAX);
    head[8..10].copy_from_slice(&length.to_le_bytes());
    let text =
        format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    head[10..10 + text.len()].copy_from_slice(text.as_bytes());
    head[HEAD_BYTES - 1] = b'\n';
    head
}
