//! A shard of a job: some neighbouring items that one attempt runs. Owns how a job is cut, and what one
//! shard has been through; may not know the other shards.

use gridpool_protocol::ids::{DeviceId, WorkerId};
use gridpool_protocol::receipt::ItemRange;

use crate::config::PoolConfig;
use crate::event::{JobRequest, Timestamp};

/// Most shards of one job: with all of them in the receipt, the verdict still fits a frame.
pub(super) const SHARDS_MAX: u32 = 64;

/// Where a shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShardState {
    /// Answered, or given up together with its job.
    Ended,
    /// Waiting for a device.
    Queued,
    /// Sent to a worker, as the job's attempt of this number.
    Running { number: u32, worker: WorkerId },
}

/// A shard of a job; all of it, for most jobs.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) items: ItemRange,
    pub(super) cost: u64,
    pub(super) state: ShardState,
    /// The device of the last attempt, where that failed.
    pub(super) avoid: Option<DeviceId>,
    /// Attempts begun, but those that ended for another's sake.
    pub(super) tries: u32,
    /// Attempts that the device refused and that left the worker whole.
    pub(super) device_errors: u32,
    /// Whether an attempt of it was ever begun.
    pub(super) was_begun: bool,
    /// If a worker was lost with it: the first sign of the first such loss.
    pub(super) lost_at: Option<Timestamp>,
}

/// Cuts a job for a pool that has `devices` to run it: into shards equal in items, for of their cells
/// the core knows nothing. Idle devices take one shard after the other, which evens out the rest.
///
/// A job is cut when it is accepted, and not again: whatever devices come and go, a receipt shows shards
/// that do not overlap.
pub(super) fn cut(request: &JobRequest, devices: usize, config: &PoolConfig) -> Vec<Shard> {
    let count = count(request, devices, config);
    let share = |of: u64, shard: u32, whole: u32| {
        let share = u128::from(of) * u128::from(shard) / u128::from(whole.max(1));
        u64::try_from(share).expect("a share is no larger than the whole")
    };
    let item = |index| {
        let item = share(request.items.into(), index, count);
        u32::try_from(item).expect("it is one of the job's items")
    };
    // What the items before shard `index` cost.
    let cost = |index| match index == count {
        true => request.cost,
        false => share(request.cost, item(index), request.items),
    };
    let shard = |index| Shard {
        items: ItemRange { start: item(index), end: item(index + 1) },
        cost: cost(index + 1) - cost(index),
        state: ShardState::Ended,
        avoid: None,
        tries: 0,
        device_errors: 0,
        was_begun: false,
        lost_at: None,
    };
    (0..count).map(shard).collect()
}

fn count(request: &JobRequest, devices: usize, config: &PoolConfig) -> u32 {
    if devices < 2 || !request.divisible || !request.idempotent {
        return 1;
    }
    let devices = u32::try_from(devices).unwrap_or(u32::MAX);
    let most = devices.saturating_mul(config.shards_per_device).min(request.items).min(SHARDS_MAX);
    let worth = u32::try_from(request.cost / config.shard_cost_min).unwrap_or(u32::MAX);
    worth.min(most).max(1)
}
