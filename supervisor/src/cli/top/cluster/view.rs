//! Lays out a cluster on a screen: a head of three lines, hosts with their devices, lanes, convictions, and the keys.
//! Pure: it writes to a buffer and knows only its size.

use gridpool_nats::{DeviceRow, HostRow, LaneRow};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};

use super::super::view::{Theme, put};
use super::history::Picture;
use crate::cli::cluster::unread;
use crate::cli::show::printable;
use crate::cli::text::wrap;
use crate::cli::words::{UNKNOWN, bytes, count, counted, cut, spark};

/// Columns without a terminal.
const COLUMNS: usize = 160;
/// Longest name of a host or a lane to show in full.
const NAME_MAX: usize = 30;
/// The shortest trend to show.
const TREND_MIN: usize = 8;
/// Most lines of the reason why there is no new snapshot.
const TROUBLE_MAX: usize = 3;

const KEYS: &str = "? help  q quit  ↑↓ scroll  p pause";

const HELP: [&str; 13] = [
    "↑ ↓ Home End  scroll",
    "p  pause and resume the picture",
    "q  quit (also Escape, Ctrl-C); Ctrl-Z suspends; ?  close this",
    "",
    "RUN      jobs that the host has, and may have",
    "JOBS/S   results over the last 10 s",
    "DONE     results since its bridge began",
    "REDEL    jobs taken that were delivered before, to any host",
    "DUP      results that came second, and were dropped",
    "BACK     jobs given back to the stream",
    "LANE     jobs that the same hosts can run, of one priority",
    "-        unknown; a rate needs a host to speak twice, and it does so every 2 s",
    "Orders go to one pool, on its host: gridpool top, drain, kill, release",
];

/// What to draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    /// `None` before the first snapshot.
    pub(super) picture: Option<&'a Picture>,
    pub(super) servers: &'a str,
    /// Why there is no new snapshot, if one is due.
    pub(super) trouble: Option<&'a str>,
    /// The first row of the body that is shown.
    pub(super) first: usize,
    pub(super) helps: bool,
    pub(super) paused: bool,
    pub(super) colors: bool,
}

/// Draws the whole screen. Returns the first row of the body that is shown.
pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) -> usize {
    let mut first = scene.first;
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let theme = Theme { colors: scene.colors };
    let left = height.saturating_sub(1);
    let mut lines = match scene.helps {
        true => HELP.into_iter().map(Line::from).collect(),
        false => head(scene, width, theme),
    };
    if let Some(picture) = scene.picture.filter(|_| !scene.helps) {
        let rows = rows(picture);
        let room = left.saturating_sub(lines.len());
        // The last screen is full.
        first = first.min(rows.len().saturating_sub(room.max(1)));
        let shown = rows.iter().skip(first).take(room);
        lines.extend(shown.map(|row| Line::styled(cut(&row.text, width), row.kind.style(theme))));
    }
    lines.resize(left, Line::default());
    lines.push(Line::from(cut(KEYS, width)));
    put(&lines, area, buffer);
    first
}

/// All of it as plain lines.
pub(super) fn plain(picture: &Picture, servers: &str) -> Vec<String> {
    let mut lines = vec![printable(&title(picture, servers)), totals(picture)];
    lines.extend(rows(picture).into_iter().map(|row| cut(row.text.trim_end(), COLUMNS)));
    lines
}

fn head(scene: &Scene<'_>, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let trouble = scene.trouble.map(|why| wrap(why, width)).unwrap_or_default();
    let trouble = trouble.into_iter().take(TROUBLE_MAX);
    let trouble = trouble.map(|line| Line::styled(cut(&line, width), theme.alarm()));
    let Some(picture) = scene.picture else {
        return std::iter::once(Line::from("gridpool top")).chain(trouble).collect();
    };
    let paused = if scene.paused { "PAUSED" } else { "" };
    let left = width.saturating_sub(paused.len() + usize::from(scene.paused));
    let text = format!("{:left$} ", cut(&title(picture, scene.servers), left));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines =
        vec![Line::from(vec![Span::styled(text, bold), Span::styled(paused, theme.alarm())])];
    // Trouble replaces the numbers, which are out of date.
    lines.extend(trouble);
    if lines.len() < 2 {
        let text = totals(picture);
        let left = width.saturating_sub(text.chars().count() + 2);
        let bars = if left < TREND_MIN { String::new() } else { spark(&picture.trend, left) };
        let bars = Span::styled(format!("  {bars}"), theme.in_color(Color::Cyan));
        lines.push(Line::from(vec![Span::raw(cut(&text, width)), bars]));
    }
    lines
}

fn title(picture: &Picture, servers: &str) -> String {
    let status = &picture.status;
    let hosts = counted(status.hosts.len() as u64, "host");
    let copies = match status.replicas {
        1 => "1 copy".to_owned(),
        copies => format!("{copies} copies"),
    };
    let mut text = format!("cluster at {servers}  {hosts}  {copies}");
    if !status.followers.is_empty() {
        let leader = if status.leader.is_empty() { "nobody" } else { &status.leader };
        text += &format!("  {leader} leads");
    }
    for (name, _) in status.followers.iter().filter(|(_, is_current)| !is_current) {
        text += &format!("  {name} is behind or gone");
    }
    text
}

