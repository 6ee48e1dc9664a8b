//! What the page of the gateway shows and orders beside the status: deaths of workers, verdicts, and orders by token.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ClientMessage, JobSelector, Release};
use crate::ids::WorkerSelector;
use crate::principal::Principal;
use crate::receipt::{Receipt, Verdict};

/// A text that gives rights to whoever has it, such as a token. It is in no log: its debug form leaves it out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a token with the scope `operate` may order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenOrder {
    /// Finish the accepted jobs, then stop.
    Drain,
    /// End a worker with SIGKILL.
    Kill(WorkerSelector),
    /// Take a decision of the pool back.
    Release(Release),
}

impl TokenOrder {
    /// SIGKILL, by its number on every Linux.
    const KILL: i32 = 9;

    /// The message by which an operator gives the same order.
    #[must_use]
    pub fn as_message(&self, request: u64) -> ClientMessage {
        match self {
            Self::Drain => ClientMessage::Drain { request },
            Self::Kill(worker) => {
                ClientMessage::Kill { request, worker: worker.clone(), signal: Self::KILL }
            }
            Self::Release(release) => ClientMessage::Release { request, release: *release },
        }
    }
}

/// A worker that died, as the log has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// Its number: the later, the larger.
    pub number: u64,
    /// Seconds since 1970, by this machine's time of day.
    pub at_s: u64,
    /// `gpu0#4`.
    pub worker: String,
    /// `grid` or `infer`.
    pub role: String,
    /// The block of the log. If you are no operator, without the programs and models of jobs and without standard
    /// error.
    pub block: String,
}

/// A verdict, as the job log has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedJob {
    /// When it was given, UTC.
    pub time: String,
    /// Whose job it was.
    pub principal: String,
    /// Where and how it ran.
    pub receipt: Receipt,
}

/// Which verdicts somebody wants to see. Who is no operator gets its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedVerdicts {
    /// Only those with a larger number.
    pub after: u64,
    /// Only these; none are all.
    pub verdicts: Vec<Verdict>,
    /// Only of this job. Pools before may have had one of the same number.
    pub job: Option<JobSelector>,
    /// From the gateway: the token of the client who asks, if it has one.
    pub token: Option<Secret>,
    /// From the gateway: the client who asks, if it has no token and the pool asks for none.
    pub whose: Option<Principal>,
}

/// The last verdicts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LastVerdicts {
    /// The number of the latest, whosever it is, or the one before the first; 0 if the pool logs none. Numbers of a
    /// later pool are larger.
    pub last: u64,
    /// Whether those of all principals are among them.
    pub is_all: bool,
    /// With their numbers, in the order of these. The last ones, if there are more than fit a message.
    pub jobs: Vec<(u64, LoggedJob)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_in_its_debug_form() {
        let token = Secret("gridpool_0123".to_owned());
        let message = ClientMessage::ByToken { request: 1, token, order: TokenOrder::Drain };
        assert!(!format!("{message:?}").contains("0123"));
    }

    #[test]
    fn an_order_by_token_is_that_of_an_operator() {
        let worker: WorkerSelector = "cpu0".parse().unwrap();
        let kill = TokenOrder::Kill(worker.clone()).as_message(3);
        assert_eq!(kill, ClientMessage::Kill { request: 3, worker, signal: 9 });
        assert_eq!(TokenOrder::Drain.as_message(4), ClientMessage::Drain { request: 4 });
    }
}
