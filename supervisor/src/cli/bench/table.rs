//! The table for people: rows as they come, under a heading for each section, at most 100 columns wide.
//!
//! Owns the format of numbers. May not compute any.

use std::io::{self, Write};

use gridpool_protocol::bench::{Row, Section, Spread, Unit};

use super::solvers::Summary;
use crate::cli::text::wrap;

/// Columns of the table.
const COLUMNS: usize = 100;
/// Columns of a name: programs have shorter names, and rows of limits have space for longer ones.
const NAME: usize = 13;
const LIMIT_NAME: usize = 36;

/// One cell, with its title and its width; the width includes the gap before it.
struct Cell {
    title: &'static str,
    width: usize,
    text: String,
}

fn cell(title: &'static str, width: usize, text: Option<String>) -> Cell {
    Cell { title, width, text: text.unwrap_or_else(|| "-".to_owned()) }
}

/// Writes rows under the headings of their sections.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The heading of the last row.
    heading: String,
}

impl Table {
    /// Writes one row, under a new heading if it needs one.
    pub(super) fn row(&mut self, out: &mut dyn Write, row: &Row) -> io::Result<()> {
        let is_long =
            matches!(row.section, Section::Isolation | Section::Limits | Section::Recovery);
        let name = if is_long { LIMIT_NAME } else { NAME };
        // Each model has a heading with its name.
        let is_model = matches!(row.section, Section::Models | Section::ModelLatency);
        let first = cut(if is_model { &row.runner } else { &row.name }, name);
        let (known, measured) = (known(row), measured(row));
        let heading = heading(row);
        if heading != self.heading {
            if !self.heading.is_empty() {
                writeln!(out)?;
            }
            writeln!(out, "{heading}")?;
            let titles = known.iter().chain(&measured).map(|cell| (cell.title, cell.width));
            writeln!(out, "{}", line("", name, titles))?;
            self.heading = heading;
        }
        let sentence = match (&row.fault, &row.skipped) {
            (Some(fault), _) => format!("WRONG: {fault}"),
            (None, Some(why)) => format!("skipped: {why}"),
            (None, None) => {
                let cells = known.iter().chain(&measured);
                let cells = cells.map(|cell| (cell.text.as_str(), cell.width));
                return writeln!(out, "{}", line(&first, name, cells));
            }
        };
        let cells = known.iter().map(|cell| (cell.text.as_str(), cell.width));
        writeln!(out, "{}", line(&first, name, cells))?;
        wrap(&sentence, COLUMNS - 2).iter().try_for_each(|text| writeln!(out, "  {text}"))
    }
}

