//! Templates: texts with holes, each of which stands for one of a few words. `?a:color` is a hole of a known kind,
//! `?f in [rot90, vmirror]` one with words of its own. A hole that is named twice has one choice.
//!
//! Owns what a hole is and the order of the texts. Whether a text compiles is not its concern.

use std::ops::Range;

use super::SearchError;
use crate::limits::{PROGRAM_BYTES_MAX, TEMPLATE_TEXTS_MAX};
use crate::near;

/// The kinds of holes that need no list, each with its words.
const DOMAINS: &[(&str, &[&str])] = &[
    ("bool", &["F", "T"]),
    ("color", &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]),
    ("direction", &["UP", "DOWN", "LEFT", "RIGHT", "UNITY", "NEG_UNITY", "UP_RIGHT", "DOWN_LEFT"]),
    ("flag", &["F", "T"]),
    (
        "Grid->Grid",
        &[
            "identity",
            "rot90",
            "rot180",
            "rot270",
            "hmirror",
            "vmirror",
            "dmirror",
            "cmirror",
            "compress",
            "trim",
            "tophalf",
            "bottomhalf",
            "lefthalf",
            "righthalf",
        ],
    ),
];

/// A text with holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    /// The holes, and where each stands, in order.
    holes: Vec<Hole>,
    places: Vec<(Range<usize>, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hole {
    name: String,
    words: Vec<String>,
}

impl Template {
    /// Reads a text; `None` if it has no hole.
    ///
    /// # Errors
    /// [`SearchError::Template`] if a hole is malformed, or [`SearchError::Texts`] if there are too many texts.
    ///
    /// ```
    /// use gridpool_protocol::search::Template;
    /// let template = Template::parse("replace(?a:color, ?b in [0, 5])").unwrap().unwrap();
    /// assert_eq!(template.count(), 20);
    /// let (choice, text) = template.texts().nth(3).unwrap();
    /// assert_eq!((choice.as_str(), text.as_str()), ("a=1,b=5", "replace(1, 5)"));
    /// assert_eq!(Template::parse("rot90").unwrap(), None);
    /// ```
    pub fn parse(text: &str) -> Result<Option<Self>, SearchError> {
        if !text.contains('?') {
            return Ok(None);
        }
        let mut this = Self { text: text.to_owned(), holes: Vec::new(), places: Vec::new() };
        // A hole behind `#` is part of a remark.
        let mut at = 0;
        while let Some(found) = text[at..].find(['?', '#']) {
            let start = at + found;
            if text[start..].starts_with('#') {
                at = text[start..].find('\n').map_or(text.len(), |end| start + end);
                continue;
            }
            at = this.hole(text, start)?;
        }
        if this.holes.is_empty() {
            return Ok(None);
        }
        if let Some(open) = this.holes.iter().find(|hole| hole.words.is_empty()) {
            let hole = &open.name;
            return Err(SearchError::Template(format!(
                "?{hole} has no kind: write ?{hole}:color, or ?{hole} in [rot90, vmirror]"
            )));
        }
        let bytes = this.bytes_max();
        if bytes > PROGRAM_BYTES_MAX {
            return Err(SearchError::Template(format!(
                "with its longest words it has {bytes} bytes; a program has at most {PROGRAM_BYTES_MAX}"
            )));
        }
        match this.count() {
            texts if texts > TEMPLATE_TEXTS_MAX => Err(SearchError::Texts { texts }),
            _ => Ok(Some(this)),
        }
    }

    /// Reads the hole at `start`. Returns where it ends.
    fn hole(&mut self, text: &str, start: usize) -> Result<usize, SearchError> {
        let wrong = |message: String| Err(SearchError::Template(message));
        let rest = &text[start + 1..];
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let name = &rest[..length.unwrap_or(rest.len())];
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return wrong("behind ? stands the name of a hole, as in ?a:color".to_owned());
        }
        let mut at = start + 1 + name.len();
        let mut words: Option<Vec<String>> = None;
        if let Some(behind) = text[at..].strip_prefix(':') {
            let length =
                behind.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '>')));
            let kind = &behind[..length.unwrap_or(behind.len())];
            at += 1 + kind.len();
            words = Some(
                DOMAINS.iter().find(|(known, _)| *known == kind).map_or(vec![], |(_, words)| {
                    words.iter().map(|word| (*word).to_owned()).collect()
                }),
            );
            // A list says it all, whatever the kind.
            if words.as_ref().is_some_and(Vec::is_empty) && listed(&text[at..]).is_none() {
                let mut kinds = near::names(kind, DOMAINS.iter().map(|(known, _)| *known));
                if kinds.is_empty() {
                    kinds = DOMAINS.iter().map(|(known, _)| *known).collect();
                }
                let holes: Vec<_> = kinds.iter().map(|kind| format!("?{name}:{kind}")).collect();
                return wrong(format!(
                    "`{kind}` is no kind of hole: write {}, or ?{name} in [word, word]",
                    holes.join(", ")
                ));
            }
        }
        if let Some(rest) = listed(&text[at..]) {
            let Some((list, end)) = closed(rest) else {
                return wrong(format!("the list of ?{name} is never closed: write ] behind it"));
            };
            at = text.len() - rest.len() + end;
            let own: Vec<String> = split(list).map(str::to_owned).collect();
            if own.is_empty() || own.iter().any(String::is_empty) {
                return wrong(format!("the list of ?{name} has an empty word"));
            }
            words = Some(own);
        }
        let known = self.holes.iter().position(|hole| hole.name == name);
        let hole = known.unwrap_or_else(|| {
            self.holes.push(Hole { name: name.to_owned(), words: Vec::new() });
            self.holes.len() - 1
        });
        if let Some(words) = words {
            let own = &mut self.holes[hole].words;
            if !own.is_empty() && *own != words {
                return wrong(format!(
                    "?{name} stands there twice with other words: say them once"
                ));
            }
            *own = words;
        }
        self.places.push((start..at, hole));
        Ok(at)
    }

    /// Bytes of its longest text.
    fn bytes_max(&self) -> usize {
        let longest = |hole: &Hole| hole.words.iter().map(String::len).max().unwrap_or(0);
        let longest: Vec<usize> = self.holes.iter().map(longest).collect();
        let holes: usize = self.places.iter().map(|(place, _)| place.len()).sum();
        let words: usize = self.places.iter().map(|(_, hole)| longest[*hole]).sum();
        self.text.len() - holes + words
    }

    /// How many texts it stands for.
    #[must_use]
    pub fn count(&self) -> u64 {
        let words = self.holes.iter().map(|hole| hole.words.len() as u64);
        words.fold(1, u64::saturating_mul)
    }

    /// Its texts, each with its choice in words, `a=1,b=5`. The last hole changes first.
    pub fn texts(&self) -> impl Iterator<Item = (String, String)> + '_ {
        (0..self.count()).map(|number| self.text(number))
    }

    /// The text of a number below the count, with its choice in words.
    #[must_use]
    pub fn text(&self, number: u64) -> (String, String) {
        let mut rest = number;
        let mut chosen: Vec<&str> = Vec::with_capacity(self.holes.len());
        for hole in self.holes.iter().rev() {
            let count = hole.words.len() as u64;
            let at = usize::try_from(rest % count).unwrap_or(0);
            chosen.push(&hole.words[at]);
            rest /= count;
        }
        chosen.reverse();
        let (mut text, mut at) = (String::with_capacity(self.text.len()), 0);
        for (place, hole) in &self.places {
            text.push_str(&self.text[at..place.start]);
            text.push_str(chosen[*hole]);
            at = place.end;
        }
        text.push_str(&self.text[at..]);
        let choice: Vec<String> = self
            .holes
            .iter()
            .zip(chosen)
            .map(|(hole, word)| format!("{}={word}", hole.name))
            .collect();
        (choice.join(","), text)
    }
}

/// What follows `in [`, if that stands here.
fn listed(text: &str) -> Option<&str> {
    text.trim_start_matches(' ').strip_prefix("in ")?.trim_start_matches(' ').strip_prefix('[')
}

/// The text up to the closing bracket, and where what is behind it begins.
fn closed(text: &str) -> Option<(&str, usize)> {
    let mut depth = 0_usize;
    for (at, sign) in text.char_indices() {
        match sign {
            '(' | '[' => depth += 1,
            ']' if depth == 0 => return Some((&text[..at], at + 1)),
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The words between commas outside of brackets.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    list.split(move |sign: char| {
        match sign {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    })
    .map(str::trim)
}
