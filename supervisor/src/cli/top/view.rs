//! The picture on a screen of some size: what stands where, and what is left out where there is no
//! room. Pure: it writes to a buffer, and the sizes of that are all it knows of a terminal.

use std::time::Duration;

use gridpool_protocol::status::WorkerState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::columns::{Column, Laid, lay};
use super::desk::Desk;
use super::model::{ModelRow, Picture, Row};
use super::words::{UNKNOWN, bytes, count, counted, cut, ratio, span, spark};
use crate::cli::text::wrap;

/// Rows of the screen below the head from which on there is room for more than the table.
const BODY_WITH_DETAILS_MIN: usize = 8;
/// Lines about the chosen worker.
const DETAILS: usize = 2;
/// Most lines of a question or a message.
const FOOT_MAX: usize = 3;
/// Most lines about why there is no newer look.
const TROUBLE_MAX: usize = 3;
/// Longest name of a model that is shown whole.
const MODEL_NAME_MAX: usize = 24;
/// The shortest trend of the whole pool that says anything.
const TREND_MIN: usize = 8;

const KEYS: &str = "? help  q quit  ↑↓ select  k kill  d drain  r release  p pause";

const HELP: [&str; 15] = [
    "↑ ↓ Home End  choose a worker",
    "k  kill it (SIGKILL) and see the pool recover; asks once",
    "d  drain the pool: it finishes what it has, then stops; asks once",
    "r  release the chosen device: if it is out of service, it is tried now",
    "p  pause the picture, and go on",
    "q  quit (also Escape, Ctrl-C); Ctrl-Z suspends; ?  close this",
    "",
    "BUSY    GPU: share of time in which anything ran on it, says NVML.",
    "        CPU: time on CPUs by time: 200% is two of them",
    "MEM     GPU: held by anybody; CPU: held by the worker",
    "JOBS/S  attempts answered, ITEMS/S their items with a result; TREND of that",
    "RST     processes before this one in its place",
    "RUNS    for how long, and what: a program or a model; 3x is three",
    "        jobs in one launch, or in hand",
    "-       nobody says; a rate takes two looks",
];

/// What is to be seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    /// Nothing before the first look.
    pub(super) picture: Option<&'a Picture>,
    pub(super) desk: &'a Desk,
    /// Why there is no newer look, if there should be one.
    pub(super) trouble: Option<&'a str>,
    /// Whether to use colour.
    pub(super) colors: bool,
}

/// Draws all of it.
pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let paint = Paint { colors: scene.colors };
    let mut foot = foot(scene, width, paint);
    let mut lines = if scene.desk.helps() { help() } else { head(scene, width, paint) };
    let room = height.saturating_sub(foot.len());
    if let Some(picture) = scene.picture.filter(|_| !scene.desk.helps()) {
        lines.extend(body(picture, scene.desk, width, room.saturating_sub(lines.len()), paint));
    }
    lines.resize(room, Line::default());
    lines.append(&mut foot);
    // On a screen with no room for all of it, the foot is cut.
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        buffer.set_line(area.left(), y, line, area.width);
    }
}

/// Colours, where they are wanted: of the sixteen that every terminal has.
#[derive(Clone, Copy, Debug)]
struct Paint {
    colors: bool,
}

impl Paint {
    fn in_color(self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }

    fn state(self, state: WorkerState) -> Style {
        self.in_color(match state {
            WorkerState::Busy => Color::Cyan,
            WorkerState::Ready => Color::Green,
            WorkerState::Standby => Color::Blue,
            WorkerState::Backoff | WorkerState::Starting | WorkerState::Stopping => Color::Yellow,
            WorkerState::Stopped => Color::DarkGray,
            WorkerState::Quarantined | WorkerState::Unkillable => Color::Red,
        })
    }

