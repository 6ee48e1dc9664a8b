//! A failure as a status of gRPC.

use axum::body::Bytes;
use gridpool_inference::{Any, Duration, RetryInfo, StatusDetails};
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::gateway::failure::Failure;

/// Longest sentence in a status, characters. Clients refuse trailers of more than 8 KiB, and one with details has it
/// twice.
const SENTENCE_MAX: usize = 1_500;
/// Tells clients that retry by themselves when to do so.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The status: code, sentence, and when to try again if that helps.
pub(super) fn status(failure: &Failure) -> Status {
    let code = failure.code();
    let message: String = failure.message().chars().take(SENTENCE_MAX).collect();
    let Some(seconds) = failure.retry_in() else { return Status::new(code, message) };
    let details = retry_details((code, message.clone()), seconds);
    let mut status = Status::with_details(code, message, details);
    let pushback = MetadataValue::from(seconds.saturating_mul(1_000));
    status.metadata_mut().insert(PUSHBACK, pushback);
    status
}

fn retry_details((code, message): (Code, String), seconds: u64) -> Bytes {
    let delay = Duration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 };
    let info = RetryInfo { retry_delay: Some(delay) };
    let info = Any { type_url: RetryInfo::TYPE_URL.to_owned(), value: info.encode_to_vec().into() };
    let details = StatusDetails { code: i32::from(code), message, details: vec![info] };
    details.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_when_to_try_again_if_that_helps() {
        let busy = status(&Failure::busy("BUSY: full"));
        assert_eq!((busy.code(), busy.message()), (Code::ResourceExhausted, "BUSY: full"));
        assert_eq!(busy.metadata().get(PUSHBACK).unwrap(), "1000");
        let details = StatusDetails::decode(busy.details()).unwrap();
        let info = RetryInfo::decode(&*details.details[0].value).unwrap();
        assert_eq!(info.retry_delay, Some(Duration { seconds: 1, nanos: 0 }));
        let bad = status(&Failure::bad("x".repeat(5_000)));
        assert_eq!((bad.code(), bad.message().len()), (Code::InvalidArgument, SENTENCE_MAX));
        assert!(bad.details().is_empty() && bad.metadata().get(PUSHBACK).is_none());
    }
}
