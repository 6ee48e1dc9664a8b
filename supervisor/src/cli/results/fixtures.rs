//! Results as a worker packs them, for the tests of their readers.

use std::sync::Arc;

use gridpool_client::{Answer, Outputs};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::output::{HOLE, NO_OP, Output, OutputLayout};
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::{
    Attempt, DeviceInfo, ItemRange, KernelUse, Receipt, RunReport, Verdict,
};

use crate::cli::input::Pair;

/// A grid of one cell.
pub(in crate::cli) fn grid(color: u8) -> Grid {
    Grid::new(1, 1, vec![color]).unwrap()
}

/// A job that gave every grid back.
pub(in crate::cli) fn identity(grids: &[Grid]) -> Answer<Outputs> {
    let answers: Vec<_> = grids.iter().cloned().map(Output::Grid).map(Some).collect();
    answered("identity", grids, &answers)
}

/// A job without results.
pub(in crate::cli) fn failed(verdict: Verdict, items: u32) -> Answer<Outputs> {
    Answer::new(receipt(verdict, items), None)
}

/// A job that ended when it had given these of its grids back.
pub(in crate::cli) fn partial(
    verdict: Verdict,
    grids: &[Grid],
    done: Vec<ItemRange>,
) -> Answer<Outputs> {
    let outputs = identity(grids).ok().unwrap().with_only(done);
    failed(verdict, grids.len() as u32).with_partial(Some(outputs))
}

fn receipt(verdict: Verdict, items: u32) -> Receipt {
    Receipt {
        host: String::new(),
        job: "job1".to_owned(),
        key: "00".to_owned(),
        program_hash: "ab".into(),
        trace_id: String::new(),
        items,
        item_errors: 0,
        verdict,
        reason: "the worker was killed".to_owned(),
        queue_us: 1,
        total_us: 2,
        attempts: Vec::new(),
    }
}

/// A job over grids that ran on `cpu0#1` and gave these answers, `None` being an item error.
pub(in crate::cli) fn answered(
    program: &str,
    grids: &[Grid],
    answers: &[Option<Output>],
) -> Answer<Outputs> {
    of_batch(program, &GridBatch::from_grids(grids).unwrap(), answers)
}

/// A job over pairs that ran on `cpu0#1` and gave these answers, `None` being an item error.
pub(in crate::cli) fn paired(
    program: &str,
    pairs: &[Pair],
    answers: &[Option<Output>],
) -> Answer<Outputs> {
    let pairs = pairs.iter().map(|pair| (&pair.input, pair.output.as_ref()));
    of_batch(program, &GridBatch::from_pairs(pairs).unwrap(), answers)
}

/// The bytes of a packed result, and the place of the next picture's cells.
struct Packer<'a> {
    layout: OutputLayout,
    batch: &'a GridBatch,
    bytes: Vec<u8>,
    next: usize,
}

