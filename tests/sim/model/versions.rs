//! Versions: which one runs a request, and swaps. A request for a name gets the version that has the highest number
//! when it is accepted, or the one that it names, and no other afterwards. A swap refuses no request.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridpool_core::Core;
use gridpool_core::event::Work;
use gridpool_protocol::ids::{ClientId, Group};

use super::models::Models;
use super::{Broken, Model, holds};

/// A name, and the number behind it.
pub(super) fn parts(text: &str) -> (String, Option<u64>) {
    match text.split_once(':') {
        Some((name, number)) => {
            (name.to_owned(), Some(number.parse().expect("operators type numbers")))
        }
        None => (text.to_owned(), None),
    }
}

/// The text that stands for a version.
pub(super) fn written(name: &str, number: u64) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}:{number}") }
}

/// A load that is to take over, and unloads that belong together: the operator gets one reply.
#[derive(Debug)]
pub(super) struct Swap {
    from: (ClientId, u64),
    name: String,
    /// While a version is being loaded: its number, and whether those before it stay.
    loads: Option<(u64, bool)>,
    /// Versions that are not unloaded yet.
    left: usize,
}

impl Models {
    /// The versions of a model, and whether each accepts requests.
    fn versions(&self, name: &str) -> impl Iterator<Item = (u64, bool)> {
        self.wanted.iter().filter_map(move |(own, wanted)| {
            let (own, number) = parts(own);
            (own == name).then_some((number.unwrap_or(1), !wanted.closes))
        })
    }
}

impl Model {
    /// The versions of a model that accept requests, with their groups.
    pub(super) fn open_versions(&self, name: &str) -> BTreeMap<u64, Group> {
        let of = |(&group, models): (&Group, &Models)| {
            let open = models.versions(name).filter(|&(_, is_open)| is_open);
            open.map(|(number, _)| (number, group)).collect::<Vec<_>>()
        };
        self.models.iter().flat_map(of).collect()
    }

    /// The number that a new version gets by itself.
    pub(super) fn next_version(&self, name: &str) -> u64 {
        let all = self.models.values().flat_map(|models| models.versions(name));
        all.map(|(number, _)| number).max().unwrap_or(0) + 1
    }

    /// The version that a request is for, as things are now.
    pub(super) fn version_for(&self, asked: &str) -> Option<(Group, String)> {
        let (name, number) = parts(asked);
        let open = self.open_versions(&name);
        let number = number.or_else(|| open.keys().max().copied())?;
        Some((*open.get(&number)?, written(&name, number)))
    }

    /// The work that an accepted job does, whatever happens to versions later.
    pub(super) fn bound(&self, work: &Work) -> Work {
        match work.model().and_then(|asked| self.version_for(asked)) {
            Some((_, written)) => Work::Model { name: Arc::from(written) },
            None => work.clone(),
        }
    }

    pub(super) fn is_being_changed(&self, name: &str) -> bool {
        let changes = self.models.values().filter_map(|models| models.change.as_ref());
        changes.map(|change| parts(change.command.name()).0).any(|own| own == name)
            || self.swaps.iter().any(|swap| swap.name == name)
    }

    pub(super) fn swap_begins(&mut self, from: (ClientId, u64), name: &str, load: (u64, bool)) {
        self.swaps.push(Swap { from, name: name.to_owned(), loads: Some(load), left: 0 });
    }

    pub(super) fn all_are_unloaded(
        &mut self,
        from: (ClientId, u64),
        name: &str,
        all: &BTreeMap<u64, Group>,
    ) {
        self.coverage.hit("change: all versions of a model are unloaded");
        let (name, left) = (name.to_owned(), all.len());
        self.swaps.push(Swap { from, name: name.clone(), loads: None, left });
        self.versions_close(from, &name, all);
    }

    fn versions_close(&mut self, from: (ClientId, u64), name: &str, all: &BTreeMap<u64, Group>) {
        for (&number, group) in all {
            let written = written(name, number);
            let is_asked = self
                .jobs
                .values()
                .any(|job| job.request.work.model().is_some_and(|model| **model == *written));
            self.coverage.hit(match is_asked {
                true => "swap: a version finishes its requests",
                false => "swap: a version without requests",
            });
            let models = self.models.get_mut(group).expect("it has the version");
            if models.change.is_some() {
                self.coverage.hit("swap: an unload waits for another change");
            }
            models.unload(from, &written);
        }
    }

    /// A change has ended. Returns whether the operator hears of it, and whether it was done.
    pub(super) fn part_ends(&mut self, from: (ClientId, u64), is_done: bool) -> Option<bool> {
        let Some(at) = self.swaps.iter().position(|swap| swap.from == from) else {
            return Some(is_done);
        };
        let Some((number, keep)) = self.swaps[at].loads.take() else {
            self.swaps[at].left -= 1;
            let is_last = self.swaps[at].left == 0;
            if is_last {
                self.swaps.remove(at);
            }
            return is_last.then_some(true);
        };
        let name = self.swaps[at].name.clone();
        let mut others = self.open_versions(&name);
        others.remove(&number);
        if !is_done {
            if !others.is_empty() {
                self.coverage.hit("swap: the new version cannot be loaded");
            }
            self.swaps.remove(at);
            return Some(false);
        }
        let is_highest = others.keys().all(|&other| other < number);
        if others.is_empty() || keep || !is_highest {
            if !others.is_empty() {
                self.coverage.hit(match is_highest {
                    true => "swap: the versions before stay",
                    false => "swap: a version that is not the highest",
                });
            }
            self.swaps.remove(at);
            return Some(true);
        }
        self.coverage.hit("swap: a new version takes over");
        self.swaps[at].left = others.len();
        self.versions_close(from, &name, &others);
        None
    }

    pub(super) fn the_core_knows_the_version_of_each_job(&self, core: &Core) -> Result<(), Broken> {
        let rule = "a_request_runs_on_the_version_that_served_when_it_was_accepted";
        let of = |(&id, job): (_, &super::jobs::Job)| {
            (job.request.work.model() != core.model_of(id)).then_some(id)
        };
        let other = self.jobs.iter().find_map(of);
        holds(rule, other.is_none(), || {
            format!("{other:?}: {:?}", other.map(|id| core.model_of(id)))
        })
    }
}
