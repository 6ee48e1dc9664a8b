//! A failure as a status of gRPC.

use axum::body::Bytes;
use gridpool_inference::{Any, Duration, RetryInfo, StatusDetails};
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::gateway::failure::Failure;

/// Most bytes that the sentence of a status takes on the wire, where it stands in the message and in the details.
/// Clients refuse trailers of more than 8 KiB.
const SENTENCE_BYTES_MAX: usize = 4 << 10;
/// Tells clients that retry by themselves when to do so.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The status: code, sentence, and when to try again if that helps.
pub(super) fn status(failure: &Failure) -> Status {
    let (code, message) = (failure.code(), sentence(failure));
    let Some(seconds) = failure.retry_in() else { return Status::new(code, message) };
    let details = retry_details((code, message), seconds);
    let mut status = Status::with_details(code, message, details);
    let pushback = MetadataValue::from(seconds.saturating_mul(1_000));
    status.metadata_mut().insert(PUSHBACK, pushback);
    status
}

/// The beginning of a failure's sentence that a status has room for.
pub(super) fn sentence(failure: &Failure) -> &str {
    let message = failure.message();
    let mut left = SENTENCE_BYTES_MAX;
    for (at, letter) in message.char_indices() {
        // A byte that is no letter or figure becomes three in the message, and four thirds in the details.
        let plain = if letter.is_ascii_alphanumeric() { 1 } else { 3 };
        match left.checked_sub(letter.len_utf8() * (plain + 2)) {
            Some(less) => left = less,
            None => return &message[..at],
        }
    }
    message
}

fn retry_details((code, message): (Code, &str), seconds: u64) -> Bytes {
    let delay = Duration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 };
    let info = RetryInfo { retry_delay: Some(delay) };
    let info = Any { type_url: RetryInfo::TYPE_URL.to_owned(), value: info.encode_to_vec().into() };
    let (code, message) = (i32::from(code), message.to_owned());
    StatusDetails { code, message, details: vec![info] }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::*;

    #[test]
    fn a_status_says_when_to_try_again_if_that_helps() {
        let busy = status(&Failure::busy("BUSY: full"));
        assert_eq!((busy.code(), busy.message()), (Code::ResourceExhausted, "BUSY: full"));
        assert_eq!(busy.metadata().get(PUSHBACK).unwrap(), "1000");
        let details = StatusDetails::decode(busy.details()).unwrap();
        let info = RetryInfo::decode(&*details.details[0].value).unwrap();
        assert_eq!(info.retry_delay, Some(Duration { seconds: 1, nanos: 0 }));
        let bad = status(&Failure::bad("no"));
        assert_eq!((bad.code(), bad.message()), (Code::InvalidArgument, "no"));
        assert!(bad.details().is_empty() && bad.metadata().get(PUSHBACK).is_none());
    }

    #[test]
    fn a_long_sentence_is_cut_to_what_clients_read_in_any_language() {
        for letter in ["x", " ", "%", "é", "模", "🦀"] {
            let status = status(&Failure::busy(letter.repeat(9_000)));
            let mut headers = HeaderMap::new();
            status.add_header(&mut headers).unwrap();
            let bytes: usize =
                headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
            assert!((2_000..6_000).contains(&bytes), "{letter}: {bytes}");
            assert!(status.message().len() > 500, "{letter}");
        }
    }
}
