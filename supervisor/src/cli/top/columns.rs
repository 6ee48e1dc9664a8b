//! The table of workers: which columns there are, which of them a screen has room for, and what stands
//! in them. Knows widths; may not know colours.

use gridpool_protocol::status::WorkerState;

use super::model::Row;
use super::words::{UNKNOWN, bytes, count, cut, percent, span, spark};

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Worker,
    Role,
    State,
    Busy,
    Memory,
    Jobs,
    Items,
    Restarts,
    Trend,
    Runs,
}

/// A column that is shown, and how wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Laid {
    pub(super) column: Column,
    pub(super) width: usize,
}

/// In the order of the screen.
const ALL: [Column; 10] = [
    Column::Worker,
    Column::Role,
    Column::State,
    Column::Busy,
    Column::Memory,
    Column::Jobs,
    Column::Items,
    Column::Restarts,
    Column::Trend,
    Column::Runs,
];

/// Where there is no room, these are left out, one after the other.
const LEFT_OUT: [Column; 9] = [
    Column::Trend,
    Column::Restarts,
    Column::Memory,
    Column::Items,
    Column::Role,
    Column::Runs,
    Column::Jobs,
    Column::Busy,
    Column::State,
];

/// Columns of the screen between two of the table.
const GAP: usize = 1;
/// A trend has at least so many points, and at most.
const TREND_MIN: usize = 8;
const TREND_MAX: usize = 30;
/// Room for the time and some of what is run.
const RUNS_MIN: usize = 14;
/// What a name or a number takes at most: longer ones are cut.
const CELL_MAX: usize = 14;

impl Column {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Worker => "WORKER",
            Self::Role => "ROLE",
            Self::State => "STATE",
            Self::Busy => "BUSY",
            Self::Memory => "MEM",
            Self::Jobs => "JOBS/S",
            Self::Items => "ITEMS/S",
            Self::Restarts => "RST",
            Self::Trend => "TREND",
            Self::Runs => "RUNS",
        }
    }

    /// Whether its cells stand at the right.
    fn is_number(self) -> bool {
        match self {
            Self::Busy | Self::Memory | Self::Jobs | Self::Items | Self::Restarts => true,
            Self::Worker | Self::Role | Self::State | Self::Trend | Self::Runs => false,
        }
    }

    /// What stands in it, in its full length.
    fn cell(self, row: &Row) -> String {
        let known = |number: Option<f64>, write: fn(f64) -> String| {
            number.map_or_else(|| UNKNOWN.to_owned(), write)
        };
        match self {
            Self::Worker => row.name.clone(),
            Self::Role => row.place.role.clone(),
            Self::State => state(row.state),
            Self::Busy => known(row.busy_percent, percent),
            Self::Memory => row.memory.map_or_else(|| UNKNOWN.to_owned(), bytes),
            Self::Jobs => known(row.jobs_rate, count),
            Self::Items => known(row.items_rate, count),
            Self::Restarts => row.restarts.to_string(),
            Self::Trend => spark(&row.trend, row.trend.len().min(TREND_MAX)),
            Self::Runs => runs(row),
        }
    }

    /// Its least width, for these rows.
    fn least(self, rows: &[Row]) -> usize {
        let content = rows.iter().map(|row| self.cell(row).chars().count()).max().unwrap_or(0);
        match self {
            Self::Trend => TREND_MIN,
            Self::Runs => RUNS_MIN,
            Self::Busy
            | Self::Items
            | Self::Jobs
            | Self::Memory
            | Self::Restarts
            | Self::Role
            | Self::State
            | Self::Worker => content.min(CELL_MAX).max(self.title().len()),
        }
    }
}

/// The columns that go into so many of the screen, and how wide each is.
pub(super) fn lay(rows: &[Row], width: usize, with_trends: bool) -> Vec<Laid> {
    let shown = |column: &Column| with_trends || *column != Column::Trend;
    let mut laid: Vec<_> = ALL
        .into_iter()
        .filter(shown)
        .map(|column| Laid { column, width: column.least(rows) })
        .collect();
    let taken = |laid: &[Laid]| laid.iter().map(|one| one.width + GAP).sum::<usize>() - GAP;
    for column in LEFT_OUT {
        if taken(&laid) > width {
            laid.retain(|one| one.column != column);
        }
    }
    let spare = width.saturating_sub(taken(&laid));
    // What is run is read, so it has what it wants of the rest; trends have what is left of that.
    let wants = |column: Column, max: usize| {
        let longest = rows.iter().map(|row| column.cell(row).chars().count()).max();
        longest.unwrap_or(0).min(max)
    };
    let trend = spare / 3;
    let runs = widen(&mut laid, Column::Runs, wants(Column::Runs, width), spare - trend);
    widen(&mut laid, Column::Trend, TREND_MAX, spare - runs);
    laid
}

/// Gives a column what it wants, at most `spare` more than it has. How much that was.
fn widen(laid: &mut [Laid], column: Column, wants: usize, spare: usize) -> usize {
    let Some(one) = laid.iter_mut().find(|one| one.column == column) else { return 0 };
    let more = wants.saturating_sub(one.width).min(spare);
    one.width += more;
    more
}

impl Laid {
    pub(super) fn title(self) -> String {
        self.fit(self.column.title())
    }

    pub(super) fn cell(self, row: &Row) -> String {
        match self.column {
            Column::Trend => spark(&row.trend, self.width),
            Column::Busy
            | Column::Items
            | Column::Jobs
            | Column::Memory
            | Column::Restarts
            | Column::Role
            | Column::Runs
            | Column::State
            | Column::Worker => self.fit(&self.column.cell(row)),
        }
    }

    fn fit(self, text: &str) -> String {
        let (width, text) = (self.width, cut(text, self.width));
        if self.column.is_number() { format!("{text:>width$}") } else { format!("{text:width$}") }
    }
}

/// In the words of `gridpool status`.
pub(super) fn state(state: WorkerState) -> String {
    format!("{state:?}").to_lowercase()
}

/// `0.4s rot90 | fill(5)`; with `3x` before it, three jobs in one launch.
fn runs(row: &Row) -> String {
    let Some(run) = &row.run else { return String::new() };
    let jobs = if run.jobs > 1 { format!("{}x ", run.jobs) } else { String::new() };
    let what = if run.what.is_empty() { "(has its verdict)" } else { &run.what };
    format!("{} {jobs}{what}", span(run.for_us))
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{look, pictures, worker};
    use super::*;

    fn titles(laid: &[Laid]) -> Vec<&'static str> {
        laid.iter().map(|one| one.column.title()).collect()
    }

    #[test]
    fn columns_are_left_out_until_the_rest_fits() {
        let rows = pictures([look(1.0, vec![worker("cpu0#1", "grid")])]).remove(0).rows;
        let all = titles(&lay(&rows, 80, true));
        assert_eq!(all.len(), ALL.len(), "all of them fit 80 columns");
        let mut before = all.len();
        for width in (0..80).rev() {
            let laid = lay(&rows, width, true);
            let taken: usize = laid.iter().map(|one| one.width + GAP).sum::<usize>() - GAP;
            assert!(taken <= width || laid.len() == 1, "{width}: {laid:?}");
            assert!(laid.len() <= before, "{width}: what is narrower shows no more");
            before = laid.len();
        }
        assert_eq!(titles(&lay(&rows, 38, true)), ["WORKER", "STATE", "BUSY", "JOBS/S"]);
        assert_eq!(titles(&lay(&rows, 0, true)), ["WORKER"]);
        assert!(!titles(&lay(&rows, 200, false)).contains(&"TREND"));
    }
}
