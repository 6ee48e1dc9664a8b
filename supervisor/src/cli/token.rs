//! `gridpool token new`: makes a bearer token for HTTP.

use std::io::{self, IsTerminal};

use clap::Subcommand;
use gridpool_ipc::clock;
use serde_json::json;

use super::error::{CommandError, system};
use super::{say, say_json};
use crate::gateway::{NewToken, Scope, parse_time};

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token, and print it and the line for the file of tokens. The token is stored nowhere.
    New {
        /// A name for whoever will use it, such as `laptop`.
        name: String,
        /// What it may be used for: infer, metrics, operate or memory, joined by commas.
        #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "infer")]
        scope: Vec<Scope>,
        /// The time from which it is refused, in UTC: 2027-06-30 or 2027-06-30T12:00:00Z.
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(command: &TokenCommand) -> Result<u8, CommandError> {
    let TokenCommand::New { name, scope, expires, json } = command;
    if let Some(text) = expires
        && parse_time(text).is_ok_and(|until| until <= clock::time_of_day())
    {
        let why = format!("--expires {text}: that time has passed: name a later one, in UTC");
        return Err(CommandError::Usage(why));
    }
    let mut random = [0; 32];
    let mut have = 0;
    while have < random.len() {
        let more =
            rustix::rand::getrandom(&mut random[have..], rustix::rand::GetRandomFlags::empty());
        have += more.map_err(|errno| system("random numbers")(errno.into()))?;
    }
    let NewToken { token, line } =
        NewToken::new(name, scope, expires.as_deref(), &random).map_err(CommandError::Usage)?;
    if *json {
        return say_json(&json!({ "name": name, "token": token, "line": line }));
    }
    if io::stdout().is_terminal() {
        return say(&format!(
            "The token, for its user. It cannot be shown again:\n  {token}\nThe line for the file that \
             --http-tokens names:\n  {line}"
        ));
    }
    say(&format!("{token}\n{line}"))
}
