//! A model repository as Triton lays it out: `NAME/config.pbtxt`, `NAME/1/model.onnx`, `NAME/2/model.onnx`, ….

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gridpool_protocol::codec;
use gridpool_protocol::tensor::model::check_model_name;
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::version::{full_name, parse_version, split};
use serde::{Deserialize, Serialize};

use super::model_config::{ModelConfig, VersionPolicy};
use crate::config::open;

pub(super) const CONFIG: &str = "config.pbtxt";
/// Largest `config.pbtxt`, bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Most folders of a repository, and of a model.
pub(super) const FOLDERS_MAX: usize = 1_024;

/// Most bytes of a listing, which is one frame, and of the reason for a model that cannot be loaded.
const LISTED_BYTES_MAX: usize = 192 << 10;
const REASON_BYTES_MAX: usize = 200;

/// Why a repository, or a model of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RepositoryError {
    /// It cannot be read.
    #[error("{} cannot be read: {source}; name a folder with one folder for each model", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// Something is wrong with it.
    #[error("{}: {reason}", path.display())]
    Wrong { path: PathBuf, reason: String },
}

impl RepositoryError {
    /// Whether something in the repository is wrong, rather than which folder was named.
    pub(crate) fn is_of_content(&self) -> bool {
        match self {
            Self::Unreadable { path, .. } => path.ends_with(CONFIG),
            Self::Wrong { .. } => true,
        }
    }

    /// Without the place on this machine, which is not told to clients of the network.
    fn reason(&self) -> String {
        let (path, why) = match self {
            Self::Unreadable { path, source } => (path, source.to_string()),
            Self::Wrong { path, reason } => (path, reason.clone()),
        };
        if path.ends_with(CONFIG) { format!("{CONFIG}: {why}") } else { why }
    }
}

/// A model of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The versions that its policy wants to serve, the lowest first.
    pub(super) versions: Vec<ModelPlan>,
    /// Versions whose file is not there yet.
    pub(super) without_file: Vec<u32>,
    /// What of its config has no effect here.
    pub(super) warnings: Vec<String>,
}

fn wrong<T>(path: &Path, reason: impl Into<String>) -> Result<T, RepositoryError> {
    Err(RepositoryError::Wrong { path: path.to_owned(), reason: reason.into() })
}

/// The folders in a folder, by name.
fn folders(path: &Path) -> Result<BTreeMap<String, PathBuf>, RepositoryError> {
    match some_folders(path)? {
        (found, true) => Ok(found),
        (_, false) => wrong(path, format!("it has more than {FOLDERS_MAX} folders")),
    }
}

/// The folders in a folder, by name, and whether those are all.
fn some_folders(path: &Path) -> Result<(BTreeMap<String, PathBuf>, bool), RepositoryError> {
    let unreadable = |source| RepositoryError::Unreadable { path: path.to_owned(), source };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if let (true, Some(name)) = (entry.path().is_dir(), plain_name(&entry)) {
            if found.len() == FOLDERS_MAX {
                return Ok((found, false));
            }
            found.insert(name, entry.path());
        }
    }
    Ok((found, true))
}

/// The name of a folder that is not hidden.
fn plain_name(entry: &DirEntry) -> Option<String> {
    entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))
}

/// The folders of a repository.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The names of all models.
    pub(super) models: Vec<String>,
    /// Folders whose name is no model's, each with the reason: they cost the models nothing.
    pub(super) others: Vec<(String, RepositoryError)>,
}

/// The names of all models, and what is no model.
pub(super) fn names(repository: &Path) -> Result<Names, RepositoryError> {
    let mut names = Names::default();
    for (name, path) in folders(repository)? {
        match check_model_name(&name) {
            Ok(()) => names.models.push(name),
            Err(error) => {
                let reason = error.to_string();
                names.others.push((name, RepositoryError::Wrong { path, reason }));
            }
        }
    }
    Ok(names)
}

