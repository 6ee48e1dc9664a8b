//! Which groups the pool must look at. Groups share nothing but devices and budgets, so most events concern one: the
//! others cost nothing, however many there are.
//!
//! A group is looked at once it is touched, or once its own next deadline is there. The frequent events, answers, signs
//! of life and submissions, touch their group alone. The others touch every group.

use gridpool_protocol::ids::Group;

use super::{Pool, per_group};
use crate::event::{ClientEvent, Event, Timestamp, WorkerEvent};

/// When the pool must look at a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    /// Something has happened to it since the pool looked.
    is_touched: bool,
    /// `wakes_at` may be another since.
    is_stale: bool,
    /// When time alone changes something in it.
    wakes_at: Option<Timestamp>,
}

/// A group that is new is touched.
impl Default for Attention {
    fn default() -> Self {
        Self { is_touched: true, is_stale: true, wakes_at: None }
    }
}

impl Attention {
    pub(super) fn touch(&mut self) {
        (self.is_touched, self.is_stale) = (true, true);
    }
}

impl Pool {
    /// An event is about to be handled: touches the groups that it may concern, beside those of the jobs that wait
    /// or end with it.
    pub(crate) fn attend(&mut self, event: &Event) {
        match event {
            Event::Worker(
                worker,
                WorkerEvent::Answered { .. }
                | WorkerEvent::Heard
                | WorkerEvent::Loading { .. }
                | WorkerEvent::Progressed,
            ) => {
                self.touch(worker.group);
            }
            Event::Client(_, ClientEvent::Connected | ClientEvent::Submitted(_))
            | Event::DeviceMemory { .. }
            | Event::Helper(..)
            | Event::TimePassed => {}
            Event::Client(
                _,
                ClientEvent::CancelRequested { .. }
                | ClientEvent::Gone
                | ClientEvent::ModelsChangeRequested { .. }
                | ClientEvent::ReleaseRequested { .. },
            )
            | Event::ContentHashed { .. }
            | Event::DeviceFault { .. }
            | Event::DrainRequested
            | Event::EndRequested
            | Event::HandOver(_)
            | Event::Predecessor(_)
            | Event::ModelsRequired
            | Event::QuotasSet(_)
            | Event::Reconfigured(..)
            | Event::StopRequested
            | Event::Worker(
                _,
                WorkerEvent::BeaconLost { .. }
                | WorkerEvent::ChannelClosed
                | WorkerEvent::CommandEnded { .. }
                | WorkerEvent::Exited(_)
                | WorkerEvent::ModelsReported(_)
                | WorkerEvent::Ready(_)
                | WorkerEvent::Reclaimed
                | WorkerEvent::SpawnFailed { .. },
            ) => self.touch_all(),
        }
    }

    /// Something happens to a group.
    pub(super) fn touch(&mut self, group: Group) {
        self.attention[group].touch();
    }

    /// Something happens that may concern every group.
    pub(super) fn touch_all(&mut self) {
        self.attention.iter_mut().for_each(|(_, group)| group.touch());
    }

    /// Touches the groups for which it is time.
    pub(super) fn touch_due(&mut self, now: Timestamp) {
        let all = self.attention.iter_mut().map(|(_, group)| group);
        all.filter(|group| group.wakes_at.is_some_and(|at| at <= now)).for_each(Attention::touch);
    }

    pub(super) fn is_touched(&self, group: Group) -> bool {
        self.attention[group].is_touched
    }

    /// A group that is touched, to be looked at now.
    pub(super) fn take_touched(&mut self) -> Option<Group> {
        let (group, attention) =
            self.attention.iter_mut().find(|(_, attention)| attention.is_touched)?;
        attention.is_touched = false;
        Some(group)
    }

    /// When time alone changes something in a group.
    pub(super) fn next_of_groups(&mut self) -> Option<Timestamp> {
        for group in (0..self.attention.len()).map(per_group::at) {
            if self.attention[group].is_stale {
                let wakes_at = self.deadline_of(group);
                let attention = &mut self.attention[group];
                (attention.is_stale, attention.wakes_at) = (false, wakes_at);
            }
        }
        self.attention.iter().filter_map(|(_, group)| group.wakes_at).min()
    }
}
