//! How the models of a pool change while it serves: on all of its devices, or on none.
//!
//! An operator's order goes to every inference worker. If all have done it, it holds for those that
//! start later, too; if one could not, those that could take it back. One change is made at a time.
//! Whoever starts meanwhile is brought up to date when it says what it has.
//!
//! A model that is unloaded takes no new request at once; workers are asked when the last of those that
//! it had has its verdict. With the first model the pool of inference workers wakes, after the last it
//! rests: then their processes end, and whatever they held is free.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gridpool_protocol::ids::{ClientId, Role, WorkerId};
use gridpool_protocol::message::{ModelOrder, Refusal, ServerMessage, ToWorker};
use gridpool_protocol::tensor::model::{ModelInfo, ModelState, check_model_name};
use gridpool_protocol::tensor::options::{ModelPlan, check_contexts};

use super::super::Shared;
use super::super::core::{Core, Work};
use crate::config::MODELS_MAX;
use crate::pool::event::{Event, Timestamp};

/// A worker that has not done what it was ordered to by then is killed: longer than any load that is
/// known to end, and as long as a worker may take to be READY.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

/// The change that is under way, and what each worker was ordered.
#[derive(Debug, Default)]
pub(in super::super) struct Changes {
    change: Option<Change>,
    /// What each worker has not done yet. The first of them it was sent.
    orders: BTreeMap<WorkerId, VecDeque<Order>>,
    /// Of the latest order.
    number: u64,
}

/// An order to one worker.
#[derive(Debug)]
struct Order {
    number: u64,
    what: ModelOrder,
    /// It is of the change that is under way.
    counts: bool,
    /// When it was sent; not before the first of a worker's.
    sent: Option<Timestamp>,
}

/// What an operator wants done.
#[derive(Debug)]
struct Change {
    /// Whom to tell, and what he called it.
    client: ClientId,
    request: u64,
    what: ModelOrder,
    /// Of `Contexts`: what is to be restored if it cannot be done.
    before: u32,
    /// Workers were asked.
    asked: bool,
    done: Vec<WorkerId>,
    failed: Vec<(WorkerId, String)>,
}

impl Core {
    /// Begins a change, or says at once why not. Its end is told to the client.
    pub(in super::super) fn change_models(
        &mut self,
        shared: &Shared,
        client: ClientId,
        request: u64,
        what: ModelOrder,
    ) {
        let before = match self.check_order(&what) {
            Ok(before) => before,
            Err(refusal) => {
                return self.tell(client, &ServerMessage::Denied { request, refusal });
            }
        };
        tracing::info!(%client, "model `{}` is to be {}", what.name(), verb(&what));
        if let ModelOrder::Unload { name } = &what {
            self.catalogue.plans.remove(name);
        }
        let wakes = !self.pool.has_models();
        let (done, failed) = (Vec::new(), Vec::new());
        let change = Change { client, request, what, before, asked: false, done, failed };
        self.catalogue.changes.change = Some(change);
        let event = if wakes { Event::WakeRequested } else { Event::TimePassed };
        self.handle(shared, shared.timestamp(), event);
    }

