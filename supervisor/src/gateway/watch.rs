//! Watches the pool for the page: one task, however many pages are open. While one is, it asks for the pool several
//! times a second, and each second for what is new of the timeline. Pages get the newest; what they are too slow for is
//! left out. While none is open, it asks for nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::body::Bytes;
use gridpool_client::Death;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::metrics::Metrics;
use gridpool_protocol::status::WorkerStatus;
use gridpool_protocol::timeline::Mark;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::Server;
use super::failure::Failure;
use super::limits::{
    DEATHS_KEPT_MAX, PAGES_EACH_MAX, PAGES_MAX, REST_AFTER, SAMPLE_EVERY, UPDATE_EVERY,
};
use super::models::{Availability, Model};
use super::observer::PoolView;
use super::shares::{Portions, Shares};
use crate::history::{History, Picture, Row, Snapshot};
use crate::timeline::{Past, Timeline};

/// What pages are told.
#[derive(Debug, Default)]
pub(super) struct Update {
    /// The pool as JSON.
    pub(super) state: Bytes,
    /// The gateway ends.
    pub(super) is_last: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Watch {
    updates: watch::Sender<Arc<Update>>,
    kept: Mutex<Kept>,
    /// Notified when there is something to look at sooner.
    hurry: Notify,
    /// Places of pages.
    pub(super) places: Arc<Shares>,
}

/// What is kept between snapshots.
#[derive(Debug, Default)]
struct Kept {
    /// A copy of the pool's, as of the last sample.
    timeline: Timeline,
    history: History,
    /// As of the last whole second.
    picture: Option<Picture>,
    sampled: Option<Instant>,
    deaths: VecDeque<Death>,
    /// Inferences of each model and version, and how many a second.
    models: BTreeMap<(String, String), (u64, Option<f64>)>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            updates: watch::Sender::default(),
            kept: Mutex::default(),
            hurry: Notify::new(),
            places: Shares::new(Portions::of_places(PAGES_MAX, PAGES_EACH_MAX)),
        }
    }

    /// The updates from now on, with the last one unless that is old.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Update>> {
        let mut updates = self.updates.subscribe();
        let is_old = !updates.borrow().is_last && updates.borrow().state.is_empty();
        if !is_old {
            updates.mark_changed();
        }
        self.hurry.notify_one();
        updates
    }

    /// The next snapshot is taken at once.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Ends every page's stream.
    pub(super) fn end(&self) {
        self.updates.send_replace(Arc::new(Update { is_last: true, ..Update::default() }));
    }

    /// The timeline as JSON.
    pub(super) fn timeline(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.kept.lock().timeline)
    }

    /// Whether the timeline is the pool's: it is not while nobody looks, nor until the pool has answered then.
    pub(super) fn has_kept_up(&self) -> bool {
        self.kept.lock().sampled.is_some()
    }

    /// How much of the timeline there is.
    pub(super) fn mark(&self) -> Mark {
        self.kept.lock().timeline.mark()
    }

    /// The points of a second after a mark, each as JSON, the first with the names of lines if they have changed; and
    /// the mark of now.
    pub(super) fn points_after(&self, mark: Mark) -> (Mark, Vec<Value>) {
        let timeline = &self.kept.lock().timeline;
        let of = |point| json!({ "point": point });
        let mut points: Vec<_> = timeline.after(mark).map(of).collect();
        let now = timeline.mark();
        match points.first_mut() {
            Some(first) if now.names != mark.names => first["lines"] = json!(timeline.lines()),
            Some(_) => {}
            None => return (Mark { names: mark.names, ..now }, points),
        }
        (now, points)
    }

    /// The deaths with a larger number.
    pub(super) fn deaths_after(&self, number: u64) -> Vec<Death> {
        let kept = self.kept.lock();
        kept.deaths.iter().filter(|death| death.number > number).cloned().collect()
    }

    /// Takes back what pages were told last, so that the next page is told nothing old.
    fn rest(&self) {
        self.updates.send_if_modified(|update| {
            let is_old = !update.is_last && !update.state.is_empty();
            if is_old {
                *update = Arc::default();
            }
            is_old
        });
    }

    fn is_watched(&self) -> bool {
        self.updates.receiver_count() > 0
    }

    fn last_death(&self) -> u64 {
        self.kept.lock().deaths.back().map_or(0, |death| death.number)
    }
}

