//! Why a pool gives no measurement or check.

use gridpool_client::ClientError;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::message::Refusal;

/// Why there is no measurement.
#[derive(Debug)]
pub enum Failure {
    /// It cannot be measured on this machine.
    Skipped(String),
    /// The answer is wrong, or proves nothing.
    Wrong(String),
    /// The connection to the pool is lost.
    Lost(ClientError),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(Refusal::Busy(_)) | ClientError::Memory(_) => {
                Self::Skipped(format!("the pool has no capacity: {}", Chain(&error)))
            }
            ClientError::Refused(Refusal::Invalid(_))
            | ClientError::Batch(_)
            | ClientError::Malformed(_)
            | ClientError::Tensors(_) => Self::Wrong(Chain(&error).to_string()),
            ClientError::Closed(_)
            | ClientError::Connection(_)
            | ClientError::Lost
            | ClientError::NoPool { .. }
            | ClientError::NotAllowed { .. }
            | ClientError::Refused(
                Refusal::Bundled
                | Refusal::Draining
                | Refusal::KeyInUse(_)
                | Refusal::Poison(_)
                | Refusal::Unable(_),
            )
            | ClientError::Silent
            | ClientError::System(_)
            | ClientError::Taken
            | ClientError::Unexpected(_)
            | ClientError::Version { .. }
            | _ => Self::Lost(error),
        }
    }
}
