//! What travels in the streams: a job, and its result.

use gridpool_protocol::codec;
use gridpool_protocol::ids::{ContentHash, JobKey};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{Inline, Packing, Terms, Work};
use gridpool_protocol::receipt::Receipt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::NatsError;

/// The version of the messages. A host passes over jobs of another one, for hosts that know it.
pub const VERSION: u32 = PROTOCOL_VERSION;

/// Bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carried {
    /// In the message.
    Inline(Inline),
    /// In pieces, in the stream of data.
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
}

/// What is known of a job in the stream of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// It has its verdict.
    Done {
        /// Verdict and proof.
        #[serde(with = "codec::nested")]
        receipt: Box<Receipt>,
        /// The packed result, if there is one.
        output: Option<Carried>,
    },
    /// The client has read it. Only the verdict is still known.
    Read {
        /// The receipt without attempts.
        receipt: Box<Receipt>,
    },
}

impl Outcome {
    /// A result with this receipt.
    #[must_use]
    pub fn done(receipt: Receipt, output: Option<Carried>) -> Self {
        Self::Done { receipt: Box::new(receipt), output }
    }

    /// The mark that it was read.
    #[must_use]
    pub fn read(receipt: &Receipt) -> Self {
        let receipt = Receipt { attempts: Vec::new(), ..receipt.clone() };
        Self::Read { receipt: Box::new(receipt) }
    }
}

/// Encodes a message, after its version.
///
/// # Errors
/// [`NatsError::TooLarge`].
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, NatsError> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    codec::append(message, &mut bytes)?;
    Ok(bytes)
}

/// Decodes a message.
///
/// # Errors
/// [`NatsError::Version`] if it is of another version, [`NatsError::Message`] if it is none.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, NatsError> {
    match bytes.split_first_chunk() {
        Some((version, rest)) if u32::from_le_bytes(*version) == VERSION => {
            Ok(codec::decode(rest)?)
        }
        Some((version, _)) => Err(NatsError::Version { theirs: u32::from_le_bytes(*version) }),
        None => Err(NatsError::Version { theirs: 0 }),
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
        let bytes = encode(&Carried::Inline(Inline(vec![1]))).unwrap();
        assert_eq!(decode::<Carried>(&bytes).unwrap(), Carried::Inline(Inline(vec![1])));
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert!(matches!(decode::<Carried>(&other), Err(NatsError::Version { .. })));
        assert!(matches!(decode::<Carried>(&bytes[..2]), Err(NatsError::Version { theirs: 0 })));
        assert!(matches!(decode::<Carried>(&bytes[..5]), Err(NatsError::Message(_))));
    }
}
