//! Finds libonnxruntime and checks that it is new enough. It loads only the library itself, to ask for its
//! version.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use gridpool_protocol::exit::worker as exit;

use super::error::RuntimeFault;

/// The variable that names the library, as in other programs that use `ort`.
pub const VARIABLE: &str = "ORT_DYLIB_PATH";
/// The oldest release that can report which provider runs which node.
pub const OLDEST: (u32, u32) = (1, 24);

/// The start of the library's file name; a version may follow.
const FILE_NAME: &str = "libonnxruntime.so";
/// The library's folder in the package of PyPI, below `site-packages`.
const IN_PACKAGE: &str = "onnxruntime/capi";
/// Where systems and packages without Python put libraries.
const SYSTEM_FOLDERS: [&str; 6] = [
    "/usr/local/lib",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/opt/onnxruntime/lib",
    "/opt/onnxruntime-gpu/lib",
];
/// Folders that hold `lib/python3.*/site-packages`, besides those of the variables below.
const PYTHON_PREFIXES: [&str; 4] = ["/usr/local", "/usr", "/opt/venv", "/opt/conda"];
/// Variables that name such a folder.
const PREFIX_VARIABLES: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];
/// The names of folders of packages.
const PACKAGE_FOLDERS: [&str; 2] = ["site-packages", "dist-packages"];

/// Why no ONNX Runtime can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// It does not initialise.
    #[error("ONNX Runtime at {} does not start", path.display())]
    Environment {
        /// Its path.
        path: PathBuf,
        /// Its error.
        #[source]
        source: RuntimeFault,
    },
    /// It cannot be loaded, or is another library.
    #[error("{} is not a usable ONNX Runtime: {reason}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The named path does not exist.
    #[error("{} (from {from}) does not exist: name the file libonnxruntime.so of ONNX Runtime", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
        /// The option or variable that named it.
        from: &'static str,
    },
    /// It is in none of the searched folders.
    #[error(
        "no {FILE_NAME} on this machine: `pip install onnxruntime` (or `onnxruntime-gpu` for a GPU), or \
         name the file with --onnxruntime or {VARIABLE}; looked in {}",
        list(looked_in)
    )]
    NotFound {
        /// Every folder that was searched.
        looked_in: Vec<PathBuf>,
    },
    /// The process uses another one.
    #[error("this process uses the ONNX Runtime at {} already", path.display())]
    Second {
        /// The path of that one.
        path: PathBuf,
    },
    /// It is too old.
    #[error(
        "ONNX Runtime {version} at {} is too old: {}.{} is the first that says where nodes run; \
         `pip install --upgrade onnxruntime` (or `onnxruntime-gpu`)", path.display(), OLDEST.0, OLDEST.1
    )]
    TooOld {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
}

impl LibraryError {
    /// The exit code of a worker that ends over it. A fresh process would fail too.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        exit::CONFIG
    }
}

/// The first paths, which are those of Python's packages, and the number of further ones.
fn list(paths: &[PathBuf]) -> String {
    /// Paths that are named.
    const NAMED_MAX: usize = 3;
    let named = paths.iter().take(NAMED_MAX).map(|path| path.display().to_string());
    let named = named.collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Where to search. A path that the user names is the only one tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// From the command line or the config.
    pub explicit: Option<PathBuf>,
    /// From the variable.
    pub variable: Option<PathBuf>,
    /// The folders to search otherwise, in this order.
    pub folders: Vec<PathBuf>,
}

impl Places {
    /// The places of this machine and environment.
    #[must_use]
    pub fn here(explicit: Option<&Path>) -> Self {
        let variable = env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let packages = package_folders(&|name| env::var_os(name));
        let packages = packages.into_iter().map(|folder| folder.join(IN_PACKAGE));
        let folders = packages.chain(SYSTEM_FOLDERS.map(PathBuf::from)).collect();
        Self { explicit: explicit.map(Path::to_owned), variable, folders }
    }

