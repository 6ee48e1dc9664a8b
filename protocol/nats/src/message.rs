//! What travels in the streams: a job, and its result.

use gridpool_protocol::codec;
use gridpool_protocol::ids::{ContentHash, JobKey};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{Inline, Packing, Terms, Work};
use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::trace::{TraceContext, TraceState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::NatsError;

/// How messages begin.
const MAGIC: [u8; 4] = *b"gpj\n";
/// The version of what is declared here. Raise it with every change.
const OWN_VERSION: u32 = 4;
/// The version of the messages: of what is declared here, and of what they have of the pool's protocol. Jobs of each
/// version have lanes of their own, so a host gets none that it cannot read.
pub const VERSION: u32 = PROTOCOL_VERSION * 1_000 + OWN_VERSION;

/// Bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carried {
    /// In the message.
    Inline(Inline),
    /// In pieces, in the stream of data: a batch under its digest, a result under [`crate::Store::name_of_result`].
    Pieces {
        /// SHA-256 of them.
        digest: [u8; 32],
        /// Their number.
        bytes: u64,
    },
}

impl Carried {
    /// The most bytes that travel in a message.
    pub const INLINE_BYTES_MAX: usize = 64 * 1_024;
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMessage {
    /// The client's name for it.
    pub key: JobKey,
    /// What to run.
    pub work: Work,
    /// How the input is packed.
    pub packing: Packing,
    /// The input.
    pub input: Carried,
    /// The size to reserve for the result.
    pub output_bytes: u64,
    /// Its terms. The deadline counts from the time at which the stream took the job.
    pub terms: Terms,
    /// The trace that it is a part of.
    pub trace: Option<TraceContext>,
    /// What systems on the way of that trace have noted.
    pub trace_state: Option<TraceState>,
    /// The hash of work and input.
    pub content: ContentHash,
}

impl JobMessage {
    /// The hash of a work and its input, which has this digest.
    ///
    /// # Errors
    /// [`NatsError`] if the work has no encoding.
    pub fn content(
        work: &Work,
        packing: Packing,
        digest: &[u8; 32],
    ) -> Result<ContentHash, NatsError> {
        let mut hash = Sha256::new();
        hash.update(codec::encode(&(work, packing))?);
        // Its length is fixed, so no two jobs give the same bytes.
        hash.update(digest);
        Ok(ContentHash(hash.finalize().into()))
    }

    /// Whether the hash is the job's. A client that names another's would have that one convicted in its place.
    #[must_use]
    pub fn is_as_it_says(&self) -> bool {
        let digest = match &self.input {
            Carried::Inline(bytes) => Sha256::digest(&bytes.0).into(),
            Carried::Pieces { digest, .. } => *digest,
        };
        let content = Self::content(&self.work, self.packing, &digest);
        content.is_ok_and(|content| content == self.content)
    }
}

/// What is known of a job in the stream of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// It has its verdict.
    Done {
        /// The job's hash. `None` if the verdict is of a client that has only the key.
        content: Option<ContentHash>,
        /// Verdict and proof.
        #[serde(with = "codec::nested")]
        receipt: Box<Receipt>,
        /// The packed result, if there is one.
        output: Option<Carried>,
    },
    /// The client has read it. Only the verdict is still known.
    Read {
        /// As it was.
        content: Option<ContentHash>,
        /// The receipt without attempts.
        receipt: Box<Receipt>,
    },
}

impl Outcome {
    /// A result with this receipt.
    #[must_use]
    pub fn done(content: Option<ContentHash>, receipt: Receipt, output: Option<Carried>) -> Self {
        Self::Done { content, receipt: Box::new(receipt), output }
    }

    /// The mark that it was read.
    #[must_use]
    pub fn read(content: Option<ContentHash>, receipt: &Receipt) -> Self {
        let receipt = Receipt { attempts: Vec::new(), ..receipt.clone() };
        Self::Read { content, receipt: Box::new(receipt) }
    }

