//! Ops that make one grid of several, or several of one.

use gridpool_kernels::reference::Evaluator;
use gridpool_protocol::program::Op;

use super::chain::{last_step, written};
use super::{Device, OK, ties};
use crate::memory::Illegal;

impl Device<'_> {
    /// Runs the op `name`: each group of values before the launch gives one value after it.
    pub(super) fn tuples(&mut self, name: &str) -> Result<(), Illegal> {
        if self.step.values == 0 {
            return Ok(());
        }
        let [before, after] = [self.step.width_before, self.step.width].map(|width| width as usize);
        let args = self.step.ops[0].args;
        let text = match name {
            "hsplit" | "vsplit" => format!("{name}({})", after / before),
            _ => format!("hsplit({before}) | {}", written(name, &args)),
        };
        let step = last_step(&text);
        let (taken, made) = (step.takes.width(), step.gives.width());
        let (mut indexes, mut shapes, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for group in 0..self.step.values as usize / made {
            let (from, to) = (group * taken..(group + 1) * taken, group * made..(group + 1) * made);
            // One element does not depend on the other elements' failures.
            let judged = if let Op::NthElement { index } = step.op {
                let only = from.start + usize::from(index);
                only..only + 1
            } else {
                from.clone()
            };
            let statuses = judged.map(|value| self.status_before(value));
            let statuses = statuses.collect::<Result<Vec<_>, _>>()?;
            if let Some(&failed) = statuses.iter().find(|status| **status != OK) {
                for value in to {
                    self.set_status(value, failed)?;
                    self.put_nothing(value)?;
                }
                continue;
            }
            for value in from {
                let (shape, grid) = self.grid(value)?;
                shapes.push(shape);
                cells.extend(grid);
            }
            indexes.extend(to);
        }
        let mut evaluator = Evaluator::default();
        evaluator.load(taken, &shapes, |to| to.copy_from_slice(&cells));
        evaluator.apply(&step, usize::from(self.step.ops[0].place), ties(self.step));
        self.put_all(&mut evaluator, &indexes)
    }
}
