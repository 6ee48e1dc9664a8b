//! What an operator may order about workers, devices and convicts, and what he is told of devices out of
//! service. Each order gives a sentence back: what was done, or what to type instead.

use std::time::Duration;

use gridpool_protocol::ids::{ClientId, ContentHash, DeviceId, Role, WorkerId};
use gridpool_protocol::message::Refusal;
use gridpool_protocol::status::QuarantineStatus;
use nix::libc::SIGKILL;

use super::Shared;
use crate::pool::event::{Event, Release, Timestamp};
use crate::pool::{Pools, Quarantine};

/// What is written to release every convict.
const ALL_CONTENTS: &str = "jobs";

/// Sends a signal to a worker, by the name of its process or of its device.
pub(super) fn kill(
    shared: &Shared,
    client: ClientId,
    worker: &str,
    signal: i32,
) -> Result<String, Refusal> {
    nix::sys::signal::Signal::try_from(signal)
        .map_err(|_| Refusal::Invalid(format!("{signal} is no signal")))?;
    let mut core = shared.lock();
    let named = match worker.parse::<WorkerId>() {
        Ok(named) => Some(named),
        Err(_) => {
            let device: DeviceId = worker.parse().map_err(|_| {
                let all: Vec<_> = core.workers.keys().map(WorkerId::to_string).collect();
                Refusal::Invalid(format!("`{worker}` is no worker; there are {}", all.join(", ")))
            })?;
            core.pool.worker_on(device)
        }
    };
    let Some((named, pid)) = named.and_then(|named| Some((named, core.workers.get(&named)?.pid)))
    else {
        let all: Vec<_> = core.workers.keys().map(WorkerId::to_string).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        return Err(Refusal::Invalid(format!("there is no worker {worker} now; there are {all}")));
    };
    let link = core.workers.get_mut(&named).expect("it was just found");
    link.signal(signal).map_err(|error| Refusal::Invalid(format!("{named}: {error}")))?;
    link.ordered = Some((client, signal));
    let (worker, why) = (named, "order");
    match signal {
        SIGKILL => tracing::warn!(%worker, %client, why, signal, "killing worker"),
        _ => tracing::warn!(%worker, %client, why, signal, "sending worker a signal"),
    }
    Ok(format!("signal {signal} sent to {named} (pid {pid})"))
}

/// Takes a decision of the pool back: a device is tried again now, or jobs of a content that was
/// convicted are accepted again.
pub(super) fn release(shared: &Shared, client: ClientId, what: &str) -> Result<String, Refusal> {
    let (release, done) = decide(shared, what)?;
    tracing::info!(%client, done, "released");
    shared.post(Event::ReleaseRequested { release });
    Ok(done)
}

/// Which devices are out of service, why, and for how long.
pub(super) fn quarantines(pool: &Pools, now: Timestamp) -> Vec<QuarantineStatus> {
    let row =
        |device: DeviceId, role: Role, Quarantine { why, tried_at, rule: _ }: Quarantine<'_>| {
            let us = |left: Duration| u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
            QuarantineStatus {
                device: device.to_string(),
                role: role.name().to_owned(),
                why: why.to_owned(),
                tried_in_us: tried_at.map(|at| us(at.since(now))),
            }
        };
    let of = |device| pool.quarantines(device).map(move |(role, why)| row(device, role, why));
    pool.devices().flat_map(of).collect()
}

fn decide(shared: &Shared, what: &str) -> Result<(Release, String), Refusal> {
    let core = shared.lock();
    if what == ALL_CONTENTS {
        let count = core.pool.convicts().count();
        return Ok((Release::Contents, format!("{count} convicted contents released")));
    }
    if let Ok(device) = what.parse::<DeviceId>() {
        return match core.pool.is_quarantined(device) {
            Some(true) => Ok((Release::Device(device), format!("{device} is tried again now"))),
            Some(false) => Err(Refusal::Invalid(format!("{device} is in service"))),
            None => Err(Refusal::Invalid(format!("the pool has no device {device}"))),
        };
    }
    let content: ContentHash = what.parse().map_err(|error| {
        Refusal::Invalid(format!("{error}; or a device (`gpu0`), or `{ALL_CONTENTS}` for all"))
    })?;
    match core.pool.is_convicted(content) {
        true => Ok((Release::Content(content), format!("jobs of content {content} are accepted"))),
        false => Err(Refusal::Invalid(format!("no job of content {content} was convicted"))),
    }
}