fn totals(picture: &Picture) -> String {
    let status = &picture.status;
    let sum = |number: fn(&LaneRow) -> u64| status.lanes.iter().map(number).sum::<u64>();
    let (waiting, running) = (sum(|lane| lane.waiting), sum(|lane| lane.running));
    let redelivered: u64 = status.hosts.iter().map(|host| host.counts.redelivered).sum();
    format!(
        "{} jobs/s  {waiting} wait  {running} run  {} held  {redelivered} redelivered  {} convicted",
        rate(picture.rate()),
        bytes(status.jobs_bytes),
        status.convicted.len()
    )
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| UNKNOWN.to_owned(), count)
}

/// A line of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BodyRow {
    text: String,
    kind: Kind,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Title,
    Fine,
    Warning,
    Alarm,
    Detail,
}

impl Kind {
    fn style(self, theme: Theme) -> Style {
        match self {
            Self::Title => theme.title(),
            Self::Fine => theme.in_color(Color::Green),
            Self::Warning => theme.in_color(Color::Yellow),
            Self::Alarm => theme.alarm(),
            Self::Detail => Style::new(),
        }
    }
}

/// The body: hosts with their devices, lanes with jobs, convictions.
pub(super) fn rows(picture: &Picture) -> Vec<BodyRow> {
    let status = &picture.status;
    let row = |kind, text: String| BodyRow { text: printable(&text), kind };
    let names = status.hosts.iter().map(|host| host.host.as_str());
    let busy = status.lanes.iter().filter(|lane| lane.waiting + lane.running > 0);
    let busy: Vec<_> = busy.collect();
    let names = names.chain(busy.iter().map(|lane| lane.name.as_str()));
    let name = names.map(|name| name.chars().count()).max().unwrap_or(0).clamp(4, NAME_MAX);
    let mut rows = vec![row(
        Kind::Title,
        format!(
            "{:name$} {:<8} {:>7} {:>6} {:>8} {:>6} {:>5} {:>6}",
            "HOST", "STATE", "RUN", "JOBS/S", "DONE", "REDEL", "DUP", "BACK"
        ),
    )];
    if status.hosts.is_empty() {
        rows.push(row(Kind::Warning, "no host has spoken within the last 10 s".to_owned()));
    }
    for (at, host) in status.hosts.iter().enumerate() {
        let (state, kind) = state(host);
        let counts = &host.counts;
        let run = format!("{}/{}", counts.running, host.slots);
        let rate = rate(picture.rates.get(at).copied().flatten());
        rows.push(row(
            kind,
            format!(
                "{:name$} {state:<8} {run:>7} {rate:>6} {:>8} {:>6} {:>5} {:>6}",
                cut(&host.host, name),
                counts.published,
                counts.redelivered,
                counts.duplicates,
                counts.given_back
            ),
        ));
        let models: Vec<_> = host.models.iter().map(|row| row.model.name.as_str()).collect();
        rows.extend(host.devices.iter().map(|it| row(Kind::Detail, device(it))));
        if !models.is_empty() {
            rows.push(row(Kind::Detail, format!("  models: {}", models.join(", "))));
        }
    }
    if !busy.is_empty() {
        let title =
            format!("{:name$} {:>16} {:>6} {:>15}", "LANE", "WAITING", "RUNNING", "REDELIVERED");
        rows.push(row(Kind::Title, title));
    }
    for lane in busy {
        let LaneRow { waiting, running, redelivered, .. } = lane;
        let text =
            format!("{:name$} {waiting:>16} {running:>7} {redelivered:>15}", cut(&lane.name, name));
        rows.push(row(Kind::Detail, text));
    }
    for lane in status.lanes.iter().filter(|lane| lane.unread() > 0) {
        rows.push(row(Kind::Warning, unread(lane)));
    }
    for (content, why) in &status.convicted {
        let text = format!("POISON {content}: convicted on {}: {}", why.host, why.reason);
        rows.push(row(Kind::Alarm, text));
    }
    rows
}

fn state(host: &HostRow) -> (&'static str, Kind) {
    match (host.pool, host.draining) {
        (_, true) => ("draining", Kind::Warning),
        (true, false) => ("serving", Kind::Fine),
        (false, false) => ("no pool", Kind::Alarm),
    }
}

fn device(row: &DeviceRow) -> String {
    let DeviceRow { device, name, role, state, jobs_done } = row;
    format!("  {device} {name} ({role}): {state}, {jobs_done} done")
}

#[cfg(test)]
mod tests {
    use gridpool_nats::{ClusterStatus, Conviction, HostCounts};

    use super::*;

