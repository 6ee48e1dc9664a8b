//! What the stream of pieces may hold, and the time of its servers.

use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;

use super::Store;
use crate::NatsError;
use crate::publish::{Full, publish};

/// The name of messages that are put for their time.
const CLOCK: &str = "clock";
/// How long a server may take for one.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(2);

impl Store {
    /// What the stream needs for so many bytes under a name, at least: each message has its subject, too.
    pub(super) fn least_bytes(&self, name: &str, bytes: usize) -> u64 {
        let pieces = bytes.div_ceil(self.piece_bytes);
        (bytes + (pieces + 1) * self.subjects.data(name, "0").len()) as u64
    }

    /// Whether bytes that need so many may find room some time, by the limit that the stream has now.
    pub(super) async fn may_fit(&self, bytes: &Bytes, least: u64) -> Result<(), NatsError> {
        let info = self.stream.get_info().await;
        let max = info.map_err(NatsError::jetstream("the stream of batches says nothing"))?;
        let max = max.config.max_bytes;
        match is_less(max, least) {
            true => {
                let max = u64::try_from(max).unwrap_or(0);
                Err(NatsError::NeverFits { bytes: bytes.len() as u64, max })
            }
            false => Ok(()),
        }
    }

    /// The time of the servers, nanoseconds since 1970: that of a message which is put for it, and removed.
    ///
    /// # Errors
    /// [`NatsError`]; [`NatsError::Full`] if the stream has no room for it.
    pub(crate) async fn now_ns(&self) -> Result<i128, NatsError> {
        let (subject, until) = (self.subjects.data(CLOCK, "0"), clock::now() + CLOCK_TIMEOUT);
        let message = || PublishMessage::build().payload(Bytes::new());
        publish(&self.link, &subject, message, None, (Full::DataBytes, until)).await?;
        let Some(put) = self.last(&subject).await? else { return Ok(0) };
        // Another client's may have taken its place, and be removed with it.
        if let Err(error) = self.delete(put.sequence).await {
            tracing::debug!(error = Chain(&error).to_string(), "a message for the time stays");
        }
        Ok(put.time.unix_timestamp_nanos())
    }
}

/// Why bytes find no room, by what the servers say of the stream's limit then: it may be another by now. If none of
/// them says it, that there is no room at this time stays true.
pub(super) fn no_room(full: NatsError, limit: Result<(), NatsError>) -> NatsError {
    match limit {
        Err(never @ NatsError::NeverFits { .. }) => never,
        Ok(()) | Err(_) => full,
    }
}

/// Whether a limit of a stream is less; what is not positive is none.
pub(super) fn is_less(limit: i64, bytes: u64) -> bool {
    u64::try_from(limit).is_ok_and(|limit| (1..bytes).contains(&limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_a_limit_has_room_for_all() {
        assert!(is_less(9, 10) && !is_less(10, 10));
        assert!(!is_less(-1, u64::MAX) && !is_less(0, u64::MAX));
    }

    #[test]
    fn a_full_stream_is_busy_whatever_the_servers_do_not_say_of_its_limit() {
        let full = || NatsError::Full(Full::DataBytes);
        for said in [Ok(()), Err(NatsError::Silent), Err(NatsError::Payload)] {
            let why = no_room(full(), said);
            assert!(matches!(why, NatsError::Full(Full::DataBytes)), "{why:?}");
        }
        let never = no_room(full(), Err(NatsError::NeverFits { bytes: 2, max: 1 }));
        assert!(matches!(never, NatsError::NeverFits { .. }), "{never:?}");
    }
}
