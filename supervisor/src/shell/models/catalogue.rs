//! Which models a pool is to have, which worker has which, and the change that an operator wants: plain
//! data, without a clock, a lock or a socket.
//!
//! Nothing here remembers what was to be done next. Whenever a worker has nothing to do, what it has is
//! compared with what it is to have, and the first difference is its next order: a worker that starts
//! late, one that dies in the midst, and a change that is taken back all come to the same in the end.
//!
//! A change holds on all workers or on none. A model is loaded by one worker first: if that one dies of
//! it, it was one. A model that is unloaded takes nothing new at once, and stays where it is until the
//! last request that it had has its verdict.

mod step;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use gridpool_protocol::ids::{ClientId, WorkerId};
use gridpool_protocol::message::ModelOrder;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState, check_model_name};
use gridpool_protocol::tensor::options::{ModelPlan, check_contexts};

use crate::config::MODELS_MAX;
use crate::pool::event::Timestamp;

/// The models of a pool.
#[derive(Debug, Default)]
pub(in super::super) struct Catalogue {
    wanted: BTreeMap<String, Wanted>,
    /// Workers that have said what they have, and have not been told to end.
    holders: BTreeMap<WorkerId, Holder>,
    /// What each worker was started with that has not said anything yet.
    started: BTreeMap<WorkerId, BTreeMap<String, Edition>>,
    change: Option<Change>,
    /// Of the latest order, and of the latest edition.
    number: u64,
    /// Something has happened since the last step.
    is_stirred: bool,
}

/// Tells two models of one name apart: one was unloaded, the other loaded.
type Edition = u64;

/// A model that workers are to have.
#[derive(Debug)]
struct Wanted {
    plan: ModelPlan,
    edition: Edition,
    /// It takes nothing new, and goes when the last request that it had has its verdict.
    is_closing: bool,
}

/// A worker.
#[derive(Debug, Default)]
struct Holder {
    says: Vec<ModelInfo>,
    has: BTreeMap<String, Edition>,
    order: Option<Order>,
    /// What it could not do, so that it is not asked again: the model and its contexts.
    refused: Vec<(Edition, u32)>,
}

#[derive(Debug)]
struct Order {
    number: u64,
    what: ModelOrder,
    edition: Edition,
    sent: Timestamp,
}

/// What an operator wants.
#[derive(Debug)]
struct Change {
    client: ClientId,
    request: u64,
    what: ModelOrder,
    /// Of a model that is loaded.
    edition: Edition,
    /// Who could not do it, and why.
    failed: Vec<(WorkerId, String)>,
}

/// What a step needs to know of everything else.
pub(super) struct Around<'a> {
    pub(super) now: Timestamp,
    /// Whether a request without a verdict asks a model.
    pub(super) is_asked: &'a dyn Fn(&str) -> bool,
    /// Whether a worker is there, or about to be, that has not said what it has.
    pub(super) awaits: bool,
    /// Why there is no worker, if there is none.
    pub(super) why_nobody: &'a dyn Fn() -> String,
}

/// Something to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Have a worker change its models.
    Order { worker: WorkerId, number: u64, what: ModelOrder },
    /// No model is left.
    Rest,
    /// Tell an operator what came of the change.
    Tell { client: ClientId, request: u64, result: Result<String, String> },
}

