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
use crate::refusals::Refusals;

/// How long servers may say that they have a message already, and not under which number, before it is given up.
const UNSTORED_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Publishes a message and waits until the stream has it. Tries again until that time while no server answers, and for
/// `UNSTORED_TIMEOUT` if one answers only that it knows its identity.
pub(crate) async fn publish(
    link: &Link,
    subject: &str,
    message: impl Fn() -> PublishMessage,
    bytes_are: Full,
    until: Instant,
) -> Result<Published, NatsError> {
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
                    let by = *unstored_until.get_or_insert_with(|| clock::now() + UNSTORED_TIMEOUT);
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
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const DUPLICATE: &str = r#"{"stream":"jobs","seq":0,"duplicate":true}"#;

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

    const FULL: &str =
        r#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}"#;

    /// A server that gives these answers to what is published, the last one again and again; its address, and how many
    /// it has given.
    fn server(answers: &'static [&'static str]) -> (String, mpsc::Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("nats://{}", listener.local_addr().expect("its address"));
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let (socket, _) = listener.accept().expect("a client");
            let (mut input, mut output) = (BufReader::new(&socket), &socket);
            let info = r#"{"server_id":"S","server_name":"s","version":"2.10.27","go":"","host":"","port":0,
                "headers":true,"max_payload":1048576,"proto":1,"client_id":1}"#;
            write!(output, "INFO {}\r\n", info.replace('\n', "")).expect("it reads");
            let (mut line, mut given, mut inbox) = (String::new(), 0, String::new());
            loop {
                line.clear();
                if input.read_line(&mut line).expect("a line") == 0 {
                    return;
                }
                match line.split_whitespace().collect::<Vec<_>>()[..] {
                    ["PING"] => write!(output, "PONG\r\n").expect("it reads"),
                    ["PUB" | "HPUB", _, reply, .., bytes] => {
                        let bytes: usize = bytes.parse().expect("a size");
                        input.read_exact(&mut vec![0; bytes + "\r\n".len()]).expect("its bytes");
                        let answer = answers[given.min(answers.len() - 1)];
                        given += 1;
                        // It is told of before it is answered.
                        tell.send(given).expect("the test waits");
                        write!(output, "MSG {reply} {inbox} {}\r\n{answer}\r\n", answer.len())
                            .expect("it reads");
                    }
                    ["SUB", _, number] => number.clone_into(&mut inbox),
                    // Who it is.
                    _ => {}
                }
            }
        });
        (address, told)
    }

    /// What publishing one message to such a server gives, and how often it was sent.
    fn publishing(
        answers: &'static [&'static str],
        within: Duration,
    ) -> (Result<Published, NatsError>, usize) {
        let (address, told) = server(answers);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let given = runtime.expect("a runtime").block_on(async {
            let client = async_nats::connect(&address).await.expect("a server");
            let link = Link { context: jetstream::new(client), refusals: Refusals::default() };
            let message = || PublishMessage::build().payload("words".into()).message_id("key");
            publish(&link, "subject", message, Full::JobBytes, clock::now() + within).await
        });
        (given, told.try_iter().last().unwrap_or(0))
    }

    #[test]
    fn what_is_not_stored_yet_is_sent_again_and_given_up_in_time() {
        let long = Duration::from_secs(600);
        let (stored, times) =
            publishing(&[DUPLICATE, DUPLICATE, r#"{"stream":"jobs","seq":7}"#], long);
        assert!(matches!(stored, Ok(Published::Stored(7))), "{stored:?}");
        assert_eq!(times, 3);
        let (given_up, times) = publishing(&[DUPLICATE], RETRY_EVERY * 2);
        assert!(matches!(given_up, Err(NatsError::Unstored)), "{given_up:?}");
        assert!(times > 1, "{times}");
        let (full, times) = publishing(&[DUPLICATE, FULL], long);
        assert!(matches!(full, Err(NatsError::Full(Full::Jobs))), "{full:?}");
        assert_eq!(times, 2);
    }
}