/// One model.
pub(super) fn model(repository: &Path, name: &str) -> Result<Found, RepositoryError> {
    let folder = repository.join(name);
    if check_model_name(name).is_err() || !folder.is_dir() {
        return wrong(&folder, "there is no such model in the repository");
    }
    let config = config(&folder, name)?;
    let own = folders(&folder)?;
    let is_number = |name: &&String| name.bytes().all(|byte| byte.is_ascii_digit());
    let no_version = own.keys().filter(is_number).find(|name| parse_version(name).is_none());
    let no_version = no_version.map(|name| {
        format!("`{name}` is no version: those are numbers from 1 to {}, written without zeros before them", u32::MAX)
    });
    let mut numbers: Vec<_> = own.keys().filter_map(|name| parse_version(name)).collect();
    numbers.sort_unstable();
    let has_file = |version: &u32| folder.join(version.to_string()).join(&config.filename).exists();
    let (there, without_file): (Vec<_>, Vec<_>) = numbers.into_iter().partition(has_file);
    let wanted: Vec<_> = match &config.policy {
        VersionPolicy::All => there,
        VersionPolicy::Latest(count) => there[there.len().saturating_sub(*count)..].to_vec(),
        VersionPolicy::Specific(versions) => {
            let missing = versions.iter().find(|version| !there.contains(version));
            if let Some(missing) = missing {
                return wrong(
                    &folder,
                    format!("`version_policy` names version {missing}, whose file is not there"),
                );
            }
            there.into_iter().filter(|version| versions.contains(version)).collect()
        }
    };
    if wanted.is_empty() {
        let file = &config.filename;
        let why = no_version.map_or_else(String::new, |why| format!("; {why}"));
        return wrong(&folder, format!("it has no version to serve: write {name}/1/{file}{why}"));
    }
    let plan = |version: u32| {
        let path = folder.join(version.to_string()).join(&config.filename);
        // The policy says what stays, so a new version unloads none by itself.
        let mut options = config.options.clone();
        options.keep = true;
        ModelPlan { name: full_name(name, version), path, options }
    };
    let versions: Vec<_> = wanted.into_iter().map(plan).collect();
    for plan in &versions {
        plan.check().or_else(|error| wrong(&folder, error.to_string()))?;
    }
    let mut warnings = config.warnings;
    warnings.extend(no_version.map(|why| format!("{}: {why}", folder.display())));
    Ok(Found { versions, without_file, warnings })
}

/// A model of a repository, as its index has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// The versions that its policy wants to serve, or why there are none.
    pub(crate) versions: Result<Vec<u32>, String>,
}

/// A model repository, as its index has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listing {
    pub(crate) models: Vec<Listed>,
    /// Why some are missing.
    pub(crate) lacks: Option<String>,
}

/// All models, as far as a message has room, each with what is wrong with it.
pub(crate) fn listed(repository: &Path) -> Listing {
    let (folders, is_all) = match some_folders(repository) {
        Ok(found) => found,
        Err(error) => {
            let why = format!("the model repository cannot be read: {}", shortened(error.reason()));
            return Listing { models: Vec::new(), lacks: Some(why) };
        }
    };
    let more = || format!("the model repository has more than {FOLDERS_MAX} folders");
    let mut listing = Listing { models: Vec::new(), lacks: (!is_all).then(more) };
    let mut left = LISTED_BYTES_MAX;
    for name in folders.into_keys() {
        let found = check_model_name(&name).map_err(|error| error.to_string());
        let found = found.and_then(|()| model(repository, &name).map_err(|error| error.reason()));
        let of = |found: Found| found.versions.iter().map(|plan| split(&plan.name).1).collect();
        let versions = found.map(of).map_err(shortened);
        let listed = Listed { name, versions };
        let rest = codec::encode(&listed).ok().and_then(|row| left.checked_sub(row.len()));
        let Some(rest) = rest else {
            let why = "the model repository has more models than the index has room for";
            listing.lacks = Some(why.to_owned());
            break;
        };
        left = rest;
        listing.models.push(listed);
    }
    listing
}

/// As much of a reason as a listing has room for.
fn shortened(mut why: String) -> String {
    why.truncate(why.floor_char_boundary(REASON_BYTES_MAX));
    why
}