impl Packer<'_> {
    fn put(&mut self, start: usize, part: &[u8]) {
        self.bytes[start..start + part.len()].copy_from_slice(part);
    }

    /// Writes the shape of value `v` and gives the place of its cells.
    fn place(&mut self, v: usize, h: u8, w: u8) -> usize {
        self.put(self.layout.shapes().start + 2 * v, &[h, w]);
        if !self.layout.is_packed() {
            return self.batch.tables().cells_of(v).start;
        }
        let at = self.next;
        self.put(self.layout.offsets().start + 4 * v, &(at as u32).to_le_bytes());
        self.next += usize::from(h) * usize::from(w);
        at
    }

    /// Writes value `v`, cells being coloured `(row, column, colour)`.
    fn picture(&mut self, v: usize, cells: &[(i32, i32, u8)]) {
        let (rows, cols) = (cells.iter().map(|cell| cell.0), cells.iter().map(|cell| cell.1));
        let (top, left) = (rows.clone().min().unwrap_or(0), cols.clone().min().unwrap_or(0));
        let side = |end: Option<i32>, from: i32| end.map_or(0, |end| (end - from + 1) as u8);
        let (h, w) = (side(rows.max(), top), side(cols.max(), left));
        let at = self.layout.cells().start + self.place(v, h, w);
        let origin = [(top as i16).to_le_bytes(), (left as i16).to_le_bytes()];
        self.put(self.layout.origins().start + 4 * v, origin.as_flattened());
        self.put(at, &vec![HOLE; usize::from(h) * usize::from(w)]);
        for &(row, col, color) in cells {
            self.put(at + (row - top) as usize * usize::from(w) + (col - left) as usize, &[color]);
        }
    }

    fn value(&mut self, v: usize, output: &Output) {
        match output {
            Output::Colors(colors) => {
                let start = self.layout.palettes().start + 12 * v;
                self.put(start, &[colors.len() as u8]);
                self.put(start + 1, colors);
            }
            Output::Flag(flag) => self.value(v, &Output::Number((*flag).into())),
            Output::Grid(grid) => {
                let at = self.place(v, grid.h() as u8, grid.w() as u8);
                self.put(self.layout.cells().start + at, grid.cells());
            }
            Output::Number(number) => {
                self.put(self.layout.numbers().start + 4 * v, &number.to_le_bytes());
            }
            Output::Object(cells) => {
                let cells: Vec<_> = cells.iter().map(|c| (c.row, c.col, c.color)).collect();
                self.picture(v, &cells);
            }
            Output::Objects(objects) => {
                let [h, w] = self.batch.tables().shapes()[v];
                let at = self.layout.labels_low().start + self.place(v, h, w);
                self.put(self.layout.counts().start + 2 * v, &[objects.len() as u8, 0]);
                for (label, object) in (1..).zip(objects) {
                    for cell in object {
                        self.put(
                            at + cell.row as usize * usize::from(w) + cell.col as usize,
                            &[label],
                        );
                    }
                }
            }
            Output::Patch(places) => {
                let cells: Vec<_> = places.iter().map(|place| (place.row, place.col, 0)).collect();
                self.picture(v, &cells);
            }
            Output::Tuple(_) | Output::Value(..) => unreachable!("no tuple has one"),
            Output::Vector { row, col } => {
                let vector = [(*row as i16).to_le_bytes(), (*col as i16).to_le_bytes()];
                self.put(self.layout.numbers().start + 4 * v, vector.as_flattened());
            }
        }
    }
}

fn of_batch(program: &str, batch: &GridBatch, answers: &[Option<Output>]) -> Answer<Outputs> {
    let program = Program::compile(program, Ties::Cpython).unwrap();
    let layout = OutputLayout::new(&program, batch.layout().unwrap()).unwrap();
    let mut packer = Packer { layout, batch, bytes: vec![0; layout.bytes()], next: 0 };
    for (item, answer) in answers.iter().enumerate() {
        let v = item * layout.width();
        match answer {
            None => packer.put(2 * v, &[1, NO_OP]),
            Some(Output::Tuple(values)) => {
                (v..).zip(values).for_each(|(v, value)| packer.value(v, value));
            }
            Some(value) => packer.value(v, value),
        }
    }
    let errors = answers.iter().filter(|answer| answer.is_none()).count();
    let steps = program.steps().iter();
    let kernels = steps
        .map(|step| KernelUse { name: step.op.name().to_owned(), launches: 1, device_us: 1.5 })
        .collect();
    let report = RunReport {
        module_hash: "cd".into(),
        items: 1,
        joined_items: answers.len() as u32,
        item_errors: errors as u32,
        kernels,
        service_us: 3,
        ..RunReport::default()
    };
    let mut receipt = receipt(Verdict::Ok, answers.len() as u32);
    receipt.reason = String::new();
    receipt.item_errors = errors as u32;
    receipt.attempts.push({
        let part = ItemRange { start: 0, end: answers.len() as u32 };
        Attempt::answered("cpu0#1", device(), part, report)
    });
    let outputs = Outputs::new(program, Arc::new(batch.clone()), packer.bytes).unwrap();
    Answer::new(receipt, Some(outputs))
}

/// The first CPU device.
pub(in crate::cli) fn device() -> DeviceInfo {
    DeviceInfo {
        kind: DeviceKind::Cpu,
        index: 0,
        name: "a CPU".to_owned(),
        uuid: String::new(),
        driver: String::new(),
    }
}
