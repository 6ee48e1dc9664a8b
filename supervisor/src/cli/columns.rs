//! The columns of both tables of workers: `gridpool status` prints some of them, `gridpool top` those that
//! fit the screen. To show more about a worker, add a row to [`COLUMNS`].

use super::words::{UNKNOWN, bytes, count, cut, percent, span, spark};
use crate::history::Row;

/// A column: its titles and its cells.
#[derive(Debug)]
pub(super) struct Column {
    /// Its title in `gridpool status`; `None` leaves it out.
    pub(super) status: Option<&'static str>,
    /// Its title in `gridpool top`; `None` leaves it out.
    top: Option<&'static str>,
    /// On a narrow screen `top` leaves out the columns with the lowest rank first.
    rank: u8,
    fit: Fit,
    /// How `top` marks a cell.
    pub(super) mark: fn(&Row) -> Mark,
    /// The text of its cell, in full length.
    pub(super) cell: fn(&Row) -> String,
}

/// The width and the alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// As wide as its cells, at the left.
    Text,
    /// As wide as its cells, at the right.
    Number,
    /// As many points of the trend as fit.
    Trend,
    /// As much of the text as fits.
    Runs,
}

/// The meaning of a cell's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Nothing,
    /// The state of the worker.
    State,
    Trend,
    /// Needs attention.
    Warning,
}

/// In the order of the tables.
pub(super) static COLUMNS: &[Column] = &[
    column(|row| row.own.name.clone()).status("WORKER").top("WORKER", 100, Fit::Text),
    column(|row| row.own.group.clone()).status("GROUP").top("GROUP", 50, Fit::Text),
    column(|row| if row.own.pid == 0 { UNKNOWN.to_owned() } else { row.own.pid.to_string() })
        .status("PID"),
    column(|row| row.own.state.to_string())
        .status("STATE")
        .top("STATE", 90, Fit::Text)
        .marked(|_| Mark::State),
    column(|row| known(row.busy_percent, percent)).top("BUSY", 80, Fit::Number),
    column(|row| known(row.memory, bytes)).top("MEM", 30, Fit::Number),
    column(|row| row.own.jobs_done.to_string()).status("JOBS"),
    column(|row| known(row.jobs_rate, count)).top("JOBS/S", 70, Fit::Number),
    column(|row| known(row.items_rate, count)).top("ITEMS/S", 40, Fit::Number),
    column(|row| row.own.restarts.to_string())
        .status("RESTARTS")
        .top("RST", 20, Fit::Number)
        .marked(|row| if row.own.restarts > 0 { Mark::Warning } else { Mark::Nothing }),
    column(|row| spark(&row.trend, row.trend.len().min(TREND_MAX)))
        .top("TREND", 10, Fit::Trend)
        .marked(|_| Mark::Trend),
    column(runs).top("RUNS", 60, Fit::Runs),
    column(|row| match row.own.device.uuid.as_str() {
        "" => row.own.device.name.clone(),
        uuid => format!("{} {uuid}", row.own.device.name),
    })
    .status("DEVICE"),
];

const fn column(cell: fn(&Row) -> String) -> Column {
    Column { status: None, top: None, rank: 0, fit: Fit::Text, mark: |_| Mark::Nothing, cell }
}

impl Column {
    const fn status(self, title: &'static str) -> Self {
        Self { status: Some(title), ..self }
    }

    const fn top(self, title: &'static str, rank: u8, fit: Fit) -> Self {
        Self { top: Some(title), rank, fit, ..self }
    }

    const fn marked(self, mark: fn(&Row) -> Mark) -> Self {
        Self { mark, ..self }
    }

    /// Its least width in `top`, for these rows.
    fn least(&self, rows: &[Row], title: &str) -> usize {
        match self.fit {
            Fit::Trend => TREND_MIN,
            Fit::Runs => RUNS_MIN,
            Fit::Number | Fit::Text => self.longest(rows).min(CELL_MAX).max(title.len()),
        }
    }

    fn longest(&self, rows: &[Row]) -> usize {
        rows.iter().map(|row| (self.cell)(row).chars().count()).max().unwrap_or(0)
    }
}

/// A number, if it is known.
fn known<T>(number: Option<T>, write: fn(T) -> String) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), write)
}

