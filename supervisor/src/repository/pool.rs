//! The pool that serves a repository: what it has of it, and what is done so that it has what it should.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_client::{Client, ClientError, ModelState};
use gridpool_core::config::PoolConfig;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::WorkerName;
use gridpool_protocol::message::{DeviceModel, Refusal, RepositoryCommand};
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use gridpool_protocol::tensor::version::{VERSION_MARK, full_name, split};
use nix::libc::SIGKILL;

use super::scan;
use crate::shell::capsules::hash_file;

/// Between two looks at the models of workers that start.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The file of the model of this full name that the pool is to have, loaded or not.
pub(super) type FileOf = Box<dyn Fn(&str) -> Option<PathBuf> + Send + Sync>;

/// Why the pool has not what it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettleError {
    /// Other files lie there than those that were loaded.
    #[error("{0}")]
    Changed(String),
    /// It could not be asked, or has refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A device has a version no more, and did not get it back.
    #[error("{0}")]
    Unavailable(String),
}

/// See the module's text.
pub(super) struct Pool {
    pub(super) folder: PathBuf,
    socket: PathBuf,
    file_of: FileOf,
    /// The options that versions of the repository were loaded with, by full name. An operator may have unloaded some.
    loaded: Mutex<BTreeMap<String, ModelOptions>>,
    /// The hashes of files, as long as these do not change.
    hashes: Mutex<BTreeMap<PathBuf, (Stamp, String)>>,
}

