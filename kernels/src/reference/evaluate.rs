//! Runs a program over neighbouring items of a batch, one op at a time.
//!
//! Op by op over a run of items, not item by item through the program, as on the device: so a
//! caller can time each op without reading a clock for every grid.

use gridpool_protocol::batch::{BatchError, GridBatch};
use gridpool_protocol::limits::COLOR_MAX;
use gridpool_protocol::output::{ItemErrorCode, NO_OP, OutputLayout, Outputs, PALETTE_BYTES};
use gridpool_protocol::program::{Grouping, Op, Program, Ties};

use super::label::Labeler;
use super::{Shape, histogram, recolor, symmetry, ties};
use crate::part::Part;

const STATUS_OK: [u8; 2] = [0, 0];
const STATUS_BAD_CELL: [u8; 2] = [ItemErrorCode::BadCell as u8, NO_OP];

/// A run of items on its way through a program, and the memory for the next one.
///
/// The order of calls is [`Evaluator::load`], [`Evaluator::validate`], [`Evaluator::apply`] for
/// each op, [`Evaluator::part`] for each part of the result.
#[derive(Clone, Debug, Default)]
pub struct Evaluator {
    offsets: Vec<usize>,
    status: Vec<[u8; 2]>,
    shapes: Vec<Shape>,
    cells: Vec<u8>,
    next_cells: Vec<u8>,
    values: Vec<[u8; 4]>,
    palettes: Vec<[u8; PALETTE_BYTES]>,
    counts: Vec<[u8; 2]>,
    labels: Vec<u16>,
    labels_low: Vec<u8>,
    labels_high: Vec<u8>,
    labeler: Labeler,
}

impl Evaluator {
    /// Takes the shapes of a run of items and has `fill` write their cells, in place and in order.
    pub fn load(&mut self, shapes: &[Shape], fill: impl FnOnce(&mut [u8])) {
        self.shapes.clear();
        self.shapes.extend_from_slice(shapes);
        self.offsets.clear();
        self.offsets.push(0);
        let mut end = 0;
        for &[h, w] in shapes {
            end += usize::from(h) * usize::from(w);
            self.offsets.push(end);
        }
        self.cells.resize(end, 0);
        fill(&mut self.cells);
        self.status.clear();
        self.status.resize(shapes.len(), STATUS_OK);
    }

    /// Marks the items that have a cell that is no colour and blanks them: to later ops they are
    /// grids of zeros. Gives their number.
    pub fn validate(&mut self) -> u32 {
        let mut errors = 0;
        for (status, place) in self.status.iter_mut().zip(self.offsets.windows(2)) {
            let cells = &mut self.cells[place[0]..place[1]];
            if cells.iter().fold(0, |max, &cell| max.max(cell)) > COLOR_MAX {
                cells.fill(0);
                *status = STATUS_BAD_CELL;
                errors += 1;
            }
        }
        errors
    }

    /// Applies one op to every item.
    pub fn apply(&mut self, op: Op, ties: Ties) {
        let byte = |number: u8| i32::from(number).to_le_bytes();
        let word = |number: u32| number.to_le_bytes();
        match op {
            Op::ColorCount { color } => {
                self.values = self.measured(|cells| word(histogram::count(cells, color)));
            }
            Op::LeastColor => {
                self.values = self.measured(|cells| byte(ties::leastcolor(cells, ties)));
            }
            Op::MostColor => {
                self.values = self.measured(|cells| byte(ties::mostcolor(cells, ties)));
            }
            Op::NumColors => {
                self.values =
                    self.measured(|cells| word(histogram::distinct(&histogram::histogram(cells))));
            }
            Op::Palette => {
                self.palettes = self.measured(|cells| packed(&ties::palette(cells, ties)));
            }
            Op::Objects(grouping) => self.label(grouping, ties),
            Op::Replace { old, new } => recolor::replace(&mut self.cells, old, new),
            Op::Switch { a, b } => recolor::switch(&mut self.cells, a, b),
            Op::Symmetry(symmetry) => {
                self.next_cells.resize(self.cells.len(), 0);
                for (shape, place) in self.shapes.iter_mut().zip(self.offsets.windows(2)) {
                    let from = &self.cells[place[0]..place[1]];
                    let to = &mut self.next_cells[place[0]..place[1]];
                    *shape = symmetry::apply(symmetry, *shape, from, to);
                }
                std::mem::swap(&mut self.cells, &mut self.next_cells);
            }
        }
    }