impl Catalogue {
    pub(in super::super) fn new(plans: &[ModelPlan]) -> Self {
        let mut catalogue = Self::default();
        for plan in plans {
            let edition = catalogue.next_number();
            let wanted = Wanted { plan: plan.clone(), edition, is_closing: false };
            catalogue.wanted.insert(plan.name.clone(), wanted);
        }
        catalogue
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// What a worker that starts now is to load.
    pub(in super::super) fn start(&mut self, worker: WorkerId) -> Vec<ModelPlan> {
        let edition = |(name, wanted): (&String, &Wanted)| (name.clone(), wanted.edition);
        self.started.insert(worker, self.wanted.iter().map(edition).collect());
        self.wanted.values().map(|wanted| wanted.plan.clone()).collect()
    }

    /// A worker says what it has; what it said before, or nothing if it is to end.
    pub(super) fn reported(
        &mut self,
        worker: WorkerId,
        says: Vec<ModelInfo>,
    ) -> Option<Vec<ModelInfo>> {
        self.is_stirred = true;
        if let Some(editions) = self.started.remove(&worker) {
            let edition = |info: &ModelInfo| editions.get(&info.name).copied().unwrap_or_default();
            let has = says.iter().map(|info| (info.name.clone(), edition(info))).collect();
            self.holders.insert(worker, Holder { has, ..Holder::default() });
        }
        let holder = self.holders.get_mut(&worker)?;
        Some(std::mem::replace(&mut holder.says, says))
    }

    /// A worker has ended, or was told to: it does nothing more.
    pub(in super::super) fn gone(&mut self, worker: WorkerId) {
        self.started.remove(&worker);
        let Some(holder) = self.holders.remove(&worker) else { return };
        self.is_stirred = true;
        if let Some(order) = holder.order {
            self.failed(worker, &order, "it ended while it was at it".to_owned());
        }
    }

    /// A worker has done what it was ordered, or says why not. The error is a breach of the protocol.
    pub(super) fn ordered(
        &mut self,
        worker: WorkerId,
        number: u64,
        result: Result<(), String>,
    ) -> Result<(), String> {
        // What it says while it ends is of no interest.
        let Some(holder) = self.holders.get_mut(&worker) else { return Ok(()) };
        let order = holder.order.take_if(|order| order.number == number);
        let order =
            order.ok_or_else(|| format!("it has done order {number}, which it was not given"))?;
        self.is_stirred = true;
        let (name, verb) = (order.what.name().to_owned(), verb(&order.what));
        match (&order.what, result) {
            (ModelOrder::Load(_), Ok(())) => drop(holder.has.insert(name, order.edition)),
            (ModelOrder::Contexts { .. }, Ok(())) => {}
            // What it does not have need not go.
            (ModelOrder::Unload { .. }, _) => drop(holder.has.remove(&name)),
            (ModelOrder::Contexts { .. } | ModelOrder::Load(_), Err(why)) => {
                tracing::warn!(%worker, name, why, "model cannot be {verb}");
                holder.refused.push((order.edition, contexts_of(&order.what)));
                self.failed(worker, &order, why);
            }
        }
        Ok(())
    }

    /// An order was not carried out: neither is the change that it is of.
    fn failed(&mut self, worker: WorkerId, order: &Order, why: String) {
        let Some(change) = &mut self.change else { return };
        if change.what.name() == order.what.name() && verb(&change.what) == verb(&order.what) {
            change.failed.push((worker, why));
        }
    }

    /// When the order was given that a worker has not carried out.
    pub(super) fn ordered_at(&self, worker: WorkerId) -> Option<Timestamp> {
        Some(self.holders.get(&worker)?.order.as_ref()?.sent)
    }

    /// Takes in what an operator wants; the error is what he is told at once.
    pub(super) fn begin(
        &mut self,
        client: ClientId,
        request: u64,
        what: ModelOrder,
    ) -> Result<(), String> {
        if let Some(Change { what, .. }) = &self.change {
            let (name, verb) = (what.name(), verb(what));
            return Err(format!("`{name}` is being {verb}; try again when that is done"));
        }
        self.check_order(&what)?;
        if let ModelOrder::Unload { name } = &what
            && let Some(wanted) = self.wanted.get_mut(name)
        {
            wanted.is_closing = true;
        }
        let edition = self.next_number();
        self.change = Some(Change { client, request, what, edition, failed: Vec::new() });
        // Who could not before may be able to now.
        self.holders.values_mut().for_each(|holder| holder.refused.clear());
        self.is_stirred = true;
        Ok(())
    }

    fn check_order(&self, what: &ModelOrder) -> Result<(), String> {
        let known = self.wanted.get(what.name());
        match (what, known) {
            (ModelOrder::Load(ModelPlan { name, .. }), Some(known)) => Err(format!(
                "there is a model `{name}` already, from {}: `gridpool model unload {name}` makes room \
                 for another",
                known.plan.path.display()
            )),
            (ModelOrder::Load(plan), None) => {
                check_model_name(&plan.name).map_err(|error| error.to_string())?;
                plan.check().map_err(|error| format!("model `{}`: {error}", plan.name))?;
                if !plan.path.is_absolute() {
                    return Err(format!("`{}` is no absolute path", plan.path.display()));
                }
                match self.wanted.len() >= MODELS_MAX {
                    true => {
                        Err(format!("a pool has at most {MODELS_MAX} models: unload one first"))
                    }
                    false => Ok(()),
                }
            }
            (ModelOrder::Contexts { name, .. } | ModelOrder::Unload { name }, None) => {
                Err(format!("there is no model `{name}`; there is {}", self.names()))
            }
            (ModelOrder::Contexts { contexts, .. }, Some(_)) => {
                check_contexts(*contexts).map_err(|error| error.to_string())
            }
            (ModelOrder::Unload { .. }, Some(_)) => Ok(()),
        }
    }

    /// Those that take requests.
    fn names(&self) -> String {
        let open = self.wanted.iter().filter(|(_, wanted)| !wanted.is_closing);
        let names: Vec<_> = open.map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// Whether somebody may ask for this model; `settled` says that no worker is to come.
    pub(super) fn check(&self, name: &str, settled: bool) -> Result<(), String> {
        if self.wanted.get(name).is_some_and(|wanted| !wanted.is_closing) {
            return match self.why_unavailable(name) {
                Some(why) if settled => {
                    Err(format!("the model `{name}` could not be loaded: {why}"))
                }
                Some(_) | None => Ok(()),
            };
        }
        Err(match self.names().as_str() {
            "none" => {
                "this pool has no models: `gridpool model load NAME=PATH` gives it one".to_owned()
            }
            names => format!("there is no model `{name}`; there is {names}"),
        })
    }

    /// Why no worker that has said something of a model could load it; nothing if one could, or none
    /// has said anything.
    fn why_unavailable(&self, name: &str) -> Option<String> {
        let named = |holder: &Holder| holder.says.iter().find(|info| info.name == name).cloned();
        let mut said = self.holders.iter().filter_map(|(at, holder)| Some((at, named(holder)?)));
        let (at, first) = said.next()?;
        let is_ready = |info: &ModelInfo| info.state == ModelState::Ready;
        (!is_ready(&first) && !said.any(|(_, info)| is_ready(&info)))
            .then(|| format!("{at}: {}", first.reason))
    }

    /// What every worker says of its models.
    pub(super) fn rows(&self) -> impl Iterator<Item = (WorkerId, &ModelInfo)> {
        let of = |(&worker, holder)| {
            let Holder { says, .. }: &Holder = holder;
            says.iter().map(move |info| (worker, info))
        };
        self.holders.iter().flat_map(of)
    }

    /// The file of a model that workers are to have.
    pub(super) fn path(&self, name: &str) -> Option<&Path> {
        self.wanted.get(name).map(|wanted| &*wanted.plan.path)
    }

    /// The models that workers are to have.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &str> {
        self.wanted.keys().map(String::as_str)
    }

    /// Whether a step may find something to do.
    pub(super) fn is_stirred(&self) -> bool {
        self.is_stirred || self.change.is_some()
    }
}

impl Holder {
    fn ready(&self, name: &str) -> Option<&ModelInfo> {
        self.says.iter().find(|info| info.name == name && info.state == ModelState::Ready)
    }
}

/// The contexts that an order is about.
fn contexts_of(what: &ModelOrder) -> u32 {
    match what {
        ModelOrder::Contexts { contexts, .. } => *contexts,
        ModelOrder::Load(plan) => plan.options.contexts,
        ModelOrder::Unload { .. } => 0,
    }
}

/// `loaded`.
fn verb(what: &ModelOrder) -> &'static str {
    match what {
        ModelOrder::Contexts { .. } => "given other contexts",
        ModelOrder::Load(_) => "loaded",
        ModelOrder::Unload { .. } => "unloaded",
    }
}
