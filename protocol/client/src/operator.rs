//! What a client asks a pool about itself, and the orders that it gives.

use std::time::Duration;

use gridpool_protocol::message::{ClientMessage, Reply, ServerMessage};
use gridpool_protocol::metrics::Metrics;
use gridpool_protocol::status::{PolicyRule, Status};
use gridpool_protocol::timeline;

use crate::{
    AskedVerdicts, Client, ClientError, Death, JobSelector, JobView, LastVerdicts, Release, Secret,
    TokenOrder, WorkerSelector,
};

/// Longest time for an upgrade: the most that `upgrade_timeout` may be, and a margin.
const UPGRADE_TIMEOUT_MAX: Duration = Duration::from_secs(2 * 3_600);

impl Client {
    /// Returns the state of the pool.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.status_for(None)
    }

    /// Returns the state of the pool as an operator sees it, for the holder of a token of HTTP. Only the pool's own
    /// gateway may ask so.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection; [`ClientError::Refused`] if the token is unknown or has not the scope
    /// `operate`.
    pub fn status_by_token(&self, token: &Secret) -> Result<Status, ClientError> {
        self.status_for(Some(token))
    }

    fn status_for(&self, token: Option<&Secret>) -> Result<Status, ClientError> {
        let message = |request| ClientMessage::Status { request, token: token.cloned() };
        let message = self.connection.request(&message)?;
        if let ServerMessage::Reply { reply: Reply::Status(status), .. } = message {
            Ok(*status)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// Returns what a job is doing or what became of it: any of your own, or of others if you are an operator of the
    /// pool. `None` if the pool has no such job, or no longer remembers its verdict.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection.
    pub fn job(&self, job: JobSelector) -> Result<Option<JobView>, ClientError> {
        let message = self.connection.request(&|request| ClientMessage::Job { request, job })?;
        if let ServerMessage::Reply { reply: Reply::Job(view), .. } = message {
            Ok(view.map(|view| *view))
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// Returns the pool's metrics.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection.
    pub fn metrics(&self) -> Result<Metrics, ClientError> {
        let message = self.connection.request(&|request| ClientMessage::Metrics { request })?;
        if let ServerMessage::Reply { reply: Reply::Metrics(metrics), .. } = message {
            Ok(*metrics)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// Returns the pool's response to each fault.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection.
    pub fn policy(&self) -> Result<Vec<PolicyRule>, ClientError> {
        let message = self.connection.request(&|request| ClientMessage::Policy { request })?;
        if let ServerMessage::Reply { reply: Reply::Policy(rules), .. } = message {
            Ok(rules)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// Sends a signal to a worker: a device's active one ([`DeviceId`](crate::DeviceId)), that of a group there
    /// ([`WorkerSelector::Group`]) or one process ([`WorkerName`](crate::WorkerName)).
    /// Returns a sentence that names the process.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if there is no such worker or signal.
    pub fn kill(
        &self,
        worker: impl Into<WorkerSelector>,
        signal: i32,
    ) -> Result<String, ClientError> {
        let worker = worker.into();
        self.command(&|request| ClientMessage::Kill { request, worker: worker.clone(), signal })
    }

    /// Returns a device ([`DeviceId`](crate::DeviceId)) to service, or allows denylisted jobs
    /// ([`ContentHash`](crate::ContentHash), [`Release::Contents`]) again. Returns a sentence that says what was done.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the device is in service, or no such job is denylisted.
    pub fn release(&self, what: impl Into<Release>) -> Result<String, ClientError> {
        let release = what.into();
        self.command(&|request| ClientMessage::Release { request, release })
    }

    /// Tells the pool to finish the accepted jobs and then to stop.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection.
    pub fn drain(&self) -> Result<String, ClientError> {
        self.command(&|request| ClientMessage::Drain { request })
    }

    /// Has the binaries that are installed now take the place of the pool that runs. Returns a sentence that names
    /// both, once the new ones serve. Use a client that does not reconnect
    /// ([`ClientBuilder::reconnect_for`](crate::ClientBuilder::reconnect_for)): another would ask the next pool again
    /// if this one dies.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the pool goes on as it was, with the reason.
    pub fn upgrade(&self) -> Result<String, ClientError> {
        self.upgraded(false)
    }

    /// As [`Client::upgrade`], but workers are replaced one by one: no device ever holds workers of both pools. While a
    /// device changes hands, nothing runs there.
    ///
    /// # Errors
    /// As for [`Client::upgrade`].
    pub fn upgrade_one_by_one(&self) -> Result<String, ClientError> {
        self.upgraded(true)
    }

    fn upgraded(&self, one_by_one: bool) -> Result<String, ClientError> {
        let message = |request| ClientMessage::Upgrade { request, one_by_one };
        granted(&self.connection.request_within(UPGRADE_TIMEOUT_MAX, &message)?)
    }

    /// Gives an order with a token of HTTP, as only the pool's own gateway may. Returns a sentence that says what was
    /// done.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the token is unknown or has not the scope `operate`, or the order cannot be carried
    /// out.
    pub fn order_by_token(
        &self,
        token: &Secret,
        order: &TokenOrder,
    ) -> Result<String, ClientError> {
        self.command(&|request| {
            let (token, order) = (token.clone(), order.clone());
            ClientMessage::ByToken { request, token, order }
        })
    }

    /// Returns the last deaths of workers, those with a larger number than `after`. The gateway passes the token of
    /// its client.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection; [`ClientError::Refused`] if there is a token, and it is unknown or has not
    /// the scope `operate`.
    pub fn deaths(&self, after: u64, token: Option<&Secret>) -> Result<Vec<Death>, ClientError> {
        let message = |request| ClientMessage::Deaths { request, after, token: token.cloned() };
        let message = self.connection.request(&message)?;
        if let ServerMessage::Reply { reply: Reply::Deaths(deaths), .. } = message {
            Ok(deaths)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// Returns the last verdicts of the pool's job log. The gateway says who asks, and passes on its token.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection; [`ClientError::Refused`] if whoever asks may see none.
    pub fn verdicts(&self, asked: &AskedVerdicts) -> Result<LastVerdicts, ClientError> {
        let message = |request| ClientMessage::Verdicts { request, asked: asked.clone() };
        let message = self.connection.request(&message)?;
        if let ServerMessage::Reply { reply: Reply::Verdicts(verdicts), .. } = message {
            Ok(verdicts)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// Returns what comes of the pool's timeline after a mark: ask again until a part is the last.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection.
    pub fn timeline(&self, after: timeline::Mark) -> Result<timeline::Part, ClientError> {
        let message =
            self.connection.request(&|request| ClientMessage::Timeline { request, after })?;
        if let ServerMessage::Reply { reply: Reply::Timeline(part), .. } = message {
            Ok(*part)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    pub(crate) fn command(
        &self,
        message: &dyn Fn(u64) -> ClientMessage,
    ) -> Result<String, ClientError> {
        granted(&self.connection.request(message)?)
    }
}

/// What a command has done.
pub(crate) fn granted(message: &ServerMessage) -> Result<String, ClientError> {
    if let ServerMessage::Granted { what, .. } = message {
        Ok(what.clone())
    } else {
        Err(ClientError::unexpected(message))
    }
}
