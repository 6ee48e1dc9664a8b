//! A program that kills its worker, to test the code that looks for one. With `GRIDPOOL_TEST_DEADLY=4f2a` a grid
//! worker aborts when a search has a program whose hash begins so; with `GRIDPOOL_TEST_DEADLY=4f2a:7` when a job has
//! that program and an item with a cell of colour 7. With `mlp:7,8` a worker with models aborts when one run of the
//! model `mlp` has both 7 and 8 among the elements of its FP32 inputs.
//!
//! This is a test hook only: no program that was verified can kill the reference, and no test may wait for one that
//! kills a GPU. The worker reads it once, after the self-test, and warns that it is set. The supervisor withholds it
//! unless it allows chaos.

use gridpool_protocol::batch::Tables;
use gridpool_protocol::chaos::DEADLY_VARIABLE as VARIABLE;
use gridpool_protocol::program::Program;

use crate::device::GridAttempt;
use crate::search::SearchAttempt;

/// Which program is deadly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadly {
    /// How its hash begins; or the name of a model.
    hash: String,
    /// Only if the cells or elements have all of these, and not in searches.
    values: Vec<u8>,
}

impl Deadly {
    /// What the environment of this process asks for: nothing, outside tests.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty())?;
        tracing::warn!(hook = %text, "{VARIABLE} is set: a program kills this worker on purpose");
        Some(Self::of(&text))
    }

    fn of(text: &str) -> Self {
        let (hash, values) = text.split_once(':').unwrap_or((text, ""));
        let values = values.split(',').filter_map(|value| value.parse().ok());
        Self { hash: hash.to_owned(), values: values.collect() }
    }

    /// Aborts the process if the attempt has the program.
    pub(super) fn strike(&self, attempt: &SearchAttempt<'_>) {
        let Ok(input) = attempt.read() else { return };
        let is_it = |program: usize| {
            let code = input.program(program);
            code.is_some_and(|code| code.hash().starts_with(&self.hash))
        };
        if self.values.is_empty() && (0..attempt.programs().len()).any(is_it) {
            std::process::abort();
        }
    }

    /// Aborts the process if the attempt runs the program over a cell of the colour.
    pub(super) fn strike_items(&self, program: &Program, attempt: &GridAttempt<'_>) {
        if self.is_in(program, attempt) {
            std::process::abort();
        }
    }

    fn is_in(&self, program: &Program, attempt: &GridAttempt<'_>) -> bool {
        if self.values.is_empty() || !program.hash().starts_with(&self.hash) {
            return false;
        }
        let (batch, input) = (attempt.batch(), attempt.input());
        // What is no batch is refused when it runs.
        let Ok(tables) = Tables::read(batch, &input) else { return false };
        let of = |item: usize| tables.offsets()[item * batch.grids_per_item()] as usize;
        let mut cells = vec![0; of(attempt.items().end) - of(attempt.items().start)];
        input.read(batch.cells().start + of(attempt.items().start), &mut cells);
        self.values.iter().all(|color| cells.contains(color))
    }

    /// Aborts the process if a run of this model has these elements.
    pub fn strike_run(&self, model: &str, elements: impl FnOnce() -> Vec<f32>) {
        if self.values.is_empty() || model != self.hash {
            return;
        }
        let elements = elements();
        if self.values.iter().all(|value| elements.contains(&f32::from(*value))) {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::{Grid, GridBatch};
    use gridpool_protocol::output::OutputLayout;
    use gridpool_protocol::program::Ties;
    use gridpool_protocol::shared::SharedSlice;

    use super::*;

    #[test]
    fn a_colour_kills_in_its_program_and_among_the_items_of_the_attempt_alone() {
        let grids = [[1, 2], [7, 3], [4, 5]].map(|row| Grid::new(1, 2, row.to_vec()).unwrap());
        let batch = GridBatch::from_grids(&grids).unwrap();
        let layout = batch.layout().unwrap();
        let mut input = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut input));
        let program = Program::compile("rot90", Ties::Cpython).unwrap();
        let mut output = vec![0; OutputLayout::new(&program, layout).unwrap().bytes()];
        let mut strikes = |hash: &str, color: &str, items| {
            let (input, output) =
                (SharedSlice::private(&mut input), SharedSlice::private(&mut output));
            let attempt = GridAttempt::new(&program, layout, items, input, output).unwrap();
            Deadly::of(&format!("{hash}{color}")).is_in(&program, &attempt)
        };
        let own = &program.hash()[..8];
        assert!(strikes(own, ":7", 0..3) && strikes(own, ":7", 1..2) && strikes(own, ":5", 2..3));
        assert!(strikes(own, ":7,2", 0..2) && !strikes(own, ":7,2", 1..3));
        assert!(
            !strikes(own, ":7", 0..1) && !strikes(own, ":7", 2..3) && !strikes(own, ":9", 0..3)
        );
        assert!(!strikes("other", ":7", 0..3) && !strikes(own, "", 0..3));
    }
}
