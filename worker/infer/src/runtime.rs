//! ONNX Runtime in this process: loaded once, with one thread pool for all its models.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridpool_ipc::mutex::Mutex;
use ort::environment::{Environment, GlobalThreadPoolOptions};
use ort::logging::LogLevel;

use super::library::{LibraryError, Places, is_new_enough};
use super::seam;

/// The path of this process's ONNX Runtime: a process can have only one.
static LOADED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// A library that was found: its version, or why it is not usable.
pub type Surveyed = (PathBuf, Result<String, LibraryError>);

/// ONNX Runtime, ready to load models.
#[derive(Clone)]
pub struct Runtime {
    environment: Environment,
    library: Arc<Path>,
    version: Arc<str>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { environment: _, library, version } = self;
        f.debug_struct("Runtime").field("library", library).field("version", version).finish()
    }
}

impl Runtime {
    /// Loads the first usable library of these places.
    ///
    /// # Errors
    /// The error of [`Runtime::open`] for the first library; [`LibraryError`] if there is no library.
    pub fn find(places: &Places, threads: usize) -> Result<Self, LibraryError> {
        let mut first = None;
        for path in places.find()? {
            match Self::open(&path, threads) {
                Err(error @ (LibraryError::Load { .. } | LibraryError::TooOld { .. })) => {
                    tracing::debug!(%error, "library skipped");
                    first.get_or_insert(error);
                }
                opened => return opened,
            }
        }
        Err(first.expect("what was found was opened or refused"))
    }

    /// Checks the libraries of these places in order, up to the first usable one, which is the last of the list.
    /// It starts none of them.
    ///
    /// # Errors
    /// [`LibraryError`] if there is no library.
    pub fn survey(places: &Places) -> Result<Vec<Surveyed>, LibraryError> {
        let mut seen = Vec::new();
        for path in places.find()? {
            let version = usable_version(&path);
            let is_usable = version.is_ok();
            seen.push((path, version));
            if is_usable {
                break;
            }
        }
        Ok(seen)
    }

    /// Loads the library; models run on `threads` CPU threads.
    ///
    /// # Errors
    /// [`LibraryError`] if it cannot be loaded, is too old, or this process has another one. A worker that
    /// cannot load it should end with [`LibraryError::exit_code`].
    pub fn open(library: &Path, threads: usize) -> Result<Self, LibraryError> {
        // The loader would search for a relative path beside the program.
        let path = std::path::absolute(library).unwrap_or_else(|_| library.to_owned());
        let mut loaded = LOADED.lock();
        if let Some(path) = loaded.clone() {
            return Err(LibraryError::Second { path });
        }
        // `ort` panics if a library is not ONNX Runtime or lacks the API's version, so check first.
        let version = usable_version(&path)?;
        let started = ort::init_from(&path);
        let builder = match started {
            Ok(builder) => builder,
            Err(error) => return Err(LibraryError::Load { path, reason: error.to_string() }),
        };
        // From here on it is this process's ONNX Runtime, even if it does not initialise.
        *loaded = Some(path.clone());
        let pool = GlobalThreadPoolOptions::default()
            .with_intra_threads(threads)
            .and_then(|pool| pool.with_inter_threads(1))
            .and_then(|pool| pool.with_spin_control(false));
        let environment = pool.and_then(|pool| {
            let builder = builder.with_name("gridpool").with_telemetry(false);
            builder.with_global_thread_pool(pool).with_logger(Arc::new(log)).build()
        });
        let environment = environment.map_err(|error| LibraryError::Environment {
            path: path.clone(),
            source: seam::fault("CreateEnv", &error, false),
        })?;
        environment.set_log_level(LogLevel::Warning);
        Ok(Self { environment, library: path.into(), version: version.into() })
    }

    /// Its path.
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }
}

/// The version of a library, if it is a usable ONNX Runtime.
fn usable_version(path: &Path) -> Result<String, LibraryError> {
    let load = |reason| LibraryError::Load { path: path.to_owned(), reason };
    let version = seam::version(path).map_err(load)?;
    if is_new_enough(&version) {
        return Ok(version);
    }
    Err(LibraryError::TooOld { path: path.to_owned(), version })
}

/// Receives ONNX Runtime's log. It must not panic, because a panic would cross C.
fn log(level: LogLevel, category: &str, _id: &str, place: &str, message: &str) {
    match level {
        LogLevel::Fatal => tracing::error!(category, place, message),
        // The call that failed returns the same text, which is told once, with the model or the request.
        LogLevel::Error => tracing::debug!(category, place, message),
        // Its warnings do not help here, such as those about shapes that differ from the declared ones.
        LogLevel::Warning => tracing::info!(category, place, message),
        LogLevel::Info | LogLevel::Verbose => tracing::trace!(category, place, message),
    }
}
