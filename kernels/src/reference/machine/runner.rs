//! Runs a solver over neighbouring items of a batch and assembles the parts of their results.

use gridpool_protocol::limits::{COLOR_MAX, RESULT_BYTES_MAX};
use gridpool_protocol::output::{ItemErrorCode, NO_OP, OutputLayout};
use gridpool_protocol::program::Kind;
use gridpool_protocol::solver::value::{Grid, Value};
use gridpool_protocol::solver::{Code, Solver};

use super::{Failed, Machine};
use crate::part::{ItemSpan, Part};
use crate::reference::Shape;

/// A run of items of a solver. The memory is kept for the next run.
#[derive(Debug, Default)]
pub struct Runner {
    machine: Machine,
    /// The cells of all grids of the run.
    input: Vec<u8>,
    shapes: Vec<Shape>,
    status: Vec<[u8; 2]>,
    out_shapes: Vec<[u8; 2]>,
    offsets: Vec<[u8; 4]>,
    instructions: Vec<[u8; 4]>,
    cells: Vec<u8>,
}

impl Runner {
    /// Takes the shapes of a run of items; `fill` writes their cells, in order.
    pub fn load(&mut self, shapes: &[Shape], fill: impl FnOnce(&mut [u8])) {
        self.shapes.clear();
        self.shapes.extend(shapes);
        let area = |shape: &Shape| usize::from(shape[0]) * usize::from(shape[1]);
        self.input.resize(shapes.iter().map(area).sum(), 0);
        fill(&mut self.input);
    }

    /// Runs the solver over all items. Returns whether it did: before each instruction it asks `is_cancelled`. `span`
    /// was loaded from the batch that `layout` is for.
    ///
    /// # Panics
    /// If `span` is not of that batch.
    pub fn run(
        &mut self,
        solver: &Solver,
        layout: &OutputLayout,
        span: &ItemSpan,
        is_cancelled: impl Fn() -> bool,
    ) -> bool {
        self.status.clear();
        self.out_shapes.clear();
        self.offsets.clear();
        self.instructions.clear();
        self.cells.clear();
        let (start, mut at) = (span.cell_range(layout).start, 0);
        for item in 0..self.shapes.len() {
            let [height, width] = self.shapes[item].map(usize::from);
            let cells = at..at + height * width;
            at = cells.end;
            let offset = u32::try_from(start + self.cells.len());
            let offset = offset.expect("a result has at most 2^30 bytes");
            self.offsets.push(offset.to_le_bytes());
            let input = &self.input[cells];
            let (mut status, mut instruction, mut shape) = ([0; 2], 0, [0; 2]);
            let failed = match grid(height, width, input) {
                None => Some((ItemErrorCode::BadCell, NO_OP, 0)),
                Some(grid) => {
                    let length = self.cells.len();
                    let (code, limit) = (solver.code(), solver.code().step_limit());
                    let Some(ran) = self.machine.run_unless(code, grid, limit, &is_cancelled)
                    else {
                        return false;
                    };
                    let ran = ran.and_then(|finished| {
                        write(&finished.value, code, layout.kind(), &mut self.cells)
                    });
                    match ran {
                        Ok(written) => {
                            shape = written;
                            None
                        }
                        Err(Failed { code, instruction }) => {
                            self.cells.truncate(length);
                            Some((code, 0, instruction))
                        }
                    }
                }
            };
            if let Some((code, op, failed)) = failed {
                status = [code as u8, op];
                instruction = u32::try_from(failed).unwrap_or(u32::MAX);
            }
            self.status.push(status);
            self.out_shapes.push(shape);
            self.instructions.push(instruction.to_le_bytes());
        }
        true
    }

    /// The bytes of one part of the result; of the cells only the used ones.
    #[must_use]
    pub fn part(&self, part: Part) -> &[u8] {
        match part {
            Part::Status => self.status.as_flattened(),
            Part::Shapes => self.out_shapes.as_flattened(),
            Part::Offsets => self.offsets.as_flattened(),
            Part::Numbers => self.instructions.as_flattened(),
            Part::Cells => &self.cells,
            Part::Origins | Part::Palettes | Part::Counts | Part::LabelsLow | Part::LabelsHigh => {
                &[]
            }
        }
    }

    /// Items without a result.
    ///
    /// # Panics
    /// Never: a run is no larger than a batch.
    #[must_use]
    pub fn item_errors(&self) -> u32 {
        let failed = self.status.iter().filter(|status| **status != [0, 0]).count();
        u32::try_from(failed).expect("a batch has at most 2^22 items")
    }
}

/// The grid of an item; `None` if a cell is not a colour.
fn grid(height: usize, width: usize, cells: &[u8]) -> Option<Value> {
    let colors = cells.iter().map(|cell| cell.cast_signed()).collect();
    let valid = cells.iter().all(|cell| *cell <= COLOR_MAX);
    let grid = valid.then(|| Grid::new(height, width, colors)).flatten()?;
    Some(Value::Grid(grid.into()))
}

/// Appends a result to `cells`, and returns its shape if it is a grid.
fn write(value: &Value, code: &Code, kind: Kind, cells: &mut Vec<u8>) -> Result<[u8; 2], Failed> {
    let instruction = code.instructions().len() - 1;
    let overflow = Failed { code: ItemErrorCode::Overflow, instruction };
    match (kind, value) {
        (Kind::Grid, Value::Grid(grid)) => {
            for cell in grid.cells() {
                let color = u8::try_from(*cell).ok().filter(|color| *color <= COLOR_MAX);
                cells.push(color.ok_or(overflow)?);
            }
            let side = |side: usize| u8::try_from(side).map_err(|_| overflow);
            Ok([side(grid.height())?, side(grid.width())?])
        }
        _ => {
            let before = cells.len();
            value.write(code.gives(), cells);
            if cells.len() - before > RESULT_BYTES_MAX { Err(overflow) } else { Ok([0, 0]) }
        }
    }
}