impl Table {
    /// Writes what all solvers say together.
    pub(super) fn summaries(&self, out: &mut dyn Write, all: &[Summary]) -> io::Result<()> {
        writeln!(out, "\nSOLVERS, items/s")?;
        let lines = all.iter().flat_map(|summary| wrap(&summary.line(si), COLUMNS));
        lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

fn line<'a>(name: &str, width: usize, cells: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut line = format!("{name:width$}");
    for (text, width) in cells {
        line.push_str(&format!("{text:>width$}"));
    }
    line.trim_end().to_owned()
}

fn heading(row: &Row) -> String {
    let devices = match row.devices {
        1 => "1 device".to_owned(),
        count => format!("{count} devices"),
    };
    match row.section {
        Section::Limits => format!("LIMITS, {}", row.runner),
        Section::Native => format!("NATIVE, all cores, {}", row.runner),
        Section::Latency => format!("LATENCY of single jobs in us, {devices}, {}", row.runner),
        Section::EndToEnd => format!("END TO END, {devices}, {}", row.runner),
        Section::Models => format!("MODEL {}, {devices}", row.name),
        Section::Isolation => {
            format!("ISOLATION: requests of {} in us, {devices}", row.runner)
        }
        Section::ModelLatency => {
            format!("LATENCY of single requests of {} in us, {devices}", row.name)
        }
        Section::Recovery => format!("RECOVERY in us, {devices}, {}", row.runner),
        Section::Scheduling => format!("SCHEDULING, {devices}, {}", row.runner),
        Section::Resident => format!("RESIDENT, {}", row.runner),
        Section::Search => format!("SEARCH, {devices}, {}", row.runner),
    }
}

/// The cells that identify a row.
fn known(row: &Row) -> Vec<Cell> {
    let mut cells = Vec::new();
    if matches!(row.section, Section::Isolation | Section::Recovery) {
        return cells;
    }
    if row.section == Section::Limits {
        cells.push(cell("devices", 9, Some(row.devices.to_string())));
        return cells;
    }
    if matches!(row.section, Section::Models | Section::ModelLatency) {
        let number = |count: Option<u32>| count.map(|count| count.to_string());
        cells.push(cell("contexts", 9, number(row.contexts)));
        if row.section == Section::Models {
            cells.push(cell("rows max", 9, number(row.max_batch)));
            cells.push(cell("callers", 8, number(row.jobs)));
        }
        return cells;
    }
    if let Some(workload) = row.workload {
        cells.push(cell("grids", 6, Some(workload.to_string())));
    }
    cells.push(cell("batch", 7, row.batch.map(items)));
    if row.section == Section::EndToEnd {
        cells.push(cell("jobs", 5, row.jobs.map(|jobs| jobs.to_string())));
    }
    cells
}

/// The cells of the measurement.
fn measured(row: &Row) -> Vec<Cell> {
    let native = cell("x native", 9, row.to_native.map(proportion));
    let moved = row.value.zip(row.bytes_per_item).map(|(value, bytes)| value.median * bytes);
    let moved = cell("moved", 11, moved.map(|moved| format!("{}B/s", si(moved))));
    match row.section {
        Section::Limits => {
            let mut cells = three(row.value, ["median", "least", "most"], 12, row.unit);
            cells.push(cell(
                "p99",
                12,
                row.latency.map(|latency| format!("{} us", us(latency.p99_us))),
            ));
            cells
        }
        Section::Native => {
            let mut cells = three(row.value, ["items/s", "least", "most"], 9, row.unit);
            cells.push(native);
            cells
        }
        Section::Latency | Section::ModelLatency => hops(row),
        Section::Models => {
            let mut cells = three(row.value, ["requests/s", "least", "most"], 11, row.unit);
            let requests = row.proof.as_ref().map(|proof| {
                let all: u64 = proof.kernels.iter().map(|kernel| kernel.launches).sum();
                proportion(number(proof.jobs) / number(all.max(1)))
            });
            cells.extend([
                cell("x direct", 9, row.to_direct.map(proportion)),
                cell("x one", 7, row.to_one_context.map(proportion)),
                cell("a run", 7, requests),
            ]);
            cells
        }
        Section::EndToEnd => {
            let mut cells = three(row.value, ["items/s", "least", "most"], 8, row.unit);
            let launches = row.proof.as_ref().map(|proof| {
                let all: u64 = proof.kernels.iter().map(|kernel| kernel.launches).sum();
                si(number(all) / number(proof.jobs.max(1)))
            });
            let allocations = row.proof.as_ref().map(|proof| proof.allocations.to_string());
            cells.extend([
                native,
                cell("% bus", 6, row.of_limit.map(|part| format!("{:.0}", 100.0 * part))),
                moved,
                cell("launches", 9, launches),
                cell("allocs", 7, allocations),
            ]);
            cells
        }
        Section::Isolation => {
            let latency = row.latency.unwrap_or_default();
            let mut cells = vec![
                cell("troubles", 9, row.jobs.map(|troubles| troubles.to_string())),
                cell("times", 8, Some(latency.jobs.to_string())),
            ];
            cells.extend(percentiles(row));
            cells.push(cell("x idle", 8, row.to_idle.map(proportion)));
            cells
        }
        Section::Recovery => {
            let times = row.latency.unwrap_or_default().jobs.to_string();
            let mut cells = vec![cell("times", 8, Some(times))];
            cells.extend(percentiles(row));
            cells
        }
        Section::Scheduling => three(row.value, ["ns/item", "least", "most"], 9, row.unit),
        Section::Search => three(row.value, ["median", "least", "most"], 14, row.unit),
        Section::Resident => {
            let mut cells = three(row.value, ["items/s", "least", "most"], 9, row.unit);
            cells.extend([native, moved]);
            cells
        }
    }
}

fn percentiles(row: &Row) -> [Cell; 3] {
    let latency = row.latency.unwrap_or_default();
    [("p50", latency.p50_us), ("p99", latency.p99_us), ("most", latency.max_us)]
        .map(|(title, time)| cell(title, 12, Some(us(time))))
}

/// Percentiles of single jobs, and the parts of their time.
fn hops(row: &Row) -> Vec<Cell> {
    let latency = row.latency.unwrap_or_default();
    let hops = latency.hops.unwrap_or_default();
    [
        ("p50", latency.p50_us),
        ("p99", latency.p99_us),
        ("most", latency.max_us),
        ("client", hops.client_us),
        ("queue", hops.queue_us),
        ("channel", hops.channel_us),
        ("worker", hops.worker_us),
        ("kernels", hops.device_us),
    ]
    .map(|(title, time)| cell(title, 8, Some(us(time))))
    .into()
}

/// The median with the least and the most.
fn three(value: Option<Spread>, titles: [&'static str; 3], width: usize, unit: Unit) -> Vec<Cell> {
    let numbers = value.map(|value| [value.median, value.min, value.max]);
    let text = |at: usize| {
        numbers.map(|numbers| match unit {
            Unit::BytesPerSecond => format!("{}B/s", si(numbers[at])),
            Unit::ItemsPerSecond | Unit::NanosecondsPerItem => si(numbers[at]),
            Unit::Microseconds => format!("{} us", us(numbers[at])),
        })
    };
    titles.iter().enumerate().map(|(at, title)| cell(title, width, text(at))).collect()
}

/// Three digits and a suffix: `52.1 M`.
pub(super) fn si(number: f64) -> String {
    let (mut scaled, mut suffix) = (number, "");
    for next in [" k", " M", " G", " T"] {
        // A number that rounds up to four digits gets the next suffix.
        if scaled.abs() < 999.5 {
            break;
        }
        (scaled, suffix) = (scaled / 1_000.0, next);
    }
    let digits = match scaled.abs() {
        size if size >= 99.95 || scaled == scaled.trunc() => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// A number of items, as typed: `100k`.
fn items(items: u32) -> String {
    match items {
        _ if items.is_multiple_of(1_000_000) => format!("{}M", items / 1_000_000),
        _ if items.is_multiple_of(1_000) => format!("{}k", items / 1_000),
        _ => items.to_string(),
    }
}

/// A name that leaves a gap in so many columns, as tasks' names may not.
fn cut(name: &str, columns: usize) -> String {
    match name.chars().nth(columns - 1) {
        Some(_) => name.chars().take(columns - 2).chain(['…']).collect(),
        None => name.to_owned(),
    }
}

/// A proportion, with two decimals if it is small.
fn proportion(proportion: f64) -> String {
    if proportion < 9.95 { format!("{proportion:.2}") } else { si(proportion) }
}

/// Microseconds, with a tenth if they are few.
fn us(us: f64) -> String {
    let digits = if us < 99_999.95 { 1 } else { 0 };
    format!("{us:.digits$}")
}

#[expect(clippy::cast_precision_loss, reason = "three digits of it are shown")]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::bench::{Latency, Proof, Workload};

    use super::*;

    fn text(rows: &[Row]) -> String {
        let (mut table, mut out) = (Table::default(), Vec::new());
        for row in rows {
            table.row(&mut out, row).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    fn end_to_end() -> Row {
        Row {
            workload: Some(Workload::Arc),
            batch: Some(1_000_000),
            jobs: Some(1),
            value: Spread::of(vec![1.61e8, 1.59e8, 1.60e8]),
            bytes_per_item: Some(352.0),
            to_native: Some(2.6),
            of_limit: Some(0.607),
            proof: Some(Proof { jobs: 5, ..Proof::default() }),
            ..Row::new(Section::EndToEnd, "rot90", "pool", Unit::ItemsPerSecond)
        }
    }

    #[test]
    fn rows_of_a_section_share_a_heading_and_no_line_is_too_wide() {
        let limit = Row {
            value: Spread::of(vec![9.4e10]),
            ..Row::new(Section::Limits, "copy both ways at once", "H200", Unit::BytesPerSecond)
        };
        let latency = Row {
            latency: Some(Latency { p50_us: 1e4, p99_us: 1e5, max_us: 1e6, ..Latency::default() }),
            workload: Some(Workload::Square),
            batch: Some(1),
            ..Row::new(Section::Latency, "16 mirrors", "pool", Unit::Microseconds)
        };
        let text = text(&[limit, end_to_end(), end_to_end(), latency]);
        assert_eq!(text.matches("END TO END").count(), 1, "{text}");
        for words in ["94 GB/s", "160 M", "56.3 GB/s", " 2.60", " 61 ", "10000.0"] {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn rows_of_a_model_are_under_its_name_with_their_proportions() {
        let row = |runner, section, unit| Row {
            contexts: Some(4),
            max_batch: Some(1),
            jobs: Some(32),
            value: Spread::of(vec![1_895.0]),
            to_direct: Some(0.95),
            to_one_context: Some(2.2),
            ..Row::new(section, "resnet", runner, unit)
        };
        let rate = |runner| row(runner, Section::Models, Unit::ItemsPerSecond);
        let latency = Some(Latency { p50_us: 1_698.0, ..Latency::default() });
        let single = row("pool", Section::ModelLatency, Unit::Microseconds);
        let text = text(&[rate("direct"), rate("pool"), Row { latency, ..single }]);
        assert_eq!(text.matches("MODEL resnet, 1 device\n").count(), 1, "{text}");
        for words in ["direct ", "pool ", "1.90 k", " 0.95 ", " 2.20 ", "1698.0"] {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn a_wrong_row_has_its_error_in_place_of_a_rate() {
        let text = text(&[end_to_end().wrong("item 3 differs".to_owned())]);
        assert!(text.contains("\n  WRONG: item 3 differs\n"), "{text}");
        assert!(!text.contains("160 M"), "{text}");
    }

    #[test]
    fn numbers_have_three_digits_and_a_suffix() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (1.234, "1.23"),
            (32.0, "32"),
            (999.6, "1.00 k"),
            (100_000.0, "100 k"),
            (52_140_000.0, "52.1 M"),
            (9.4e10, "94 G"),
            (2.5e12, "2.50 T"),
        ];
        for (number, want) in cases {
            assert_eq!(si(number), want);
        }
        assert_eq!([8.25, 99_999.94, 99_999.96].map(us), ["8.2", "99999.9", "100000"]);
        assert_eq!([32, 4_096, 100_000, 1_000_000].map(items), ["32", "4096", "100k", "1M"]);
    }
}
