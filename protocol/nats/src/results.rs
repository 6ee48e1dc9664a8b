//! The stream of results: one for each key, the first that is published.

use std::time::Instant;

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, Info, Stream};
use bytes::Bytes;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::receipt::Receipt;

use crate::message::{decode, encode};
use crate::publish::{Full, Published, publish};
use crate::{NatsError, Outcome, Subjects};

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Results {
    context: Context,
    stream: Stream<Info>,
    subjects: Subjects,
}

/// What the stream has for a key.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its number in the stream.
    pub sequence: u64,
    /// The result, or the mark.
    pub outcome: Outcome,
}

impl Results {
    pub(crate) fn new(context: Context, stream: Stream<Info>, subjects: Subjects) -> Self {
        Self { context, stream, subjects }
    }

    /// The result of a job, if there is one. A server that is a little behind may not know it yet.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn find(&self, key: JobKey) -> Result<Option<Found>, NatsError> {
        match self.stream.direct_get_last_for_subject(self.subjects.result(key)).await {
            Ok(message) => {
                let outcome = decode(&message.payload)?;
                Ok(Some(Found { sequence: message.sequence, outcome }))
            }
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(NatsError::jetstream("a result cannot be looked up")(error)),
        }
    }

    /// Publishes the result of a job, unless it has one. Tries until that time while no server answers.
    /// `attempt` tells the tries of one host from those of others.
    ///
    /// # Errors
    /// [`NatsError`]; [`NatsError::Full`] if results that nobody reads fill the stream.
    pub async fn publish(
        &self,
        key: JobKey,
        attempt: &str,
        outcome: &Outcome,
        until: Instant,
    ) -> Result<Published, NatsError> {
        let payload = Bytes::from(encode(outcome)?);
        let message = || {
            PublishMessage::build()
                .payload(payload.clone())
                .message_id(format!("{key}.{attempt}"))
                .expected_last_subject_sequence(0)
        };
        let subject = self.subjects.result(key);
        publish(&self.context, &subject, message, Full::ResultBytes, until).await
    }

    /// Puts the mark that it was read in place of a result. Another mark does not matter.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn mark_read(
        &self,
        key: JobKey,
        (sequence, receipt): (u64, &Receipt),
        until: Instant,
    ) -> Result<(), NatsError> {
        let payload = Bytes::from(encode(&Outcome::read(receipt))?);
        let message = || {
            PublishMessage::build()
                .payload(payload.clone())
                .expected_last_subject_sequence(sequence)
        };
        let subject = self.subjects.result(key);
        publish(&self.context, &subject, message, Full::ResultBytes, until).await.map(drop)
    }
}
