//! What all threads of a storm know together: which workers have done work, which were hit, and how
//! long it took until there was a right answer again.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridpool_protocol::ids::{DeviceId, WorkerName};
use gridpool_protocol::receipt::{AttemptOutcome, Receipt, Verdict};

/// Generations of a device whose end is remembered: a receipt may name an attempt of long ago.
const REMEMBERED: u32 = 64;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Board {
    inner: Mutex<Inner>,
    worked: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    devices: BTreeMap<DeviceId, Device>,
    times: Times,
}

#[derive(Debug, Default)]
struct Device {
    /// The latest generation that has answered.
    worked: u32,
    /// The latest generation that was hit.
    hit: u32,
    /// When the latest was hit, while nothing right has come from this device since.
    waits: Option<Instant>,
    /// When each was hit.
    ends: BTreeMap<u32, Instant>,
}

/// Microseconds, in the order in which they were measured.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// From a signal that ends a worker to the first right answer of the next one on its device.
    pub device: Vec<u32>,
    /// From the signal to the right answer of a job that the worker was running.
    pub job: Vec<u32>,
    /// From submission to a right answer, of small jobs and large.
    pub latency: Vec<u32>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job that was sent at `sent` got its verdict.
    pub fn answered(&self, receipt: &Receipt, is_right: bool, sent: Instant, now: Instant) {
        if !is_right || receipt.verdict != Verdict::Ok {
            return;
        }
        let mut inner = self.lock();
        let Inner { devices, times } = &mut *inner;
        times.latency.push(micros(now - sent));
        let mut is_news = false;
        for attempt in &receipt.attempts {
            let Ok(worker) = attempt.worker.parse::<WorkerName>() else { continue };
            let device = devices.entry(worker.device).or_default();
            let generation = worker.generation;
            match attempt.outcome {
                AttemptOutcome::Ok => {
                    is_news |= generation > device.worked;
                    device.worked = device.worked.max(generation);
                    if generation > device.hit
                        && let Some(since) = device.waits.take()
                    {
                        times.device.push(micros(now - since));
                    }
                }
                AttemptOutcome::Hang | AttemptOutcome::WorkerDied => {
                    if let Some(&end) = device.ends.get(&generation) {
                        times.job.push(micros(now - end));
                    }
                }
                AttemptOutcome::Cancelled
                | AttemptOutcome::Deadline
                | AttemptOutcome::DeviceError
                | AttemptOutcome::Preempted
                | AttemptOutcome::Refused => {}
            }
        }
        drop(inner);
        if is_news {
            self.worked.notify_all();
        }
    }

    /// A worker was sent a signal that ends it.
    pub fn hit(&self, worker: WorkerName, at: Instant) {
        let mut inner = self.lock();
        let device = inner.devices.entry(worker.device).or_default();
        device.hit = device.hit.max(worker.generation);
        device.waits = Some(at);
        device.ends.insert(worker.generation, at);
        let keep = worker.generation.saturating_sub(REMEMBERED);
        device.ends.retain(|&generation, _| generation >= keep);
    }

    /// Waits for a worker that has done work and was not hit since.
    pub fn next_victim(&self, timeout: Duration) -> Option<WorkerName> {
        let inner = self.lock();
        let waited =
            self.worked.wait_timeout_while(inner, timeout, |inner| inner.victim().is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.victim()
    }

    /// All times so far.
    #[must_use]
    pub fn times(&self) -> Times {
        self.lock().times.clone()
    }

    /// Forgets all times, not who was hit.
    pub fn forget_times(&self) {
        self.lock().times = Times::default();
    }
}

impl Inner {
    fn victim(&self) -> Option<WorkerName> {
        let mut fresh = self.devices.iter().filter(|(_, device)| device.worked > device.hit);
        fresh.next().map(|(&id, device)| WorkerName { device: id, generation: device.worked })
    }
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

/// The value below which `share` percent of `times` lie; 0 if there is none.
#[must_use]
pub fn percentile(times: &[u32], share: f64) -> u32 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is a place within it"
    )]
    let at = (sorted.len() as f64 * share / 100.0) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