fn config(folder: &Path, name: &str) -> Result<ModelConfig, RepositoryError> {
    let path = folder.join(CONFIG);
    let unreadable = |source| RepositoryError::Unreadable { path: path.clone(), source };
    let file = match open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ModelConfig::default()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut text = String::new();
    file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        return wrong(&path, format!("it has more than {CONFIG_BYTES_MAX} bytes"));
    }
    let read = ModelConfig::read(name, &text);
    let mut config = read.or_else(|error| wrong(&path, error.to_string()))?;
    config.warnings.iter_mut().for_each(|why| *why = format!("{}, {why}", path.display()));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::limits::FRAME_BYTES_MAX;

    use super::*;

    /// A repository with this model: its config, and the versions that have a file.
    fn repository(config: &str, versions: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("m");
        fs::create_dir(&model).unwrap();
        if !config.is_empty() {
            fs::write(model.join(CONFIG), config).unwrap();
        }
        for version in versions {
            fs::create_dir(model.join(version)).unwrap();
            fs::write(model.join(version).join("model.onnx"), "").unwrap();
        }
        folder
    }

    fn served(config: &str, versions: &[&str]) -> Result<Vec<String>, String> {
        let folder = repository(config, versions);
        fs::create_dir(folder.path().join("m/7")).unwrap();
        assert_eq!(names(folder.path()).unwrap().models, ["m"]);
        let found = model(folder.path(), "m").map_err(|error| error.to_string())?;
        assert_eq!(found.without_file, [7]);
        assert!(found.versions.iter().all(|plan| plan.options.keep && plan.path.is_file()));
        Ok(found.versions.into_iter().map(|plan| plan.name).collect())
    }

    #[test]
    fn the_policy_chooses_the_versions_that_have_a_file() {
        let all = ["1", "2", "10", "x", "01"];
        let is =
            |config, want: &[&str]| assert_eq!(served(config, &all).unwrap(), want, "{config}");
        is("", &["m:10"]);
        is("version_policy { latest { num_versions: 2 } }", &["m:2", "m:10"]);
        is("version_policy { all { } }", &["m", "m:2", "m:10"]);
        is("version_policy { specific { versions: [1, 2] } }", &["m", "m:2"]);
        let why = served("version_policy { specific { versions: 7 } }", &all).unwrap_err();
        assert!(why.contains("names version 7, whose file is not there"), "{why}");
        let why = served("", &[]).unwrap_err();
        assert!(why.contains("write m/1/model.onnx"), "{why}");
        let why = served("", &["20261201123045"]).unwrap_err();
        assert!(
            why.contains("`20261201123045` is no version: those are numbers from 1 to"),
            "{why}"
        );
        let folder = repository("", &all);
        let warnings = model(folder.path(), "m").unwrap().warnings;
        assert!(
            matches!(&*warnings, [why] if why.contains("/m: `01` is no version")),
            "{warnings:?}"
        );
        let why = served("name: \"n\"", &all).unwrap_err();
        assert!(why.contains("m/config.pbtxt: line 1, column 1: `name` is `n`"), "{why}");
    }

    #[test]
    fn the_index_has_each_model_with_its_versions_or_what_is_wrong() {
        let folder = repository("version_policy { all { } }", &["1", "3"]);
        fs::create_dir(folder.path().join("empty")).unwrap();
        let own = |name: &str, versions| Listed { name: name.to_owned(), versions };
        let wrong = format!("name: \"{}\"", "n".repeat(500));
        for (name, config) in [("bad", "name: \"n\""), ("long", &wrong), ("a b", "")] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join(CONFIG), config).unwrap();
        }
        let Listing { models, lacks } = listed(folder.path());
        let [space, bad, empty, long, m] = &*models else { panic!("{models:?}") };
        assert_eq!((m, lacks), (&own("m", Ok(vec![1, 3])), None));
        let none = "it has no version to serve: write empty/1/model.onnx";
        assert_eq!(*empty, own("empty", Err(none.to_owned())));
        let why = bad.versions.as_ref().unwrap_err();
        assert!(why.starts_with("config.pbtxt: line 1, column 1: `name` is `n`"), "{why}");
        let why = long.versions.as_ref().unwrap_err();
        assert_eq!((&*long.name, why.len()), ("long", REASON_BYTES_MAX), "{why}");
        let why = space.versions.as_ref().unwrap_err();
        assert!(why.starts_with("`a b` cannot be the name of a model"), "{why}");
        let Listing { models, lacks } = listed(&folder.path().join("none"));
        assert_eq!(models, []);
        assert!(lacks.unwrap().starts_with("the model repository cannot be read: No such file"));
    }

    #[test]
    fn a_repository_that_is_too_large_is_listed_as_far_as_there_is_room_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=FOLDERS_MAX {
            fs::create_dir(folder.path().join(format!("m{number}"))).unwrap();
        }
        let Listing { models, lacks } = listed(folder.path());
        assert_eq!(models.len(), FOLDERS_MAX);
        assert_eq!(lacks.unwrap(), "the model repository has more than 1024 folders");
        let large = tempfile::tempdir().unwrap();
        for number in 0..FOLDERS_MAX {
            // No names of models, but each takes room with its reason.
            fs::create_dir(large.path().join(format!("{number}{}", "~".repeat(200)))).unwrap();
        }
        let listing = listed(large.path());
        assert!(!listing.models.is_empty() && listing.models.len() < FOLDERS_MAX);
        assert!(listing.lacks.as_ref().unwrap().contains("than the index has room for"));
        assert!(codec::encode(&listing).unwrap().len() < FRAME_BYTES_MAX);
    }

    #[test]
    fn a_repository_without_the_model_is_an_error_and_folders_of_other_names_are_not() {
        let folder = repository("", &["1"]);
        for name in ["n", "../m", ""] {
            let why = model(folder.path(), name).unwrap_err().to_string();
            assert!(why.contains("no such model"), "{why}");
        }
        for other in ["a b", "lost+found", "__MACOSX"] {
            fs::create_dir(folder.path().join(other)).unwrap();
        }
        let Names { models, others } = names(folder.path()).unwrap();
        assert_eq!((&*models, others.len()), (&["m".to_owned()][..], 3), "{others:?}");
        assert!(others.iter().all(|(_, why)| why.to_string().contains("cannot be the name")));
        assert!(names(&folder.path().join("no")).is_err());
    }
}
