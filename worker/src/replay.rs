//! The role that runs one batch on a device without a pool, for `gridpool replay --under`: a tool that watches a
//! process starts this one. It is not confined, and checks nothing about the process that has started it.

use std::io::{self, BufRead};

use gridpool_device::chaos::FaultInjector;
use gridpool_device::device::{Device, GridAttempt, GridDispatch};
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::{Programs, unhex};
use gridpool_protocol::replay::ReplayRequest;
use gridpool_protocol::shared::SharedSlice;

fn wrong(what: impl ToString) -> io::Error {
    let why = format!("the request cannot be run: {}", what.to_string());
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Runs what standard input asks. Returns the number of items.
///
/// # Errors
/// What is wrong with the request, or the fault that the device met.
pub fn run(device: Box<dyn Device>, mut input: impl BufRead) -> io::Result<u32> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let request: ReplayRequest = serde_json::from_str(&line).map_err(wrong)?;
    let ReplayRequest { text, ties, steps, items, cells, batch, chaos } = request;
    let program = Programs::default().compile(&text, ties, steps).map_err(wrong)?;
    let mut batch = unhex(&batch).ok_or_else(|| wrong("the batch is not in hexadecimal digits"))?;
    let layout = BatchLayout::new(items, program.grids_per_item(), cells).map_err(wrong)?;
    let output = OutputLayout::new(&program, layout).map_err(wrong)?;
    let mut result = vec![0; output.bytes()];
    let (input, output) = (SharedSlice::private(&mut batch), SharedSlice::private(&mut result));
    let attempt = GridAttempt::new(&program, layout, 0..layout.items(), input, output);
    let attempts = [attempt.map_err(wrong)?];
    let mut device = FaultInjector::new(device);
    device.arm(chaos);
    let report = device.run(&GridDispatch { program: &program, attempts: &attempts });
    match report.map_err(io::Error::other)?.attempts.first() {
        Some(Err(why)) => Err(wrong(why)),
        Some(Ok(_)) | None => Ok(items),
    }
}

#[cfg(test)]
mod tests {
    use gridpool_device::cpu::CpuDevice;
    use gridpool_protocol::batch::{Grid, GridBatch};
    use gridpool_protocol::program::{Ties, hex};

    use super::*;

    fn asked(text: &str) -> io::Result<u32> {
        run(Box::new(CpuDevice::open(0, 1).unwrap()), text.as_bytes())
    }

    #[test]
    fn a_batch_is_run_and_what_is_none_refused() {
        let batch = GridBatch::from_grids([&Grid::from_rows(&[[1, 2]]).unwrap()]).unwrap();
        let layout = batch.layout().unwrap();
        let mut bytes = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut bytes));
        let request = ReplayRequest {
            text: "rot90".to_owned(),
            ties: Ties::Cpython,
            steps: gridpool_protocol::limits::STEPS_DEFAULT,
            items: 1,
            cells: 2,
            batch: hex(&bytes),
            chaos: None,
        };
        assert_eq!(asked(&serde_json::to_string(&request).unwrap()).unwrap(), 1);
        let short = ReplayRequest { batch: "00".to_owned(), ..request };
        for wrong in [&*serde_json::to_string(&short).unwrap(), "{"] {
            let error = asked(wrong).unwrap_err().to_string();
            assert!(error.starts_with("the request cannot be run: "), "{error}");
        }
    }
}
