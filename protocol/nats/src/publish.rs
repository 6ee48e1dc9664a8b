//! Publishing with an answer: stored, stored already, or the stream is full.

use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{self, Context, ErrorCode};
use gridpool_ipc::clock;
use tokio::time::sleep;

use crate::NatsError;
use crate::message_id::Identity;
use crate::refusals::Refusals;

/// Between two tries while no server leads the stream.
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// The account or the server has no storage left.
const NO_STORAGE: [ErrorCode; 3] = [
    ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
    ErrorCode::INSUFFICIENT_RESOURCES,
    ErrorCode::STORAGE_RESOURCES_EXCEEDED,
];

/// A stream that is full, by its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Jobs that wait or run.
    Jobs,
    /// Their bytes.
    JobBytes,
    /// Bytes of large batches and results.
    DataBytes,
    /// Bytes of results.
    ResultBytes,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jobs => "the stream of jobs has as many as it may (jobs_max)",
            Self::JobBytes => "the stream of jobs has as many bytes as it may (jobs_bytes_max)",
            Self::DataBytes => {
                "the stream of large batches has as many bytes as it may (data_bytes_max)"
            }
            Self::ResultBytes => {
                "the stream of results has as many bytes as it may (results_bytes_max)"
            }
        })
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is stored, under this number.
    Stored(u64),
    /// One with this identity is stored already, perhaps this one, by an earlier try.
    Duplicate,
    /// Its subject has another message already.
    Taken,
}

/// Through what messages are published.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) context: Context,
    pub(crate) refusals: Refusals,
}

/// Publishes a message and waits until the stream has it. Tries again until that time while no server answers, and as
/// long as the identity allows if one answers only that it knows that.
pub(crate) async fn publish(
    link: &Link,
    subject: &str,
    message: impl Fn() -> PublishMessage,
    named: Option<(String, Identity)>,
    (bytes_are, until): (Full, Instant),
) -> Result<Published, NatsError> {
    let id = named.as_ref().map(|(name, identity)| identity.of(name));
    let unstored_for = named.map(|(_, identity)| identity.unstored_timeout()).unwrap_or_default();
    let message = || match &id {
        Some(id) => message().message_id(id),
        None => message(),
    };
    let mut unstored_until = None;
    loop {
        let refused = link.refusals.of(&[&format!("\"{subject}\"")]);
        let answer = async {
            let sent = link.context.send_publish(subject.to_owned(), message()).await;
            match sent {
                Ok(answer) => answer.await,
                Err(error) => Err(error),
            }
        };
        let answer = tokio::select! {
            answer = answer => answer,
            error = refused => return Err(error),
        };
        let error = match answer {
            Ok(ack) => match published(&ack) {
                Some(published) => return Ok(published),
                None => {
                    let by = *unstored_until.get_or_insert_with(|| clock::now() + unstored_for);
                    if clock::until(by.min(until)).is_zero() {
                        return Err(NatsError::Unstored);
                    }
                    tracing::debug!(subject, "publishing again what is not stored yet");
                    sleep(RETRY_EVERY).await;
                    continue;
                }
            },
            Err(error) => error,
        };
        match error.kind() {
            PublishErrorKind::WrongLastSequence => return Ok(Published::Taken),
            PublishErrorKind::TimedOut
            | PublishErrorKind::BrokenPipe
            | PublishErrorKind::MaxAckPending
            | PublishErrorKind::StreamNotFound => {}
            PublishErrorKind::MaxPayloadExceeded => return Err(NatsError::Payload),
            PublishErrorKind::WrongLastMessageId | PublishErrorKind::Other => {
                if code(&error) == Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM) {
                    return Err(NatsError::Payload);
                }
                if let Some(full) = full(&error, bytes_are) {
                    return Err(NatsError::Full(full));
                }
            }
        }
        if clock::until(until).is_zero() {
            return Err(NatsError::jetstream("a message cannot be stored")(error));
        }
        tracing::debug!(%error, subject, "publishing again");
        sleep(RETRY_EVERY).await;
    }
}

/// What became of a message that a server takes; `None` if nobody knows yet. A server 2.9 that leads calls it a
/// duplicate, without a number, as soon as it has heard of it before. If another leads before most servers have it,
/// none has it (<https://github.com/nats-io/nats-server/pull/6415>).
fn published(ack: &PublishAck) -> Option<Published> {
    match (ack.duplicate, ack.sequence) {
        (true, 0) => None,
        (true, _) => Some(Published::Duplicate),
        (false, number) => Some(Published::Stored(number)),
    }
}

/// Why the server refused a message, if it did.
fn code(error: &PublishError) -> Option<ErrorCode> {
    Some(error.source()?.downcast_ref::<jetstream::Error>()?.error_code())
}

/// Which limit of the stream an error is about; `bytes` is that of its bytes.
fn full(error: &PublishError, bytes: Full) -> Option<Full> {
    let code = code(error)?;
    if NO_STORAGE.contains(&code) {
        return Some(bytes);
    }
    if code != ErrorCode::STREAM_STORE_FAILED {
        return None;
    }
    // The server has one code for both limits.
    let said = error.source()?.to_string();
    match (said.contains("maximum messages"), said.contains("maximum bytes")) {
        (true, _) => Some(Full::Jobs),
        (false, true) => Some(bytes),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;
    use crate::scripted::{DUPLICATE, FULL, Scripted, stored};

    #[test]
    fn a_duplicate_without_a_number_is_not_stored() {
        let told = |text| published(&serde_json::from_str(text).expect("an answer"));
        assert_eq!(told(DUPLICATE), None);
        assert_eq!(
            told(r#"{"stream":"jobs","seq":7,"duplicate":true}"#),
            Some(Published::Duplicate)
        );
        assert_eq!(told(r#"{"stream":"jobs","seq":7}"#), Some(Published::Stored(7)));
    }

    /// What publishing one message gives beside a server with these answers, the last one again and again; and how
    /// often it was sent.
    fn publishing(
        answers: &'static [&'static str],
        identity: Identity,
    ) -> (Result<Published, NatsError>, usize) {
        let mut left = answers.iter();
        let server = Scripted::start(move |_| {
            let next = left.next().or_else(|| answers.last()).expect("an answer");
            (*next).to_owned()
        });
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let given = runtime.block_on(async {
            let link = server.link().await;
            let message = || PublishMessage::build().payload("words".into());
            let until = clock::now() + Duration::from_secs(600);
            let named = Some(("key".to_owned(), identity));
            publish(&link, "subject", message, named, (Full::JobBytes, until)).await
        });
        (given, server.ids().len())
    }

    #[test]
    fn what_is_not_stored_yet_is_sent_again_and_given_up_in_time() {
        let first = Identity::default();
        const STORED: &str = r#"{"stream":"jobs","seq":7}"#;
        assert_eq!(stored(7), STORED);
        let (stored, times) = publishing(&[DUPLICATE, DUPLICATE, STORED], first);
        assert!(matches!(stored, Ok(Published::Stored(7))), "{stored:?}");
        assert_eq!(times, 3);
        let (full, times) = publishing(&[DUPLICATE, FULL], first);
        assert!(matches!(full, Err(NatsError::Full(Full::Jobs))), "{full:?}");
        assert_eq!(times, 2);
        let mut refused = first;
        refused.hear(&NatsError::Full(Full::Jobs));
        let (given_up, _) = publishing(&[DUPLICATE], refused);
        assert!(matches!(given_up, Err(NatsError::Unstored)), "{given_up:?}");
    }
}
