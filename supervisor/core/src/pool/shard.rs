//! A shard of a job: neighbouring items that one attempt runs. Owns how a job is cut, and the history of
//! one shard; must not know the other shards.

use gridpool_protocol::ids::{DeviceId, WorkerId};
use gridpool_protocol::receipt::ItemRange;

use crate::config::PoolConfig;
use crate::event::{JobRequest, Timestamp};

/// Most shards of one job, so that a verdict with all of them in the receipt fits a frame.
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

/// A shard of a job. Most jobs have only one.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) items: ItemRange,
    pub(super) cost: u64,
    pub(super) state: ShardState,
    /// The device of the last attempt, if that failed.
    pub(super) avoid: Option<DeviceId>,
    /// Attempts begun, without those that were preempted.
    pub(super) tries: u32,
    /// Attempts that ended in a device error and left the worker healthy.
    pub(super) device_errors: u32,
    /// Whether an attempt of it was ever begun.
    pub(super) was_begun: bool,
    /// When the latest was.
    pub(super) begun: Timestamp,
    /// Its running attempt was asked to stop for a smaller job.
    pub(super) makes_room: bool,
    /// How often it was.
    pub(super) made_room: u32,
    /// If a worker was lost with it: the first sign of the first such loss.
    pub(super) lost_at: Option<Timestamp>,
}

/// Cuts a job for a pool of `devices` devices: into shards with equal numbers of items, for the core does
/// not know their cells. Idle devices take one shard after the other, which evens out the rest. `live` is what the
/// live jobs of its principal cost, with this one, times the principals that have some: if other jobs keep the devices
/// busy, it is cut into fewer, for each shard begins anew and lasts as long as its slowest item. Principals have equal
/// parts, whatever each has waiting.
///
/// A job is cut once, when it is accepted, so that the shards in a receipt never overlap.
pub(super) fn cut(
    request: &JobRequest,
    devices: usize,
    live: u128,
    config: &PoolConfig,
) -> Vec<Shard> {
    let count = count(request, devices, live, config);
    let share = |of: u64, shard: u32, whole: u32| match shard {
        // Most jobs have one shard, and divisions are slow.
        0 => 0,
        _ if shard == whole => of,
        _ => {
            let share = u128::from(of) * u128::from(shard) / u128::from(whole.max(1));
            u64::try_from(share).expect("a share is no larger than the whole")
        }
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
        begun: Timestamp::default(),
        makes_room: false,
        made_room: 0,
        lost_at: None,
    };
    (0..count).map(shard).collect()
}

fn count(request: &JobRequest, devices: usize, live: u128, config: &PoolConfig) -> u32 {
    if devices < 2 || !request.divisible || !request.idempotent {
        return 1;
    }
    let devices = u32::try_from(devices).unwrap_or(u32::MAX);
    let of_all = devices.saturating_mul(config.shards_per_device);
    // Its part, by cost, of the part of its principal.
    let own = (u128::from(of_all) * u128::from(request.cost)).div_ceil(live.max(1));
    let most = u32::try_from(own).unwrap_or(of_all).min(request.items).min(SHARDS_MAX);
    let worth = u32::try_from(request.cost / config.shard_cost_min).unwrap_or(u32::MAX);
    worth.min(most).max(1)
}