    /// Whether it may be the result of a job of this hash.
    #[must_use]
    pub fn is_of(&self, job: ContentHash) -> bool {
        let (Self::Done { content, .. } | Self::Read { content, .. }) = self;
        content.is_none_or(|content| content == job)
    }
}

/// Encodes a message, after its magic and its version.
///
/// # Errors
/// [`NatsError::TooLarge`].
pub fn encode(version: u32, message: &impl Serialize) -> Result<Vec<u8>, NatsError> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(version.to_le_bytes());
    codec::append(message, &mut bytes)?;
    Ok(bytes)
}

/// Decodes a message of this version.
///
/// # Errors
/// [`NatsError::Foreign`] if it is none of gridpool, [`NatsError::Version`] if it is of another version,
/// [`NatsError::Message`] if it is broken.
pub fn decode<T: DeserializeOwned>(ours: u32, bytes: &[u8]) -> Result<T, NatsError> {
    let bytes = bytes.strip_prefix(&MAGIC).ok_or(NatsError::Foreign)?;
    match bytes.split_first_chunk() {
        None => Err(NatsError::Foreign),
        Some((version, rest)) => match u32::from_le_bytes(*version) {
            theirs if theirs == ours => Ok(codec::decode(rest)?),
            theirs => Err(NatsError::Version { theirs, ours }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_tells_work_and_input_apart() {
        let work = |name: &str| Work::Model { name: name.to_owned() };
        let of = |name, input| JobMessage::content(&work(name), Packing::Tensors, &[input; 32]);
        let one = of("m", 1).unwrap();
        assert_eq!(of("m", 1).unwrap(), one);
        assert_ne!(of("mx", 1).unwrap(), one);
        assert_ne!(of("m", 2).unwrap(), one);
    }

    #[test]
    fn a_message_of_another_version_is_told_from_a_broken_one() {
        let bytes = encode(7, &Carried::Inline(Inline(vec![1]))).unwrap();
        let decode = |version, bytes: &[u8]| decode::<Carried>(version, bytes);
        assert_eq!(decode(7, &bytes).unwrap(), Carried::Inline(Inline(vec![1])));
        assert!(matches!(decode(8, &bytes), Err(NatsError::Version { theirs: 7, ours: 8 })));
        for foreign in [&bytes[..2], &bytes[..6], b"{\"a\": 1, \"b\": 2}"] {
            assert!(matches!(decode(7, foreign), Err(NatsError::Foreign)));
        }
        assert!(matches!(decode(7, &bytes[..9]), Err(NatsError::Message(_))));
    }

    #[test]
    fn a_job_that_names_the_hash_of_another_is_found_out() {
        let work = Work::Model { name: "m".to_owned() };
        let content = JobMessage::content(&work, Packing::Tensors, &Sha256::digest([1]).into());
        let job = JobMessage {
            key: JobKey(1),
            work,
            packing: Packing::Tensors,
            input: Carried::Inline(Inline(vec![1])),
            output_bytes: 1,
            terms: Terms {
                deadline_ms: 1,
                idempotent: true,
                chaos: None,
                priority: gridpool_protocol::message::Priority::Normal,
            },
            trace: None,
            trace_state: None,
            content: content.unwrap(),
        };
        assert!(job.is_as_it_says());
        let other = JobMessage { input: Carried::Inline(Inline(vec![2])), ..job.clone() };
        assert!(!other.is_as_it_says());
        let pieces = Carried::Pieces { digest: Sha256::digest([1]).into(), bytes: 1 };
        assert!(JobMessage { input: pieces, ..job }.is_as_it_says());
    }

    #[test]
    fn a_result_is_of_one_content_even_when_it_was_read() {
        let (one, other) = (ContentHash([1; 32]), ContentHash([2; 32]));
        for outcome in [
            Outcome::done(Some(one), Receipt::default(), None),
            Outcome::read(Some(one), &Receipt::default()),
        ] {
            assert!(outcome.is_of(one) && !outcome.is_of(other));
        }
        assert!(Outcome::done(None, Receipt::default(), None).is_of(other));
    }
}
