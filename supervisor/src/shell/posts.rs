//! The events that the threads of workers, clients and helpers hand to the core.

use std::sync::Arc;

use gridpool_core::action::HelperAction;
use gridpool_core::event::{ClientEvent, Event, Helper, HelperEvent, WorkerEvent};
use gridpool_protocol::ids::{ClientId, WorkerId};
use gridpool_protocol::status::WorkerMemory;

use super::link::Link;
use super::monitor::{self, Monitor, Reclaim};
use super::{Shared, helper};

impl Shared {
    /// A worker sent a heartbeat with its resources, and has finished so many chunks.
    pub(super) fn heard(&self, worker: WorkerId, memory: WorkerMemory, chunks: u64) {
        let mut core = self.lock();
        let mut event = WorkerEvent::Heard;
        core.with_link(worker, |link| {
            link.memory = memory;
            if std::mem::replace(&mut link.chunks, chunks) != chunks {
                event = WorkerEvent::Progressed;
            }
            Ok(())
        });
        core.handle(self, self.timestamp(), Event::Worker(worker, event));
    }

    /// A worker has unmapped the arenas of the last `Forget`.
    pub(super) fn forgot(&self, worker: WorkerId) {
        self.lock().with_link(worker, Link::forgot);
    }

    /// Waits until the device memory of a process is free, and says so. If the monitor says that it is not free,
    /// the core's `reclaim_timeout` decides when the next process starts. Without a monitor nothing is known.
    pub(super) fn await_memory(&self, worker: WorkerId, pid: u32) {
        let reclaim =
            |monitor: &Monitor| monitor.reclaimed(worker.device, pid, monitor::ANSWER_TIMEOUT);
        match self.monitor.get().map_or(Reclaim::Unknown, reclaim) {
            Reclaim::Back => {}
            Reclaim::Held => {
                return tracing::warn!(%worker, pid, "a dead worker's memory is not free yet");
            }
            Reclaim::Unknown => tracing::debug!(%worker, pid, "there is no monitor to ask"),
        }
        self.post_worker(worker, WorkerEvent::Reclaimed);
    }

    /// Performs an action on a helper, if this pool has that helper.
    pub(super) fn perform_helper(&self, helper: Helper, action: HelperAction) {
        match helper {
            Helper::Bridge => {
                if let Some(bridge) = self.bridge.get() {
                    bridge.perform(action);
                }
            }
            Helper::Gateway => {
                if let Some(gateway) = self.gateway.get() {
                    gateway.perform(action);
                }
            }
            Helper::Monitor => {
                if let Some(monitor) = self.monitor.get() {
                    monitor.perform(action);
                }
            }
            Helper::Tracer => {
                if let Some(tracer) = self.tracer.get() {
                    tracer.perform(action);
                }
            }
        }
    }

    /// The function that hands a helper's events to the core.
    pub(super) fn helper_post(self: &Arc<Self>, helper: Helper) -> helper::Post {
        let shared = Arc::clone(self);
        Box::new(move |event| {
            let is_exit = event == HelperEvent::Exited;
            shared.post(Event::Helper(helper, event));
            if is_exit {
                shared.ended.notify_all();
            }
        })
    }

    /// Hands a client's event to the core.
    pub(super) fn post_client(&self, client: ClientId, event: ClientEvent) {
        self.post(Event::Client(client, event));
    }

    /// Hands a worker's event to the core.
    pub(super) fn post_worker(&self, worker: WorkerId, event: WorkerEvent) {
        self.post(Event::Worker(worker, event));
    }
}
