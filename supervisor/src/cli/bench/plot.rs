//! The picture: rate against batch size on logarithmic axes, with the limit as a line, and a panel for each
//! kind of grids. Two axes, some lines and words need no library.

use gridpool_protocol::bench::{Row, Section, Workload};

use super::limits::both_ways;
use super::machine::Machine;
use super::table::si;

/// Pixels of the whole picture and of one panel.
const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 520.0;
const PANEL: [f64; 2] = [390.0, 340.0];
/// The panels' upper left corners.
const LEFT: [f64; 2] = [70.0, 540.0];
const TOP: f64 = 50.0;
/// Legend entries in one line, and the pixels of each.
const LEGEND_COLUMNS: usize = 6;
const LEGEND_WIDTH: f64 = 150.0;

/// Colours of the programs' lines, readable on a light and on a dark background.
const COLORS: [&str; 10] = [
    "#4477aa", "#ee6677", "#228833", "#b8860b", "#33a5c4", "#aa3377", "#888888", "#dd7711",
    "#7755cc", "#119977",
];

/// Colours of paper and ink, for light and dark mode.
const STYLE: &str = "
  .paper { fill: #ffffff } .ink { fill: #222222 } .axis { stroke: #222222 } .rule { stroke: #dddddd }
  text { font: 12px sans-serif } .title { font-weight: bold }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #15181c } .ink { fill: #e6e6e6 } .axis { stroke: #e6e6e6 }
    .rule { stroke: #3a3f45 }
  }
";

/// One program's rates by batch size.
struct Series<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

/// An axis: a range of powers of ten.
#[derive(Clone, Copy)]
struct Axis {
    from: i32,
    to: i32,
}

/// The picture as SVG; `None` if no rate was measured.
pub(super) fn svg(rows: &[Row], machine: &Machine) -> Option<String> {
    let fewest = rates(rows).map(|row| row.devices).min()?;
    let rows: Vec<&Row> =
        rows.iter().filter(|row| is_limit(row) || row.devices == fewest).collect();
    let points = || rates(rows.iter().copied()).filter_map(point);
    let limits = [Workload::Arc, Workload::Square].map(|workload| limit(&rows, workload, fewest));
    let highest = limits.iter().flatten().copied();
    let x = Axis::over(points().map(|(x, _)| x));
    let y = Axis::over(points().map(|(_, y)| y).chain(highest));
    let names = names(&rows);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n"
    );
    let panels =
        [(Workload::Arc, "grids like those of ARC tasks"), (Workload::Square, "30x30 grids")];
    for ((left, (workload, title)), limit) in LEFT.into_iter().zip(panels).zip(limits) {
        let series = names.iter().map(|name| series(&rows, workload, name));
        panel(&mut text, left, title, [x, y], &series.collect::<Vec<_>>(), limit);
    }
    legend(&mut text, &names, limits.iter().any(Option::is_some));
    let devices = if fewest == 1 { "one device" } else { "all devices" };
    let caption = format!("{devices}, end to end; {}", machine.line());
    text.push_str(&words(WIDTH / 2.0, HEIGHT - 14.0, "middle", "ink", &caption));
    text.push_str("</svg>\n");
    Some(text)
}

fn is_limit(row: &Row) -> bool {
    row.section == Section::Limits
}

/// The rows in the picture: jobs that are sent one by one.
fn rates<'a>(rows: impl IntoIterator<Item = &'a Row>) -> impl Iterator<Item = &'a Row> {
    let is_rate = |row: &Row| row.section == Section::EndToEnd && row.runner == "pool";
    rows.into_iter().filter(move |row| is_rate(row) && row.value.is_some())
}

fn point(row: &Row) -> Option<(f64, f64)> {
    Some((f64::from(row.batch?), row.value?.median)).filter(|&(x, y)| x > 0.0 && y > 0.0)
}

fn names<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rates(rows.iter().copied()) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    names
}

fn series<'a>(rows: &[&'a Row], workload: Workload, name: &'a str) -> Series<'a> {
    let of = rates(rows.iter().copied())
        .filter(|row| row.name == name && row.workload == Some(workload));
    let mut points: Vec<_> = of.filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series { name, points }
}

/// The rate at which the bus is full. It is the rate of the program with the fewest bytes for each item, in
/// its largest batch, where the overhead is smallest.
fn limit(rows: &[&Row], workload: Workload, devices: u32) -> Option<f64> {
    let all: Vec<Row> = rows.iter().filter(|row| is_limit(row)).map(|&row| row.clone()).collect();
    let both = both_ways(&all, devices)?;
    let of = rates(rows.iter().copied()).filter(|row| row.workload == Some(workload));
    let symmetries = of.filter(|row| ["rot90", "dmirror", "identity"].contains(&row.name.as_str()));
    let largest = symmetries.max_by_key(|row| row.batch)?;
    largest.bytes_per_item.map(|bytes| both / bytes)
}

impl Axis {
    /// The whole powers of ten around all values.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the logarithm of a finite positive number is small"
    )]
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        Self { from, to: to.max(from + 1) }
    }

    /// The place of a value, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from)
    }
}

