//! A wrong kernel, to test the code that looks for one. With `GRIDPOOL_TEST_CORRUPT=rot90:33` a grid
//! worker flips one bit in results of jobs with at least 33 items whose program has that op.
//!
//! This is a test hook only. The worker reads it once, after the self-test, and warns that it is set. It
//! changes the last item that has a value, after all checks of the worker, so that only a comparison
//! with the right result finds it.

use std::str::FromStr;

use gridpool_protocol::program::{Kind, Program};

use crate::device::GridAttempt;

/// The variable that asks for it.
pub const VARIABLE: &str = "GRIDPOOL_TEST_CORRUPT";

/// Which results come out wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The op, as receipts name it.
    op: String,
    /// Jobs with fewer items are left alone.
    items: usize,
}

/// A text that names no corruption.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}={text}: write an op and a number of items, as in rot90:33")]
pub struct ParseCorruptionError {
    text: String,
}

impl FromStr for Corruption {
    type Err = ParseCorruptionError;

    fn from_str(text: &str) -> Result<Self, ParseCorruptionError> {
        let parts = text.split_once(':').filter(|(op, _)| !op.is_empty());
        let parts = parts.and_then(|(op, items)| Some((op.to_owned(), items.parse().ok()?)));
        let (op, items) = parts.ok_or_else(|| ParseCorruptionError { text: text.to_owned() })?;
        Ok(Self { op, items })
    }
}

impl Corruption {
    /// What the environment of this process asks for: nothing, outside tests.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        match text.parse() {
            Ok(corruption) => {
                tracing::warn!(hook = %text, "{VARIABLE} is set: results will be wrong on purpose");
                Some(corruption)
            }
            Err(error) => {
                tracing::error!(%error, "no results are corrupted");
                None
            }
        }
    }

    /// Flips a bit in an attempt's result, if the corruption applies to the attempt.
    pub(super) fn strike(&self, program: &Program, attempt: &GridAttempt<'_>) {
        let has_op = program.steps().iter().any(|step| step.op.name() == self.op);
        if has_op && attempt.items().len() >= self.items {
            flip(attempt);
        }
    }
}

/// Flips a visible bit of the last value that has one.
fn flip(attempt: &GridAttempt<'_>) {
    let width = attempt.output_layout().width();
    let values = attempt.items().start * width..attempt.items().end * width;
    if let Some(place) = values.rev().find_map(|value| place(attempt, value)) {
        let mut byte = [0];
        attempt.output().read(place, &mut byte);
        attempt.output().write(place, &[byte[0] ^ 1]);
    }
}

/// A byte that counts in a value; none if the value is an error or empty.
fn place(attempt: &GridAttempt<'_>, value: usize) -> Option<usize> {
    let layout = attempt.output_layout();
    let pair = |at: usize| {
        let mut bytes = [0; 2];
        attempt.output().read(at, &mut bytes);
        bytes
    };
    if pair(layout.status().start + 2 * value)[0] != 0 {
        return None;
    }
    match layout.kind() {
        Kind::Flag | Kind::Number | Kind::Vector => Some(layout.numbers().start + 4 * value),
        Kind::Colors => {
            let palette =
                layout.palettes().start + layout.palettes().len() / layout.values_count() * value;
            // The first colour; the number of colours comes before it.
            (pair(palette)[0] > 0).then_some(palette + 1)
        }
        // A bit of a solver's value may be one that makes it malformed, which is no wrong result.
        Kind::Value => None,
        Kind::Grid | Kind::Object | Kind::Objects | Kind::Patch => {
            let [h, w] = pair(layout.shapes().start + 2 * value);
            let part =
                if layout.kind() == Kind::Objects { layout.labels_low() } else { layout.cells() };
            let place = part.start + first_cell(attempt, value);
            (h > 0 && w > 0 && part.contains(&place)).then_some(place)
        }
    }
}

/// Where the cells of a value start in their part.
fn first_cell(attempt: &GridAttempt<'_>, value: usize) -> usize {
    let layout = attempt.output_layout();
    let mut offset = [0; 4];
    if layout.is_packed() {
        attempt.output().read(layout.offsets().start + 4 * value, &mut offset);
    } else {
        attempt.input().read(attempt.batch().offsets().start + 4 * value, &mut offset);
    }
    // The client may have changed it meanwhile; the caller checks the bounds.
    u32::from_le_bytes(offset) as usize
}

#[cfg(test)]
mod tests {
    use gridpool_kernels::known_answer::{self, KNOWN_ANSWERS};

    use crate::chaos::FaultInjector;
    use crate::cpu::CpuDevice;
    use crate::self_test::{run_batch, self_test};

    use super::*;

    fn injector(text: &str) -> FaultInjector {
        let mut device = FaultInjector::new(Box::new(CpuDevice::open(0, 1).unwrap()));
        device.corrupt(Some(text.parse().unwrap()));
        device
    }

    #[test]
    fn the_hook_is_an_op_and_a_number_of_items() {
        let corruption = Corruption { op: "rot90".to_owned(), items: 33 };
        assert_eq!("rot90:33".parse(), Ok(corruption));
        for text in ["", "rot90", "rot90:", ":33", "rot90:x", "rot90:-1"] {
            let error = text.parse::<Corruption>().unwrap_err().to_string();
            assert!(error.contains("as in rot90:33"), "{error}");
        }
    }

    #[test]
    fn every_op_can_be_corrupted_so_that_its_results_show_it() {
        let (grids, pairs) = (known_answer::batch(), known_answer::pair_batch());
        for known in KNOWN_ANSWERS {
            let program = known.program();
            let last = program.steps().last().unwrap().op.name();
            let batch = if known.takes_pairs() { &pairs } else { &grids };
            let (wrong, _) =
                run_batch(&mut injector(&format!("{last}:1")), &program, batch).unwrap();
            let (right, _) = run_batch(&mut injector("nothing:1"), &program, batch).unwrap();
            let first = right.first_difference(&wrong).unwrap();
            assert!(first.is_some(), "{}: no item differs", known.text);
        }
    }

    #[test]
    fn smaller_jobs_and_other_ops_are_left_alone() {
        let items = known_answer::batch().len();
        self_test(&mut injector(&format!("rot90:{}", items + 1))).unwrap();
        self_test(&mut injector(&format!("rot90:{items}"))).unwrap_err();
        self_test(&mut injector("no such op:1")).unwrap();
    }
}
