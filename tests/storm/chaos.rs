//! Signals to workers, by a seed: most are killed once they have done work, some whatever they do, some
//! die of SIGSEGV or SIGABRT, some are stopped and go on later or never.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gridpool_client::Client;
use gridpool_ipc::clock;
use gridpool_protocol::ids::WorkerName;
use gridpool_protocol::status::WorkerStatus;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::board::Board;
use crate::harness::processes;
use crate::harness::wait::pause;
use crate::oracle::samples::SplitMix64;

/// How long the storm waits for a worker that has done work before it hits one that has not.
const IDLE_MAX: Duration = Duration::from_millis(250);
/// A stopped worker goes on after at most so many milliseconds: less than the pool takes it for hung.
const STOP_MS_MAX: usize = 300;

/// What may happen to a worker, in ten thousand.
#[derive(Clone, Copy, Debug)]
pub struct SignalMix {
    /// SIGSEGV or SIGABRT.
    pub faults: usize,
    /// SIGSTOP, and SIGCONT some milliseconds later.
    pub pauses: usize,
    /// SIGSTOP for good: the pool must notice.
    pub hangs: usize,
    /// Of all, hit whatever they do, be it that they have just been started.
    pub blind: usize,
    /// Least time between two hits: with none, a standby is hardly ever there in time.
    pub every: Duration,
}

impl SignalMix {
    /// Nearly all are SIGKILLs of workers that have done work.
    pub const LONG: Self =
        Self { faults: 200, pauses: 50, hangs: 1, blind: 200, every: Duration::ZERO };
    /// More of everything else, for a storm of a few hundred.
    pub const SHORT: Self =
        Self { faults: 800, pauses: 300, hangs: 30, blind: 800, every: Duration::ZERO };
}

/// What one thread of chaos has done.
#[derive(Debug, Default)]
pub struct Deeds {
    /// SIGKILLs that reached a worker.
    pub kills: AtomicU64,
    /// SIGSEGVs and SIGABRTs.
    pub faults: AtomicU64,
    /// Stops that ended in time.
    pub pauses: AtomicU64,
    /// Stops that did not.
    pub hangs: AtomicU64,
}

impl Deeds {
    /// Workers that it has ended.
    #[must_use]
    pub fn deaths(&self) -> u64 {
        let count = |deeds: &AtomicU64| deeds.load(Ordering::Relaxed);
        count(&self.kills) + count(&self.faults) + count(&self.hangs)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hit {
    Kill,
    Fault(Signal),
    Pause(Duration),
    Hang,
}

/// Hits workers until `stop`.
///
/// # Errors
/// A sentence, if the pool no longer describes itself.
pub fn send_signals(
    observer: &Client,
    supervisor: u32,
    board: &Board,
    signals: SignalMix,
    seed: u64,
    (deeds, stop): (&Deeds, &AtomicBool),
) -> Result<(), String> {
    let mut rng = SplitMix64::new(seed);
    let mut paused: Vec<(Instant, u32)> = Vec::new();
    let mut next = clock::now();
    while !stop.load(Ordering::Relaxed) {
        wake_up(&mut paused, |at| clock::until(at).is_zero());
        if !clock::until(next).is_zero() {
            pause(clock::until(next).min(IDLE_MAX), stop);
            continue;
        }
        next = clock::now() + signals.every;
        let hit = draw(&mut rng, signals);
        let is_blind = rng.below(10_000) < signals.blind;
        // Drawn whether it is needed or not, so that a seed gives the same hits whatever they meet.
        let lot = rng.number();
        let fresh = if is_blind { None } else { board.next_victim(IDLE_MAX) };
        // Without blind hits a worker is hit only after it has done work: a GPU worker starts slowly.
        if fresh.is_none() && signals.blind == 0 {
            continue;
        }
        let rows = observer.status().map_err(|error| error.to_string())?.workers;
        let Some((worker, pid)) = choose(&rows, fresh, lot) else { continue };
        // Numbers are used again: only a child of the supervisor is hit.
        if processes::parent(pid) == Some(supervisor) {
            strike(worker, pid, hit, board, deeds, &mut paused)?;
        }
    }
    wake_up(&mut paused, |_| true);
    Ok(())
}

fn draw(rng: &mut SplitMix64, signals: SignalMix) -> Hit {
    let SignalMix { faults, pauses, hangs, .. } = signals;
    let (number, how) = (rng.below(10_000), rng.number());
    match number {
        number if number < faults => {
            Hit::Fault(if how % 2 == 0 { Signal::SIGSEGV } else { Signal::SIGABRT })
        }
        number if number < faults + pauses => {
            Hit::Pause(Duration::from_millis(how % STOP_MS_MAX as u64))
        }
        number if number < faults + pauses + hangs => Hit::Hang,
        _ => Hit::Kill,
    }
}

/// The process of `fresh` if it is still there, else any.
fn choose(rows: &[WorkerStatus], fresh: Option<WorkerName>, lot: u64) -> Option<(WorkerName, u32)> {
    let there = |row: &&WorkerStatus| row.pid != 0;
    let named = |row: &WorkerStatus| Some((row.name.parse::<WorkerName>().ok()?, row.pid));
    if fresh.is_some() {
        // Gone meanwhile, by itself: that is for the next look.
        return rows.iter().filter(there).filter_map(named).find(|&(name, _)| Some(name) == fresh);
    }
    let all: Vec<_> = rows.iter().filter(there).filter_map(named).collect();
    if all.is_empty() { None } else { Some(SplitMix64::new(lot).pick(&all)) }
}

fn strike(
    worker: WorkerName,
    pid: u32,
    hit: Hit,
    board: &Board,
    deeds: &Deeds,
    paused: &mut Vec<(Instant, u32)>,
) -> Result<(), String> {
    let (signal, count) = match hit {
        Hit::Kill => (Signal::SIGKILL, &deeds.kills),
        Hit::Fault(signal) => (signal, &deeds.faults),
        Hit::Pause(_) => (Signal::SIGSTOP, &deeds.pauses),
        Hit::Hang => (Signal::SIGSTOP, &deeds.hangs),
    };
    let at = clock::now();
    match kill(Pid::from_raw(i32::try_from(pid).expect("process numbers fit")), signal) {
        Ok(()) => {}
        Err(Errno::ESRCH) => return Ok(()),
        Err(errno) => return Err(format!("{signal} to {worker}: {errno}")),
    }
    count.fetch_add(1, Ordering::Relaxed);
    match hit {
        Hit::Pause(span) => paused.push((at + span, pid)),
        Hit::Fault(_) => {
            board.hit(worker, at);
            // It may be one that was stopped before.
            processes::go_on(pid);
        }
        Hit::Hang | Hit::Kill => board.hit(worker, at),
    }
    Ok(())
}

/// Lets those go on whose time has come.
fn wake_up(paused: &mut Vec<(Instant, u32)>, is_due: impl Fn(Instant) -> bool) {
    paused.retain(|&(at, pid)| {
        if is_due(at) {
            processes::go_on(pid);
        }
        !is_due(at)
    });
}
