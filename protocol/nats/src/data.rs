//! Large batches and results: pieces below the largest message of the server, by name. The piece `N` of what has a
//! name has a subject of its own, so any range can be read; `end` comes last and says that all are there.

mod room;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{DirectGetErrorKind, Info, LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::limits::ARENA_BYTES_MAX;
use gridpool_protocol::program::hex;
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};

use self::room::{is_less, no_room};
use crate::publish::{Full, Link, Published, publish};
use crate::{Carried, NatsError, Subjects};

/// The size of a piece, unless the server takes only smaller messages.
const PIECE_BYTES: usize = 256 * 1_024;
/// What a message has besides a piece: subject and headers.
const MESSAGE_OVERHEAD: usize = 4 * 1_024;
/// Pieces under way at a time.
const PIECES_AT_ONCE: usize = 8;
/// The inline part's room for the rest of a job or a result.
const INLINE_OVERHEAD: usize = 20 * 1_024;
/// Between two tries to look a batch up.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// How long pieces are kept, besides the time for which results are.
pub(crate) const DATA_AGE: Duration = Duration::from_secs(2 * 3_600);
/// What is older is sent again: a job that waits for its longest deadline must still find it.
const FRESH_FOR: Duration = Duration::from_secs(3_600);
/// How long pieces of what was refused are removed.
const TAKE_BACK_TIMEOUT: Duration = Duration::from_secs(5);
/// The subject's last part for the end.
const END: &str = "end";
/// What is wrong without an end.
const NO_END: &str = "its end is not there";
/// What has failed if no server answers.
const UNREAD: &str = "a piece cannot be read";

/// The stream of pieces.
#[derive(Clone, Debug)]
pub struct Store {
    link: Link,
    stream: Stream<Info>,
    subjects: Subjects,
    piece_bytes: usize,
    inline_bytes_max: usize,
    /// The turns of the names that are put at this time: what many jobs have is sent once, and what is refused is taken
    /// back before the next try.
    turns: Arc<Mutex<BTreeMap<String, Weak<Turn>>>>,
}

/// Held while a name is put.
type Turn = tokio::sync::Mutex<()>;

/// Which server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Any that has a copy, perhaps an older one.
    Any,
    /// The one that leads the stream.
    Leader,
}

impl Store {
    pub(crate) fn new(
        link: Link,
        stream: Stream<Info>,
        subjects: Subjects,
        message_bytes_max: usize,
    ) -> Self {
        let most = message_bytes_max.saturating_sub(MESSAGE_OVERHEAD).max(1_024);
        let inline = message_bytes_max.saturating_sub(INLINE_OVERHEAD);
        Self {
            link,
            stream,
            subjects,
            piece_bytes: PIECE_BYTES.min(most),
            inline_bytes_max: Carried::INLINE_BYTES_MAX.min(inline),
            turns: Arc::default(),
        }
    }

    /// The most bytes that travel in a message at these servers.
    #[must_use]
    pub fn inline_bytes_max(&self) -> usize {
        self.inline_bytes_max
    }

    /// The name of these bytes.
    #[must_use]
    pub fn digest(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    /// The name under which the result of a job lies that has this digest. It is that job's alone, so it can go once it
    /// was read: another job may have the same result.
    #[must_use]
    pub fn name_of_result(key: JobKey, digest: &[u8; 32]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"result");
        hash.update(key.0.to_le_bytes());
        hash.update(digest);
        hash.finalize().into()
    }

    /// Stores bytes under a name: their digest, or [`Self::name_of_result`], unless they are there and will be for long
    /// enough. Returns whether they had to be sent.
    ///
    /// # Errors
    /// [`NatsError`]; [`NatsError::Full`] if the stream has no room for them. What was sent of them is then removed,
    /// but for what another process sends at this time. [`NatsError::NeverFits`] if it has none when it is empty.
    pub async fn put(
        &self,
        name: [u8; 32],
        bytes: &Bytes,
        until: Instant,
    ) -> Result<bool, NatsError> {
        let name = hex(&name);
        let end = self.subjects.data(&name, END);
        let turn = self.turn_of(&name);
        let _turn = turn.lock().await;
        if self.is_fresh(&end, until).await? {
            return Ok(false);
        }
        let least = self.least_bytes(&name, bytes.len());
        let known = self.stream.cached_info().config.max_bytes;
        if is_less(known, least) {
            self.may_fit(bytes, least).await?;
        }
        let mut own = Vec::new();
        let sent = match self.send_pieces(&name, bytes, until, &mut own).await {
            Ok(()) => {
                let size = Bytes::from(self.piece_bytes.to_string());
                let message = || PublishMessage::build().payload(size.clone());
                publish(&self.link, &end, message, None, (Full::DataBytes, until)).await.map(drop)
            }
            Err(error) => Err(error),
        };
        if let Err(full @ NatsError::Full(_)) = sent {
            self.take_back(own).await;
            return Err(no_room(full, self.may_fit(bytes, least).await));
        }
        sent.map(|()| true)
    }