    /// The named library; or all libraries in the default folders, best first.
    ///
    /// # Errors
    /// [`LibraryError::Missing`] or [`LibraryError::NotFound`].
    pub fn find(&self) -> Result<Vec<PathBuf>, LibraryError> {
        let named = [(&self.explicit, "--onnxruntime"), (&self.variable, VARIABLE)];
        let named = named.into_iter().find_map(|(path, from)| Some((path.as_ref()?, from)));
        if let Some((path, from)) = named {
            let missing = || LibraryError::Missing { path: path.clone(), from };
            let found = match path.canonicalize() {
                Ok(path) if path.is_dir() => newest_in(&path).ok_or_else(missing)?,
                Ok(path) => path,
                Err(_) => return Err(missing()),
            };
            return Ok(vec![found]);
        }
        let found: Vec<_> = self.folders.iter().filter_map(|folder| newest_in(folder)).collect();
        if found.is_empty() {
            return Err(LibraryError::NotFound { looked_in: self.folders.clone() });
        }
        Ok(found)
    }
}

/// The library with the highest version in a folder.
fn newest_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let version = |name: &OsString| {
        let rest = name.to_str()?.strip_prefix(FILE_NAME)?;
        let numbers = rest.split('.').filter(|part| !part.is_empty()).map(str::parse::<u32>);
        numbers.collect::<Result<Vec<_>, _>>().ok()
    };
    let found = names.filter_map(|name| Some((version(&name)?, name))).max();
    found.map(|(_, name)| folder.join(name)).filter(|path| path.exists())
}

/// The folders of Python packages of this machine: of an active environment, of the Pythons on `PATH`,
/// of the user, of pyenv, and of the system.
#[must_use]
pub fn package_folders(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut prefixes: Vec<PathBuf> =
        PREFIX_VARIABLES.iter().filter_map(|name| path(name)).collect();
    let on_path = variable("PATH").unwrap_or_default();
    for folder in env::split_paths(&on_path) {
        // `PREFIX/bin/python3`, both as a path and as the target of its link.
        let python = folder.join("python3");
        let real = python.canonicalize().ok();
        let bins = [python.exists().then_some(python), real];
        let roots = bins.into_iter().flatten();
        prefixes.extend(roots.filter_map(|bin| Some(bin.parent()?.parent()?.to_owned())));
    }
    let home = path("HOME");
    prefixes.extend(home.iter().map(|home| home.join(".local")));
    let pyenv = path("PYENV_ROOT").or_else(|| home.map(|home| home.join(".pyenv")));
    let versions = pyenv.and_then(|root| fs::read_dir(root.join("versions")).ok());
    prefixes.extend(sorted(versions.into_iter().flatten().flatten().map(|entry| entry.path())));
    prefixes.extend(PYTHON_PREFIXES.map(PathBuf::from));
    let mut seen = BTreeSet::new();
    let folders = prefixes.iter().flat_map(|prefix| packages_in(&prefix.join("lib")));
    folders.filter(|folder| seen.insert(folder.clone())).collect()
}

/// `lib/python3.*/site-packages` and the like, the newest Python first.
fn packages_in(lib: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(lib).into_iter().flatten().flatten().map(|entry| entry.path());
    let minor = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("python3")?;
        name.strip_prefix('.').unwrap_or("0").parse::<u32>().ok()
    };
    let pythons = entries.filter_map(|path| Some((minor(&path)?, path)));
    let mut pythons: Vec<_> = pythons.collect();
    pythons.sort();
    let folders = pythons.into_iter().rev();
    let folders = folders.flat_map(|(_, path)| PACKAGE_FOLDERS.map(|name| path.join(name)));
    folders.filter(|folder| folder.is_dir()).collect()
}

fn sorted(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    paths
}

/// Whether a version, as the library writes it, is new enough.
pub(super) fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    major.zip(minor).is_some_and(|version| version >= OLDEST)
}

#[cfg(test)]
mod tests {
    use tempfile::{TempDir, tempdir};

    use super::*;

