//! Grids and pairs from an `.npz`: the arrays `cells` and `sizes`, or one array as in an `.npy`.
//!
//! `cells` has the cells of all grids, one grid after the other, row by row. `sizes` has the rows and columns of each:
//! shape (grids, 2), or (pairs, 2, 2) for pairs, where (0, 0) is a missing output. May not open files.

use std::io::{Cursor, Read};

use zip::ZipArchive;
use zip::result::ZipError;

use super::json::Contents;
use super::npy::{self, Integers, Laid};
use super::{Cause, Diagnostic, INPUT_BYTES_MAX, Pair};

/// The arrays of a ragged batch. The writer of results uses the same names.
pub(in crate::cli) const CELLS: &str = "cells";
pub(in crate::cli) const SIZES: &str = "sizes";
/// The end of each array's name in the zip.
pub(in crate::cli) const SUFFIX: &str = ".npy";

/// The content of a zip.
pub(super) fn contents(bytes: &[u8]) -> Result<Contents, Box<Diagnostic>> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
    let names: Option<Vec<String>> =
        zip.file_names().map(|name| Some(name.ok()?.strip_suffix(SUFFIX)?.to_owned())).collect();
    let names = names.filter(|names| !names.is_empty()).ok_or(Cause::Zip)?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has(CELLS) && has(SIZES) {
        let mut left = INPUT_BYTES_MAX;
        let cells = array(&mut zip, CELLS, &mut left)?;
        let sizes = array(&mut zip, SIZES, &mut left)?;
        return ragged(&cells, &sizes);
    }
    let [only] = &names[..] else {
        let arrays = names.iter().map(|name| name.escape_debug().to_string()).collect();
        return Err(Cause::Npz { arrays }.into());
    };
    let mut left = INPUT_BYTES_MAX;
    npy::grids(&array(&mut zip, only, &mut left)?).map(Contents::Grids)
}

fn broken(error: ZipError) -> Cause {
    Cause::BrokenZip { reason: error.to_string() }
}

/// The bytes of an array. All arrays together have at most so many bytes more.
fn array(
    zip: &mut ZipArchive<Cursor<&[u8]>>,
    name: &str,
    left: &mut u64,
) -> Result<Vec<u8>, Box<Diagnostic>> {
    let file = zip.by_name(&format!("{name}{SUFFIX}")).map_err(broken)?;
    let mut bytes = Vec::new();
    let read = file.take(*left + 1).read_to_end(&mut bytes);
    read.map_err(|error| Cause::Read { reason: error.to_string() })?;
    *left = left.checked_sub(bytes.len() as u64).ok_or(Cause::FileTooLarge)?;
    Ok(bytes)
}

fn ragged(cells: &[u8], sizes: &[u8]) -> Result<Contents, Box<Diagnostic>> {
    let (cells, sizes) = (Integers::read(cells)?, Integers::read(sizes)?);
    let per_item = match sizes.shape[..] {
        [0, ..] => return Err(Cause::NoGrid.into()),
        [_, 2] => 1,
        [_, 2, 2] => 2,
        _ => {
            let what = format!("has the shape {}", sizes.shape_text());
            return Err(Cause::Sizes { what }.into());
        }
    };
    let sides: Vec<usize> = sizes
        .values()
        .map(|side| usize::try_from(side).map_err(|_| format!("has a side of {side}")))
        .collect::<Result<_, _>>()
        .map_err(|what| Cause::Sizes { what })?;
    let shapes = sides.as_chunks::<2>().0;
    let laid = Laid::new(&cells, shapes, per_item)?;
    if per_item == 1 {
        let grids = (0..shapes.len()).map(|at| laid.grid(at));
        return grids.collect::<Result<_, _>>().map(Contents::Grids);
    }
    let pairs = shapes.as_chunks::<2>().0.iter().enumerate();
    let pairs = pairs.map(|(at, [_, output])| {
        let output = (*output != [0, 0]).then(|| laid.grid(2 * at + 1)).transpose()?;
        Ok(Pair { input: laid.grid(2 * at)?, output })
    });
    pairs.collect::<Result<_, _>>().map(Contents::Pairs)
}
