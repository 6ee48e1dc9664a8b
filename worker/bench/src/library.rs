//! The rows of the bare library: every program on all cores of this process.

use std::convert::Infallible;
use std::sync::Arc;

use gridpool_kernels::reference;
use gridpool_protocol::bench::{Plan, Row, Section, Spread, Unit};

use super::native::Library;
use super::programs;
use super::repeat::{Repeat, timed};
use super::workload::Source;
use super::{BenchError, Report, WORKLOADS, native_batch};

/// Measures all rows.
pub(super) fn measure(
    plan: &Plan,
    source: &Source,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    for workload in WORKLOADS {
        let items = native_batch(plan);
        let batch = Arc::new(source.batch(workload, 0..u64::from(items)));
        for entry in programs::chosen(plan) {
            let row = entry.row(Section::Native, "library", Unit::ItemsPerSecond, workload, items);
            report.doing(&row)?;
            let program = entry.program();
            let mut library = Library::new(&program, Arc::clone(&batch))?;
            let round =
                |runs, _| Ok::<_, Infallible>(timed(|| (0..runs).for_each(|_| library.run())));
            let timed = Repeat::new(plan).time(1, round);
            let (_, seconds) = timed.unwrap_or_else(|never| match never {});
            let one = reference::run_batch(&program, &batch)?;
            let row = match library.into_outputs().first_difference(&one) {
                Ok(None) => {
                    let rates = seconds.iter().map(|seconds| f64::from(items) / seconds);
                    Row { value: Spread::of(rates.collect()), ..row }
                }
                Ok(Some(item)) => {
                    row.wrong(format!("item {item} on all cores differs from that on one"))
                }
                Err(malformed) => row.wrong(malformed.to_string()),
            };
            report.row(row)?;
        }
    }
    Ok(())
}
