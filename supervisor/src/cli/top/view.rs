//! Lays out the picture on a screen, and leaves out the least important rows and columns on a small one. Pure:
//! it writes to a buffer and knows only its size.

use std::time::Duration;

use gridpool_protocol::status::WorkerState;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};

use super::input::InputHandler;
use crate::cli::columns::{Laid, Mark, lay};
use crate::cli::text::wrap;
use crate::cli::words::{UNKNOWN, bytes, count, counted, cut, ratio, span, spark};
use crate::history::{ModelRow, Picture, Row};
use crate::timeline::Past;

/// Least rows below the head for more than the table.
const BODY_WITH_DETAILS_MIN: usize = 8;
/// Lines about the selected worker.
const DETAILS: usize = 2;
/// Most lines of a question or a message.
const FOOT_MAX: usize = 3;
/// Most lines of the reason why there is no new snapshot.
const TROUBLE_MAX: usize = 3;
/// Longest name of a model to show in full.
const MODEL_NAME_MAX: usize = 24;
/// The shortest trend of the whole pool to show.
const TREND_MIN: usize = 8;

const KEYS: &str = "? help  q quit  ↑↓ select  k kill  d drain  r release  p pause";

const HELP: [&str; 15] = [
    "↑ ↓ Home End  choose a worker",
    "k  kill it (SIGKILL) to see the pool recover; asks first",
    "d  drain the pool: finish all accepted jobs, then stop; asks first",
    "r  release the chosen device: the pool tries it now if it is out of service",
    "p  pause and resume the picture",
    "q  quit (also Escape, Ctrl-C); Ctrl-Z suspends; ?  close this",
    "",
    "BUSY    GPU: share of time in which a kernel ran on it, by NVML.",
    "        CPU: CPU time over time: 200% is two CPUs",
    "MEM     GPU: held by all processes; CPU: held by the worker",
    "JOBS/S  attempts answered, ITEMS/S their items with a result; TREND of items",
    "RST     restarts: processes before this one in its slot",
    "RUNS    running time, then the program or model; 3x is three jobs",
    "        in one dispatch",
    "-       unknown; a rate needs two snapshots",
];

/// What to draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    /// `None` before the first snapshot.
    pub(super) picture: Option<&'a Picture>,
    pub(super) input: &'a InputHandler,
    /// Why there is no new snapshot, if one is due.
    pub(super) trouble: Option<&'a str>,
    /// Whether to use colour.
    pub(super) colors: bool,
}

/// Draws the whole screen.
pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let theme = Theme { colors: scene.colors };
    let mut foot = foot(scene, width, theme);
    let mut lines = if scene.input.helps() { help() } else { head(scene, width, theme) };
    let left = height.saturating_sub(foot.len());
    if let Some(picture) = scene.picture.filter(|_| !scene.input.helps()) {
        lines.extend(body(picture, scene.input, width, left.saturating_sub(lines.len()), theme));
    }
    lines.resize(left, Line::default());
    lines.append(&mut foot);
    // A screen that is too small cuts the foot.
    put(&lines, area, buffer);
}

/// Puts lines on the screen, as many as it has.
pub(super) fn put(lines: &[Line<'_>], area: Rect, buffer: &mut Buffer) {
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        buffer.set_line(area.left(), y, line, area.width);
    }
}

/// The colours of the screen: some of the sixteen that every terminal has, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) colors: bool,
}

