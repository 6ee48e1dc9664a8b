//! How many colours the output may use, from the environment.
//!
//! `NO_COLOR` (<https://no-color.org>) turns colours off. `FORCE_COLOR` and `CLICOLOR_FORCE`
//! (<https://bixense.com/clicolors>) turn them on for pipes and dumb terminals; `FORCE_COLOR=1`, `2` and `3`
//! choose how many. Otherwise `COLORTERM` says whether a terminal has 24-bit colours, and `TERM` whether it
//! has 256, 16 or none.

use std::ffi::OsString;

/// The colours that the output may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Colors {
    /// No colours.
    None,
    /// Eight colours and eight bright ones.
    Sixteen,
    /// The 256 colours of xterm.
    Palette,
    /// All 24-bit colours.
    True,
}

impl Colors {
    /// The colours for an output of this process.
    #[must_use]
    pub fn of(is_terminal: bool) -> Self {
        Self::by(is_terminal, |name| std::env::var_os(name))
    }

    /// Whether the output may use colours at all.
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::None
    }

    fn by(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name| {
            let value = variable(name)?.to_string_lossy().into_owned();
            (!value.is_empty()).then_some(value)
        };
        let is_off = |value: &String| ["0", "false"].contains(&&**value);
        if text("NO_COLOR").is_some() {
            return Self::None;
        }
        let forced = text("FORCE_COLOR");
        match forced.as_deref() {
            Some("0" | "false") => return Self::None,
            Some("1") => return Self::Sixteen,
            Some("2") => return Self::Palette,
            Some("3") => return Self::True,
            Some(_) | None => {}
        }
        let is_forced =
            forced.is_some() || text("CLICOLOR_FORCE").is_some_and(|value| !is_off(&value));
        if !is_forced && (!is_terminal || text("CLICOLOR").is_some_and(|value| is_off(&value))) {
            return Self::None;
        }
        let has_all = ["truecolor", "24bit"];
        match text("TERM").as_deref() {
            None | Some("dumb") => {
                if is_forced {
                    Self::Sixteen
                } else {
                    Self::None
                }
            }
            Some(_) if text("COLORTERM").is_some_and(|value| has_all.contains(&&*value)) => {
                Self::True
            }
            Some(term) if term.ends_with("-direct") => Self::True,
            Some(term) if term.contains("256color") => Self::Palette,
            Some(_) => Self::Sixteen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variables and their values.
    type Set<'a> = &'a [(&'a str, &'a str)];

    fn colors(is_terminal: bool, set: Set<'_>) -> Colors {
        Colors::by(is_terminal, |name| {
            let found = set.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_terminal_has_the_colours_that_it_says() {
        let cases: [(Set<'_>, Colors); 8] = [
            (&[], Colors::None),
            (&[("TERM", "dumb")], Colors::None),
            (&[("TERM", "dumb"), ("COLORTERM", "truecolor")], Colors::None),
            (&[("TERM", "linux")], Colors::Sixteen),
            (&[("TERM", "screen-256color")], Colors::Palette),
            (&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")], Colors::True),
            (&[("TERM", "xterm"), ("COLORTERM", "24bit")], Colors::True),
            (&[("TERM", "xterm-direct")], Colors::True),
        ];
        for (set, want) in cases {
            assert_eq!(colors(true, set), want, "{set:?}");
            assert_eq!(colors(false, set), Colors::None, "a pipe, {set:?}");
        }
    }

    #[test]
    fn colours_are_off_or_forced_as_the_user_asks() {
        let xterm = ("TERM", "xterm-256color");
        let cases: [(Set<'_>, Colors, Colors); 9] = [
            (&[xterm, ("NO_COLOR", "1")], Colors::None, Colors::None),
            (&[xterm, ("NO_COLOR", "")], Colors::Palette, Colors::None),
            (&[xterm, ("NO_COLOR", "1"), ("FORCE_COLOR", "1")], Colors::None, Colors::None),
            (&[xterm, ("FORCE_COLOR", "0")], Colors::None, Colors::None),
            (&[xterm, ("FORCE_COLOR", "3")], Colors::True, Colors::True),
            (&[xterm, ("FORCE_COLOR", "true")], Colors::Palette, Colors::Palette),
            (&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], Colors::Sixteen, Colors::Sixteen),
            (&[xterm, ("CLICOLOR_FORCE", "0")], Colors::Palette, Colors::None),
            (&[xterm, ("CLICOLOR", "0")], Colors::None, Colors::None),
        ];
        for (set, terminal, pipe) in cases {
            assert_eq!((colors(true, set), colors(false, set)), (terminal, pipe), "{set:?}");
        }
    }
}
