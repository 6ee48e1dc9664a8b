//! Why something did not work with NATS.

use std::error::Error;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind,
};
use async_nats::jetstream::kv::{WatchError, WatchErrorKind};
use async_nats::jetstream::stream::{Config, ConsumerError, ConsumerErrorKind};
use async_nats::{ConnectErrorKind, RequestError, RequestErrorKind};
use gridpool_protocol::codec::{DecodeError, EncodeError};

/// See the module's text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// No server answers, or it does not admit this client.
    #[error("no NATS server at {servers} answers and admits this client{advice}")]
    Connect {
        /// Their addresses.
        servers: String,
        /// What may help.
        advice: &'static str,
        /// Why.
        #[source]
        source: async_nats::ConnectError,
    },
    /// The servers do not allow it to this user.
    #[error(
        "the NATS servers do not allow it to this user ({said}): the book has the permissions that pools and clients \
         need, under `More than one machine`"
    )]
    NotAllowed {
        /// What they have said.
        said: String,
    },
    /// A file of credentials or certificates cannot be used.
    #[error("{what}")]
    File {
        /// Which.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A certificate of this program has no key, or a key no certificate.
    #[error(
        "a client certificate is two files: name its own (--nats-cert) and its key's (--nats-key)"
    )]
    Half,
    /// An address cannot be read.
    #[error(transparent)]
    Servers(#[from] crate::ParseServersError),
    /// The servers took too long.
    #[error("the NATS servers do not answer: check that a majority of them runs")]
    Silent,
    /// The streams are not there.
    #[error(
        "there is no stream `{stream}` at these NATS servers: start a pool with `gridpool serve --nats …`, which makes \
         it, and check that both name the same prefix; a pool that cannot make it says why in its log"
    )]
    NoStream {
        /// Its name.
        stream: String,
    },
    /// The servers have too little storage for a stream.
    #[error(
        "the NATS servers have no room for the stream `{stream}`, which may have {bytes} bytes: free some disk or \
         raise max_file_store there, or set a smaller `{limit}` under [nats] in the config of every host"
    )]
    NoRoom {
        /// Its name.
        stream: String,
        /// What it may have, for which the servers keep room.
        bytes: i64,
        /// The setting that says so.
        limit: &'static str,
    },
    /// JetStream refused or did not answer.
    #[error("JetStream: {what}")]
    JetStream {
        /// What was tried.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The servers say that they have a message already, and have not stored it.
    #[error("the NATS servers say that they have it already, and have not stored it")]
    Unstored,
    /// A stream is full.
    #[error("{0}")]
    Full(crate::Full),
    /// A batch or a result is larger than all of its stream may be. Another try would fail, too.
    #[error(
        "it has {bytes} bytes, and the stream of large batches and results may have {max} (data_bytes_max): it can \
         never fit; send fewer items in a job, or raise the limit"
    )]
    NeverFits {
        /// Its size.
        bytes: u64,
        /// That of the stream.
        max: u64,
    },
    /// A piece of a large batch is not there any more, or is not what it should be.
    #[error("a batch of {bytes} bytes is not whole any more: {why}")]
    Data {
        /// Its size.
        bytes: u64,
        /// What is missing.
        why: String,
    },
    /// A message is larger than the servers take. Another try would fail, too.
    #[error("the NATS servers take no message as large as this one: raise their max_payload")]
    Payload,
    /// Bytes in a stream are no message of gridpool: they do not begin as one.
    #[error("bytes in a stream are no message of gridpool: another program writes there")]
    Foreign,
    /// Bytes in a stream are no message.
    #[error("bytes in a stream are no message of gridpool")]
    Message(#[from] DecodeError),
    /// A message is of another version.
    #[error(
        "a message in a stream is of protocol {theirs}, this program of {ours}: use the build that has written it"
    )]
    Version {
        /// Its version.
        theirs: u32,
        /// That of this program.
        ours: u32,
    },
    /// A message is too large.
    #[error(transparent)]
    TooLarge(#[from] EncodeError),
    /// The system gave no thread or socket.
    #[error("the system gave no thread or socket")]
    System(#[source] std::io::Error),
}

impl NatsError {
    /// Whether another try would end in the same way.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::NeverFits { .. } | Self::Payload | Self::TooLarge(_))
    }

    /// Whether another try may help, without anybody's doing: a server that is down comes back, and hosts make streams
    /// again that somebody has removed.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        if let Self::Connect { advice, source, .. } = self {
            let is_away = matches!(
                source.kind(),
                ConnectErrorKind::Dns | ConnectErrorKind::Io | ConnectErrorKind::TimedOut
            );
            // It says what to do about others.
            return is_away && advice.is_empty();
        }
        matches!(self, Self::NoStream { .. } | Self::Silent) || self.is_silence()
    }

    /// Whether the servers have not answered, or not been able to: another has to lead first.
    pub(crate) fn is_silence(&self) -> bool {
        let Self::JetStream { source, .. } = self else { return false };
        let mut next: Option<&(dyn Error + 'static)> = Some(&**source);
        while let Some(error) = next {
            let request = error.downcast_ref::<RequestError>().map(RequestError::kind);
            let stream = error.downcast_ref::<GetStreamError>().map(GetStreamError::kind);
            let consumer = error.downcast_ref::<ConsumerError>().map(ConsumerError::kind);
            let why = match (stream, consumer) {
                (Some(GetStreamErrorKind::JetStream(why)), _)
                | (_, Some(ConsumerErrorKind::JetStream(why))) => Some(why.error_code()),
                _ => None,
            };
            let nobody_leads = why == Some(ErrorCode::CLUSTER_NOT_AVAILABLE);
            let watch = error.downcast_ref::<WatchError>().map(WatchError::kind);
            if nobody_leads
                || request == Some(RequestErrorKind::TimedOut)
                || watch == Some(WatchErrorKind::TimedOut)
            {
                return true;
            }
            next = error.source();
        }
        false
    }

    /// Makes the error of a stream that the servers did not make.
    pub(crate) fn unmade(error: CreateStreamError, config: &Config, limit: &'static str) -> Self {
        let is_room = |code: ErrorCode| match code {
            // A cluster says so too if it has too few servers.
            ErrorCode::CLUSTER_NO_PEERS => error.to_string().contains("insufficient storage"),
            code => {
                code == ErrorCode::STORAGE_RESOURCES_EXCEEDED
                    || code == ErrorCode::INSUFFICIENT_RESOURCES
            }
        };
        if let CreateStreamErrorKind::JetStream(why) = error.kind()
            && is_room(why.error_code())
        {
            let (stream, bytes) = (config.name.clone(), config.max_bytes);
            return Self::NoRoom { stream, bytes, limit };
        }
        Self::jetstream("a stream cannot be made")(error)
    }

    /// Makes an error of JetStream.
    pub fn jetstream<E: Error + Send + Sync + 'static>(
        what: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::JetStream { what, source: Box::new(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_nobody_leads_are_asked_again_by_whatever_they_say_so() {
        let said = |code: u64| {
            let text = format!(r#"{{"code": 503, "err_code": {code}, "description": "words"}}"#);
            serde_json::from_str::<async_nats::jetstream::Error>(&text).unwrap()
        };
        let not_available = ErrorCode::CLUSTER_NOT_AVAILABLE.0;
        for (code, is_silence) in [(not_available, true), (not_available + 1, false)] {
            let stream = GetStreamError::new(GetStreamErrorKind::JetStream(said(code)));
            let consumer = ConsumerError::new(ConsumerErrorKind::JetStream(said(code)));
            let watch = WatchError::with_source(WatchErrorKind::Other, consumer);
            assert_eq!(NatsError::jetstream("words")(stream).is_silence(), is_silence);
            assert_eq!(NatsError::jetstream("words")(watch).is_silence(), is_silence);
        }
    }
}
