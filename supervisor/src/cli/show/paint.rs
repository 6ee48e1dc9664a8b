//! The ten colours on a terminal.
//!
//! Owns colours, their names, and escape sequences. May not know grids.

use super::block::Line;

/// A background and the digits that can be read on it.
struct Paint {
    name: &'static str,
    background: [u8; 3],
    dark_text: bool,
}

const fn paint(name: &'static str, background: u32, dark_text: bool) -> Paint {
    let [_, red, green, blue] = background.to_be_bytes();
    Paint { name, background: [red, green, blue], dark_text }
}

/// The colours of the ARC web page, by number.
const PALETTE: [Paint; 10] = [
    paint("black", 0x00_00_00, false),
    paint("blue", 0x00_74_d9, false),
    paint("red", 0xff_41_36, true),
    paint("green", 0x2e_cc_40, true),
    paint("yellow", 0xff_dc_00, true),
    paint("grey", 0xaa_aa_aa, true),
    paint("fuchsia", 0xf0_12_be, false),
    paint("orange", 0xff_85_1b, true),
    paint("teal", 0x7f_db_ff, true),
    paint("maroon", 0x87_0c_25, false),
];

/// The name of a colour.
pub(super) fn name(color: u8) -> &'static str {
    PALETTE[usize::from(color)].name
}

/// A line made of painted and plain pieces.
#[derive(Debug)]
pub(super) struct Brush {
    line: Line,
    /// Whether there is colour at all.
    on: bool,
    /// The colour that the terminal paints with now.
    current: Option<u8>,
}

impl Brush {
    pub(super) fn new(on: bool) -> Self {
        Self { line: Line::default(), on, current: None }
    }

    /// Adds `text`, on a background of `color` if there is one.
    pub(super) fn put(&mut self, text: &str, color: Option<u8>) {
        self.switch_to(color);
        self.line.text.push_str(text);
        self.line.columns += text.chars().count();
    }

    /// The line, which leaves the terminal as it found it.
    pub(super) fn finish(mut self) -> Line {
        self.switch_to(None);
        self.line
    }

    fn switch_to(&mut self, color: Option<u8>) {
        if !self.on || self.current == color {
            return;
        }
        self.current = color;
        let Some(color) = color else {
            self.line.text.push_str("\x1b[0m");
            return;
        };
        let Paint { background: [red, green, blue], dark_text, .. } = PALETTE[usize::from(color)];
        let text = if dark_text { 30 } else { 97 };
        self.line.text.push_str(&format!("\x1b[{text};48;2;{red};{green};{blue}m"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_one_colour_is_one_escape_sequence_and_takes_no_width() {
        let mut brush = Brush::new(true);
        for (text, color) in [(" 1", Some(1)), (" 1", Some(1)), (" 2", Some(2)), ("·", None)] {
            brush.put(text, color);
        }
        let line = brush.finish();
        assert_eq!(line.text, "\x1b[97;48;2;0;116;217m 1 1\x1b[30;48;2;255;65;54m 2\x1b[0m·");
        assert_eq!(line.columns, 7);
    }

    #[test]
    fn without_colour_there_is_no_escape_sequence() {
        let mut brush = Brush::new(false);
        brush.put(" 1", Some(1));
        assert_eq!(brush.finish(), Line::from(" 1".to_owned()));
    }
}