fn panel(
    text: &mut String,
    left: f64,
    title: &str,
    [x, y]: [Axis; 2],
    series: &[Series<'_>],
    limit: Option<f64>,
) {
    let [width, height] = PANEL;
    let across = |value: f64| left + width * x.place(value);
    let down = |value: f64| TOP + height * (1.0 - y.place(value));
    text.push_str(&words(left + width / 2.0, TOP - 20.0, "middle", "ink title", title));
    for power in x.from..=x.to {
        let at = across(10_f64.powi(power));
        text.push_str(&rule("rule", [at, TOP], [at, TOP + height]));
        let label = si(10_f64.powi(power));
        text.push_str(&words(at, TOP + height + 18.0, "middle", "ink", &label));
    }
    for power in y.from..=y.to {
        let at = down(10_f64.powi(power));
        text.push_str(&rule("rule", [left, at], [left + width, at]));
        text.push_str(&words(left - 8.0, at + 4.0, "end", "ink", &si(10_f64.powi(power))));
    }
    text.push_str(&rule("axis", [left, TOP + height], [left + width, TOP + height]));
    text.push_str(&rule("axis", [left, TOP], [left, TOP + height]));
    let below = TOP + height + 36.0;
    text.push_str(&words(left + width / 2.0, below, "middle", "ink", "items in one job"));
    text.push_str(&words(left - 8.0, TOP - 12.0, "end", "ink", "items/s"));
    if let Some(limit) = limit {
        let at = down(limit);
        text.push_str(&format!(
            "<path class=\"axis\" stroke-dasharray=\"7 4\" stroke-width=\"1.5\" \
             d=\"M{left:.1} {at:.1}H{:.1}\"/>\n",
            left + width
        ));
        let label = format!("{}/s", si(limit));
        text.push_str(&words(left + 6.0, at - 5.0, "start", "ink", &label));
    }
    for (Series { name, points }, color) in series.iter().zip(COLORS) {
        let path: Vec<String> =
            points.iter().map(|&(x, y)| format!("{:.1} {:.1}", across(x), down(y))).collect();
        if path.is_empty() {
            continue;
        }
        text.push_str(&format!(
            "<path fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" d=\"M{}\"><title>{}</title>\
             </path>\n",
            path.join("L"),
            escaped(name)
        ));
        for &(x, y) in points {
            text.push_str(&format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{color}\"/>\n",
                across(x),
                down(y)
            ));
        }
    }
}

fn legend(text: &mut String, names: &[&str], with_limit: bool) {
    let top = TOP + PANEL[1] + 62.0;
    let place = |at: usize| {
        let (line, column) = (at / LEGEND_COLUMNS, at % LEGEND_COLUMNS);
        let number = |count: usize| u32::try_from(count).map_or(0.0, f64::from);
        (LEFT[0] + LEGEND_WIDTH * number(column), top + 18.0 * number(line))
    };
    for (at, (name, color)) in names.iter().zip(COLORS).enumerate() {
        let (x, y) = place(at);
        text.push_str(&format!(
            "<path stroke=\"{color}\" stroke-width=\"3\" d=\"M{x:.1} {:.1}h22\"/>\n",
            y - 4.0
        ));
        text.push_str(&words(x + 28.0, y, "start", "ink", name));
    }
    if with_limit {
        let (x, y) = place(names.len().min(COLORS.len()));
        text.push_str(&format!(
            "<path class=\"axis\" stroke-dasharray=\"7 4\" stroke-width=\"1.5\" d=\"M{x:.1} {:.1}h22\"/>\n",
            y - 4.0
        ));
        text.push_str(&words(x + 28.0, y, "start", "ink", "the bus, both ways"));
    }
}

fn rule(class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) -> String {
    format!("<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>\n")
}

fn words(x: f64, y: f64, anchor: &str, class: &str, words: &str) -> String {
    let words = escaped(words);
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::bench::{Spread, Unit};

    use super::*;

    fn rate(batch: u32, rate: f64) -> Row {
        Row {
            workload: Some(Workload::Arc),
            batch: Some(batch),
            bytes_per_item: Some(350.0),
            value: Spread::of(vec![rate]),
            ..Row::new(Section::EndToEnd, "rot90", "pool", Unit::ItemsPerSecond)
        }
    }

    #[test]
    fn every_rate_is_a_point_and_the_limit_a_line() {
        let bus = Row::new(Section::Limits, "copy both ways at once", "a<b", Unit::BytesPerSecond);
        let bus = Row { value: Spread::of(vec![9.4e10]), ..bus };
        let rows = [bus, rate(1, 5e4), rate(1_000, 2e7), rate(1_000_000, 1.6e8)];
        let mut machine = Machine::here();
        machine.cpu = "a <fast> & good one".to_owned();
        let text = svg(&rows, &machine).unwrap();
        assert_eq!(text.matches("<circle").count(), 3, "{text}");
        assert_eq!(text.matches("stroke-dasharray").count(), 2, "in one panel and in the legend");
        assert!(text.contains("269 M/s"), "{text}");
        assert!(text.contains("a &lt;fast&gt; &amp; good one"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn without_a_rate_there_is_no_picture() {
        assert_eq!(svg(&[rate(1, 1.0).wrong("x".to_owned())], &Machine::here()), None);
    }
}
