//! The stream of results: one for each key, the first that is published.

use std::time::Instant;

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, Info, LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use gridpool_protocol::ids::{ContentHash, JobKey};
use gridpool_protocol::receipt::Receipt;

use crate::message::{decode, encode};
use crate::message_id::Identity;
use crate::publish::{Full, Link, Published, publish};
use crate::{NatsError, Outcome, Subjects};

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Results {
    link: Link,
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
    pub(crate) fn new(link: Link, stream: Stream<Info>, subjects: Subjects) -> Self {
        Self { link, stream, subjects }
    }

    /// The result of a job, if there is one. A server that is a little behind may not know it yet; `find_surely` asks
    /// the one that leads.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn find(&self, key: JobKey) -> Result<Option<Found>, NatsError> {
        match self.stream.direct_get_last_for_subject(self.subjects.result(key)).await {
            Ok(message) => {
                let outcome = decode(self.subjects.version(), &message.payload)?;
                Ok(Some(Found { sequence: message.sequence, outcome }))
            }
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            // Nobody answers for a stream that is gone, or the one that was asked is.
            Err(error) => {
                tracing::debug!(%error, %key, "the server that leads is asked for a result");
                self.find_surely(key).await
            }
        }
    }

    /// The result of a job, if there is one: as the server knows that leads the stream.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn find_surely(&self, key: JobKey) -> Result<Option<Found>, NatsError> {
        let Some((sequence, payload)) = self.led(key).await? else { return Ok(None) };
        Ok(Some(Found { sequence, outcome: decode(self.subjects.version(), &payload)? }))
    }

    /// Whether a job has a result, of whatever version, as the server knows that leads the stream.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn are_there(&self, key: JobKey) -> Result<bool, NatsError> {
        match self.find_surely(key).await {
            Ok(found) => Ok(found.is_some()),
            Err(NatsError::Version { .. }) => Ok(true),
            Err(NatsError::Foreign | NatsError::Message(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn led(&self, key: JobKey) -> Result<Option<(u64, Bytes)>, NatsError> {
        let subject = self.subjects.result(key);
        match self.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Ok(Some((message.sequence, message.payload))),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(NatsError::jetstream("a result cannot be looked up")(error)),
        }
    }

    /// Publishes the result of a job, unless it has one. Tries until that time while no server answers.
    /// `attempt` tells the tries of one host from those of others: a second one is a duplicate, and not taken.
    ///
    /// # Errors
    /// [`NatsError`]; [`NatsError::Full`] if results that nobody reads fill the stream.
    pub async fn publish(
        &self,
        key: JobKey,
        attempt: Option<(&str, Identity)>,
        outcome: &Outcome,
        until: Instant,
    ) -> Result<Published, NatsError> {
        let payload = Bytes::from(encode(self.subjects.version(), outcome)?);
        let subject = self.subjects.result(key);
        let put = async |after: u64| {
            let message = || {
                PublishMessage::build()
                    .payload(payload.clone())
                    .expected_last_subject_sequence(after)
            };
            let named = attempt.map(|(attempt, identity)| match after {
                0 => (format!("{key}.{attempt}"), identity),
                after => (format!("{key}.{attempt}.{after}"), identity),
            });
            publish(&self.link, &subject, message, named, (Full::ResultBytes, until)).await
        };
        let stored = put(0).await?;
        if stored != Published::Taken {
            return Ok(stored);
        }
        // What is no result does not count as one.
        let Some((sequence, there)) = self.led(key).await? else { return Ok(stored) };
        match decode::<Outcome>(self.subjects.version(), &there) {
            Err(NatsError::Foreign | NatsError::Message(_)) => {
                tracing::warn!(%key, "bytes in place of a result are no result");
                put(sequence).await
            }
            Ok(_) | Err(_) => Ok(stored),
        }
    }

    /// Puts the mark that it was read in place of a result. Another mark does not matter.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn mark_read(
        &self,
        key: JobKey,
        (sequence, content, receipt): (u64, Option<ContentHash>, &Receipt),
        until: Instant,
    ) -> Result<(), NatsError> {
        let mark = Outcome::read(content, receipt);
        let payload = Bytes::from(encode(self.subjects.version(), &mark)?);
        let message = || {
            PublishMessage::build()
                .payload(payload.clone())
                .expected_last_subject_sequence(sequence)
        };
        let subject = self.subjects.result(key);
        publish(&self.link, &subject, message, None, (Full::ResultBytes, until)).await.map(drop)
    }
}
