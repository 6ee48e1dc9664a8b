//! Short numbers: few digits, a unit, and a steady width.

use gridpool_protocol::receipt::Receipt;

/// Bars of a sparkline, from nothing to the most.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Stands for an unknown value.
pub(super) const UNKNOWN: &str = "-";

/// `0`, `0.4`, `12`, `3.1k`, `2.0M`: at most five characters below a thousand millions of millions.
pub(super) fn count(value: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    if value <= 0.0 {
        return "0".to_owned();
    }
    // A value that rounds up to the next unit is written in that unit.
    let unit = UNITS.iter().find(|(unit, _)| value >= 0.9995 * unit);
    match unit {
        Some((unit, name)) => format!("{}{name}", short(value / unit)),
        None => short(value),
    }
}

/// `812M`, `12.1G`: powers of 1,024.
pub(super) fn bytes(value: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match UNITS.iter().find(|&&(unit, _)| value >= unit) {
        Some(&(unit, name)) => format!("{}{name}", short(ratio(value, unit))),
        None => format!("{value}B"),
    }
}

/// `0.4s`, `12s`, `3m05s`, `2h03m`, `4d02h`.
pub(super) fn span(us: u64) -> String {
    let seconds = us / 1_000_000;
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    match (seconds, minutes, hours) {
        (0..10, ..) => format!("{}.{}s", seconds, us / 100_000 % 10),
        (10..60, ..) => format!("{seconds}s"),
        (_, 1..60, _) => format!("{minutes}m{:02}s", seconds % 60),
        (.., 1..24) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{}d{:02}h", hours / 24, hours % 24),
    }
}

/// The same, finer below a second: `0.35ms`.
pub(super) fn took(us: u64) -> String {
    match us {
        0..1_000_000 => format!("{}.{:02}ms", us / 1_000, us / 10 % 100),
        _ => span(us),
    }
}

/// `97%`.
pub(super) fn percent(value: f64) -> String {
    format!("{value:.0}%")
}

/// `1 job`, `2 jobs`.
pub(super) fn counted(count: u64, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {word}{plural}")
}

/// `2 attempts`; of a job that was cut into parts `4 parts, 1 attempt without an answer`: a part is no retry.
pub(super) fn attempts(receipt: &Receipt) -> String {
    let attempts = &receipt.attempts;
    if !attempts.iter().any(|attempt| receipt.is_part(attempt)) {
        return counted(attempts.len() as u64, "attempt");
    }
    let parts = receipt.items_done().len();
    let done = counted(parts as u64, "part");
    match attempts.len() - parts {
        0 => done,
        lost => format!("{done}, {} without an answer", counted(lost as u64, "attempt")),
    }
}

/// The last `width` values as bars; the highest value has the highest bar.
pub(super) fn spark(values: &[f64], width: usize) -> String {
    let shown = &values[values.len().saturating_sub(width)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let bar = |&value: &f64| {
        let steps = BARS.len() - 1;
        let level = (0..steps).filter(|&at| value * ratio(steps as u64, 1) > most * half(at));
        BARS[level.count()]
    };
    let bars: String = shown.iter().map(bar).collect();
    format!("{bars:>width$}")
}

/// The bound between two bars.
fn half(step: usize) -> f64 {
    ratio(2 * step as u64 + 1, 2)
}

/// One number over another.
pub(crate) fn ratio(one: u64, other: u64) -> f64 {
    // Exact up to 2^53, far beyond the digits on a screen.
    one as f64 / other as f64
}

/// Two digits, or all of them before the point.
fn short(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// The text in at most `width` columns, with a mark where it was cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain((width > 0).then_some('…')).collect()
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::receipt::{Attempt, AttemptOutcome, DeviceInfo, ItemRange};

    use super::*;

    #[test]
    fn numbers_are_short() {
        let counts = [0.0, 0.04, 0.4, 9.44, 9.96, 99.0, 999.0, 999.9, 3_140.0, 2e6, 7.5e9, 1e13];
        let said = counts.map(count);
        let want =
            ["0", "0.0", "0.4", "9.4", "10", "99", "999", "1.0k", "3.1k", "2.0M", "7.5G", "10T"];
        assert_eq!(said, want);
        let sizes = [0, 1_023, 1_024, 5 << 20, 12 << 30, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0B", "1023B", "1.0K", "5.0M", "12G", "16777216T"]);
    }

    #[test]
    fn times_are_short() {
        const SECOND: u64 = 1_000_000;
        let spans = [0, 450_000, 9 * SECOND, 59 * SECOND, 185 * SECOND, 7_380 * SECOND];
        assert_eq!(spans.map(span), ["0.0s", "0.4s", "9.0s", "59s", "3m05s", "2h03m"]);
        assert_eq!(span(98 * 3_600 * SECOND), "4d02h");
        let times = [0, 2_349, 999_999, SECOND].map(took);
        assert_eq!(times, ["0.00ms", "2.34ms", "999.99ms", "1.0s"]);
        assert_eq!(span(u64::MAX), "213503982d08h");
    }

    #[test]
    fn parts_are_no_retries() {
        use AttemptOutcome::{Ok, Preempted, WorkerDied};
        let said = |made: &[(u32, u32, AttemptOutcome)]| {
            let attempt = |&(start, end, outcome)| {
                let (part, worker) = (ItemRange { start, end }, "cpu0#1".to_owned());
                Attempt::unreported(worker, DeviceInfo::default(), part, outcome, String::new())
            };
            let attempts = made.iter().map(attempt).collect();
            attempts_of(attempts)
        };
        assert_eq!(said(&[]), "0 attempts");
        assert_eq!(said(&[(0, 8, WorkerDied), (0, 8, Ok)]), "2 attempts");
        assert_eq!(said(&[(0, 4, Ok), (4, 8, Ok)]), "2 parts");
        let again = [(0, 4, WorkerDied), (4, 8, Preempted), (4, 8, Ok), (0, 4, Ok)];
        assert_eq!(said(&again), "2 parts, 2 attempts without an answer");
        assert_eq!(said(&again[..1]), "0 parts, 1 attempt without an answer");
    }

    fn attempts_of(made: Vec<Attempt>) -> String {
        attempts(&Receipt { items: 8, attempts: made, ..Receipt::default() })
    }

    #[test]
    fn a_sparkline_has_its_width_and_its_highest_bar_is_whole() {
        assert_eq!(spark(&[], 3), "   ");
        assert_eq!(spark(&[0.0, 0.0], 3), " ▁▁");
        assert_eq!(spark(&[9.0, 0.0, 1.0, 4.0, 8.0], 4), "▁▂▄█");
        assert_eq!(spark(&[1e300, f64::MIN_POSITIVE], 2), "█▁");
    }

    #[test]
    fn a_cut_text_ends_in_a_mark() {
        let cuts = [("abc", 3), ("abcd", 3), ("äöü", 2), ("a", 0)].map(|(text, n)| cut(text, n));
        assert_eq!(cuts, ["abc", "ab…", "ä…", ""]);
    }
}