/// Another one for each state of a file.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Pool {
    /// The pool at `socket`, which has these models.
    pub(super) fn new(
        folder: PathBuf,
        socket: PathBuf,
        has: &[ModelPlan],
        file_of: FileOf,
    ) -> Self {
        let own = has.iter().filter(|plan| plan.path.starts_with(&folder));
        let loaded = own.map(|plan| (plan.name.clone(), plan.options.clone()));
        let loaded = Mutex::new(loaded.collect());
        Self { folder, socket, file_of, loaded, hashes: Mutex::default() }
    }

    pub(super) fn perform(&self, command: &RepositoryCommand) -> Result<String, Refusal> {
        match command {
            RepositoryCommand::Load { name, load_timeout_s } => {
                let found = scan::model(&self.folder, name)
                    .map_err(|error| Refusal::Invalid(error.to_string()))?;
                found.warnings.iter().for_each(|why| tracing::warn!("{why}"));
                let said = self.settle(name, &found.versions, Asked::ByRequest(*load_timeout_s));
                let said = said.map_err(refusal)?;
                Ok(if said.is_empty() { format!("`{name}` serves as it should") } else { said })
            }
            RepositoryCommand::Unload { name } => {
                // What was loaded from here can be unloaded, also when its folder is gone.
                if !self.has_loaded(name) {
                    let names = scan::names(&self.folder)
                        .map_err(|error| Refusal::Unable(error.to_string()))?;
                    if !names.models.contains(name) {
                        let why = format!("the repository has no model `{name}`");
                        return Err(Refusal::Invalid(why));
                    }
                }
                self.unload(name).map_err(|error| refusal(error.into()))
            }
        }
    }

    /// Loads the versions that should serve and do not, the lowest first, then unloads those that should not. So a
    /// later version takes over before the one before it goes. Returns what was done; nothing if nothing was.
    pub(super) fn settle(
        &self,
        name: &str,
        versions: &[ModelPlan],
        asked: Asked,
    ) -> Result<String, SettleError> {
        let client = self.client()?;
        let due = clock::now() + asked.patience();
        let is_starting = |rows: &[DeviceModel], full: &str| {
            !rows.iter().any(|row| row.model.name == full) && (self.file_of)(full).is_some()
        };
        let rows = loop {
            let rows = client.models()?;
            let starts = versions.iter().find(|plan| is_starting(&rows, &plan.name));
            match starts.filter(|_| asked != Asked::ByChange) {
                None => break rows,
                Some(plan) if clock::until(due).is_zero() => {
                    let why =
                        format!("`{}` is still being loaded, by workers that start", plan.name);
                    return Err(SettleError::Unavailable(why));
                }
                Some(_) => thread::park_timeout(LOOK_EVERY),
            }
        };
        let (mut said, mut failed, mut changed) = (Vec::new(), None, None);
        for plan in versions {
            let of = |state| {
                let own = rows.iter().filter(|row| row.model.name == plan.name);
                own.filter(move |row| row.model.state == state)
            };
            let number = split(&plan.name).1;
            // Without its number the first version would be the next one.
            let typed = format!("{name}{VERSION_MARK}{number}");
            if let Some(serving) = of(ModelState::Ready).next() {
                if let Some(what) = self.difference(plan, &serving.model) {
                    changed = changed.or_else(|| Some(format!(
                        "`{typed}` serves as it was loaded, but {what}. A version stays as it is: put the new one \
                         under a new number, or unload `{name}` and load it again"
                    )));
                } else if asked != Asked::ByChange && of(ModelState::Unavailable).next().is_some() {
                    let lacking = of(ModelState::Unavailable);
                    said.push(self.mend(&client, (&rows, &plan.name), lacking, due)?);
                }
                continue;
            }
            if is_starting(&rows, &plan.name) {
                continue;
            }
            if of(ModelState::Unavailable).next().is_some() {
                said.push(client.unload_model(&typed)?);
            }
            let options = plan.options.clone();
            let mut plan = ModelPlan { name: typed, ..plan.clone() };
            plan.options.load_timeout_s = asked.load_timeout_s().or(plan.options.load_timeout_s);
            let full = full_name(name, number);
            match client.load_model(plan) {
                Ok(done) => {
                    self.loaded.lock().insert(full, options);
                    said.push(done);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        let own = rows.iter().map(|row| &row.model.name).filter(|full| split(full).0 == name);
        let stays = |full: &str| versions.iter().any(|plan| plan.name == full);
        let extra: BTreeSet<_> = own.filter(|full| !stays(full)).collect();
        for full in extra {
            let typed = format!("{name}{VERSION_MARK}{}", split(full).1);
            said.push(client.unload_model(&typed)?);
            self.loaded.lock().remove(full);
        }
        match changed {
            None => Ok(said.join("; ")),
            Some(what) => Err(SettleError::Changed(what)),
        }
    }

    /// Unloads all versions of a model.
    pub(super) fn unload(&self, name: &str) -> Result<String, ClientError> {
        let said = self.client()?.unload_model(name)?;
        self.loaded.lock().retain(|full, _| split(full).0 != name);
        Ok(said)
    }

    /// Whether the pool is to have a version of this model that was loaded from the repository.
    pub(super) fn has_loaded(&self, name: &str) -> bool {
        self.loaded.lock().keys().any(|full| split(full).0 == name && self.is_own(full))
    }

    /// Whether the pool is to have the model of this full name, from a file of the repository.
    fn is_own(&self, full: &str) -> bool {
        (self.file_of)(full).is_some_and(|file| file.starts_with(&self.folder))
    }

    /// What lies in the repository now that is not as it was when this version was loaded.
    fn difference(&self, plan: &ModelPlan, serving: &ModelInfo) -> Option<String> {
        let mut what = Vec::new();
        match self.hash(&plan.path) {
            Ok(now) if now == serving.sha256 || serving.sha256.is_empty() => {}
            Ok(now) => {
                let then = &serving.sha256;
                what.push(format!("the SHA-256 of its file is {now} now and was {then}"));
            }
            Err(error) => what.push(format!("its file cannot be read now: {error}")),
        }
        // What an operator has loaded under this name has the operator's options.
        let loaded = self.loaded.lock();
        let loaded = loaded.get(&plan.name).filter(|_| self.is_own(&plan.name));
        let fields = loaded.map(|then| other_fields(then, &plan.options));
        if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
            what.push(format!("{} has other {} now", scan::CONFIG, fields.join(", ")));
        }
        (!what.is_empty()).then(|| what.join(", and "))
    }

    /// SHA-256 of a file, which is read only if it has changed.
    fn hash(&self, path: &Path) -> io::Result<String> {
        let file = fs::metadata(path)?;
        let (modified, changed) =
            ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
        let stamp = (file.dev(), file.ino(), file.len(), modified, changed);
        if let Some((known, hash)) = self.hashes.lock().get(path)
            && *known == stamp
        {
            return Ok(hash.clone());
        }
        let hash = hash_file(path)?;
        let mut hashes = self.hashes.lock();
        hashes.retain(|path, _| path.exists());
        hashes.insert(path.to_owned(), (stamp, hash.clone()));
        Ok(hash)
    }

    /// Starts the workers anew that lack a version which others have, and waits until they have it.
    fn mend<'a>(
        &self,
        client: &Client,
        (rows, full): (&[DeviceModel], &str),
        lacking: impl Iterator<Item = &'a DeviceModel>,
        due: Instant,
    ) -> Result<String, SettleError> {
        let mut ended = Vec::new();
        for row in lacking {
            let has_others = rows.iter().filter(|other| other.worker == row.worker).count() > 1;
            match row.worker.parse::<WorkerName>() {
                Ok(worker) if !has_others => {
                    client.kill(worker, SIGKILL)?;
                    ended.push(worker);
                }
                // The device is out of service, or the worker has other models to serve.
                Ok(_) | Err(_) => return Err(unavailable(row)),
            }
        }
        for worker in ended.iter().copied() {
            let is_next = |row: &&DeviceModel| {
                let next = row.worker.parse().ok().filter(|next: &WorkerName| *next != worker);
                let is_out = row.worker == worker.device.to_string();
                row.model.name == full
                    && (is_out || next.is_some_and(|next| next.device == worker.device))
            };
            loop {
                let rows = client.models()?;
                match rows.iter().find(is_next) {
                    Some(row) if row.model.state == ModelState::Ready => break,
                    Some(row) => return Err(unavailable(row)),
                    None if clock::until(due).is_zero() => {
                        let why = format!("no worker has started in time in the place of {worker}");
                        return Err(SettleError::Unavailable(why));
                    }
                    None => thread::park_timeout(LOOK_EVERY),
                }
            }
        }
        let ended: Vec<_> = ended.iter().map(ToString::to_string).collect();
        Ok(format!("`{full}` is loaded again in the place of {}", ended.join(", ")))
    }

    /// A connection to the pool, which is its own.
    fn client(&self) -> Result<Client, ClientError> {
        Client::builder().socket(&self.socket).spin(Duration::ZERO).connect()
    }
}