/// `0.4s rot90 | fill(5)`; with `3x` before it, three jobs in one launch.
fn runs(row: &Row) -> String {
    let Some(run) = &row.own.run else { return String::new() };
    let jobs = if run.jobs > 1 { format!("{}x ", run.jobs) } else { String::new() };
    let what = if run.what.is_empty() { "(has its verdict)" } else { &run.what };
    format!("{} {jobs}{what}", span(run.for_us))
}

/// A column of `top` and its width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laid {
    pub(super) column: &'static Column,
    title: &'static str,
    width: usize,
}

/// Blanks between two columns.
const GAP: usize = 1;
/// The least and the most points of a trend.
const TREND_MIN: usize = 8;
const TREND_MAX: usize = 30;
/// Least width of the time and the program's beginning.
const RUNS_MIN: usize = 14;
/// Most columns of a name or a number: longer ones are cut.
const CELL_MAX: usize = 14;

/// The columns of `top` that fit a screen of `width`, with their widths.
pub(super) fn lay(rows: &[Row], width: usize, with_trends: bool) -> Vec<Laid> {
    let shown = |column: &&Column| with_trends || column.fit != Fit::Trend;
    let laid = |column: &'static Column| {
        let title = column.top?;
        Some(Laid { column, title, width: column.least(rows, title) })
    };
    let mut laid: Vec<_> = COLUMNS.iter().filter(shown).filter_map(laid).collect();
    let taken = |laid: &[Laid]| laid.iter().map(|one| one.width + GAP).sum::<usize>() - GAP;
    while laid.len() > 1 && taken(&laid) > width {
        let least = laid.iter().map(|one| one.column.rank).min();
        laid.retain(|one| Some(one.column.rank) != least);
    }
    let spare = width.saturating_sub(taken(&laid));
    // The program comes first, since people read it; trends take the rest.
    let trend = spare / 3;
    let runs = widen(&mut laid, Fit::Runs, spare - trend, |column| column.longest(rows).min(width));
    widen(&mut laid, Fit::Trend, spare - runs, |_| TREND_MAX);
    laid
}

/// Widens a column to `wants`, by `spare` at most, and returns by how much.
fn widen(laid: &mut [Laid], fit: Fit, spare: usize, wants: impl Fn(&Column) -> usize) -> usize {
    let Some(one) = laid.iter_mut().find(|one| one.column.fit == fit) else { return 0 };
    let more = wants(one.column).saturating_sub(one.width).min(spare);
    one.width += more;
    more
}

impl Laid {
    pub(super) fn title(self) -> String {
        self.fit(self.title)
    }

    pub(super) fn cell(self, row: &Row) -> String {
        match self.column.fit {
            Fit::Trend => spark(&row.trend, self.width),
            Fit::Number | Fit::Runs | Fit::Text => self.fit(&(self.column.cell)(row)),
        }
    }

    fn fit(self, text: &str) -> String {
        let (width, text) = (self.width, cut(text, self.width));
        match self.column.fit {
            Fit::Number => format!("{text:>width$}"),
            Fit::Runs | Fit::Text | Fit::Trend => format!("{text:width$}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::status::Status;

    use super::*;
    use crate::history::rows;
    use crate::history::tests::worker;

    fn titles(laid: &[Laid]) -> Vec<&'static str> {
        laid.iter().map(|one| one.title).collect()
    }

    #[test]
    fn columns_are_left_out_until_the_rest_fits() {
        let workers = vec![worker("cpu0#1", "grid")];
        let rows = rows(&Status { workers, ..Status::default() });
        let all = titles(&lay(&rows, 80, true));
        let of_top = COLUMNS.iter().filter(|column| column.top.is_some()).count();
        assert_eq!(all.len(), of_top, "all columns fit a screen of 80");
        let mut before = all.len();
        for width in (0..80).rev() {
            let laid = lay(&rows, width, true);
            let taken: usize = laid.iter().map(|one| one.width + GAP).sum::<usize>() - GAP;
            assert!(taken <= width || laid.len() == 1, "{width}: {laid:?}");
            assert!(laid.len() <= before, "{width}: a narrower screen shows no more columns");
            before = laid.len();
        }
        assert_eq!(titles(&lay(&rows, 38, true)), ["WORKER", "STATE", "BUSY", "JOBS/S"]);
        assert_eq!(titles(&lay(&rows, 0, true)), ["WORKER"]);
        assert!(!titles(&lay(&rows, 200, false)).contains(&"TREND"));
    }
}
