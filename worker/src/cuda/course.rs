//! Which lane takes which chunk, and when it is waited for: chunks go round the lanes, so that one is
//! copied in while another is computed and a third is copied out.

use std::hint;

use super::device::Gpu;
use super::lane::{Done, Lane};
use crate::chunk::{ChunkLimits, Feed, Span};
use crate::device::Task;
use crate::fault::Fault;

/// Takes all of `task` through `lanes`.
///
/// After a fault that ends the worker no call is made; after a lesser one every lane has been waited
/// for.
pub(super) fn run(
    gpu: &mut Gpu,
    lanes: &mut [Lane],
    task: &Task<'_>,
    limits: ChunkLimits,
    cells_in_max: usize,
    done: &mut Done,
) -> Result<(), Fault> {
    let members = task.members.iter().enumerate();
    let mut rest: Vec<_> = members.map(|(member, of)| Span { member, items: of.items() }).collect();
    let mut feed = Feed::new(task, &mut rest, limits, cells_in_max);
    let ran = go_round(gpu, lanes, task, &mut feed, done);
    match &ran {
        Ok(()) => {}
        Err(fault) if fault.ends_worker() => lanes.iter_mut().for_each(Lane::forget),
        Err(_) => lanes.iter_mut().try_for_each(Lane::settle)?,
    }
    ran
}

fn go_round(
    gpu: &mut Gpu,
    lanes: &mut [Lane],
    task: &Task<'_>,
    feed: &mut Feed<'_>,
    done: &mut Done,
) -> Result<(), Fault> {
    let mut turn = 0;
    while !feed.is_empty() {
        let at = turn % lanes.len();
        finish(lanes, at, task, done)?;
        lanes[at].begin(gpu, task, feed, done)?;
        turn += 1;
    }
    (turn..turn + lanes.len()).try_for_each(|turn| finish(lanes, turn % lanes.len(), task, done))
}

/// Waits for one lane's chunk. Where results are packed, their last copies are started when their
/// tables have come, so while one lane is waited for, the others are looked after.
fn finish(lanes: &mut [Lane], at: usize, task: &Task<'_>, done: &mut Done) -> Result<(), Fault> {
    let others = |lanes: &[Lane]| {
        let waiting = lanes.iter().enumerate().filter(|(_, lane)| lane.waits_for_tables());
        waiting.filter(|(other, _)| *other != at).count()
    };
    if lanes[at].waits_for_tables() && others(lanes) > 0 {
        while !lanes[at].poll(task)? {
            for lane in lanes.iter_mut() {
                lane.poll(task)?;
            }
            hint::spin_loop();
        }
    }
    lanes[at].finish(task, done).map(|_| ())
}
