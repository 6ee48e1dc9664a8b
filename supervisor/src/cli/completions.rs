//! `gridpool completions`: what a shell needs to complete this command line, written by clap_complete.

use clap::builder::PossibleValuesParser;
use clap::{Arg, CommandFactory};
use clap_complete::Shell;
use gridpool_protocol::chaos::ChaosFault;
use gridpool_protocol::log::LogFormat;
use nix::sys::signal::Signal;

use super::arguments::Arguments;
use super::error::CommandError;
use super::say;

/// Who wins a tie, as `--ties` reads it.
const TIES: [&str; 2] = ["cpython", "lowest"];
/// Groups of checks, as `diagnose --only` reads them.
const GROUPS: [&str; 6] = ["environment", "isolation", "batches", "models", "allocation", "faults"];

/// Prints the script for a shell.
pub(super) fn print(shell: Shell) -> Result<u8, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(), "gridpool", &mut script);
    say(String::from_utf8_lossy(&script).trim_end())
}

/// The command line without what nobody is meant to type: the scripts for some shells would offer it.
fn visible() -> clap::Command {
    let whole = Arguments::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    clap::Command::new("gridpool")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments())
        .subcommands(shown.cloned())
        .mut_args(with_values)
        .mut_subcommands(with_values_below)
}

fn with_values_below(command: clap::Command) -> clap::Command {
    command.mut_args(with_values).mut_subcommands(with_values_below)
}

/// The same argument, with the values that it has. Whoever reads it knows them by a parser of its own,
/// whose sentence says more than a list: this is for the scripts alone.
fn with_values(argument: Arg) -> Arg {
    let names = values(argument.get_id().as_str());
    match names.is_empty() {
        true => argument,
        false => argument.value_parser(PossibleValuesParser::new(names)),
    }
}

/// The values of an argument that has a list of them and no parser that says so.
fn values(argument: &str) -> Vec<&'static str> {
    match argument {
        "fault" => ChaosFault::ALL.map(ChaosFault::name).into(),
        "log_format" => [LogFormat::Human, LogFormat::Json].map(LogFormat::name).into(),
        "only" => GROUPS.into(),
        "signal" => {
            let short = |signal: Signal| signal.as_str().trim_start_matches("SIG");
            Signal::iterator().map(short).collect()
        }
        "ties" => TIES.into(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, ValueEnum};
    use gridpool_protocol::diagnose::Group;

    #[test]
    fn every_value_that_a_shell_offers_is_one_that_the_command_line_takes() {
        assert_eq!(GROUPS.map(str::to_owned), Group::ALL.map(|group| group.to_string()));
        let lines = [
            ("fault", ["chaos", ""]),
            ("log_format", ["ops", "--log-format"]),
            ("only", ["diagnose", "--only"]),
            ("signal", ["kill", "--signal"]),
            ("ties", ["submit", "--ties"]),
        ];
        for (argument, [command, flag]) in lines {
            let all = values(argument);
            assert!(all.len() > 1, "{argument}");
            for value in all {
                let words = ["gridpool", command, flag, value].into_iter();
                let rest = ["kill", "submit"].contains(&command).then_some("x");
                let words = words.filter(|word| !word.is_empty()).chain(rest);
                let read = Arguments::try_parse_from(words);
                assert!(read.is_ok(), "{argument} {value}: {:?}", read.err());
            }
        }
    }

    #[test]
    fn every_script_knows_all_commands_but_the_hidden_ones() {
        let whole = Arguments::command();
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut visible(), "gridpool", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in whole.get_subcommands() {
                let is_there = script.contains(command.get_name());
                assert_eq!(is_there, !command.is_hide_set(), "{shell}: {}", command.get_name());
            }
        }
    }
}