/// Why a model is to be as the repository has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The repository has changed.
    ByChange,
    /// A client asks, and says how long a load may take.
    ByRequest(Option<u32>),
}

impl Asked {
    fn load_timeout_s(self) -> Option<u32> {
        match self {
            Self::ByChange => None,
            Self::ByRequest(seconds) => seconds,
        }
    }

    /// How long it waits for workers that start.
    fn patience(self) -> Duration {
        let seconds = self.load_timeout_s();
        seconds
            .map_or(PoolConfig::DEFAULT.load_timeout, |seconds| Duration::from_secs(seconds.into()))
    }
}

/// That a device lacks a model, why, and what brings it back.
fn unavailable(row: &DeviceModel) -> SettleError {
    let DeviceModel { worker, model, .. } = row;
    SettleError::Unavailable(format!(
        "`{}` is UNAVAILABLE on {worker}: {}; it loads it again when its worker starts anew (`gridpool kill {worker}`)",
        model.name, model.reason
    ))
}

/// What a client is told that has asked.
fn refusal(error: SettleError) -> Refusal {
    match error {
        SettleError::Changed(what) => Refusal::NotAllowed(what),
        SettleError::Client(ClientError::Refused(refusal)) => refusal,
        SettleError::Client(error) => Refusal::Unable(Chain(&error).to_string()),
        SettleError::Unavailable(why) => Refusal::Unable(why),
    }
}

/// The fields in which options differ, of those that a config sets.
fn other_fields(one: &ModelOptions, other: &ModelOptions) -> Vec<String> {
    let fields = |options: &ModelOptions| {
        // A worker pins the hash; the time and what stays are of the load.
        let (sha256, load_timeout_s, keep) = (None, None, true);
        let options = ModelOptions { sha256, load_timeout_s, keep, ..options.clone() };
        let options = serde_json::to_value(options).unwrap_or_default();
        options.as_object().cloned().unwrap_or_default()
    };
    let (one, other) = (fields(one), fields(other));
    let differing = one.into_iter().filter(|(field, value)| other.get(field) != Some(value));
    differing.map(|(field, _)| format!("`{field}`")).collect()
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::Contexts;

    use super::*;

    #[test]
    fn a_version_differs_by_its_file_and_by_what_its_config_sets_and_by_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        // Another file, since the clock of files may not have moved between two writes.
        let write = |text: &str| {
            let draft = folder.path().join("draft");
            fs::write(&draft, text).unwrap();
            fs::rename(draft, &path).unwrap();
        };
        write("one");
        let plan = |options| ModelPlan { name: "m".to_owned(), path: path.clone(), options };
        let then = ModelOptions { keep: true, ..ModelOptions::default() };
        let (at, has) = (folder.path().to_owned(), [plan(then.clone())]);
        let own = path.clone();
        let pool = Pool::new(at.clone(), at, &has, Box::new(move |_| Some(own.clone())));
        let sha256 = hash_file(&path).unwrap();
        let serving = ModelInfo { sha256, ..ModelInfo::unavailable("m", String::new()) };
        let differs = |options| pool.difference(&plan(options), &serving);
        assert_eq!(differs(then.clone()), None);
        let pinned = Some("0".repeat(64));
        let same =
            ModelOptions { sha256: pinned, load_timeout_s: Some(1), keep: false, ..then.clone() };
        assert_eq!(differs(same), None);
        let more = ModelOptions { contexts: Contexts::Fixed(3), tf32: true, ..then.clone() };
        let what = differs(more).unwrap();
        assert_eq!(what, "config.pbtxt has other `contexts`, `tf32` now");
        // As long as before, but another.
        write("two");
        let what = differs(then.clone()).unwrap();
        assert!(
            what.contains("the SHA-256 of its file is") && what.contains(&serving.sha256),
            "{what}"
        );
        write("one");
        assert_eq!(differs(then.clone()), None, "it is as it was");
        fs::remove_file(&path).unwrap();
        assert!(differs(then).unwrap().contains("cannot be read"));
    }
}
