//! `gridpool completions`: what a shell needs to complete this command line, written by clap_complete.

use clap::CommandFactory;
use clap_complete::Shell;

use super::arguments::Arguments;
use super::error::CommandError;
use super::say;

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
        .subcommands(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

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
