//! A file with definitions: which of them are programs, and the text of one with what it uses.

use std::ops::Range;

use super::syntax::{Module, Statement};
use super::{Mistakes, are_program, mistake, parse, unmarked};
use crate::limits::PROGRAM_BYTES_MAX;

/// A file with definitions, read once.
#[derive(Debug)]
pub struct Source<'t> {
    text: &'t str,
    module: Module<'t>,
}

impl<'t> Source<'t> {
    /// Reads a file.
    ///
    /// # Errors
    /// The [`Mistakes`] of a text that does not parse and has no definitions.
    pub fn parse(text: &'t str) -> Result<Self, Mistakes> {
        let text = unmarked(text);
        let (module, mistakes) = parse::module(text);
        // A mistake is told of where its definition is wanted.
        if mistakes.is_empty() || !module.definitions.is_empty() {
            Ok(Self { text, module })
        } else {
            Err(Mistakes::new(text, mistakes))
        }
    }

    /// The names of its definitions, each with its first line, from 1.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, u32)> {
        let line = |at| mistake::line_of(self.text, at).0 + 1;
        self.module.definitions.iter().map(move |of| (of.name, line(of.span.start)))
    }

    /// The names of its programs: of the definitions with one parameter, those that nothing else in it uses. None if
    /// the statements outside of functions are the program.
    #[must_use]
    pub fn programs(&self) -> Vec<&'t str> {
        if self.module.definitions.is_empty() || are_program(&self.module) {
            return Vec::new();
        }
        let mut used = Vec::new();
        for of in &self.module.definitions {
            used.extend(of.free_names().into_iter().filter(|name| *name != of.name));
        }
        self.module.statements.iter().for_each(|of| of.value.names(&mut |name| used.push(name)));
        let mut programs: Vec<&str> = Vec::new();
        for of in &self.module.definitions {
            if of.parameters.len() == 1 && !used.contains(&of.name) && !programs.contains(&of.name)
            {
                programs.push(of.name);
            }
        }
        programs
    }

    /// The text of a definition with those that it uses, and the values outside of functions. They keep their lines
    /// in the file as far as they can. Also gives the line of the file that becomes line 1 of the text.
    #[must_use]
    pub fn extract(&self, name: &str) -> Option<(String, u32)> {
        let found = |name: &str| self.module.definitions.iter().rev().find(|of| of.name == name);
        let wanted = found(name)?;
        let mut needed: Vec<Range<usize>> = vec![wanted.span.clone()];
        let mut names = wanted.free_names();
        let mut at = 0;
        while let Some(name) = names.get(at).copied() {
            at += 1;
            if names[..at - 1].contains(&name) {
                continue;
            }
            // Names that one statement gives their values have one place.
            let mut need = |span: &Range<usize>, uses: Vec<&'t str>| {
                if !needed.contains(span) {
                    needed.push(span.clone());
                }
                names.extend(uses);
            };
            if let Some(definition) = found(name) {
                need(&definition.span, definition.free_names());
            }
            let is_it = |of: &&Statement<'_>| of.name == Some(name) && name != "O";
            for statement in self.module.statements.iter().filter(is_it) {
                let mut uses = Vec::new();
                statement.value.names(&mut |name| uses.push(name));
                need(&statement.span, uses);
            }
        }
        Some(self.laid_out(&wanted.span, needed))
    }

    /// These parts of the text, of which the wanted one is the last definition.
    fn laid_out(&self, wanted: &Range<usize>, mut parts: Vec<Range<usize>>) -> (String, u32) {
        let is_definition =
            |part: &Range<usize>| self.module.definitions.iter().any(|of| of.span == *part);
        let is_moved = |part: &Range<usize>| part.start > wanted.start && is_definition(part);
        parts.sort_by_key(|part| (!is_moved(part), part.start));
        let line = |at| mistake::line_of(self.text, at).0;
        let (mut text, mut padded, mut first_line) = (String::new(), true, 1);
        loop {
            text.clear();
            for part in &parts {
                if !text.is_empty() {
                    text.push('\n');
                }
                let at = mistake::line_of(&text, text.len()).0;
                if padded && !is_moved(part) {
                    let gap = line(part.start).saturating_sub(at);
                    text.push_str(&"\n".repeat(usize::try_from(gap).unwrap_or(0)));
                }
                if part == wanted {
                    let at = mistake::line_of(&text, text.len()).0;
                    first_line = (line(part.start) + 1).saturating_sub(at).max(1);
                }
                text.push_str(&self.text[part.clone()]);
            }
            text.push('\n');
            if text.len() <= PROGRAM_BYTES_MAX || !padded {
                return (text, first_line);
            }
            padded = false;
        }
    }
}