impl Theme {
    pub(super) fn in_color(self, color: Color) -> Style {
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

    pub(super) fn alarm(self) -> Style {
        self.in_color(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn title(self) -> Style {
        self.in_color(Color::Yellow).add_modifier(Modifier::BOLD)
    }
}

fn help() -> Vec<Line<'static>> {
    HELP.into_iter().map(Line::from).collect()
}

// ---- head and foot ----

fn head(scene: &Scene<'_>, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let trouble = scene.trouble.map(|why| wrap(why, width)).unwrap_or_default();
    let trouble = trouble.into_iter().take(TROUBLE_MAX);
    let trouble = trouble.map(|line| Line::styled(cut(&line, width), theme.alarm()));
    let Some(picture) = scene.picture else {
        return std::iter::once(Line::from("gridpool top")).chain(trouble).collect();
    };
    // Trouble replaces the numbers, which are out of date. Up to two lines of it leave the rows where they
    // are.
    let mut lines = vec![title(picture, scene.input, width, theme)];
    lines.extend(trouble);
    if lines.len() < 2 {
        lines.push(Line::from(totals(picture, width)));
    }
    if lines.len() < 3 {
        lines.push(flow(picture, width, theme));
    }
    lines
}

fn title(picture: &Picture, input: &InputHandler, width: usize, theme: Theme) -> Line<'static> {
    let pool = &picture.supervisor;
    let flags = [(input.paused(), "PAUSED"), (pool.draining, "DRAINING")];
    let flags = flags.into_iter().filter(|&(is_so, _)| is_so).map(|(_, flag)| flag);
    let flags = flags.collect::<Vec<_>>().join(" ");
    // In whole seconds: tenths would change with every snapshot.
    let up = span(Duration::from_secs_f64(pool.uptime_s.max(0.0)).as_secs() * 1_000_000);
    let clients = counted(pool.clients.into(), "client");
    let text = format!("gridpool {}  up {up}  {clients}  {}", pool.version, pool.socket);
    let left = width.saturating_sub(flags.len() + usize::from(!flags.is_empty()));
    let text = format!("{:left$} ", cut(&text, left));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::from(vec![Span::styled(text, bold), Span::styled(flags, theme.alarm())])
}

/// Jobs by verdict, with short numbers if the long ones do not fit.
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

/// Rates, the queue, and the pool's trend in the rest of the line.
fn flow(picture: &Picture, width: usize, theme: Theme) -> Line<'static> {
    let rate = |rate: Option<f64>| rate.map_or_else(|| UNKNOWN.to_owned(), count);
    let (jobs, items) = (rate(picture.jobs_rate), rate(picture.items_rate));
    let queue = &picture.queue;
    let oldest = queue.oldest_us.map_or_else(String::new, |us| format!(", oldest {}", span(us)));
    let (waits, held) = (short(queue.jobs), bytes(queue.bytes));
    let text = format!("{jobs} jobs/s  {items} items/s  {waits} wait, {held}{oldest}  ");
    let left = width.saturating_sub(text.chars().count());
    let bars = if left < TREND_MIN { String::new() } else { spark(&picture.trend, left) };
    Line::from(vec![Span::raw(cut(&text, width)), Span::styled(bars, theme.in_color(Color::Cyan))])
}

fn foot(scene: &Scene<'_>, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let (text, style) = match (scene.input.question(), scene.input.message()) {
        (Some(question), _) => (question, theme.title()),
        (None, Some(message)) => (message.to_owned(), theme.title()),
        (None, None) => return vec![Line::from(cut(KEYS, width))],
    };
    let lines = wrap(&text, width).into_iter().take(FOOT_MAX);
    lines.map(|line| Line::styled(line, style)).collect()
}

// ---- body ----

/// The numbers of lines of each section below the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heights {
    rows: usize,
    details: usize,
    /// Includes the line of titles.
    models: usize,
    faults: usize,
}

/// The table gets at least half of the lines if it needs them; the sections below share the rest.
fn share(left: usize, rows: usize, models: usize, faults: usize) -> Heights {
    // The titles of the table.
    let left = left.saturating_sub(1);
    if left < BODY_WITH_DETAILS_MIN {
        let rows = rows.min(left);
        return Heights { rows, details: 0, models: 0, faults: faults.min(left - rows) };
    }
    let left = left - DETAILS;
    let models = if models == 0 { 0 } else { models + 1 };
    let rows = rows.min(left - (models + faults).min(left / 2));
    let rest = left - rows;
    // A line of titles needs a model below it.
    let models = models.min(rest - faults.min(rest / 2));
    let models = if models == 1 { 0 } else { models };
    Heights { rows, details: DETAILS, models, faults: faults.min(rest - models) }
}

fn body(
    picture: &Picture,
    input: &InputHandler,
    width: usize,
    left: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let faults = faults(&picture.faults, width);
    let heights = share(left, picture.rows.len(), picture.models.len(), faults.len());
    let mark = 2.min(width);
    let laid = lay(&picture.rows, width - mark, true);
    let chosen = input.chosen(picture);
    let first = (chosen + 1).saturating_sub(heights.rows);
    let shown = picture.rows.iter().enumerate().skip(first).take(heights.rows);
    let mut lines = vec![titles(&laid, first, heights.rows, picture.rows.len(), width, theme)];
    lines.extend(shown.map(|(at, row)| worker(row, &laid, at == chosen, theme)));
    if heights.details > 0 {
        let row = picture.rows.get(chosen);
        lines
            .extend(row.map(details).unwrap_or_default().map(|line| Line::from(cut(&line, width))));
    }
    lines.extend(models(&picture.models, heights.models, width, theme));
    let red = theme.in_color(Color::Red);
    lines.extend(faults.into_iter().take(heights.faults).map(|line| Line::styled(line, red)));
    if heights.details > 0 {
        lines.extend(past(&picture.past, left.saturating_sub(lines.len()), width, theme));
    }
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
    theme: Theme,
) -> Line<'static> {
    let words: Vec<_> = laid.iter().map(|one| one.title()).collect();
    let text = format!("  {}", words.join(" "));
    let range = if shown < of {
        format!(" {}-{} of {of}", first + 1, first + shown)
    } else {
        String::new()
    };
    let left = width.saturating_sub(range.chars().count());
    let text = format!("{:left$}{range}", cut(text.trim_end(), left));
    Line::styled(text, theme.title())
}

