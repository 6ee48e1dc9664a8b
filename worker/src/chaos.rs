//! Faults on purpose, for a job that asks for one: the seam between the worker's loop and what
//! `gridpool chaos` does to it.
//!
//! [`Saboteur`] is the worker's device with a fault in its hand. Faults of a device are the device's
//! own ([`Device::meet`]), those of a process are in `process`. A worker whose jobs ask for nothing
//! takes two branches more for each run, and nothing else. `corrupt` is a hook for tests.

pub mod corrupt;
pub(crate) mod process;

use std::sync::Arc;
use std::thread;

use gridpool_kernels::part::{Part, Run};
use gridpool_protocol::channel::{ChannelError, Sender};
use gridpool_protocol::chaos::{ChaosFault, DeviceFault, ReplyFault, SLOW_REPLY};
use gridpool_protocol::clock;
use gridpool_protocol::message::FromWorker;
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::shared::SharedSlice;

use crate::device::{Device, Task, TaskMember, Work};
use crate::fault::Fault;
use crate::gauges::Gauges;
use corrupt::Corruption;

/// No message begins like this: the first byte announces a number of 16 bytes.
const GARBAGE: [u8; 64] = [0xff; 64];

/// The parts of a result in which a wrong bit looks like any other, the plainest first.
const PLAIN_PARTS: [Part; 4] = [Part::Cells, Part::Numbers, Part::Palettes, Part::LabelsLow];

/// A device that meets a fault when it is told to, and runs as usual otherwise.
pub struct Saboteur {
    device: Box<dyn Device>,
    /// For the next run.
    armed: Option<ChaosFault>,
    /// Its results are wrong from now on.
    lies: bool,
    /// Some results are wrong: see [`corrupt`].
    corruption: Option<Corruption>,
}

impl std::fmt::Debug for Saboteur {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { device, armed, lies, corruption } = self;
        let mut fields = f.debug_struct("Saboteur");
        fields.field("device", device.info()).field("armed", armed).field("lies", lies);
        fields.field("corruption", corruption).finish()
    }
}

impl Saboteur {
    /// `device`, unharmed so far.
    #[must_use]
    pub fn new(device: Box<dyn Device>) -> Self {
        Self { device, armed: None, lies: false, corruption: None }
    }

    /// Some results are wrong from now on.
    pub(crate) fn corrupt(&mut self, corruption: Option<Corruption>) {
        self.corruption = corruption;
    }

    /// The next run meets this fault. A joined run meets that of any of its members.
    pub fn arm(&mut self, fault: Option<ChaosFault>) {
        self.armed = fault;
        self.lies |= fault == Some(ChaosFault::Reply(ReplyFault::Wrong));
    }
}

impl Device for Saboteur {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn module_hash(&self) -> &str {
        self.device.module_hash()
    }

    fn gauges(&self) -> Arc<Gauges> {
        self.device.gauges()
    }

    fn run(&mut self, task: &Task<'_>) -> Result<Work, Fault> {
        let armed = self.armed.take();
        if let Some(ChaosFault::Device(fault)) = armed {
            self.device.meet(fault)?;
        }
        let work = self.device.run(task)?;
        if self.lies {
            task.members.iter().for_each(flip_a_bit);
        }
        if let Some(corruption) = &self.corruption {
            task.members.iter().for_each(|member| corruption.strike(task.program, member));
        }
        if let Some(ChaosFault::Host(fault)) = armed {
            process::meet(fault);
        }
        Ok(work)
    }

    fn adopt(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
        self.device.adopt(arena)
    }

    fn release(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
        self.device.release(arena)
    }

    fn meet(&mut self, fault: DeviceFault) -> Result<(), Fault> {
        self.device.meet(fault)
    }
}

/// What becomes of an answer that is about to be given; `false` if it is not to be given any more.
///
/// # Errors
/// The channel's.
pub(crate) fn before_the_answer(
    fault: Option<ChaosFault>,
    replies: &Sender<FromWorker>,
) -> Result<bool, ChannelError> {
    match fault {
        Some(ChaosFault::Reply(ReplyFault::Corrupt)) => {
            replies.send_raw(GARBAGE.to_vec()).map(|()| false)
        }
        Some(ChaosFault::Reply(ReplyFault::Slow)) => {
            let until = clock::now() + SLOW_REPLY;
            while !clock::until(until).is_zero() {
                thread::park_timeout(clock::until(until));
            }
            Ok(true)
        }
        Some(
            ChaosFault::Reply(ReplyFault::Wrong) | ChaosFault::Device(_) | ChaosFault::Host(_),
        )
        | None => Ok(true),
    }
}

/// Changes a bit of the first value of a member's own part of the result. Of a colour it makes another
/// colour.
fn flip_a_bit(member: &TaskMember<'_>) {
    let (batch, layout) = (member.batch(), member.output_layout());
    let grid = member.items().start * batch.grids_per_item();
    let mut offset = [0; 4];
    member.input().read(batch.offsets().start + 4 * grid, &mut offset);
    // Whatever a client has made of the offset meanwhile.
    let cells = u32::from_le_bytes(offset) as usize;
    let run = Run { items: member.items(), cells: cells..cells };
    let mut places = PLAIN_PARTS.into_iter().filter_map(|part| {
        let place = part.span(layout, &run)?.start;
        part.range(layout).contains(&place).then_some(place)
    });
    if let Some(place) = places.next() {
        let mut byte = [0];
        member.output().read(place, &mut byte);
        member.output().write(place, &[byte[0] ^ 1]);
    }
}

#[cfg(test)]
mod tests;