    fn alarm(self) -> Style {
        self.in_color(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn title(self) -> Style {
        self.in_color(Color::Yellow).add_modifier(Modifier::BOLD)
    }
}

fn help() -> Vec<Line<'static>> {
    HELP.into_iter().map(Line::from).collect()
}

// ---- head and foot ----

fn head(scene: &Scene<'_>, width: usize, paint: Paint) -> Vec<Line<'static>> {
    let trouble = scene.trouble.map(|why| wrap(why, width)).unwrap_or_default();
    let trouble = trouble.into_iter().take(TROUBLE_MAX);
    let trouble = trouble.map(|line| Line::styled(cut(&line, width), paint.alarm()));
    let Some(picture) = scene.picture else {
        return std::iter::once(Line::from("gridpool top")).chain(trouble).collect();
    };
    // Trouble takes the place of the numbers, of which there are no newer ones: up to two lines of it
    // leave the rows where they are.
    let mut lines = vec![title(picture, scene.desk, width, paint)];
    lines.extend(trouble);
    if lines.len() < 2 {
        lines.push(Line::from(totals(picture, width)));
    }
    if lines.len() < 3 {
        lines.push(flow(picture, width, paint));
    }
    lines
}

fn title(picture: &Picture, desk: &Desk, width: usize, paint: Paint) -> Line<'static> {
    let pool = &picture.supervisor;
    let flags = [(desk.paused(), "PAUSED"), (pool.draining, "DRAINING")];
    let flags = flags.into_iter().filter(|&(is_so, _)| is_so).map(|(_, flag)| flag);
    let flags = flags.collect::<Vec<_>>().join(" ");
    // From whole seconds: in tenths it would change with every look.
    let up = span(Duration::from_secs_f64(pool.uptime_s.max(0.0)).as_secs() * 1_000_000);
    let clients = counted(pool.clients.into(), "client");
    let text = format!("gridpool {}  up {up}  {clients}  {}", pool.version, pool.socket);
    let room = width.saturating_sub(flags.len() + usize::from(!flags.is_empty()));
    let text = format!("{:room$} ", cut(&text, room));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::from(vec![Span::styled(text, bold), Span::styled(flags, paint.alarm())])
}

/// Jobs by verdict; in short where the numbers are too long.
fn totals(picture: &Picture, width: usize) -> String {
    let counters = &picture.counters;
    let verdicts: u64 = counters.verdicts().iter().map(|(_, count)| count).sum();
    let numbers = [
        (counters.accepted, "accepted"),
        (counters.accepted.saturating_sub(verdicts), "live"),
        (counters.ok, "ok"),
        (counters.failed, "failed"),
        (counters.deadline, "late"),
        (counters.poison, "poison"),
        (counters.cancelled, "cancelled"),
        (counters.device_lost, "lost"),
        (counters.refused_busy, "busy"),
    ];
    let write = |number: fn(u64) -> String| {
        let words = numbers.map(|(count, name)| format!("{} {name}", number(count)));
        words.join(" ")
    };
    let full = write(|number| number.to_string());
    if full.chars().count() <= width { full } else { cut(&write(short), width) }
}

/// All digits of a small number.
fn short(number: u64) -> String {
    if number < 10_000 { number.to_string() } else { count(ratio(number, 1)) }
}

/// Rates, what waits, and the trend of all in the room that is left.
fn flow(picture: &Picture, width: usize, paint: Paint) -> Line<'static> {
    let rate = |rate: Option<f64>| rate.map_or_else(|| UNKNOWN.to_owned(), count);
    let (jobs, items) = (rate(picture.jobs_rate), rate(picture.items_rate));
    let queue = &picture.queue;
    let oldest = queue.oldest_us.map_or_else(String::new, |us| format!(", oldest {}", span(us)));
    let (waits, held) = (short(queue.jobs), bytes(queue.bytes));
    let text = format!("{jobs} jobs/s  {items} items/s  {waits} wait, {held}{oldest}  ");
    let room = width.saturating_sub(text.chars().count());
    let bars = if room < TREND_MIN { String::new() } else { spark(&picture.trend, room) };
    Line::from(vec![Span::raw(cut(&text, width)), Span::styled(bars, paint.in_color(Color::Cyan))])
}

fn foot(scene: &Scene<'_>, width: usize, paint: Paint) -> Vec<Line<'static>> {
    let (text, style) = match (scene.desk.question(), scene.desk.message()) {
        (Some(question), _) => (question, paint.title()),
        (None, Some(message)) => (message.to_owned(), paint.title()),
        (None, None) => return vec![Line::from(cut(KEYS, width))],
    };
    let lines = wrap(&text, width).into_iter().take(FOOT_MAX);
    lines.map(|line| Line::styled(line, style)).collect()
}

// ---- body ----

/// How the room below the head is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    rows: usize,
    details: usize,
    /// With the line of titles.
    models: usize,
    faults: usize,
}

/// The table has at least half of the room if it needs that much; what is below it shares the rest.
fn share(room: usize, rows: usize, models: usize, faults: usize) -> Shares {
    // The titles of the table.
    let room = room.saturating_sub(1);
    if room < BODY_WITH_DETAILS_MIN {
        let rows = rows.min(room);
        return Shares { rows, details: 0, models: 0, faults: faults.min(room - rows) };
    }
    let room = room - DETAILS;
    let models = if models == 0 { 0 } else { models + 1 };
    let rows = rows.min(room - (models + faults).min(room / 2));
    let rest = room - rows;
    // One line of titles without a model below it says nothing.
    let models = models.min(rest - faults.min(rest / 2));
    let models = if models == 1 { 0 } else { models };
    Shares { rows, details: DETAILS, models, faults: faults.min(rest - models) }
}

