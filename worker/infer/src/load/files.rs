//! The files of a model, read once, with their hashes.

use std::io::Read;
use std::path::{Path, PathBuf};

use gridpool_ipc::regular;
use gridpool_protocol::program::hex;
use gridpool_protocol::tensor::options::{ModelOptions, check_file};
use gridpool_protocol::tensor::pipeline::Step;
use sha2::{Digest, Sha256};

use super::error::{LoadError, MODEL_FILE_BYTES_MAX};
use crate::engine::NotLoaded;

/// The file of a model.
#[derive(Debug)]
pub(crate) struct ModelFile {
    pub(crate) path: PathBuf,
    pub(super) content: Vec<u8>,
    pub(crate) sha256: String,
}

impl ModelFile {
    pub(crate) fn read(path: &Path) -> Result<Self, LoadError> {
        let fails = |source| LoadError::File { path: path.to_owned(), source };
        let file = regular::open(path).map_err(fails)?;
        let bytes = file.metadata().map_err(fails)?.len();
        let mut content = Vec::new();
        let mut limited = file.take(MODEL_FILE_BYTES_MAX + 1);
        if bytes <= MODEL_FILE_BYTES_MAX {
            limited.read_to_end(&mut content).map_err(fails)?;
        }
        let bytes = bytes.max(content.len() as u64);
        if bytes > MODEL_FILE_BYTES_MAX {
            return Err(LoadError::TooLarge { path: path.to_owned(), bytes });
        }
        let sha256 = hex(&Sha256::digest(&content));
        Ok(Self { path: path.to_owned(), content, sha256 })
    }
}

/// The files of a model: its own, or those of a pipeline's steps.
#[derive(Debug)]
pub(crate) struct ModelFiles {
    pub(super) files: Vec<ModelFile>,
    pub(crate) sha256: String,
}

impl ModelFiles {
    /// Reads them, and checks each against the hash that it must have.
    pub(crate) fn read(name: &str, path: &Path, options: &ModelOptions) -> Result<Self, NotLoaded> {
        let fails =
            |error, sha256: &str| NotLoaded { error: Box::new(error), sha256: sha256.to_owned() };
        let Some(pipeline) = &options.pipeline else {
            let file = ModelFile::read(path).map_err(|error| fails(error, ""))?;
            let sha256 = file.sha256.clone();
            let checked = check_file(name, path, options.sha256.as_ref(), &sha256);
            checked.map_err(|error| fails(error.into(), &sha256))?;
            return Ok(Self { files: vec![file], sha256 });
        };
        pipeline.check().map_err(|error| fails(error.into(), ""))?;
        let read = |step: &Step| {
            let file = ModelFile::read(&step.path)?;
            check_file(name, &step.path, step.sha256.as_ref(), &file.sha256)?;
            Ok(file)
        };
        let files = pipeline.steps.iter().map(|step| {
            read(step).map_err(|error: LoadError| fails(error.in_step(&step.name), ""))
        });
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let hashes: Vec<_> = files.iter().map(|file| file.sha256.clone()).collect();
        let sha256 = hex(&Sha256::digest(pipeline.hashed(&hashes)));
        let checked = check_file(name, path, options.sha256.as_ref(), &sha256);
        checked.map_err(|error| fails(error.into(), &sha256))?;
        Ok(Self { files, sha256 })
    }
}