    /// The packed bytes of one part of the result; meaningless if the kind does not have it.
    #[must_use]
    pub fn part(&self, part: Part) -> &[u8] {
        match part {
            Part::Status => self.status.as_flattened(),
            Part::Shapes => self.shapes.as_flattened(),
            Part::Values => self.values.as_flattened(),
            Part::Palettes => self.palettes.as_flattened(),
            Part::Counts => self.counts.as_flattened(),
            Part::LabelsLow => &self.labels_low,
            Part::LabelsHigh => &self.labels_high,
            Part::Cells => &self.cells,
        }
    }

    /// What `measure` says of every item's cells.
    fn measured<T>(&self, measure: impl Fn(&[u8]) -> T) -> Vec<T> {
        let places = self.offsets.windows(2);
        places.map(|place| measure(&self.cells[place[0]..place[1]])).collect()
    }

    fn label(&mut self, grouping: Grouping, ties: Ties) {
        self.counts.clear();
        self.labels.clear();
        self.labels.resize(self.cells.len(), 0);
        for (&shape, place) in self.shapes.iter().zip(self.offsets.windows(2)) {
            let cells = &self.cells[place[0]..place[1]];
            let labels = &mut self.labels[place[0]..place[1]];
            let background = grouping.without_bg.then(|| ties::mostcolor(cells, ties));
            let objects = self.labeler.label(grouping, background, shape, cells, labels);
            self.counts.push(objects.to_le_bytes());
        }
        self.labels_low.clear();
        self.labels_low.extend(self.labels.iter().map(|label| label.to_le_bytes()[0]));
        self.labels_high.clear();
        self.labels_high.extend(self.labels.iter().map(|label| label.to_le_bytes()[1]));
    }
}

/// A count, the colours, zeros.
fn packed(palette: &ties::Palette) -> [u8; PALETTE_BYTES] {
    let mut bytes = [0; PALETTE_BYTES];
    let colors = palette.colors();
    bytes[0] = u8::try_from(colors.len()).expect("there are ten colours");
    bytes[1..=colors.len()].copy_from_slice(colors);
    bytes
}