fn worker(row: &Row, laid: &[Laid], is_chosen: bool, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::raw(if is_chosen { "> " } else { "  " })];
    for one in laid {
        let style = match (one.column.mark)(row) {
            Mark::Nothing => Style::new(),
            Mark::State => theme.state(row.own.state),
            Mark::Trend => theme.in_color(Color::Cyan),
            Mark::Warning => theme.in_color(Color::Yellow),
        };
        spans.push(Span::styled(one.cell(row), style));
        spans.push(Span::raw(" "));
    }
    let line = Line::from(spans);
    if is_chosen { line.patch_style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
}

/// Details of the selected worker that have no column.
fn details(row: &Row) -> [String; DETAILS] {
    let mut first = format!("{}: ", row.own.name);
    first +=
        &if row.own.pid == 0 { "no process".to_owned() } else { format!("pid {}", row.own.pid) };
    if !row.own.device.name.is_empty() {
        first += &format!(", {}", row.own.device.name);
    }
    if let (Some(used), Some(total)) = (row.memory, row.memory_total) {
        first += &format!(", {} of {} held", bytes(used), bytes(total));
    }
    if let Some(power) = row.power_mw {
        first += &format!(", {} W", power / 1_000);
    }
    let second = match &row.own.run {
        None => "  runs nothing".to_owned(),
        Some(run) => {
            let (jobs, items) = (counted(run.jobs.into(), "job"), counted(run.items, "item"));
            let ran = span(run.for_us);
            format!("  runs {} for {ran} ({jobs}, {items}): {}", run.job, run.what)
        }
    };
    [first, second]
}

fn models(models: &[ModelRow], left: usize, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(rows) = left.checked_sub(1) else { return Vec::new() };
    let name = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
    let name = name.clamp("MODEL".len(), MODEL_NAME_MAX);
    let title = format!(
        "  {:name$} {:>7} {:>8} {:>6} {:>6}",
        "MODEL", "WORKERS", "CONTEXTS", "MEM", "JOBS/S"
    );
    let range =
        if rows < models.len() { format!("  1-{rows} of {}", models.len()) } else { String::new() };
    let mut lines = vec![Line::styled(cut(&(title + &range), width), theme.title())];
    for model in models.iter().take(rows) {
        let on = format!("{}/{}", model.ready, model.workers);
        let (contexts, memory) = (model.contexts, bytes(model.device_bytes));
        let memory = if model.device_bytes == 0 { UNKNOWN } else { &memory };
        let rate = model.jobs_rate.map_or_else(|| UNKNOWN.to_owned(), count);
        let text = format!(
            "  {:name$} {on:>7} {contexts:>8} {memory:>6} {rate:>6}  {}",
            cut(&model.name, name),
            model.reason
        );
        let style = match model.ready == model.workers {
            true => Style::new(),
            false => theme.in_color(if model.ready == 0 { Color::Red } else { Color::Yellow }),
        };
        lines.push(Line::styled(cut(text.trim_end(), width), style));
    }
    lines
}

/// What each device did, in the lines that nothing else needs.
fn past(past: &Past, left: usize, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let points = past.lines.iter().map(|(_, doing)| doing.len()).max().unwrap_or(0);
    if points < 2 || left < 2 {
        return Vec::new();
    }
    let title = if past.is_hour { "LAST HOUR" } else { "LAST TWO MINUTES" };
    let mut title = vec![Span::styled(format!("  {title} "), theme.title())];
    title.extend(DOINGS.iter().flat_map(|&(_, mark, color, words)| {
        [Span::styled(mark.to_string(), theme.in_color(color)), Span::raw(format!(" {words}  "))]
    }));
    let name = past.lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let name = name.min(MODEL_NAME_MAX).min(width / 3);
    let room = width.saturating_sub(name + 3).max(1);
    let of_line = |(line, doing): &(String, Vec<char>)| {
        let mut spans = vec![Span::raw(format!("  {:name$} ", cut(line, name)))];
        // A column stands for so many points, and shows the gravest of them.
        let each = points.div_ceil(room);
        spans.extend(doing.rchunks(each).rev().map(|chunk| {
            let gravest = DOINGS.iter().rev().find(|(letter, ..)| chunk.contains(letter));
            gravest.map_or_else(
                || Span::raw(" "),
                |&(_, mark, color, _)| Span::styled(mark.to_string(), theme.in_color(color)),
            )
        }));
        Line::from(spans)
    };
    let lines = past.lines.iter().take(left - 1).map(of_line);
    std::iter::once(Line::from(title)).chain(lines).collect()
}

/// The letters of the timeline, how `top` shows them, and what they mean; the gravest last.
const DOINGS: [(char, char, Color, &str); 5] = [
    ('r', '·', Color::Green, "ready"),
    ('b', '▄', Color::Cyan, "busy"),
    ('c', '~', Color::Yellow, "starts or ends"),
    ('d', 'x', Color::Red, "restarted"),
    ('o', '#', Color::Red, "out of service"),
];

#[cfg(test)]
mod tests;
