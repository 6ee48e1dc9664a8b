//! Templates: texts with holes, each of which stands for one of a few words. `?a:color` is a hole of a known kind,
//! `?f in [rot90, vmirror]` one with words of its own. A hole that is named twice has one choice.
//!
//! Owns what a hole is and the order of the texts. Whether a text compiles is not its concern.

use std::ops::Range;

use super::SearchError;
use crate::limits::{PROGRAM_BYTES_MAX, TEMPLATE_TEXTS_MAX};
use crate::near;
use crate::solver::{Choices, Class, Hole, string_length};

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

/// Most parts of a template that devices expand.
const PARTS_MAX: usize = 256;

/// A text with holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    /// The holes, and where each stands, in order.
    holes: Vec<WordsOf>,
    places: Vec<(Range<usize>, usize)>,
    /// The holes, from the one that changes last to the one that changes first.
    order: Vec<usize>,
}

/// A hole's name and its words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WordsOf {
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
        let (holes, places, order) = (Vec::new(), Vec::new(), Vec::new());
        let mut this = Self { text: text.to_owned(), holes, places, order };
        // A hole behind `#` is part of a remark, one in a string of a description.
        let mut at = 0;
        while let Some(found) = text[at..].find(['?', '#', '"', '\'']) {
            let start = at + found;
            let rest = &text[start..];
            if rest.starts_with('#') {
                at = rest.find('\n').map_or(text.len(), |end| start + end);
                continue;
            }
            if !rest.starts_with('?') {
                at = start + string_length(rest).unwrap_or(rest.len());
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
            texts if texts > TEMPLATE_TEXTS_MAX => Err(SearchError::Texts),
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
            if let Some(word) = own.iter().find(|word| word.contains('?')) {
                return wrong(format!(
                    "`{word}` in the list of ?{name} has a hole of its own: write a template of its own for it"
                ));
            }
            words = Some(own);
        }
        let known = self.holes.iter().position(|hole| hole.name == name);
        let hole = known.unwrap_or_else(|| {
            self.order.push(self.holes.len());
            self.holes.push(WordsOf { name: name.to_owned(), words: Vec::new() });
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
        let longest = |hole: &WordsOf| hole.words.iter().map(String::len).max().unwrap_or(0);
        let longest: Vec<usize> = self.holes.iter().map(longest).collect();
        let holes: usize = self.places.iter().map(|(place, _)| place.len()).sum();
        let words: usize = self.places.iter().map(|(_, hole)| longest[*hole]).sum();
        self.text.len() - holes + words
    }

    /// Bytes that it holds, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let words = self.holes.iter().flat_map(|hole| &hole.words);
        self.text.len() + words.map(|word| word.len() + size_of::<String>()).sum::<usize>()
    }

    /// Its texts in which one hole has another word than its first.
    pub(super) fn singles(&self) -> impl Iterator<Item = String> + '_ {
        let first = || self.holes.iter().map(|hole| hole.words[0].as_str()).collect::<Vec<_>>();
        let holes = self.holes.iter().enumerate();
        holes.flat_map(move |(at, hole)| {
            hole.words.iter().map(move |word| {
                let mut words = first();
                words[at] = word;
                self.filled(&words)
            })
        })
    }

    /// Holes.
    pub(super) fn holes(&self) -> usize {
        self.holes.len()
    }

    /// How many texts it stands for.
    #[must_use]
    pub fn count(&self) -> u64 {
        let words = self.holes.iter().map(|hole| hole.words.len() as u64);
        words.fold(1, u64::saturating_mul)
    }

    /// The choice that all its programs have in common, in words: that of holes of one word.
    #[must_use]
    pub fn settled(&self) -> String {
        let settled = self.holes.iter().filter(|hole| hole.words.len() == 1);
        let words: Vec<_> =
            settled.map(|hole| format!("{}={}", hole.name, hole.words[0])).collect();
        words.join(",")
    }

    /// The same programs in the order in which these holes change, the one that changes last first.
    #[must_use]
    pub fn in_order(self, order: Vec<usize>) -> Self {
        Self { order, ..self }
    }

    /// Its texts, each with its choice in words, `a=1,b=5`. The last hole of the text changes first.
    pub fn texts(&self) -> impl Iterator<Item = (String, String)> + '_ {
        (0..self.count()).map(|number| self.text(number))
    }

    /// The same programs in parts that a device can expand, as far as holes allow: in each, the words of a hole are
    /// constants of one kind, or primitives, or only one word. One part if there would be too many.
    #[must_use]
    pub fn parts(&self) -> Vec<Self> {
        let split: Vec<_> = self.holes.iter().map(|hole| apart(&hole.words)).collect();
        let count = split.iter().map(Vec::len).fold(1, usize::saturating_mul);
        if count > PARTS_MAX {
            return vec![self.clone()];
        }
        let mut parts = vec![self.clone()];
        for (at, of_hole) in split.into_iter().enumerate() {
            let with = |part: &Self, words: &Vec<String>| {
                let mut part = part.clone();
                part.holes[at].words.clone_from(words);
                part
            };
            let each =
                parts.iter().flat_map(|part| of_hole.iter().map(move |words| with(part, words)));
            parts = each.collect();
        }
        parts
    }

    /// The text with a name for each hole of several words, and those holes with their numbers; `None` if the words of
    /// one are not alike.
    pub(super) fn named(&self) -> Option<(String, Vec<(usize, Hole)>)> {
        let mut prefix = "hole".to_owned();
        while self.text.contains(&prefix) {
            prefix.push('_');
        }
        let several = self.holes.iter().enumerate().filter(|(_, hole)| hole.words.len() > 1);
        let named = |(at, WordsOf { words, .. }): (usize, &WordsOf)| {
            let choices = Choices::of(words)?;
            Some((at, Hole { name: format!("{prefix}{at}_"), words: words.clone(), choices }))
        };
        let holes: Vec<_> = several.map(named).collect::<Option<_>>()?;
        let mut names: Vec<_> = self.holes.iter().map(|hole| hole.words[0].as_str()).collect();
        holes.iter().for_each(|(at, hole)| names[*at] = &hole.name);
        Some((self.filled(&names), holes))
    }

    /// The text of a number below the count, with its choice in words.
    #[must_use]
    pub fn text(&self, number: u64) -> (String, String) {
        let mut rest = number;
        let mut chosen = vec![""; self.holes.len()];
        for hole in self.order.iter().rev() {
            let words = &self.holes[*hole].words;
            let count = words.len() as u64;
            let at = usize::try_from(rest % count).unwrap_or(0);
            chosen[*hole] = &words[at];
            rest /= count;
        }
        let named = |(hole, word): (&WordsOf, &&str)| format!("{}={word}", hole.name);
        let choice: Vec<String> = self.holes.iter().zip(&chosen).map(named).collect();
        (choice.join(","), self.filled(&chosen))
    }

    /// The text with these words for its holes.
    fn filled(&self, words: &[&str]) -> String {
        let (mut text, mut at) = (String::with_capacity(self.text.len()), 0);
        for (place, hole) in &self.places {
            text.push_str(&self.text[at..place.start]);
            text.push_str(words[*hole]);
            at = place.end;
        }
        text.push_str(&self.text[at..]);
        text
    }
}

/// The words that are constants of one kind or primitives together, the others alone, in the order in which they begin.
fn apart(words: &[String]) -> Vec<Vec<String>> {
    let mut apart: Vec<Vec<String>> = Vec::new();
    let mut known: Vec<(Class, usize)> = Vec::new();
    for word in words {
        // One alone has no number.
        let class = Choices::class(word);
        let beside = known.iter().find(|(of, _)| class.as_ref() == Some(of)).map(|(_, at)| *at);
        match beside {
            Some(at) => apart[at].push(word.clone()),
            None => {
                known.extend(class.map(|class| (class, apart.len())));
                apart.push(vec![word.clone()]);
            }
        }
    }
    apart
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