    fn picture() -> Picture {
        let device = DeviceRow {
            device: "gpu0".into(),
            name: "H100".into(),
            role: "grid".into(),
            state: "busy".into(),
            jobs_done: 41,
        };
        let counts = HostCounts {
            running: 3,
            published: 200,
            redelivered: 7,
            duplicates: 1,
            given_back: 2,
            ..HostCounts::default()
        };
        let one = HostRow {
            host: "one".into(),
            pool: true,
            slots: 8,
            counts,
            devices: vec![device],
            ..HostRow::default()
        };
        let two = HostRow { host: "two".into(), ..HostRow::default() };
        let lane = LaneRow {
            name: "grid-high".into(),
            waiting: 9,
            running: 3,
            hosts: 1,
            ..LaneRow::default()
        };
        let other = LaneRow {
            name: "grid-low of protocol 7".into(),
            protocol: 7,
            waiting: 3,
            ..LaneRow::default()
        };
        let why = Conviction {
            host: "two".into(),
            job: "k".into(),
            reason: "it crashed".into(),
            pool: String::new(),
        };
        let status = ClusterStatus {
            hosts: vec![one, two],
            jobs: 15,
            jobs_bytes: 2_048,
            replicas: 3,
            leader: "n1".into(),
            followers: vec![("n2".into(), true), ("n3".into(), false)],
            lanes: vec![lane, other, LaneRow::default()],
            convicted: vec![("abc".into(), why)],
        };
        Picture { status, rates: vec![Some(12.0), None], trend: vec![1.0, 12.0] }
    }

    fn drawn(scene: &Scene<'_>, width: u16, height: u16) -> Vec<String> {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(scene, area, &mut buffer);
        let cell = |x, y| buffer.cell((x, y)).expect("it is on the screen").symbol().to_owned();
        let line = |y| (0..width).map(|x| cell(x, y)).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn scene(picture: Option<&Picture>) -> Scene<'_> {
        Scene {
            picture,
            servers: "nats://a,nats://b",
            trouble: None,
            first: 0,
            helps: false,
            paused: false,
            colors: true,
        }
    }

    #[test]
    fn hosts_devices_lanes_and_convictions_have_their_lines() {
        let picture = picture();
        assert_eq!(
            drawn(&scene(Some(&picture)), 96, 13),
            [
                "cluster at nats://a,nats://b  2 hosts  3 copies  n1 leads  n3 is behind or gone",
                "12 jobs/s  12 wait  3 run  2.0K held  7 redelivered  1 convicted                              ▂█",
                "HOST                   STATE        RUN JOBS/S     DONE  REDEL   DUP   BACK",
                "one                    serving      3/8     12      200      7     1      2",
                "  gpu0 H100 (grid): busy, 41 done",
                "two                    no pool      0/0      -        0      0     0      0",
                "LANE                            WAITING RUNNING     REDELIVERED",
                "grid-high                             9       3               0",
                "grid-low of protocol 7                3       0               0",
                "3 in grid-low of protocol 7: no host has the version of gridpool that sent them (its messages a…",
                "POISON abc: convicted on two: it crashed",
                "",
                KEYS,
            ]
        );
    }

    #[test]
    fn a_small_screen_scrolls_and_every_size_is_drawn() {
        let picture = picture();
        let scrolled = drawn(&Scene { first: 99, ..scene(Some(&picture)) }, 60, 5);
        assert!(scrolled[3].starts_with("POISON abc"), "{scrolled:?}");
        // The next key goes on from there: all but two of nine rows are above.
        let area = Rect::new(0, 0, 60, 5);
        let end = Scene { first: 99, ..scene(Some(&picture)) };
        assert_eq!(draw(&end, area, &mut Buffer::empty(area)), 7);
        for (width, height) in [(0, 0), (1, 1), (3, 2), (20, 3), (300, 60)] {
            drawn(&scene(Some(&picture)), width, height);
            drawn(&Scene { helps: true, ..scene(None) }, width, height);
        }
    }

    #[test]
    fn trouble_replaces_the_numbers_and_help_the_picture() {
        let picture = picture();
        let late = Scene { trouble: Some("no answer"), paused: true, ..scene(Some(&picture)) };
        let late = drawn(&late, 96, 8);
        assert!(late[0].ends_with("PAUSED") && late[1] == "no answer", "{late:?}");
        assert_eq!(drawn(&scene(None), 40, 3), ["gridpool top", "", KEYS]);
        let helps = drawn(&Scene { helps: true, ..scene(Some(&picture)) }, 80, 20);
        assert!(helps[4].starts_with("RUN "), "{helps:?}");
    }

    #[test]
    fn without_a_terminal_it_is_plain() {
        let said = plain(&picture(), "nats://a").join("\n");
        for part in ["cluster at nats://a  2 hosts", "12 jobs/s", "gpu0 H100", "POISON abc"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn nothing_that_other_machines_say_moves_the_cursor() {
        let mut picture = picture();
        picture.status.hosts[1].host = "two\u{1b}[2J".into();
        picture.status.convicted[0].1.reason = "a\nb\u{9b}1A".into();
        picture.status.leader = "\u{7}".into();
        let said = plain(&picture, "nats://a");
        assert!(!said.iter().any(|line| line.chars().any(char::is_control)), "{said:?}");
        assert!(said.join(" ").contains("a\u{fffd}b"), "{said:?}");
    }
}
