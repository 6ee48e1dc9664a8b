//! Versions of models: which one serves a name, and the changes that concern more than one.
//!
//! A version is a model of its own, with its full name. The highest one that accepts requests serves the name. So a
//! swap needs no step of its own: once a new version is loaded on all devices it is the highest, and those before it
//! are unloaded like any model, after their last request.

use gridpool_protocol::ids::{ClientId, Group};
use gridpool_protocol::tensor::version::{ModelRef, full_name, split};

use super::Catalogue;
use crate::models::Models;

/// A change that goes on when one of its parts is done: a load, after which others are unloaded, or several unloads.
#[derive(Debug)]
pub(super) struct Task {
    client: ClientId,
    request: u64,
    /// The name of the model, without a version.
    name: String,
    step: TaskStep,
}

#[derive(Debug)]
enum TaskStep {
    /// A version is being loaded.
    Loads {
        version: u32,
        /// Whether those before it stay.
        keep: bool,
    },
    /// Versions are being unloaded.
    Unloads {
        /// What is said first: how the load before it ended.
        loaded: Option<(String, u32)>,
        versions: Vec<u32>,
        /// How many of them are not unloaded yet.
        left: usize,
    },
}

impl Task {
    pub(super) fn load(from: (ClientId, u64), full_name: &str, keep: bool) -> Self {
        let (name, version) = split(full_name);
        let step = TaskStep::Loads { version, keep };
        Self { client: from.0, request: from.1, name: name.to_owned(), step }
    }

    pub(super) fn unloads(from: (ClientId, u64), name: &str, versions: Vec<u32>) -> Self {
        let left = versions.len();
        let step = TaskStep::Unloads { loaded: None, versions, left };
        Self { client: from.0, request: from.1, name: name.to_owned(), step }
    }
}

/// A version that accepts requests.
pub(crate) struct OpenVersion<'a> {
    pub(crate) group: Group,
    pub(crate) full_name: &'a str,
    pub(crate) version: u32,
}

/// Versions in the order of their numbers, as they are unloaded.
pub(super) fn in_order<'a>(
    open: impl Iterator<Item = OpenVersion<'a>>,
) -> Vec<(u32, Group, String)> {
    let own = |open: OpenVersion<'_>| (open.version, open.group, open.full_name.to_owned());
    let mut all: Vec<_> = open.map(own).collect();
    all.sort_unstable();
    all
}