    /// Whether an order can be carried out; how many contexts its model has.
    fn check_order(&self, what: &ModelOrder) -> Result<u32, Refusal> {
        let invalid = |why: String| Err(Refusal::Invalid(why));
        if self.pool.is_draining() {
            return Err(Refusal::Draining);
        }
        if let Some(Change { what, .. }) = &self.catalogue.changes.change {
            let verb = verb(what);
            let name = what.name();
            return invalid(format!("`{name}` is being {verb}; try again when that is done"));
        }
        let plans = &self.catalogue.plans;
        let known = plans.get(what.name());
        let valid = match what {
            ModelOrder::Load(ModelPlan { name, path, options }) => check_model_name(name)
                .map_err(|error| error.to_string())
                .and_then(|()| options.check().map_err(|error| format!("model `{name}`: {error}")))
                .and_then(|()| match path.is_absolute() {
                    true => Ok(()),
                    false => Err(format!("`{}` is no absolute path", path.display())),
                })
                .and_then(|()| match known {
                    None if plans.len() >= MODELS_MAX => {
                        Err(format!("a pool has at most {MODELS_MAX} models: unload one first"))
                    }
                    None => Ok(()),
                    Some(known) => Err(format!(
                        "there is a model `{name}` already, from {}: `gridpool model unload {name}` \
                         makes room for another",
                        known.path.display()
                    )),
                }),
            ModelOrder::Contexts { contexts, .. } => {
                check_contexts(*contexts).map_err(|error| error.to_string())
            }
            ModelOrder::Unload { .. } => Ok(()),
        };
        if let Err(why) = valid {
            return invalid(why);
        }
        match (what, known) {
            (ModelOrder::Load(plan), _) => Ok(plan.options.contexts),
            (ModelOrder::Contexts { .. } | ModelOrder::Unload { .. }, Some(known)) => {
                Ok(known.options.contexts)
            }
            (ModelOrder::Contexts { name, .. } | ModelOrder::Unload { name }, None) => {
                let known: Vec<_> = plans.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                invalid(format!("there is no model `{name}`; there is {known}"))
            }
        }
    }

    /// Carries the change that is under way as far as it goes now.
    pub(in super::super) fn go_on_with_change(&mut self, shared: &Shared) {
        let Some(change) = &self.catalogue.changes.change else { return };
        let is_unload = matches!(change.what, ModelOrder::Unload { .. });
        let name = change.what.name();
        let wants = |work: &Work| matches!(work, Work::Infer(call, _) if call.model == name);
        if is_unload && !change.asked && self.work().any(wants) {
            return;
        }
        self.ask_those_who_were_not();
        let changes = &self.catalogue.changes;
        let is_lost = changes.change.as_ref().is_some_and(|change| !change.failed.is_empty());
        let awaited = !is_unload && !is_lost && self.pool.awaits_model_workers();
        if !awaited && !self.catalogue.changes.is_pending() {
            self.end_change(shared);
        }
    }

    /// Orders every worker that has said what it has to do what the change is about.
    fn ask_those_who_were_not(&mut self) {
        let Some(change) = &mut self.catalogue.changes.change else { return };
        let first = !std::mem::replace(&mut change.asked, true);
        let what = change.what.clone();
        // Whoever comes later is asked by `bring_up_to_date`.
        let reports = self.catalogue.reports.iter().filter(|_| first);
        let asked: Vec<_> =
            reports.filter(|(_, has)| concerns(&what, has)).map(|(&worker, _)| worker).collect();
        asked.into_iter().for_each(|worker| self.order(worker, &what, true));
    }

    /// A worker has said what it has: what it lacks, or has too much, is ordered. One that was not there
    /// when the change under way began is asked now.
    pub(super) fn bring_up_to_date(&mut self, worker: WorkerId) {
        if self.catalogue.changes.orders.contains_key(&worker) {
            // It was asked before, and tells of what it has done.
            return;
        }
        self.catalogue.changes.orders.insert(worker, VecDeque::new());
        let has = &self.catalogue.reports[&worker];
        let plans = &self.catalogue.plans;
        let change = self.catalogue.changes.change.as_ref();
        let of_change = |name: &str| change.is_some_and(|change| change.what.name() == name);
        let mut orders = Vec::new();
        let surplus = has.iter().filter(|info| !plans.contains_key(&info.name));
        orders.extend(
            surplus
                .filter(|info| !of_change(&info.name))
                .map(|info| (ModelOrder::Unload { name: info.name.clone() }, false)),
        );
        for plan in plans.values() {
            let contexts = plan.options.contexts;
            match has.iter().find(|info| info.name == plan.name) {
                None => orders.push((ModelOrder::Load(plan.clone()), false)),
                Some(info) if info.state == ModelState::Ready && info.contexts != contexts => {
                    let name = plan.name.clone();
                    orders.push((ModelOrder::Contexts { name, contexts }, false));
                }
                Some(_) => {}
            }
        }
        if let Some(change) = change.filter(|change| change.asks(has)) {
            orders.push((change.what.clone(), true));
        }
        for (what, counts) in orders {
            self.order(worker, &what, counts);
        }
    }

