//! The files of a model, read once, with their hashes; of a pipeline also the programs of its steps.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridpool_ipc::regular;
use gridpool_protocol::program::hex;
use gridpool_protocol::tensor::options::{ModelOptions, check_file};
use gridpool_protocol::tensor::pipeline::{GridStep, SIZES, Step, StepBody};
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

/// What a step of a pipeline, or a model, is made of.
#[derive(Debug)]
pub(crate) enum StepSource {
    Model(ModelFile),
    Program(Arc<GridStep>),
}

impl StepSource {
    fn hash(&self) -> String {
        match self {
            Self::Model(file) => file.sha256.clone(),
            Self::Program(step) => step.hash(),
        }
    }
}

/// The files of a model: its own, or those of a pipeline's steps.
#[derive(Debug)]
pub(crate) struct ModelFiles {
    pub(super) sources: Vec<StepSource>,
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
            return Ok(Self { sources: vec![StepSource::Model(file)], sha256 });
        };
        pipeline.check().map_err(|error| fails(error.into(), ""))?;
        let read = |step: &Step| match &step.body {
            StepBody::Model(model) => {
                let file = ModelFile::read(&model.path)?;
                check_file(name, &model.path, model.sha256.as_ref(), &file.sha256)?;
                Ok(StepSource::Model(file))
            }
            StepBody::Program(program) => {
                let program = GridStep::new(program, step.inputs.contains_key(SIZES));
                Ok(StepSource::Program(Arc::new(program.expect("the pipeline was checked"))))
            }
        };
        let sources = pipeline.steps.iter().map(|step| {
            read(step).map_err(|error: LoadError| fails(error.in_step(&step.name), ""))
        });
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let hashes: Vec<_> = sources.iter().map(StepSource::hash).collect();
        let sha256 = hex(&Sha256::digest(pipeline.hashed(&hashes)));
        let checked = check_file(name, path, options.sha256.as_ref(), &sha256);
        checked.map_err(|error| fails(error.into(), &sha256))?;
        Ok(Self { sources, sha256 })
    }

    /// The only file of a model that is no pipeline.
    pub(super) fn only(&self) -> &ModelFile {
        match self.sources.as_slice() {
            [StepSource::Model(file)] => file,
            sources => unreachable!("one model has one file: {sources:?}"),
        }
    }
}