    fn turn_of(&self, name: &str) -> Arc<Turn> {
        let mut turns = self.turns.lock();
        turns.retain(|_, turn| turn.strong_count() > 0);
        turns.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let turn = Arc::default();
            turns.insert(name.to_owned(), Arc::downgrade(&turn));
            turn
        })
    }

    /// Sends pieces, and adds the numbers of those that were not there before. If one cannot be stored, no others are
    /// begun.
    async fn send_pieces(
        &self,
        name: &str,
        bytes: &Bytes,
        until: Instant,
        own: &mut Vec<u64>,
    ) -> Result<(), NatsError> {
        let pieces = bytes.len().div_ceil(self.piece_bytes);
        let has_failed = &AtomicBool::new(false);
        let send = |piece: usize| {
            let from = piece * self.piece_bytes;
            let part = bytes.slice(from..bytes.len().min(from + self.piece_bytes));
            let subject = self.subjects.data(name, &piece.to_string());
            async move {
                let sent = self.send_piece(&subject, &part, until).await;
                has_failed.fetch_or(sent.is_err(), Ordering::Relaxed);
                sent
            }
        };
        let to_send = (0..pieces).take_while(|_| !has_failed.load(Ordering::Relaxed)).map(send);
        let mut sending = stream::iter(to_send).buffer_unordered(PIECES_AT_ONCE);
        let mut failed = None;
        while let Some(sent) = sending.next().await {
            match sent {
                Ok(number) => own.extend(number),
                // That there is no room is known then, whatever else fails.
                Err(_) if matches!(failed, Some(NatsError::Full(_))) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Sends a piece. Returns its number if there was none before: only such a piece may be taken back. In place of
    /// another's, which sends the same at this time, that one would miss it.
    async fn send_piece(
        &self,
        subject: &str,
        part: &Bytes,
        until: Instant,
    ) -> Result<Option<u64>, NatsError> {
        let message = || PublishMessage::build().payload(part.clone());
        let first = || message().expected_last_subject_sequence(0);
        match publish(&self.link, subject, first, None, (Full::DataBytes, until)).await? {
            Published::Stored(number) => Ok(Some(number)),
            Published::Duplicate | Published::Taken => {
                publish(&self.link, subject, message, None, (Full::DataBytes, until))
                    .await
                    .map(|_| None)
            }
        }
    }

    /// Removes the pieces of these numbers: the others have found no room. One try of a limited time: what stays is too
    /// old some time.
    async fn take_back(&self, pieces: Vec<u64>) {
        let removed = stream::iter(pieces.into_iter().map(|number| self.delete(number)));
        let removed = removed.buffer_unordered(PIECES_AT_ONCE).for_each(|removed| async move {
            // Another may have sent the same, and taken its place.
            if let Err(error) = removed {
                tracing::debug!(%error, "a piece of what was refused stays");
            }
        });
        if timeout(TAKE_BACK_TIMEOUT, removed).await.is_err() {
            tracing::debug!("pieces of what was refused stay: the servers do not answer");
        }
    }

    /// Whether all of it is there, for a while yet.
    async fn is_fresh(&self, end: &str, until: Instant) -> Result<bool, NatsError> {
        loop {
            // A copy may have what the one that leads has lost: then nobody would ever send it again.
            match self.last(end).await {
                Ok(Some(message)) => {
                    let stored = u64::try_from(message.time.unix_timestamp()).unwrap_or(0);
                    let now = clock::time_of_day().duration_since(std::time::UNIX_EPOCH);
                    let age = now.unwrap_or_default().saturating_sub(Duration::from_secs(stored));
                    return Ok(age < FRESH_FOR);
                }
                Ok(None) => return Ok(false),
                Err(error) if clock::until(until).is_zero() => return Err(error),
                // No server leads the stream at the moment.
                Err(error) => tracing::debug!(%error, "looking a batch up again"),
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Reads all of what lies under a name, and checks it.
    ///
    /// # Errors
    /// [`NatsError::Data`] if it is not whole any more.
    pub async fn get(
        &self,
        name: [u8; 32],
        digest: [u8; 32],
        bytes: u64,
    ) -> Result<Vec<u8>, NatsError> {
        let is = (digest, bytes);
        let error = match self.read(name, is, Source::Any).await {
            Err(error @ NatsError::Data { .. }) => error,
            read => return read,
        };
        if bytes > ARENA_BYTES_MAX {
            return Err(error);
        }
        // A server that follows may be behind; the one that leads knows.
        let end = self.subjects.data(&hex(&name), END);
        let Some(last) = self.last(&end).await? else { return Err(gone(bytes, NO_END)) };
        let read = self.read_from(&last.payload, name, is, Source::Leader).await;
        if let Err(NatsError::Data { .. }) = read {
            // Whoever has the bytes then sends them again. An end that came since then is of pieces that are whole.
            if let Err(error) = self.delete(last.sequence).await {
                tracing::debug!(%error, "the end of damaged pieces stays");
            }
        }
        read
    }

    /// Removes all of what lies under a name and has so many bytes: the end, then the pieces. What a server that is
    /// behind does not know stays until it is too old.
    ///
    /// Each message goes by its number. A purge of some subjects must not be used: servers before 2.9.18 that start
    /// anew replay it from their log as one of all messages that the stream had then
    /// (<https://github.com/nats-io/nats-server/issues/4196>), and batches of jobs that wait lie in this stream.
    ///
    /// # Errors
    /// [`NatsError`], also if another removes the same; what can be removed is.
    pub async fn remove(&self, name: [u8; 32], bytes: u64) -> Result<(), NatsError> {
        let name = hex(&name);
        let end = self.message(&self.subjects.data(&name, END), Source::Any).await?;
        let said = end.as_ref().and_then(|end| piece_bytes(&end.payload));
        // Without an end they are a part of what some host has sent, and hosts have pieces of the same size.
        let pieces = bytes.min(ARENA_BYTES_MAX).div_ceil(said.unwrap_or(self.piece_bytes as u64));
        let of_end = match end {
            Some(end) => self.delete(end.sequence).await,
            None => Ok(()),
        };
        let take_away = |piece: u64| {
            let subject = self.subjects.data(&name, &piece.to_string());
            async move {
                match self.message(&subject, Source::Any).await? {
                    Some(message) => self.delete(message.sequence).await,
                    None => Ok(()),
                }
            }
        };
        let tried = stream::iter((0..pieces).map(take_away)).buffer_unordered(PIECES_AT_ONCE);
        let of_pieces = tried.collect::<Vec<_>>().await.into_iter().collect();
        of_end.and(of_pieces)
    }

    /// Removes the message of this number.
    async fn delete(&self, sequence: u64) -> Result<(), NatsError> {
        let deleted = self.stream.delete_message(sequence).await;
        deleted.map(drop).map_err(NatsError::jetstream("a piece cannot be removed"))
    }

    async fn read(
        &self,
        name: [u8; 32],
        is: ([u8; 32], u64),
        from: Source,
    ) -> Result<Vec<u8>, NatsError> {
        if is.1 > ARENA_BYTES_MAX {
            return Err(gone(is.1, "nobody may send as many"));
        }
        let end = self.message(&self.subjects.data(&hex(&name), END), from).await?;
        let end = end.ok_or_else(|| gone(is.1, NO_END))?;
        self.read_from(&end.payload, name, is, from).await
    }

    /// Reads the pieces before this end.
    async fn read_from(
        &self,
        end: &[u8],
        name: [u8; 32],
        (digest, bytes): ([u8; 32], u64),
        from: Source,
    ) -> Result<Vec<u8>, NatsError> {
        let gone = |why: &str| gone(bytes, why);
        let name = hex(&name);
        let pieces = bytes.div_ceil(piece_bytes(end).ok_or_else(|| gone("its end"))?);
        let read = |piece: u64| {
            let subject = self.subjects.data(&name, &piece.to_string());
            async move {
                self.message(&subject, from).await?.ok_or_else(|| gone("a piece is not there"))
            }
        };
        let mut read = stream::iter((0..pieces).map(read)).buffered(PIECES_AT_ONCE);
        // It grows with what is there, and not by what is announced.
        let mut whole = Vec::new();
        while let Some(piece) = read.try_next().await? {
            if (whole.len() + piece.payload.len()) as u64 > bytes {
                return Err(gone("it is longer than announced"));
            }
            whole.extend_from_slice(&piece.payload);
        }
        match whole.len() as u64 == bytes && Self::digest(&whole) == digest {
            true => Ok(whole),
            false => Err(gone("its digest differs")),
        }
    }

    /// The last message of a subject.
    async fn message(
        &self,
        subject: &str,
        from: Source,
    ) -> Result<Option<StreamMessage>, NatsError> {
        if from == Source::Leader {
            return self.last(subject).await;
        }
        match self.stream.direct_get_last_for_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            // Nobody answers for a stream that is gone, or the one that was asked is.
            Err(error) => {
                tracing::debug!(%error, "the server that leads is asked");
                self.last(subject).await
            }
        }
    }

    /// The last message of a subject, from the server that leads.
    async fn last(&self, subject: &str) -> Result<Option<StreamMessage>, NatsError> {
        match self.stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(NatsError::jetstream(UNREAD)(error)),
        }
    }
}

/// The size of the pieces before an end, all but the last; `None` if that is no end.
fn piece_bytes(end: &[u8]) -> Option<u64> {
    let size = std::str::from_utf8(end).ok()?.parse().ok()?;
    Some(size).filter(|&size| size > 0)
}

/// Pieces are not whole any more.
fn gone(bytes: u64, why: &str) -> NatsError {
    NatsError::Data { bytes, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_the_size_of_a_piece_is_none() {
        assert_eq!(piece_bytes(b"262144"), Some(262_144));
        for end in [&b"0"[..], b"-1", b"", b"many", b"\xff", b"18446744073709551616"] {
            assert_eq!(piece_bytes(end), None, "{end:?}");
        }
    }

    /// With three copies and servers before 2.9.18, a purge costs a server that starts anew all batches.
    #[test]
    fn the_stream_of_pieces_is_never_purged() {
        let purge = concat!(".pur", "ge(");
        assert!(!include_str!("data.rs").contains(purge));
    }
}