impl Catalogue {
    /// The versions of a model that accept requests.
    pub(super) fn open_versions<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = OpenVersion<'a>> + use<'a, 'n> {
        let of = |(&group, models): (&Group, &'a Models)| {
            models.open().map(move |full_name| (group, full_name))
        };
        self.groups.iter().flat_map(of).filter_map(move |(group, full_name)| {
            // Most names differ in their first bytes.
            let (own, version) = full_name.starts_with(name).then(|| split(full_name))?;
            (own == name).then_some(OpenVersion { group, full_name, version })
        })
    }

    /// The version that runs a request for `asked`, which may name one.
    pub(super) fn serving(&self, asked: ModelRef<'_>) -> Option<OpenVersion<'_>> {
        let mut versions = self.open_versions(asked.name);
        match asked.version {
            Some(version) => versions.find(|open| open.version == version),
            None => versions.max_by_key(|open| open.version),
        }
    }

    /// All versions of a model, those included that accept no requests.
    pub(super) fn versions(&self, name: &str) -> Vec<u32> {
        let all = self.groups.values().flat_map(Models::wanted).map(split);
        all.filter(|(own, _)| *own == name).map(|(_, version)| version).collect()
    }

    /// The error says which version of a model is being changed.
    pub(super) fn check_unchanged(&self, name: &str) -> Result<(), String> {
        self.groups.values().try_for_each(|models| models.check_unchanged(name))?;
        match self.tasks.iter().any(|task| task.name == name) {
            true => Err(format!("`{name}` is being changed; try again when that is done")),
            false => Ok(()),
        }
    }

    /// A change of one group has ended. Begins what comes next of the task that it belongs to; returns the reply to the
    /// operator, if nothing does.
    pub(crate) fn on_changed(
        &mut self,
        client: ClientId,
        request: u64,
        result: Result<String, String>,
    ) -> Option<Result<String, String>> {
        let is_its = |task: &Task| (task.client, task.request) == (client, request);
        let Some(at) = self.tasks.iter().position(is_its) else { return Some(result) };
        let said = match result {
            Ok(said) => said,
            Err(why) => {
                self.tasks.swap_remove(at);
                return Some(Err(why));
            }
        };
        let name = self.tasks[at].name.clone();
        match &mut self.tasks[at].step {
            TaskStep::Loads { version, keep } => {
                let (version, keep) = (*version, *keep);
                let others = || self.open_versions(&name).filter(|open| open.version != version);
                let serves = others().map(|open| open.version).max().unwrap_or(0).max(version);
                let older = in_order(others().filter(|_| !keep && serves == version));
                if older.is_empty() {
                    let all = others().map(|open| open.version).chain([version]);
                    let all = all.collect();
                    self.tasks.swap_remove(at);
                    return Some(Ok(beside(said, &name, serves, all)));
                }
                let versions = older.iter().map(|&(version, ..)| version).collect();
                let (loaded, left) = (Some((said, version)), older.len());
                self.tasks[at].step = TaskStep::Unloads { loaded, versions, left };
                for (_, group, full_name) in older {
                    self.unload(group, (client, request), full_name);
                }
                None
            }
            TaskStep::Unloads { left, .. } => {
                *left -= 1;
                if *left > 0 {
                    return None;
                }
                let Task { name, step, .. } = self.tasks.swap_remove(at);
                let TaskStep::Unloads { loaded, versions, .. } = step else { return None };
                Some(Ok(after_unloads(&name, loaded, &versions)))
            }
        }
    }
}

/// What an operator hears of a load after which nothing is unloaded: which version serves, and which others are there.
fn beside(loaded: String, name: &str, serves: u32, mut all: Vec<u32>) -> String {
    all.retain(|&other| other != serves);
    all.sort_unstable();
    match all.as_slice() {
        [] => loaded,
        others => format!("{loaded}: version {serves} serves `{name}`, beside {}", list(others)),
    }
}

/// What an operator hears when all versions of a task are unloaded.
fn after_unloads(name: &str, loaded: Option<(String, u32)>, versions: &[u32]) -> String {
    let are = if versions.len() == 1 { "is" } else { "are" };
    let gone = format!("{} {are} unloaded", list(versions));
    match loaded {
        Some((loaded, version)) => {
            format!("{loaded}: version {version} serves `{name}`, {gone}")
        }
        None => format!("{gone} of `{name}`"),
    }
}

/// `version 1`, `versions 1, 2`.
fn list(versions: &[u32]) -> String {
    let numbers: Vec<_> = versions.iter().map(u32::to_string).collect();
    let word = if versions.len() == 1 { "version" } else { "versions" };
    format!("{word} {}", numbers.join(", "))
}

/// The full name that a new version gets: the next one, unless the operator chose.
pub(super) fn new_name(asked: ModelRef<'_>, known: &[u32]) -> Result<String, String> {
    let next = known.iter().max().map_or_else(|| Some(asked.number()), |last| last.checked_add(1));
    let version = asked.version.or(next);
    version
        .map(|version| full_name(asked.name, version))
        .ok_or_else(|| format!("version {} of `{}` is the last", u32::MAX, asked.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_serves_is_not_beside_itself() {
        let said = |serves, all: &[u32]| beside("done".to_owned(), "m", serves, all.to_vec());
        assert_eq!(said(3, &[3, 2]), "done: version 3 serves `m`, beside version 2");
        assert_eq!(said(3, &[1, 3, 2]), "done: version 3 serves `m`, beside versions 1, 2");
        assert_eq!(said(2, &[2]), "done");
    }
}
