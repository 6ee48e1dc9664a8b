//! A model repository in Triton's layout: what of it serves when the pool starts, and how it is followed afterwards.
//!
//! `Keeper` is a client of the pool's own socket: it loads and unloads as an operator would. What it may not do, no
//! request of its can.

mod keeper;
mod model_config;
mod pool;
mod scan;
mod text;
mod turns;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gridpool_core::config::MODELS_MAX;
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::version::split;

use crate::gateway::why_taken;
pub(crate) use keeper::{Keeper, NOT_BY_REQUEST};
pub(crate) use scan::{Listed, Listing, RepositoryError, listed};

/// When a pool follows its model repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepositoryMode {
    /// It loads what is there when it starts.
    #[default]
    Start,
    /// It also loads and unloads when clients of HTTP and gRPC ask for it.
    Request,
    /// It also loads and unloads what changes, as soon as it does.
    Poll,
}

impl RepositoryMode {
    const ALL: [(Self, &str); 3] =
        [(Self::Start, "start"), (Self::Request, "request"), (Self::Poll, "poll")];
}

impl fmt::Display for RepositoryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(mode, _)| mode == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// A text that names no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no way to follow a model repository: write start, request or poll")]
pub struct ParseModeError {
    text: String,
}

impl FromStr for RepositoryMode {
    type Err = ParseModeError;

    fn from_str(text: &str) -> Result<Self, ParseModeError> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text).map(|&(mode, _)| mode);
        known.ok_or_else(|| ParseModeError { text: text.to_owned() })
    }
}

/// A model repository, and how it is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Its folder.
    pub folder: PathBuf,
    /// When the pool looks at it.
    pub mode: RepositoryMode,
}

/// The models of a repository as it is now, beside those of the settings. A folder whose name is no model's is left out
/// and named; with `keeps_going` so is a model with which something is wrong.
pub(crate) fn at_start(
    repository: &Repository,
    own: &[ModelPlan],
    keeps_going: bool,
) -> Result<Vec<ModelPlan>, RepositoryError> {
    let folder = std::path::absolute(&repository.folder).map_err(|source| {
        RepositoryError::Unreadable { path: repository.folder.clone(), source }
    })?;
    let mut models: BTreeMap<_, _> =
        own.iter().map(|plan| (plan.name.clone(), plan.clone())).collect();
    let leave_out = |error: &RepositoryError| match repository.mode {
        RepositoryMode::Start | RepositoryMode::Request => {
            tracing::warn!("model repository: {error}");
        }
        // The keeper says it as soon as the pool serves.
        RepositoryMode::Poll => {}
    };
    let scan::Names { models: names, others } = scan::names(&folder)?;
    others.iter().for_each(|(_, error)| leave_out(error));
    for name in names {
        if own.iter().any(|plan| split(&plan.name).0 == name) {
            let reason = "a --model or a [[model]] has this name too: rename one".to_owned();
            return Err(RepositoryError::Wrong { path: folder.join(name), reason });
        }
        match versions_at_start(&folder, &name, MODELS_MAX.saturating_sub(models.len())) {
            Ok(plans) => models.extend(plans.into_iter().map(|plan| (plan.name.clone(), plan))),
            Err(error) if keeps_going => leave_out(&error),
            Err(error) => return Err(error),
        }
    }
    Ok(models.into_values().collect())
}

/// The versions of a model that the pool loads when it starts, if it has room for as many.
fn versions_at_start(
    folder: &Path,
    name: &str,
    room: usize,
) -> Result<Vec<ModelPlan>, RepositoryError> {
    let wrong = |reason| Err(RepositoryError::Wrong { path: folder.join(name), reason });
    if let Some(reason) = why_taken(name) {
        return wrong(reason);
    }
    let found = scan::model(folder, name)?;
    found.warnings.iter().for_each(|why| tracing::warn!("{why}"));
    match found.versions.len() > room {
        true => {
            wrong(format!("with this model there are more than {MODELS_MAX}, the most of a pool"))
        }
        false => Ok(found.versions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_by_its_name() {
        for (mode, name) in RepositoryMode::ALL {
            assert_eq!((name.parse(), mode.to_string()), (Ok(mode), name.to_owned()));
        }
        let error = "watch".parse::<RepositoryMode>().unwrap_err().to_string();
        assert!(error.contains("write start, request or poll"), "{error}");
    }

    #[test]
    fn a_repository_adds_its_models_to_those_of_the_settings() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m/2/model.onnx");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        let repository =
            Repository { folder: folder.path().to_owned(), mode: RepositoryMode::Start };
        let own = |name: &str| ModelPlan {
            name: name.to_owned(),
            path: Path::new("/x").to_owned(),
            options: Default::default(),
        };
        let names = |own: &[ModelPlan]| {
            let models = at_start(&repository, own, false).map_err(|error| error.to_string())?;
            Ok(models.into_iter().map(|plan| plan.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[own("n")]), Ok(vec!["m:2".to_owned(), "n".to_owned()]));
        let why = names(&[own("m")]).unwrap_err();
        let why: String = why;
        assert!(why.contains("has this name too"), "{why}");
    }

    #[test]
    fn what_is_no_model_costs_the_models_nothing_and_a_wrong_one_nothing_if_the_pool_keeps_going() {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("m/1/model.onnx", ""),
            ("wrong/1/model.onnx", ""),
            ("wrong/config.pbtxt", "colour: 1"),
        ] {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        for other in ["lost+found", "bad name", "empty", "rot90"] {
            std::fs::create_dir(folder.path().join(other)).unwrap();
        }
        let (folder, mode) = (folder.path().to_owned(), RepositoryMode::Start);
        let repository = Repository { folder, mode };
        let names = |keeps_going| {
            let models = at_start(&repository, &[], keeps_going)?;
            Ok::<_, RepositoryError>(models.into_iter().map(|plan| plan.name).collect::<Vec<_>>())
        };
        assert_eq!(names(true).unwrap(), ["m"]);
        for (wrong, words) in [
            ("empty", "it has no version to serve"),
            ("rot90", "is built into the gateway"),
            ("wrong", "`colour`"),
        ] {
            let error = names(false).unwrap_err();
            assert!(error.is_of_content() && error.to_string().contains(words), "{error}");
            std::fs::remove_dir_all(repository.folder.join(wrong)).unwrap();
        }
        assert_eq!(names(false).unwrap(), ["m"]);
        std::fs::remove_dir_all(&repository.folder).unwrap();
        assert!(!names(true).unwrap_err().is_of_content(), "another folder was meant");
    }
}