/// Takes snapshots as long as a page is open, and a little longer: a page opens one stream after the other.
pub(super) async fn watch(gateway: Arc<Server>) {
    let mut watched: Option<Instant> = None;
    loop {
        let began = clock::now();
        if gateway.watch.is_watched() {
            watched = Some(began);
        }
        if watched.is_none_or(|last| last.elapsed() > REST_AFTER) {
            gateway.watch.rest();
            gateway.watch.kept.lock().forget();
            gateway.watch.hurry.notified().await;
            continue;
        }
        let state = look(&gateway).await;
        if gateway.watch.is_watched() {
            let state = state.unwrap_or_else(|failure| json!({ "trouble": failure.message() }));
            let state = Bytes::from(state.to_string());
            gateway.watch.updates.send_replace(Arc::new(Update { state, is_last: false }));
        } else {
            gateway.watch.rest();
        }
        let every = if gateway.watch.is_watched() { UPDATE_EVERY } else { SAMPLE_EVERY };
        // It is time, or there is something to look at; but never more often than pages are told.
        drop(timeout(clock::until(began + every), gateway.watch.hurry.notified()).await);
        let least = clock::until(began + UPDATE_EVERY);
        if !least.is_zero() {
            tokio::time::sleep(least).await;
        }
    }
}

/// Takes one snapshot, and returns what pages are told.
async fn look(gateway: &Arc<Server>) -> Result<Value, Failure> {
    let watch = &gateway.watch;
    let asked = clock::now();
    let metrics = gateway.observer.measure().await?;
    let last_death = watch.last_death();
    let deaths = match metrics.news.death > last_death {
        true => gateway.observer.deaths(last_death).await?,
        false => Vec::new(),
    };
    let is_due = watch
        .kept
        .lock()
        .sampled
        .is_none_or(|last| last.elapsed() + UPDATE_EVERY / 2 > SAMPLE_EVERY);
    let view = match is_due {
        true => {
            keep_up(gateway).await?;
            gateway.observer.view_of((asked, metrics.status.clone())).await?
        }
        false => gateway.observer.latest(),
    };
    let mut kept = watch.kept.lock();
    for death in deaths {
        if kept.deaths.len() == DEATHS_KEPT_MAX {
            kept.deaths.pop_front();
        }
        kept.deaths.push_back(death);
    }
    if is_due {
        kept.sample(&metrics, gateway, &view);
    }
    if !watch.is_watched() {
        return Ok(Value::Null);
    }
    Ok(kept.state(metrics, gateway, &view))
}

/// Takes in what is new of the timeline.
async fn keep_up(gateway: &Arc<Server>) -> Result<(), Failure> {
    loop {
        let part = gateway.observer.timeline(gateway.watch.mark()).await?;
        let is_last = part.is_last;
        gateway.watch.kept.lock().timeline.take(part);
        if is_last {
            return Ok(());
        }
    }
}