    /// Has a worker do something about its models, after what it was ordered before.
    fn order(&mut self, worker: WorkerId, what: &ModelOrder, counts: bool) {
        let changes = &mut self.catalogue.changes;
        changes.number += 1;
        let order = Order { number: changes.number, what: what.clone(), counts, sent: None };
        changes.orders.entry(worker).or_default().push_back(order);
        self.send_next_order(worker);
    }

    fn send_next_order(&mut self, worker: WorkerId) {
        let now = self.now;
        let next = self.catalogue.changes.orders.get_mut(&worker).and_then(VecDeque::front_mut);
        let Some(order) = next.filter(|order| order.sent.is_none()) else { return };
        order.sent = Some(now);
        let message = ToWorker::Model { order: order.number, what: order.what.clone() };
        self.with_link(worker, |link| link.order(&message));
    }

    /// A worker has done what it was ordered, or says why not. The error is a breach of the protocol.
    pub(in super::super) fn ordered(
        &mut self,
        worker: WorkerId,
        number: u64,
        result: Result<(), String>,
    ) -> Result<(), String> {
        let changes = &mut self.catalogue.changes;
        let orders = changes.orders.get_mut(&worker);
        let order = orders
            .and_then(|orders| orders.pop_front_if(|order| order.number == number))
            .ok_or_else(|| {
            format!("it has carried out order {number}, which it was not given")
        })?;
        let (verb, name) = (verb(&order.what), order.what.name());
        match (&result, &mut changes.change) {
            (Ok(()), Some(change)) if order.counts => change.done.push(worker),
            (Err(why), Some(change)) if order.counts => change.failed.push((worker, why.clone())),
            (Ok(()), _) => tracing::info!(%worker, "model `{name}` {verb}"),
            (Err(why), _) => tracing::error!(%worker, why, "model `{name}` cannot be {verb}"),
        }
        self.send_next_order(worker);
        Ok(())
    }

    /// A worker is gone and does nothing more. One that was to unload a model has done so.
    pub(super) fn ends_with_orders(&mut self, worker: WorkerId) {
        let changes = &mut self.catalogue.changes;
        let orders = changes.orders.remove(&worker).unwrap_or_default();
        let Some(change) = &mut changes.change else { return };
        let was_at_it = orders.iter().any(|order| order.counts);
        match change.what {
            ModelOrder::Unload { .. } if was_at_it => change.done.push(worker),
            ModelOrder::Unload { .. } => {}
            ModelOrder::Contexts { .. } | ModelOrder::Load(_) if was_at_it => {
                change.failed.push((worker, "it ended while it was at it".to_owned()));
            }
            // The one that takes its place is asked again.
            ModelOrder::Contexts { .. } | ModelOrder::Load(_) => {
                change.done.retain(|&done| done != worker);
            }
        }
    }

    /// Whether a worker has taken too long over what it was ordered.
    pub(in super::super) fn is_late_with_order(&self, worker: WorkerId) -> bool {
        let orders = self.catalogue.changes.orders.get(&worker);
        let sent = orders.and_then(VecDeque::front).and_then(|order| order.sent);
        sent.is_some_and(|sent| self.now.since(sent) > ORDER_TIMEOUT)
    }

