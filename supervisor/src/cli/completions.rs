//! `gridpool completions`: scripts by which a shell completes this command line, made by clap_complete.

use clap::builder::PossibleValuesParser;
use clap::{Arg, CommandFactory};
use clap_complete::Shell;
use gridpool_protocol::chaos::ChaosFault;
use gridpool_protocol::diagnose::Group;
use gridpool_protocol::log::LogFormat;
use gridpool_protocol::program::{OPS, Ties};
use nix::sys::signal::Signal;

use super::arguments::Arguments;
use super::error::CommandError;
use super::say;

/// Prints the script for a shell.
pub(super) fn print(shell: Shell) -> Result<u8, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(), "gridpool", &mut script);
    say(String::from_utf8_lossy(&script).trim_end())
}

/// The command line without hidden commands, which the scripts of some shells would offer.
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

/// The argument with a list of its values, for scripts alone: its own parser has a better error than a list.
fn with_values(argument: Arg) -> Arg {
    let names = values(argument.get_id().as_str());
    match names.is_empty() {
        true => argument,
        false => argument.value_parser(PossibleValuesParser::new(names)),
    }
}

/// The values of an argument whose parser does not tell clap.
fn values(argument: &str) -> Vec<&'static str> {
    match argument {
        "fault" => ChaosFault::ALL.map(ChaosFault::name).into(),
        "log_format" => LogFormat::ALL.map(LogFormat::name).into(),
        "only" => Group::ALL.map(Group::name).into(),
        "op" => OPS.iter().map(|op| op.name).collect(),
        "signal" => {
            let short = |signal: Signal| signal.as_str().trim_start_matches("SIG");
            Signal::iterator().map(short).collect()
        }
        "ties" => Ties::ALL.map(Ties::name).into(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, ValueEnum};

    #[test]
    fn the_command_line_takes_every_value_that_a_shell_offers() {
        let lines = [
            ("fault", ["chaos", ""]),
            ("log_format", ["ops", "--log-format"]),
            ("only", ["diagnose", "--only"]),
            ("op", ["ops", ""]),
            ("signal", ["kill", "--signal"]),
            ("ties", ["submit", "--ties"]),
        ];
        for (argument, [command, flag]) in lines {
            let all = values(argument);
            assert!(all.len() > 1, "{argument}");
            for value in all {
                let words = ["gridpool", command, flag, value].into_iter();
                let rest = ["kill", "submit"].contains(&command).then_some("cpu0");
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
