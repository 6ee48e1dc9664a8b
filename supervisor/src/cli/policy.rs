//! `gridpool status --policy`: the response to each fault, and whether the config file sets it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gridpool_client::{Client, ClientError};
use gridpool_protocol::fault::{FaultCode, Response};
use gridpool_protocol::status::PolicyRule;
use serde::Serialize;

use super::{CommandError, columns, say_json, text};
use crate::config::{Overrides, Settings};

/// The source of the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum PolicySource {
    /// The pool at this socket obeys them now.
    Pool(String),
    /// A pool started with this config file would obey them.
    Config(String),
    /// No pool is running and no config file is named.
    Defaults,
}

/// The JSON document.
#[derive(Debug, Serialize)]
struct PolicyDocument {
    source: PolicySource,
    rules: Vec<PolicyRule>,
}

/// Explains the rows that the config file cannot name.
const NO_KEYS: &str = "A row in parentheses stands for all numbers without a row of their own. It is not a \
                       key of [policy]; write the number instead: \"signal 42\" = \"retry\".";

/// Prints the rules of a config file, of the pool, or the defaults.
pub(super) fn print(
    socket: Option<PathBuf>,
    config: Option<&Path>,
    json: bool,
) -> Result<u8, CommandError> {
    let overrides = Overrides { socket, ..Overrides::default() };
    let Settings { socket, policy, .. } = Settings::resolve(overrides, config)?;
    let (source, rules) = match config {
        // A named file counts, even if a pool is running.
        Some(file) => (PolicySource::Config(file.display().to_string()), policy.rules()),
        None => match Client::connect(&socket) {
            Ok(client) => (PolicySource::Pool(socket.display().to_string()), client.policy()?),
            Err(ClientError::NoPool { .. }) => (PolicySource::Defaults, policy.rules()),
            Err(error) => return Err(error.into()),
        },
    };
    let document = PolicyDocument { source, rules };
    if json {
        return say_json(&document);
    }
    super::print(|out| write(out, &document, columns()))
}

/// Writes the table for people.
fn write(out: &mut dyn Write, document: &PolicyDocument, columns: usize) -> io::Result<()> {
    match &document.source {
        PolicySource::Pool(socket) => writeln!(out, "The policy of the pool at {socket}:")?,
        PolicySource::Config(file) => {
            writeln!(out, "The policy of a pool with --config {file}:")?;
        }
        PolicySource::Defaults => writeln!(out, "No pool is running; these are the defaults:")?,
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
    write!(out, "{}", text::fitted(&rows, columns))?;
    writeln!(out, "{}", text::wrap(NO_KEYS, columns).join("\n"))?;
    let responses = Response::ALL.map(|one| [one.name().to_owned(), one.words().to_owned()]);
    write!(out, "\n{}", text::fitted(&responses, columns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridpool_core::policy::PolicyTable;

    #[test]
    fn the_table_names_its_source_and_marks_the_rows_of_the_config() {
        let mut policy = PolicyTable::default();
        policy.set("cuda 2", "restart").unwrap();
        let document = PolicyDocument {
            source: PolicySource::Config("p.toml".to_owned()),
            rules: policy.rules(),
        };
        let mut out = Vec::new();
        write(&mut out, &document, 120).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(text.starts_with("The policy of a pool with --config p.toml:\n"));
        let words: Vec<_> = line("cuda 2 ").split_whitespace().take(5).collect();
        assert_eq!(words, ["cuda", "2", "transient", "restart", "config"]);
        assert!(line("cuda 700 ").contains("default  CUDA_ERROR_ILLEGAL_ADDRESS: a kernel"));
        assert!(line("hang ").ends_with("the worker gave no sign of life"));
        assert!(line("quarantine_on_repeat ").contains("a second time within ten minutes"));
        assert!(text.lines().all(|line| line.chars().count() <= 120));
        let first = |line: &str| line.split("  ").next().unwrap_or_default().to_owned();
        for (other, words) in FaultCode::others() {
            assert!(words.parse::<FaultCode>().is_err(), "{other} is written as a key");
            assert!(text.lines().any(|line| first(line) == format!("({words})")), "{words}");
        }
    }

    #[test]
    fn the_document_names_its_source() {
        let json =
            |source| serde_json::to_value(PolicyDocument { source, rules: Vec::new() }).unwrap();
        assert_eq!(json(PolicySource::Defaults)["source"], "defaults");
        assert_eq!(json(PolicySource::Config("p.toml".to_owned()))["source"]["config"], "p.toml");
        assert_eq!(json(PolicySource::Pool("/s".to_owned()))["source"]["pool"], "/s");
    }
}
