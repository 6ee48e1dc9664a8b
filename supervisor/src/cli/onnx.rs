//! Checks that a file is an ONNX model by its outline: a protobuf message with a graph in it.
//!
//! Reads only tags and lengths, so the check of a large model is fast. The workers check the graph itself.

use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use gridpool_ipc::regular;
use gridpool_protocol::tensor::options::ModelPlan;

/// The mark of an ORT file after its first four bytes; ONNX Runtime reads such files too.
const ORT: &[u8] = b"ORTM";
/// The field of the graph in a `ModelProto`.
const GRAPH: u64 = 7;
/// Most bytes of a number.
const VARINT_BYTES_MAX: u32 = 10;

/// Why a file cannot be loaded as a model.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModelFileError {
    #[error("{} is a folder: name the model's ONNX file in it", .0.display())]
    Folder(PathBuf),
    #[error("there is no file {}: name the model's ONNX file", .0.display())]
    Missing(PathBuf),
    #[error("{} is not an ONNX model: {what}", path.display())]
    Other { path: PathBuf, what: &'static str },
    #[error("{}: the model cannot be read", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Checks that the files of a model, or of the models that a pipeline names files of, are models.
pub(super) fn check_plan(plan: &ModelPlan) -> Result<(), ModelFileError> {
    match &plan.options.pipeline {
        None => check(&plan.path),
        Some(pipeline) => {
            let models = pipeline.steps.iter().filter_map(|step| step.model());
            models.filter(|model| model.names_file()).try_for_each(|model| check(&model.path))
        }
    }
}

/// Checks that a model is at a path.
fn check(path: &Path) -> Result<(), ModelFileError> {
    let owned = || path.to_owned();
    if path.is_dir() {
        return Err(ModelFileError::Folder(owned()));
    }
    let outline = regular::open(path).and_then(|file| outline(BufReader::new(file)));
    match outline {
        Ok(Outline::Model) => Ok(()),
        Ok(Outline::Other(what)) => Err(ModelFileError::Other { path: owned(), what }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(ModelFileError::Missing(owned()))
        }
        Err(source) => Err(ModelFileError::Unreadable { path: owned(), source }),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outline {
    Model,
    Other(&'static str),
}

fn outline(mut file: impl BufRead + Seek) -> io::Result<Outline> {
    const FOREIGN: Outline = Outline::Other("it is another kind of file");
    const CUT: Outline = Outline::Other("it ends too early");
    let bytes = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let start = file.fill_buf()?;
    if start.is_empty() {
        return Ok(Outline::Other("it is empty"));
    }
    if start.get(4..8) == Some(ORT) {
        return Ok(Outline::Model);
    }
    let (mut at, mut has_graph) = (0, false);
    while at < bytes {
        let Some(tag) = number(&mut file, &mut at)? else { return Ok(FOREIGN) };
        let skipped = match (tag >> 3, tag & 7) {
            (0, _) => return Ok(FOREIGN),
            (_, 0) => number(&mut file, &mut at)?.map(|_| 0),
            (_, 1) => Some(8),
            (field, 2) => {
                has_graph |= field == GRAPH;
                number(&mut file, &mut at)?
            }
            (_, 5) => Some(4),
            (_, _) => return Ok(FOREIGN),
        };
        let end = skipped.and_then(|skipped| at.checked_add(skipped));
        match end.filter(|&end| end <= bytes) {
            Some(end) => at = file.seek(SeekFrom::Start(end))?,
            None if has_graph => return Ok(CUT),
            None => return Ok(FOREIGN),
        }
    }
    Ok(if has_graph { Outline::Model } else { Outline::Other("it holds no graph") })
}

/// Reads a number in groups of seven bits; `None` if it does not end.
fn number(file: &mut impl BufRead, at: &mut u64) -> io::Result<Option<u64>> {
    let mut number = 0;
    for group in 0..VARINT_BYTES_MAX {
        let Some(&byte) = file.fill_buf()?.first() else { return Ok(None) };
        file.consume(1);
        *at += 1;
        number |= u64::from(byte & 0x7f).unbounded_shl(7 * group);
        if byte < 0x80 {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn of(bytes: &[u8]) -> Outline {
        outline(Cursor::new(bytes)).unwrap()
    }

    #[test]
    fn every_model_of_the_tests_is_a_model_and_its_beginning_is_not() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/models");
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let models: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|x| x == "onnx")).collect();
        assert!(models.len() > 10, "{models:?}");
        for path in models {
            check(&path).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_ne!(of(&bytes[..bytes.len() - 1]), Outline::Model, "{}", path.display());
        }
    }

    #[test]
    fn a_file_that_is_no_model_is_recognised() {
        let foreign = Outline::Other("it is another kind of file");
        for bytes in
            [&b"{\"a\": 1}\n"[..], b"PK\x03\x04 and so on", b"\x93NUMPY\x01\x00", b"#!/bin/sh"]
        {
            assert_eq!(of(bytes), foreign, "{bytes:?}");
        }
        assert_eq!(of(b""), Outline::Other("it is empty"));
        assert_eq!(of(b"\x08\x07"), Outline::Other("it holds no graph"));
        assert_eq!(of(b"\x08\x07\x3a\x05abc"), Outline::Other("it ends too early"));
        assert_eq!(of(b"\x08\x07\x3a\x03abc"), Outline::Model);
        assert_eq!(of(b"\0\0\0\0ORTM"), Outline::Model);
    }

    #[test]
    fn a_path_without_a_readable_file_is_an_error() {
        let said = |path: &str| check(Path::new(path)).unwrap_err().to_string();
        assert_eq!(said("/none.onnx"), "there is no file /none.onnx: name the model's ONNX file");
        assert_eq!(said("/"), "/ is a folder: name the model's ONNX file in it");
    }
}
