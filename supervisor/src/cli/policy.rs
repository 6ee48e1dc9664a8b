//! `gridpool status --policy`: what is done about which fault, and who says so.

use std::io::{self, Write};

use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::status::PolicyRule;
use serde::Serialize;

use super::text;

/// Whose rules they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    /// The pool at this socket obeys them now.
    Pool(String),
    /// A pool started with this config file would obey them.
    Config(String),
    /// No pool is running, and no config file was named.
    Defaults,
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) source: Source,
    pub(super) rules: Vec<PolicyRule>,
}

/// What is said of rows that the config file cannot name.
const NO_KEYS: &str = "A row in parentheses is no key of [policy]: it stands for every number without a \
                       row of its own, each of which can be named: \"signal 42\" = \"retry\".";

/// Writes the table for people.
pub(super) fn write(out: &mut dyn Write, document: &Document, columns: usize) -> io::Result<()> {
    match &document.source {
        Source::Pool(socket) => writeln!(out, "The policy of the pool at {socket}:")?,
        Source::Config(file) => {
            writeln!(out, "A pool started with --config {file} would do this:")?;
        }
        Source::Defaults => writeln!(out, "No pool is running; these are the defaults:")?,
    }
    let header = ["FAULT", "CLASS", "RESPONSE", "FROM", "MEANING"].map(str::to_owned);
    let row = |rule: &PolicyRule| {
        let meaning = match rule.name.as_str() {
            "" => rule.meaning.clone(),
            name if name == rule.fault => rule.meaning.clone(),
            name => format!("{name}: {}", rule.meaning),
        };
        let is_key = rule.fault.parse::<FaultCode>().is_ok();
        [
            if is_key { rule.fault.clone() } else { format!("({})", rule.fault) },
            rule.class.to_string(),
            rule.response.to_string(),
            if rule.configured { "config" } else { "default" }.to_owned(),
            meaning,
        ]
    };
    let rows: Vec<_> = std::iter::once(header).chain(document.rules.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    write!(out, "{}", text::table(&rows, &widths, columns))?;
    writeln!(out, "{}", text::wrap(NO_KEYS, columns).join("\n"))?;
    let responses = Response::all().map(|one| [one.name().to_owned(), one.words().to_owned()]);
    let responses: Vec<_> = responses.collect();
    let widest = responses.iter().map(|row| row[0].len()).max().unwrap_or(0);
    write!(out, "\n{}", text::table(&responses, &[widest], columns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::policy::PolicyTable;

    #[test]
    fn the_table_says_whose_it_is_and_what_the_config_has_changed() {
        let mut policy = PolicyTable::default();
        policy.set("cuda 2", "restart").unwrap();
        let document =
            Document { source: Source::Config("p.toml".to_owned()), rules: policy.rules() };
        let mut out = Vec::new();
        write(&mut out, &document, 120).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(text.starts_with("A pool started with --config p.toml would do this:\n"));
        let words: Vec<_> = line("cuda 2 ").split_whitespace().take(5).collect();
        assert_eq!(words, ["cuda", "2", "transient", "restart", "config"]);
        assert!(line("cuda 700 ").contains("default  CUDA_ERROR_ILLEGAL_ADDRESS: a kernel"));
        assert!(line("hang ").ends_with("the worker gave no sign of life"));
        assert!(line("quarantine_on_repeat ").contains("again within ten minutes"));
        assert!(text.lines().all(|line| line.chars().count() <= 120));
        let first = |line: &str| line.split("  ").next().unwrap_or_default().to_owned();
        for (other, words) in FaultCode::others() {
            assert!(words.parse::<FaultCode>().is_err(), "{other} is written as a key");
            assert!(text.lines().any(|line| first(line) == format!("({words})")), "{words}");
        }
    }

    #[test]
    fn the_document_names_its_source() {
        let json = |source| serde_json::to_value(Document { source, rules: Vec::new() }).unwrap();
        assert_eq!(json(Source::Defaults)["source"], "defaults");
        assert_eq!(json(Source::Config("p.toml".to_owned()))["source"]["config"], "p.toml");
        assert_eq!(json(Source::Pool("/s".to_owned()))["source"]["pool"], "/s");
    }
}