/// Runs `program` over a whole batch on this thread.
///
/// # Errors
/// [`BatchError::Empty`] if the batch has no grid.
///
/// # Panics
/// Never: the result is as long as its own layout says.
pub fn run_batch(program: &Program, batch: &GridBatch) -> Result<Outputs, BatchError> {
    let layout = batch.layout()?;
    let output = OutputLayout::new(program, layout);
    let mut evaluator = Evaluator::default();
    evaluator.load(batch.tables().shapes(), |cells| cells.copy_from_slice(batch.cells()));
    evaluator.validate();
    for &op in program.ops() {
        evaluator.apply(op, program.ties());
    }
    let mut bytes = vec![0; output.bytes()];
    for part in Part::ALL {
        let range = part.range(&output);
        if !range.is_empty() {
            bytes[range].copy_from_slice(evaluator.part(part));
        }
    }
    let (tables, cells) = (batch.tables().clone(), batch.cells().to_vec());
    Ok(Outputs::new(program.clone(), layout, tables, cells, bytes)
        .expect("the layout's own length"))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::Grid;
    use gridpool_protocol::output::Output;
    use gridpool_protocol::program::Symmetry;

    use super::*;

    fn output(text: &str, rows: &[&[u8]]) -> Output {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        let batch = GridBatch::from_grids([&Grid::from_rows(rows).unwrap()]).unwrap();
        run_batch(&program, &batch).unwrap().item(0).unwrap().unwrap()
    }

    #[test]
    fn ops_see_what_the_op_before_them_made() {
        assert_eq!(
            output("rot90 | replace(4, 5)", &[&[1, 2, 3], &[4, 5, 6]]),
            Output::Grid(Grid::from_rows(&[[5, 1], [5, 2], [6, 3]]).unwrap())
        );
        assert_eq!(output("rot90 | rot90", &[&[1, 2, 3]]), output("rot180", &[&[1, 2, 3]]));
        assert_eq!(output("replace(1, 2) | colorcount(2)", &[&[1, 2, 1]]), Output::Number(3));
        assert_eq!(output("switch(1, 8) | palette", &[&[1, 0]]), Output::Colors(vec![8, 0]));
        assert_eq!(output("numcolors", &[&[1, 2, 1]]), Output::Number(2));
    }

    #[test]
    fn objects_carry_the_cells_that_the_op_saw() {
        let Output::Objects(objects) = output("rot90 | o_g(5)", &[&[0, 0, 3], &[0, 2, 0]]) else {
            panic!("objects gives objects");
        };
        let cells: Vec<_> = objects.concat().iter().map(|c| (c.color, c.row, c.col)).collect();
        assert_eq!(cells, [(2, 1, 0), (3, 2, 1)]);
    }

    #[test]
    fn a_bad_cell_fails_its_item_alone_under_every_op() {
        for op in gridpool_protocol::program::OPS {
            let arguments = match op.parameters.len() {
                0 => "",
                1 => "(3)",
                2 => "(1, 2)",
                _ => "(true, false, true)",
            };
            let text = format!("rot90 | {}{arguments}", op.name);
            let program = Program::compile(&text, Ties::Cpython).unwrap();
            let mut evaluator = Evaluator::default();
            evaluator.load(&[[1, 2], [2, 2], [1, 1]], |cells| {
                cells.copy_from_slice(&[1, 2, 0, 255, 10, 3, 9]);
            });
            assert_eq!(evaluator.validate(), 1);
            for &op in program.ops() {
                evaluator.apply(op, Ties::Cpython);
            }
            assert_eq!(evaluator.part(Part::Status), [0, 0, 1, NO_OP, 0, 0], "{text}");
        }
    }

    #[test]
    fn an_item_in_error_shows_no_cell_of_the_run_before() {
        let mut evaluator = Evaluator::default();
        for cells in [[7; 4], [255, 1, 1, 1]] {
            evaluator.load(&[[2, 2]], |to| to.copy_from_slice(&cells));
            evaluator.validate();
            evaluator.apply(Op::Symmetry(Symmetry::Rot90), Ties::Cpython);
        }
        assert_eq!(evaluator.part(Part::Status), STATUS_BAD_CELL);
        assert!(!evaluator.part(Part::Cells).contains(&7));
    }

    #[test]
    fn an_evaluator_remembers_nothing_of_the_run_before() {
        let mut used = Evaluator::default();
        used.load(&[[3, 3]], |cells| cells.copy_from_slice(&[7; 9]));
        used.apply(Op::Objects(Grouping::from_code(4).unwrap()), Ties::Cpython);
        let mut fresh = Evaluator::default();
        for evaluator in [&mut used, &mut fresh] {
            evaluator.load(&[[1, 2], [1, 1]], |cells| cells.copy_from_slice(&[1, 2, 3]));
            evaluator.validate();
            evaluator.apply(Op::Objects(Grouping::from_code(5).unwrap()), Ties::Cpython);
        }
        for part in [Part::Status, Part::Shapes, Part::Counts, Part::LabelsLow, Part::LabelsHigh] {
            assert_eq!(used.part(part), fresh.part(part));
        }
    }
}
