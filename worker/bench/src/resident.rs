//! The rows of kernels alone: a program over data on the GPU, with no copies in between.

use std::sync::Arc;

use gridpool_device::chunk::ChunkLimits;
use gridpool_device::cuda::{CudaDevice, Resident};
use gridpool_device::device::Device;
use gridpool_protocol::bench::{Launches, Plan, Proof, Row, Section, Spread, Unit, Workload};
use gridpool_protocol::output::Outputs;
use gridpool_protocol::receipt::{DeviceInfo, KernelUse};

use super::programs;
use super::workload::Source;
use super::{BenchError, Report, WORKLOADS, count, native};

/// One large chunk instead of several: more than any cache of a GPU holds.
const CHUNK: ChunkLimits = ChunkLimits { items_max: 2 << 20, cells_max: 256 << 20 };
/// Cells of the data, in a full and in a quick run.
const CELLS: u32 = 160_000_000;
const CELLS_QUICK: u32 = 2_000_000;
/// Cells of a grid on average.
const ARC_CELLS: u32 = 169;
const SQUARE_CELLS: u32 = 900;
/// Fewest repetitions of a row: they take less than a millisecond.
const REPETITIONS_MIN: u32 = 20;

/// Measures all rows on GPU `index`, which must be `uuid`.
pub(super) fn measure(
    plan: &Plan,
    source: &Source,
    index: u32,
    uuid: &str,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let mut device = CudaDevice::open(index, Some(uuid))?.with_chunk_limits(CHUNK);
    for workload in WORKLOADS {
        let cells = if plan.quick { CELLS_QUICK } else { CELLS };
        let items = match workload {
            Workload::Arc => cells / ARC_CELLS,
            Workload::Square => cells / SQUARE_CELLS,
        };
        let batch = Arc::new(source.batch(workload, 0..u64::from(items)));
        for entry in programs::chosen(plan) {
            let (section, unit) = (Section::Resident, Unit::ItemsPerSecond);
            let row = entry.row(section, &device.info().name, unit, workload, items);
            report.doing(&row)?;
            let program = entry.program();
            let want = native::outputs(&program, Arc::clone(&batch))?;
            let repetitions = plan.repetitions.max(REPETITIONS_MIN);
            let mut resident = device.time_resident(&program, &batch, repetitions)?;
            // The output of the chunk that was timed.
            let output = std::mem::take(&mut resident.output);
            let outputs = Outputs::new(program, Arc::clone(&batch), output);
            let difference = outputs.and_then(|outputs| outputs.first_difference(&want));
            let row = match difference {
                Ok(difference) => match difference.filter(|&item| item < resident.items) {
                    None => timed(resident, device.info(), repetitions, row),
                    Some(item) => row.wrong(format!("item {item} differs from the reference's")),
                },
                Err(malformed) => row.wrong(malformed.to_string()),
            };
            report.row(row)?;
        }
    }
    Ok(())
}

/// The row of a right result.
pub(super) fn timed(resident: Resident, info: &DeviceInfo, repetitions: u32, row: Row) -> Row {
    let launches =
        |kernel: KernelUse| Launches { name: kernel.name, launches: kernel.launches.into() };
    let kernels: Vec<Launches> = resident.kernels.into_iter().map(launches).collect();
    if kernels.iter().all(|kernel| kernel.launches == 0) {
        return row.wrong("no launch was counted".to_owned());
    }
    let items = count(resident.items as u64);
    let proof = Proof {
        devices: vec![format!("{} {} {}", info.kind, info.name, info.uuid)],
        kernels,
        jobs: repetitions.into(),
        item_errors: u64::from(repetitions) * u64::from(resident.item_errors),
        ..Proof::default()
    };
    Row {
        batch: u32::try_from(resident.items).ok(),
        value: Spread::of(resident.device_us.iter().map(|us| items * 1e6 / us).collect()),
        bytes_per_item: Some(count(resident.bytes) / items),
        proof: Some(proof),
        ..row
    }
}
