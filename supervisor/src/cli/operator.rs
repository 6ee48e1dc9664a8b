//! What a pool answers to an operator's orders.

use gridpool_client::ClientError;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::Verdict;

use super::error::CommandError;
use super::say;

/// Prints the pool's answer to an operator's command. A refusal means that the command named something
/// unknown.
pub(super) fn print_result(answer: Result<String, ClientError>) -> Result<u8, CommandError> {
    match answer {
        Ok(done) => say(&done),
        Err(ClientError::Refused(Refusal::Invalid(why))) => Err(CommandError::Usage(why)),
        Err(error) => Err(error.into()),
    }
}

/// Prints the verdicts of the jobs that a drained pool still had.
pub(super) fn drained(ended: Option<Vec<(Verdict, u64)>>) -> Result<u8, CommandError> {
    let verdicts = ended.ok_or(ClientError::Lost)?;
    let jobs: u64 = verdicts.iter().map(|(_, count)| count).sum();
    if jobs == 0 {
        return say("the pool had no job left and has stopped");
    }
    let cancelled = verdicts.iter().find(|(verdict, _)| *verdict == Verdict::Cancelled);
    let words: Vec<_> = verdicts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
    let words = words.join(", ");
    let jobs = if jobs == 1 { "job".to_owned() } else { format!("{jobs} jobs") };
    say(&match cancelled {
        None => format!("the pool has finished its last {jobs} ({words}) and stopped"),
        Some(_) => format!("the pool has stopped, but not finished its last {jobs}: {words}"),
    })
}