    /// Makes an empty file, and the folders above it.
    fn file(folder: &TempDir, path: &str) -> PathBuf {
        let path = folder.path().canonicalize().unwrap().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn a_named_path_is_the_only_one_tried() {
        let folder = tempdir().unwrap();
        let (a, b) = (file(&folder, "a/libonnxruntime.so.1.30.0"), file(&folder, "b/any.so"));
        let places = |explicit: Option<&Path>, variable: Option<&Path>| Places {
            explicit: explicit.map(Path::to_owned),
            variable: variable.map(Path::to_owned),
            folders: vec![folder.path().join("nothing"), folder.path().join("a")],
        };
        assert_eq!(places(None, None).find(), Ok(vec![a.clone()]));
        assert_eq!(places(None, Some(&b)).find(), Ok(vec![b.clone()]));
        assert_eq!(places(Some(&a), Some(&b)).find(), Ok(vec![a.clone()]));
        assert_eq!(places(a.parent(), None).find(), Ok(vec![a.clone()]), "a folder will do");
        let both = vec![b.parent().unwrap().to_owned(), a.parent().unwrap().to_owned()];
        file(&folder, "b/libonnxruntime.so");
        let both = Places { folders: both, ..Places::default() }.find().unwrap();
        assert_eq!(both, [b.with_file_name("libonnxruntime.so"), a.clone()]);
        let gone = folder.path().join("gone.so");
        let error = places(Some(&gone), Some(&b)).find().unwrap_err();
        assert!(error.to_string().contains("(from --onnxruntime) does not exist"), "{error}");
        let error = places(None, Some(&gone)).find().unwrap_err();
        assert!(error.to_string().contains("(from ORT_DYLIB_PATH)"), "{error}");
        assert_eq!(error.exit_code(), 73);
    }

    #[test]
    fn the_newest_library_of_a_folder_is_taken_and_lookalikes_are_not() {
        let folder = tempdir().unwrap();
        for name in ["libonnxruntime.so", "libonnxruntime.so.1.9.0", "libonnxruntime.so.1.31.1"] {
            file(&folder, name);
        }
        for name in
            ["libonnxruntime.so.bak", "libonnxruntime_providers_cuda.so", "onnxruntime.so.2"]
        {
            file(&folder, name);
        }
        assert_eq!(newest_in(folder.path()), Some(folder.path().join("libonnxruntime.so.1.31.1")));
    }

    #[test]
    fn a_missing_library_error_says_what_to_install_and_where_it_searched() {
        let folders = vec![PathBuf::from("/nowhere/a"), PathBuf::from("/nowhere/b")];
        let error = Places { folders, ..Places::default() }.find().unwrap_err().to_string();
        assert!(error.contains("`pip install onnxruntime` (or `onnxruntime-gpu`"), "{error}");
        assert!(error.ends_with("looked in /nowhere/a, /nowhere/b"), "{error}");
        let many: Vec<PathBuf> = (0..7).map(|number| format!("/{number}").into()).collect();
        assert_eq!(list(&many), "/0, /1, /2 and 4 more");
    }

    #[test]
    fn packages_are_searched_in_the_environment_then_in_the_pythons_on_the_path() {
        let folder = tempdir().unwrap();
        file(&folder, "venv/lib/python3.11/site-packages/x");
        file(&folder, "py/lib/python3.9/site-packages/x");
        file(&folder, "py/lib/python3.12/dist-packages/x");
        file(&folder, "py/lib/python2.7/site-packages/x");
        file(&folder, "py/bin/python3");
        file(&folder, "home/.local/lib/python3.12/site-packages/x");
        file(&folder, "home/.pyenv/versions/3.13.1/lib/python3.13/site-packages/x");
        let set = |name: &str| match name {
            "VIRTUAL_ENV" => Some(folder.path().join("venv").into()),
            "PATH" => Some(folder.path().join("py/bin").into()),
            "HOME" => Some(folder.path().join("home").into()),
            _ => None,
        };
        let found = package_folders(&set);
        let want = [
            "venv/lib/python3.11/site-packages",
            "py/lib/python3.12/dist-packages",
            "py/lib/python3.9/site-packages",
            "home/.local/lib/python3.12/site-packages",
            "home/.pyenv/versions/3.13.1/lib/python3.13/site-packages",
        ];
        let want: Vec<_> = want.iter().map(|path| folder.path().join(path)).collect();
        assert_eq!(found[..want.len()], want);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for version in ["1.24.0", "1.31.1", "1.100.0-dev", "2.0.0"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["1.23.2", "1.9.9", "0.99.0", "", "1", "x.y"] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