fn body(
    picture: &Picture,
    desk: &Desk,
    width: usize,
    room: usize,
    paint: Paint,
) -> Vec<Line<'static>> {
    let faults = faults(&picture.faults, width);
    let shares = share(room, picture.rows.len(), picture.models.len(), faults.len());
    let mark = 2.min(width);
    let laid = lay(&picture.rows, width - mark, true);
    let chosen = desk.chosen(picture);
    let first = (chosen + 1).saturating_sub(shares.rows);
    let shown = picture.rows.iter().enumerate().skip(first).take(shares.rows);
    let mut lines = vec![titles(&laid, first, shares.rows, picture.rows.len(), width, paint)];
    lines.extend(shown.map(|(at, row)| worker(row, &laid, at == chosen, paint)));
    if shares.details > 0 {
        let row = picture.rows.get(chosen);
        lines
            .extend(row.map(details).unwrap_or_default().map(|line| Line::from(cut(&line, width))));
    }
    lines.extend(models(&picture.models, shares.models, width, paint));
    let red = paint.in_color(Color::Red);
    lines.extend(faults.into_iter().take(shares.faults).map(|line| Line::styled(line, red)));
    lines
}

/// Each fault on as many lines as it needs.
fn faults(faults: &[String], width: usize) -> Vec<String> {
    let indent = |(at, line): (usize, String)| if at == 0 { line } else { format!("  {line}") };
    let wrapped = |fault: &String| wrap(fault, width.saturating_sub(2)).into_iter().enumerate();
    faults.iter().flat_map(|fault| wrapped(fault).map(indent)).collect()
}

fn titles(
    laid: &[Laid],
    first: usize,
    shown: usize,
    of: usize,
    width: usize,
    paint: Paint,
) -> Line<'static> {
    let words: Vec<_> = laid.iter().map(|one| one.title()).collect();
    let text = format!("  {}", words.join(" "));
    let part = if shown < of {
        format!(" {}-{} of {of}", first + 1, first + shown)
    } else {
        String::new()
    };
    let room = width.saturating_sub(part.chars().count());
    let text = format!("{:room$}{part}", cut(text.trim_end(), room));
    Line::styled(text, paint.title())
}

fn worker(row: &Row, laid: &[Laid], is_chosen: bool, paint: Paint) -> Line<'static> {
    let mut spans = vec![Span::raw(if is_chosen { "> " } else { "  " })];
    for one in laid {
        let style = match one.column {
            Column::State => paint.state(row.state),
            Column::Trend => paint.in_color(Color::Cyan),
            Column::Restarts if row.restarts > 0 => paint.in_color(Color::Yellow),
            Column::Busy
            | Column::Items
            | Column::Jobs
            | Column::Memory
            | Column::Restarts
            | Column::Role
            | Column::Runs
            | Column::Worker => Style::new(),
        };
        spans.push(Span::styled(one.cell(row), style));
        spans.push(Span::raw(" "));
    }
    let line = Line::from(spans);
    if is_chosen { line.patch_style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
}

/// What there is no column for.
fn details(row: &Row) -> [String; DETAILS] {
    let mut first = format!("{}: ", row.name);
    first += &if row.pid == 0 { "no process".to_owned() } else { format!("pid {}", row.pid) };
    if !row.device_name.is_empty() {
        first += &format!(", {}", row.device_name);
    }
    if let (Some(used), Some(total)) = (row.memory, row.memory_total) {
        first += &format!(", {} of {} held", bytes(used), bytes(total));
    }
    if let Some(power) = row.power_mw {
        first += &format!(", {} W", power / 1_000);
    }
    let second = match &row.run {
        None => "  runs nothing".to_owned(),
        Some(run) => {
            let (jobs, items) = (counted(run.jobs.into(), "job"), counted(run.items, "item"));
            let ran = span(run.for_us);
            format!("  runs {} for {ran} ({jobs}, {items}): {}", run.job, run.what)
        }
    };
    [first, second]
}

fn models(models: &[ModelRow], room: usize, width: usize, paint: Paint) -> Vec<Line<'static>> {
    let Some(rows) = room.checked_sub(1) else { return Vec::new() };
    let name = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
    let name = name.clamp("MODEL".len(), MODEL_NAME_MAX);
    let title = format!("  {:name$} {:>7} {:>8} {:>6}", "MODEL", "WORKERS", "CONTEXTS", "MEM");
    let part =
        if rows < models.len() { format!("  1-{rows} of {}", models.len()) } else { String::new() };
    let mut lines = vec![Line::styled(cut(&(title + &part), width), paint.title())];
    for model in models.iter().take(rows) {
        let on = format!("{}/{}", model.ready, model.workers);
        let (contexts, memory) = (model.contexts, bytes(model.device_bytes));
        let memory = if model.device_bytes == 0 { UNKNOWN } else { &memory };
        let text = format!(
            "  {:name$} {on:>7} {contexts:>8} {memory:>6}  {}",
            cut(&model.name, name),
            model.reason
        );
        let style = match model.ready == model.workers {
            true => Style::new(),
            false => paint.in_color(if model.ready == 0 { Color::Red } else { Color::Yellow }),
        };
        lines.push(Line::styled(cut(text.trim_end(), width), style));
    }
    lines
}

#[cfg(test)]
mod tests;
