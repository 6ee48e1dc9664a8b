//! Results as a worker would have packed them, for the tests of what reads them.

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::client::JobAnswer;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::output::{NO_OP, Output, OutputLayout, Outputs};
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::{Attempt, DeviceInfo, KernelUse, Receipt, RunReport, Verdict};

/// A grid of one cell.
pub(in crate::cli) fn grid(color: u8) -> Grid {
    Grid::new(1, 1, vec![color]).unwrap()
}

/// A job that gave every grid back.
pub(in crate::cli) fn identity(grids: &[Grid]) -> JobAnswer {
    let answers: Vec<_> = grids.iter().cloned().map(Output::Grid).map(Some).collect();
    answered("identity", grids, &answers)
}

/// A job without results.
pub(in crate::cli) fn failed(verdict: Verdict, items: u32) -> JobAnswer {
    let receipt = Receipt {
        job: "job1".to_owned(),
        key: "00".to_owned(),
        program_hash: "ab".to_owned(),
        items,
        item_errors: 0,
        verdict,
        reason: "the worker was killed".to_owned(),
        queue_us: 1,
        total_us: 2,
        attempts: Vec::new(),
    };
    JobAnswer { receipt, outputs: None }
}

/// A job that ran on `cpu0#1` and gave these answers, `None` being an item error.
pub(in crate::cli) fn answered(
    program: &str,
    grids: &[Grid],
    answers: &[Option<Output>],
) -> JobAnswer {
    let program = Program::compile(program, Ties::Cpython).unwrap();
    let batch = GridBatch::from_grids(grids).unwrap();
    let layout = OutputLayout::new(&program, batch.layout().unwrap());
    let mut bytes = vec![0; layout.bytes()];
    for (item, answer) in answers.iter().enumerate() {
        let place = batch.tables().cells_of(item);
        let [h, w] = batch.tables().shapes()[item];
        let mut put = |start: usize, part: &[u8]| {
            bytes[start..start + part.len()].copy_from_slice(part);
        };
        match answer {
            None => put(2 * item, &[1, NO_OP]),
            Some(Output::Colors(colors)) => {
                let start = layout.palettes().start + 12 * item;
                put(start, &[colors.len() as u8]);
                put(start + 1, colors);
            }
            Some(Output::Grid(grid)) => {
                put(layout.shapes().start + 2 * item, &[grid.h() as u8, grid.w() as u8]);
                put(layout.cells().start + place.start, grid.cells());
            }
            Some(Output::Number(number)) => {
                put(layout.values().start + 4 * item, &number.to_le_bytes());
            }
            Some(Output::Objects(objects)) => {
                put(layout.shapes().start + 2 * item, &[h, w]);
                put(layout.counts().start + 2 * item, &[objects.len() as u8, 0]);
                for (label, object) in (1..).zip(objects) {
                    for cell in object {
                        let at = usize::from(cell.row) * usize::from(w) + usize::from(cell.col);
                        put(layout.labels_low().start + place.start + at, &[label]);
                    }
                }
            }
        }
    }
    let errors = answers.iter().filter(|answer| answer.is_none()).count();
    let ops = program.ops().iter();
    let kernels = ops
        .map(|op| KernelUse { name: op.name().to_owned(), launches: 1, device_us: 1.5 })
        .collect();
    let report = RunReport {
        module_hash: "cd".to_owned(),
        joined_items: grids.len() as u32,
        item_errors: errors as u32,
        kernels,
        h2d_bytes: 0,
        d2h_bytes: 0,
        service_us: 3,
    };
    let mut job = failed(Verdict::Ok, grids.len() as u32);
    job.receipt.reason = String::new();
    job.receipt.item_errors = errors as u32;
    job.receipt.attempts.push(Attempt::answered("cpu0#1".to_owned(), device(), report));
    let (layout, tables) = (batch.layout().unwrap(), batch.tables().clone());
    let cells = batch.cells().to_vec();
    job.outputs = Some(Outputs::new(program, layout, tables, cells, bytes).unwrap());
    job
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