fn now_ms() -> u64 {
    let since = clock::time_of_day().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Kept {
    /// Nobody looks: rates would be those of a long time. Deaths and the timeline go on where they are.
    fn forget(&mut self) {
        let Self { history, picture, sampled, models, timeline: _, deaths: _ } = self;
        (*history, *picture, *sampled) = (History::default(), None, None);
        models.clear();
    }

    /// Takes a whole second in.
    fn sample(&mut self, metrics: &Metrics, gateway: &Server, view: &PoolView) {
        let seconds = self.sampled.replace(clock::now()).map(|last| last.elapsed().as_secs_f64());
        let (status, models) = (metrics.status.clone(), view.rows.clone());
        let snapshot = Snapshot { status, models, past: Past::default() };
        self.picture = Some(self.history.snapshot(snapshot));
        let before = std::mem::take(&mut self.models);
        for model in view.models() {
            let name = (model.name().to_owned(), model.version().into_owned());
            let sum = gateway.statistics.of(&model).numbers().inferences;
            let grown = before.get(&name).and_then(|(before, _)| sum.checked_sub(*before));
            let rate = grown.zip(seconds).map(|(grown, seconds)| ratio(grown, seconds));
            self.models.insert(name, (sum, rate));
        }
    }

    /// What pages are told.
    fn state(&self, metrics: Metrics, gateway: &Server, view: &PoolView) -> Value {
        let models = view.models().filter_map(|model| self.model(&model, gateway));
        let picture = self.picture.as_ref();
        let rows: Vec<_> =
            picture.iter().flat_map(|picture| &picture.rows).map(RowRates::of).collect();
        let reasons = metrics.roles.iter().map(|role| {
            let reasons = role.restarts.iter().filter(|(_, count)| *count > 0);
            let reasons: BTreeMap<_, _> =
                reasons.map(|(reason, count)| (reason.name(), count)).collect();
            json!({ "role": role.role.name(), "restarts": reasons })
        });
        json!({
            "at_ms": now_ms(),
            "rows": rows,
            "roles": reasons.collect::<Value>(),
            "models": models.collect::<Value>(),
            "faults": picture.map_or(&[][..], |picture| &picture.faults),
            "jobs_rate": picture.and_then(|picture| picture.jobs_rate),
            "items_rate": picture.and_then(|picture| picture.items_rate),
            "not_ready": gateway.readiness.check().and_then(|()| view.is_open()).err(),
            "last_verdict": metrics.news.verdict,
            "status": metrics.status,
        })
    }

    /// A model of the pool, or a built-in one that was asked for.
    fn model(&self, model: &Model, gateway: &Server) -> Option<Value> {
        let numbers = gateway.statistics.of(model).numbers();
        let name = (model.name().to_owned(), model.version().into_owned());
        let rate = self.models.get(&name).and_then(|(_, rate)| *rate);
        let rows = self.picture.iter().flat_map(|picture| &picture.models);
        let jobs_rate = match model {
            Model::Grid(_) => None,
            Model::Onnx(model, _) => {
                rows.filter(|row| row.name == model.info.name).find_map(|row| row.jobs_rate)
            }
        };
        let (workers, why) = match model {
            Model::Grid(_) if numbers.inferences == 0 => return None,
            Model::Grid(_) => (None, None),
            Model::Onnx(model, _) if model.availability == Availability::Unloaded => return None,
            Model::Onnx(model, _) => (Some(model.workers.len()), model.why_not_ready()),
        };
        Some(json!({
            "name": name.0,
            "version": name.1,
            "workers": workers,
            "why_not_ready": why,
            "inferences": numbers.inferences,
            "failed": numbers.fail.count,
            "in_flight": numbers.in_flight,
            "rate": rate,
            "jobs_rate": jobs_rate,
        }))
    }
}

#[expect(clippy::cast_precision_loss, reason = "requests of a second")]
fn ratio(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// What two snapshots say of a worker.
#[derive(Serialize)]
struct RowRates<'a> {
    name: &'a str,
    group: &'a str,
    busy_percent: Option<f64>,
    memory: Option<u64>,
    memory_total: Option<u64>,
    power_mw: Option<u32>,
    jobs_rate: Option<f64>,
    items_rate: Option<f64>,
}

impl<'a> RowRates<'a> {
    fn of(row: &'a Row) -> Self {
        let WorkerStatus { name, group, .. } = &row.own;
        let Row { busy_percent, memory, memory_total, power_mw, jobs_rate, items_rate, .. } = *row;
        Self { name, group, busy_percent, memory, memory_total, power_mw, jobs_rate, items_rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_comes_later_is_told_nothing_old_but_the_end() {
        let watch = Watch::new();
        let (state, is_last) = (Bytes::from("{}"), false);
        watch.updates.send_replace(Arc::new(Update { state, is_last }));
        assert!(!watch.subscribe().borrow().state.is_empty());
        watch.rest();
        assert!(watch.subscribe().borrow().state.is_empty());
        watch.end();
        watch.rest();
        assert!(watch.subscribe().borrow().is_last);
    }
}
