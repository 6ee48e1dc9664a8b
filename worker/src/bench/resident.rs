//! The rows of kernels alone: a program over data that lies on the GPU, with no copy in between.

use std::sync::Arc;

use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::bench::{Launches, Plan, Proof, Row, Section, Spread, Unit, Workload};
use gridpool_protocol::receipt::KernelUse;

use super::programs::{self, Entry};
use super::workload::Source;
use super::{BenchError, Report, WORKLOADS, count, native};
use crate::chunk::ChunkLimits;
use crate::cuda::CudaDevice;
use crate::device::Device;
use crate::self_test::run_batch;

/// One chunk of what would be several elsewhere: more than any cache of a GPU holds.
const CHUNK: ChunkLimits = ChunkLimits { items_max: 2 << 20, cells_max: 256 << 20 };
/// Cells of the data, and in a quick run.
const CELLS: u32 = 160_000_000;
const CELLS_QUICK: u32 = 2_000_000;
/// Cells of a grid on average.
const ARC_CELLS: u32 = 169;
const SQUARE_CELLS: u32 = 900;
/// Repetitions of each row at least: they take less than a millisecond.
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
            let row = Row {
                program: Some(entry.text.to_owned()),
                workload: Some(workload),
                batch: Some(items),
                ..Row::new(Section::Resident, entry.name, &device.info().name, Unit::ItemsPerSecond)
            };
            report.doing(&row)?;
            let program = entry.program();
            let (outputs, _) = run_batch(&mut device, &program, &batch)?;
            let want = native::outputs(&program, Arc::clone(&batch))?;
            let row = match outputs.first_difference(&want) {
                Ok(None) => {
                    drop((outputs, want));
                    time(plan, &mut device, entry, &batch, row)?
                }
                Ok(Some(item)) => row.wrong(format!("item {item} differs from the reference's")),
                Err(malformed) => row.wrong(malformed.to_string()),
            };
            report.row(row)?;
        }
    }
    Ok(())
}

fn time(
    plan: &Plan,
    device: &mut CudaDevice,
    entry: &Entry,
    batch: &GridBatch,
    row: Row,
) -> Result<Row, BenchError> {
    let repetitions = plan.repetitions.max(REPETITIONS_MIN);
    let resident = device.time_resident(&entry.program(), batch, repetitions)?;
    let launches =
        |kernel: KernelUse| Launches { name: kernel.name, launches: kernel.launches.into() };
    let kernels: Vec<Launches> = resident.kernels.into_iter().map(launches).collect();
    if kernels.iter().all(|kernel| kernel.launches == 0) {
        return Ok(row.wrong("no launch was counted".to_owned()));
    }
    let items = count(resident.items as u64);
    let info = device.info();
    let proof = Proof {
        devices: vec![format!("{} {} {}", info.kind, info.name, info.uuid)],
        kernels,
        jobs: repetitions.into(),
        ..Proof::default()
    };
    Ok(Row {
        batch: u32::try_from(resident.items).ok(),
        value: Spread::of(resident.device_us.iter().map(|us| items * 1e6 / us).collect()),
        bytes_per_item: Some(count(resident.bytes) / items),
        proof: Some(proof),
        ..row
    })
}
