//! The machine, the day and the build of a measurement.

use std::thread;
use std::time::SystemTime;

use procfs::{CpuInfo, Current};
use serde::Serialize;

/// The variable with a folder of real tasks; the measuring processes inherit it.
pub(in crate::cli) const TASKS: &str = "GRIDPOOL_ARC";
/// Characters of the day in a timestamp: `2025-11-21`.
const DATE_BYTES: usize = 10;
/// The source of grids that bench makes.
const MADE: &str = "made by bench";

/// The machine and the day.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    /// gridpool's version.
    pub(super) version: &'static str,
    /// The day, in UTC: `2025-11-21`.
    pub(super) date: String,
    /// The processor's name.
    pub(super) cpu: String,
    /// Cores that this process may use.
    pub(super) cores: usize,
    /// The names of the GPUs that were measured.
    pub(super) gpus: Vec<String>,
    /// The source of the ragged grids: a folder of real tasks, or bench itself.
    pub(super) arc_grids: String,
    /// The NVIDIA driver's version; empty without a measured GPU.
    pub(super) driver: String,
}

impl Machine {
    /// This machine today.
    pub(super) fn here() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "a date is wall time; no measurement uses it"
        )]
        let mut date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        date.truncate(DATE_BYTES);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            date,
            cpu: processor(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            gpus: Vec::new(),
            arc_grids: std::env::var(TASKS).unwrap_or_else(|_| MADE.to_owned()),
            driver: String::new(),
        }
    }

    /// All of it in one line.
    pub(super) fn line(&self) -> String {
        let Self { version, date, cpu, cores, gpus, driver, arc_grids } = self;
        let gpus = match gpus.as_slice() {
            [] => String::new(),
            [only] => format!("{only}, driver {driver}; "),
            [first, ..] => format!("{} x {first}, driver {driver}; ", gpus.len()),
        };
        let arc = if arc_grids == MADE { "" } else { "; real ARC grids" };
        format!("{gpus}{cores} cores, {cpu}; gridpool {version}; {date}{arc}")
    }
}

fn processor() -> String {
    let known = CpuInfo::current().ok();
    let name = known.as_ref().and_then(|known| known.model_name(0));
    name.unwrap_or("unknown processor").to_owned()
}
