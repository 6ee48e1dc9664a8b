//! Injects the faults that a job asks for: the seam between the worker's loop and `gridpool chaos`.
//!
//! [`FaultInjector`] wraps the worker's device. The device causes its own faults ([`Device::inject`]);
//! `process` causes those of a process. Jobs that ask for no fault cost two more branches per dispatch.
//! `corrupt` and `deadly` are hooks for tests.

pub mod corrupt;
pub mod deadly;
pub(crate) mod process;

use std::sync::Arc;

use gridpool_kernels::part::{ItemSpan, Part};
use gridpool_protocol::chaos::{ChaosFault, DeviceFault, ReplyFault};
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::search::PairStatus;
use gridpool_protocol::shared::SharedSlice;

use crate::device::{Device, DispatchReport, GridAttempt, GridDispatch};
use crate::fault::Fault;
use crate::gauges::Gauges;
use crate::search::SearchAttempt;
use corrupt::Corruption;
use deadly::Deadly;

/// The parts of a result in which a flipped bit gives another valid value, in order of preference.
const PLAIN_PARTS: [Part; 4] = [Part::Cells, Part::Numbers, Part::Palettes, Part::LabelsLow];

/// A device that causes a fault when it is armed, and runs as usual otherwise.
pub struct FaultInjector {
    device: Box<dyn Device>,
    /// For the next run.
    armed: Option<ChaosFault>,
    /// Its results are wrong from now on.
    is_wrong: bool,
    /// Some results are wrong: see [`corrupt`].
    corruption: Option<Corruption>,
    /// A program kills it: see [`deadly`].
    deadly: Option<Deadly>,
}

impl std::fmt::Debug for FaultInjector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { device, armed, is_wrong, corruption, deadly } = self;
        let mut fields = f.debug_struct("FaultInjector");
        fields.field("device", device.info()).field("armed", armed).field("is_wrong", is_wrong);
        fields.field("corruption", corruption).field("deadly", deadly).finish()
    }
}

impl FaultInjector {
    /// Wraps `device`, with no fault armed.
    #[must_use]
    pub fn new(device: Box<dyn Device>) -> Self {
        Self { device, armed: None, is_wrong: false, corruption: None, deadly: None }
    }

    /// Some results are wrong from now on.
    pub fn corrupt(&mut self, corruption: Option<Corruption>) {
        self.corruption = corruption;
    }

    /// A program kills the process from now on.
    pub fn dies_of(&mut self, deadly: Option<Deadly>) {
        self.deadly = deadly;
    }

    /// The next dispatch meets this fault.
    pub fn arm(&mut self, fault: Option<ChaosFault>) {
        self.armed = fault;
        self.is_wrong |= fault == Some(ChaosFault::Reply(ReplyFault::Wrong));
    }
}

impl Device for FaultInjector {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn module_hash(&self) -> &str {
        self.device.module_hash()
    }

    fn gauges(&self) -> Arc<Gauges> {
        self.device.gauges()
    }

    fn run(&mut self, dispatch: &GridDispatch<'_>) -> Result<DispatchReport, Fault> {
        let armed = self.armed.take();
        if let Some(ChaosFault::Device(fault)) = armed {
            self.device.inject(fault)?;
        }
        if let Some(deadly) = &self.deadly {
            let of_program = |attempt| deadly.strike_items(dispatch.program, attempt);
            dispatch.attempts.iter().for_each(of_program);
        }
        let work = self.device.run(dispatch)?;
        if self.is_wrong {
            dispatch.attempts.iter().for_each(flip_a_bit);
        }
        if let Some(corruption) = &self.corruption {
            dispatch
                .attempts
                .iter()
                .for_each(|attempt| corruption.strike(dispatch.program, attempt));
        }
        if let Some(ChaosFault::Host(fault)) = armed {
            process::inject(fault);
        }
        Ok(work)
    }

    fn search(&mut self, attempts: &[SearchAttempt<'_>]) -> Result<DispatchReport, Fault> {
        let armed = self.armed.take();
        if let Some(ChaosFault::Device(fault)) = armed {
            self.device.inject(fault)?;
        }
        if let Some(deadly) = &self.deadly {
            attempts.iter().for_each(|attempt| deadly.strike(attempt));
        }
        let work = self.device.search(attempts)?;
        if self.is_wrong {
            attempts.iter().for_each(turn_a_verdict);
        }
        if let Some(ChaosFault::Host(fault)) = armed {
            process::inject(fault);
        }
        Ok(work)
    }

    fn adopt(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
        self.device.adopt(arena)
    }

    fn release(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
        self.device.release(arena)
    }

    fn inject(&mut self, fault: DeviceFault) -> Result<(), Fault> {
        self.device.inject(fault)
    }
}

/// Turns the first verdict among an attempt's own programs into another.
fn turn_a_verdict(attempt: &SearchAttempt<'_>) {
    let (output, place) = attempt.first_status();
    let mut byte = [0];
    output.read(place, &mut byte);
    let other = if byte[0] == PairStatus::EQUAL { PairStatus::DIFFERS } else { PairStatus::EQUAL };
    output.write(place, &[other]);
}

/// Flips a bit of the first value among an attempt's own items. A colour becomes another colour.
fn flip_a_bit(attempt: &GridAttempt<'_>) {
    let (batch, layout) = (attempt.batch(), attempt.output_layout());
    let grid = attempt.items().start * batch.grids_per_item();
    let mut offset = [0; 4];
    attempt.input().read(batch.offsets().start + 4 * grid, &mut offset);
    // The client may have changed the offset meanwhile; `contains` below rejects what lies outside.
    let cells = u32::from_le_bytes(offset) as usize;
    let items = ItemSpan { items: attempt.items(), cells: cells..cells };
    let mut places = PLAIN_PARTS.into_iter().filter_map(|part| {
        let place = part.span(layout, &items)?.start;
        part.range(layout).contains(&place).then_some(place)
    });
    if let Some(place) = places.next() {
        let mut byte = [0];
        attempt.output().read(place, &mut byte);
        attempt.output().write(place, &[byte[0] ^ 1]);
    }
}

#[cfg(test)]
mod tests;
