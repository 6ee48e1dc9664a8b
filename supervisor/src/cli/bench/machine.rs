//! On what, when and by which build it was measured: a number without these is no measurement.

use std::fs;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The variable that names a folder of real tasks; the measuring processes inherit it.
const TASKS: &str = "GRIDPOOL_ARC";
/// What is said of grids that are from no task.
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
    /// Where the ragged grids are from: a folder of real tasks, or made for bench.
    pub(super) arc_grids: String,
    /// The NVIDIA driver's version; empty where no GPU was measured.
    pub(super) driver: String,
}

impl Machine {
    /// This one, now.
    pub(super) fn here() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "a date is wall time; nothing is timed with it"
        )]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            date: date(now.as_secs() / 86_400),
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
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or("unknown processor", |line| line.trim_start_matches([' ', '\t', ':'])).to_owned()
}

/// The day so many days after the first of January 1970, by the Gregorian calendar: years are counted
/// from March, so that the day a leap year adds is its last (Hinnant, `civil_from_days`).
fn date(days: u64) -> String {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..=9 => (year + era * 400, month + 3),
        _ => (year + era * 400 + 1, month - 9),
    };
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates_of_the_gregorian_calendar() {
        let cases = [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_413, "2025-11-21"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ];
        for (days, want) in cases {
            assert_eq!(date(days), want);
        }
    }
}
