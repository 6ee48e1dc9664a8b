//! The ten colours on a terminal.
//!
//! Owns colours, their names, and escape sequences. May not know grids.

use gridpool_protocol::color::Colors;

use super::block::StyledLine;

/// A background for each kind of terminal, and the digits that can be read on it.
struct Paint {
    name: &'static str,
    /// In 24 bits.
    rgb: [u8; 3],
    /// The nearest of xterm's palette of 256.
    index: u8,
    /// Its background number on a terminal with sixteen colours.
    basic: u8,
    dark_text: bool,
}

const fn paint(name: &'static str, rgb: u32, index: u8, basic: u8, dark_text: bool) -> Paint {
    let [_, red, green, blue] = rgb.to_be_bytes();
    Paint { name, rgb: [red, green, blue], index, basic, dark_text }
}

/// The colours of the ARC web page, by number.
const PALETTE: [Paint; 10] = [
    paint("black", 0x00_00_00, 16, 40, false),
    paint("blue", 0x00_74_d9, 32, 44, false),
    paint("red", 0xff_41_36, 203, 101, true),
    paint("green", 0x2e_cc_40, 41, 102, true),
    paint("yellow", 0xff_dc_00, 220, 103, true),
    paint("grey", 0xaa_aa_aa, 248, 47, true),
    paint("fuchsia", 0xf0_12_be, 199, 45, false),
    paint("orange", 0xff_85_1b, 208, 43, true),
    paint("teal", 0x7f_db_ff, 117, 106, true),
    paint("maroon", 0x87_0c_25, 88, 41, false),
];

/// The name of a colour.
pub(super) fn name(color: u8) -> &'static str {
    PALETTE[usize::from(color)].name
}

/// A line made of painted and plain pieces.
#[derive(Debug)]
pub(super) struct Brush {
    line: StyledLine,
    colors: Colors,
    /// The terminal's current background.
    current: Option<u8>,
}

impl Brush {
    pub(super) fn new(colors: Colors) -> Self {
        Self { line: StyledLine::default(), colors, current: None }
    }

    /// Adds `text` on a background of `color`, if any.
    pub(super) fn put(&mut self, text: &str, color: Option<u8>) {
        self.switch_to(color);
        self.line.text.push_str(text);
        self.line.columns += text.chars().count();
    }

    /// The line, with the terminal's colours reset at its end.
    pub(super) fn finish(mut self) -> StyledLine {
        self.switch_to(None);
        self.line
    }

    fn switch_to(&mut self, color: Option<u8>) {
        if !self.colors.any() || self.current == color {
            return;
        }
        self.current = color;
        let Some(color) = color else {
            self.line.text.push_str("\x1b[0m");
            return;
        };
        let Paint { rgb: [red, green, blue], index, basic, dark_text, .. } =
            PALETTE[usize::from(color)];
        let text = if dark_text { 30 } else { 97 };
        let background = match self.colors {
            Colors::None => return,
            Colors::Sixteen => basic.to_string(),
            Colors::Palette => format!("48;5;{index}"),
            Colors::True => format!("48;2;{red};{green};{blue}"),
        };
        self.line.text.push_str(&format!("\x1b[{text};{background}m"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_one_colour_is_one_escape_sequence_and_takes_no_width() {
        for (colors, one, two) in [
            (Colors::True, "97;48;2;0;116;217", "30;48;2;255;65;54"),
            (Colors::Palette, "97;48;5;32", "30;48;5;203"),
            (Colors::Sixteen, "97;44", "30;101"),
        ] {
            let mut brush = Brush::new(colors);
            for (text, color) in [(" 1", Some(1)), (" 1", Some(1)), (" 2", Some(2)), ("·", None)] {
                brush.put(text, color);
            }
            let line = brush.finish();
            assert_eq!(line.text, format!("\x1b[{one}m 1 1\x1b[{two}m 2\x1b[0m·"));
            assert_eq!(line.columns, 7);
        }
    }

    #[test]
    fn colours_differ_on_every_terminal() {
        let mut indexes = PALETTE.map(|paint| paint.index);
        let mut basics = PALETTE.map(|paint| paint.basic);
        for all in [&mut indexes, &mut basics] {
            all.sort_unstable();
            assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
        }
        // xterm's palette: a cube of six steps, then shades of grey.
        let step = |index: u8| [0, 95, 135, 175, 215, 255][usize::from(index)];
        let shown = |index: u8| match index.checked_sub(232) {
            Some(grey) => [8 + 10 * grey; 3],
            None => [(index - 16) / 36, (index - 16) / 6 % 6, (index - 16) % 6].map(step),
        };
        let distance = |one: [u8; 3], other: [u8; 3]| -> u32 {
            one.iter().zip(other).map(|(one, other)| u32::from(one.abs_diff(other)).pow(2)).sum()
        };
        for Paint { name, rgb, index, .. } in PALETTE {
            let nearest = (16..=255).map(|index| distance(rgb, shown(index))).min();
            assert_eq!(Some(distance(rgb, shown(index))), nearest, "{name}");
        }
    }

    #[test]
    fn without_colour_there_is_no_escape_sequence() {
        let mut brush = Brush::new(Colors::None);
        brush.put(" 1", Some(1));
        assert_eq!(brush.finish(), StyledLine::from(" 1".to_owned()));
    }
}