    /// Every worker that is there has done it, or has said why not.
    fn end_change(&mut self, shared: &Shared) {
        let Some(change) = self.catalogue.changes.change.take() else { return };
        let Change { client, request, what, before, asked: _, mut done, failed } = change;
        done.sort();
        let name = what.name().to_owned();
        let plans = &mut self.catalogue.plans;
        let is_unload = matches!(what, ModelOrder::Unload { .. });
        let holds = is_unload || (failed.is_empty() && !done.is_empty());
        let message = if holds {
            match &what {
                ModelOrder::Contexts { contexts, .. } => {
                    if let Some(plan) = plans.get_mut(&name) {
                        plan.options.contexts = *contexts;
                    }
                }
                ModelOrder::Load(plan) => drop(plans.insert(name.clone(), plan.clone())),
                ModelOrder::Unload { .. } => {}
            }
            let what = done_in_words(&what, &done);
            tracing::info!("model {what}");
            ServerMessage::Granted { request, what }
        } else {
            for &worker in &done {
                self.order(worker, &taken_back(&what, before), false);
            }
            let whys = match failed.is_empty() {
                true => self.why_nobody_could(&name).join("; "),
                false => told_once(&failed),
            };
            let why = format!("`{name}` cannot be {}: {whys}", verb(&what));
            tracing::error!("model {why}");
            ServerMessage::Denied { request, refusal: Refusal::Invalid(why) }
        };
        self.tell(client, &message);
        if self.catalogue.plans.is_empty() {
            self.handle(shared, shared.timestamp(), Event::RestRequested);
        }
    }

    /// Why there is no worker that could have been asked about a model.
    fn why_nobody_could(&self, name: &str) -> Vec<String> {
        if let Some(why) = self.catalogue.why_unavailable(name) {
            return vec![why];
        }
        let of = |device| self.pool.quarantines(device).filter(|&(role, _)| role == Role::Infer);
        let why = |device| of(device).map(move |(_, out)| format!("{device}: {}", out.why));
        let whys: Vec<_> = self.pool.devices().flat_map(why).collect();
        if whys.is_empty() { vec!["no worker is there".to_owned()] } else { whys }
    }
}

impl Change {
    /// Whether a worker that has come meanwhile and has these models is asked, too.
    fn asks(&self, has: &[ModelInfo]) -> bool {
        self.asked && self.failed.is_empty() && concerns(&self.what, has)
    }
}

impl Changes {
    /// Whether a worker has not done its part of the change.
    fn is_pending(&self) -> bool {
        self.orders.values().flatten().any(|order| order.counts)
    }
}

/// Whether there is anything to do for a worker that has these models.
fn concerns(what: &ModelOrder, has: &[ModelInfo]) -> bool {
    let named = has.iter().find(|info| info.name == what.name());
    match what {
        ModelOrder::Contexts { .. } => named.is_some_and(|info| info.state == ModelState::Ready),
        ModelOrder::Load(_) => true,
        ModelOrder::Unload { .. } => named.is_some(),
    }
}

/// What each worker says, once for all that say the same.
fn told_once(failed: &[(WorkerId, String)]) -> String {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (worker, why) in failed {
        by_reason.entry(why).or_default().push(worker.to_string());
    }
    let told = by_reason.iter().map(|(why, workers)| format!("{}: {why}", workers.join(", ")));
    told.collect::<Vec<_>>().join("; ")
}

/// What undoes an order that was carried out.
fn taken_back(what: &ModelOrder, before: u32) -> ModelOrder {
    match what {
        ModelOrder::Contexts { name, .. } => {
            ModelOrder::Contexts { name: name.clone(), contexts: before }
        }
        ModelOrder::Load(ModelPlan { name, .. }) | ModelOrder::Unload { name } => {
            ModelOrder::Unload { name: name.clone() }
        }
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

fn done_in_words(what: &ModelOrder, done: &[WorkerId]) -> String {
    let names: Vec<_> = done.iter().map(WorkerId::to_string).collect();
    let on = if names.is_empty() { "no worker".to_owned() } else { names.join(", ") };
    match what {
        ModelOrder::Contexts { name, contexts: 1 } => format!("`{name}` has 1 context on {on}"),
        ModelOrder::Contexts { name, contexts } => {
            format!("`{name}` has {contexts} contexts on {on}")
        }
        ModelOrder::Load(ModelPlan { name, .. }) => format!("`{name}` is loaded on {on}"),
        ModelOrder::Unload { name } => format!("`{name}` is unloaded from {on}"),
    }
}
