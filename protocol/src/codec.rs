//! Encodes and decodes messages. Only this file names bincode, which is unmaintained: to replace bincode,
//! replace this file.
//!
//! Decoding trusts no length: it claims at most [`FRAME_BYTES_MAX`] bytes, and the message must use every
//! byte of the input.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::FRAME_BYTES_MAX;

/// Why bytes cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// There are more bytes than a frame may have.
    #[error("a message of {bytes} bytes; at most {FRAME_BYTES_MAX} are allowed")]
    TooLong {
        /// Their number.
        bytes: usize,
    },
    /// The bytes are not a message.
    #[error("malformed message")]
    Malformed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There are bytes after the message.
    #[error("{bytes} bytes after the end of the message")]
    Trailing {
        /// Their number.
        bytes: usize,
    },
}

/// Why a message cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// It is larger than a frame may be.
    #[error("a message of {bytes} bytes; at most {FRAME_BYTES_MAX} are allowed")]
    TooLong {
        /// Their number.
        bytes: usize,
    },
    /// It has a value without an encoding.
    #[error("message cannot be encoded")]
    Unsupported(#[source] Box<dyn std::error::Error + Send + Sync>),
}

const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<FRAME_BYTES_MAX>,
> = bincode::config::standard().with_limit::<FRAME_BYTES_MAX>();

/// Room for most messages, so that a buffer does not grow step by step.
const USUAL_BYTES: usize = 512;

/// Encodes one message.
///
/// # Errors
/// [`EncodeError`] if it is larger than a frame may be.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::new();
    append(message, &mut bytes).map(|_| bytes)
}

/// Encodes one message behind what `bytes` holds already, and returns its length.
///
/// # Errors
/// As for [`encode`]. `bytes` is then as it was.
pub fn append<T: Serialize>(message: &T, bytes: &mut Vec<u8>) -> Result<usize, EncodeError> {
    let start = bytes.len();
    bytes.reserve(USUAL_BYTES);
    let encoded = bincode::serde::encode_into_writer(message, Appended(bytes), CONFIG)
        .map_err(|error| EncodeError::Unsupported(Box::new(error)))
        .and_then(|()| match bytes.len() - start {
            length @ ..=FRAME_BYTES_MAX => Ok(length),
            bytes => Err(EncodeError::TooLong { bytes }),
        });
    if encoded.is_err() {
        bytes.truncate(start);
    }
    encoded
}

/// Most parts of a message are a few bytes, and none fails to be added: as `io::Write` each would cost more.
struct Appended<'a>(&'a mut Vec<u8>);

impl bincode::enc::write::Writer for Appended<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Decodes one message, which must use all of `bytes`.
///
/// # Errors
/// [`DecodeError`]. Never panics, whatever the bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() > FRAME_BYTES_MAX {
        return Err(DecodeError::TooLong { bytes: bytes.len() });
    }
    let (message, used) = bincode::serde::decode_from_slice(bytes, CONFIG)
        .map_err(|error| DecodeError::Malformed(Box::new(error)))?;
    if used != bytes.len() {
        return Err(DecodeError::Trailing { bytes: bytes.len() - used });
    }
    Ok(message)
}

/// Bytes that are encoded in one piece.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

/// Encodes a part of a message by itself, so that who has it encoded already need not do it again.
pub mod nested {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::de::{DeserializeOwned, Error, Visitor};
    use serde::ser::Error as _;
    use serde::{Deserializer, Serialize, Serializer};

    /// For `#[serde(with = "codec::nested")]`.
    ///
    /// # Errors
    /// The serializer's error, or that the part is too long.
    pub fn serialize<T: Serialize, S: Serializer>(part: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&super::encode(part).map_err(S::Error::custom)?)
    }

    /// For `#[serde(with = "codec::nested")]`.
    ///
    /// # Errors
    /// The deserializer's error, or that the part is malformed.
    pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        from.deserialize_bytes(Part(PhantomData))
    }

    struct Part<T>(PhantomData<T>);

    impl<'de, T: DeserializeOwned> Visitor<'de> for Part<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an encoded part")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<T, E> {
            super::decode(bytes).map_err(E::custom)
        }

        /// From what makes values instead of reading them, as tests do.
        fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
            T::deserialize(from)
        }
    }
}

/// Encodes bytes in one piece instead of one by one.
pub mod bytes {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    /// For `#[serde(with = "codec::bytes")]`.
    ///
    /// # Errors
    /// The serializer's error.
    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    /// For `#[serde(with = "codec::bytes")]`.
    ///
    /// # Errors
    /// The deserializer's error.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        from.deserialize_byte_buf(Run)
    }

    struct Run;

    impl Visitor<'_> for Run {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::{ClientMessage, FromWorker, ServerMessage, ToWorker};

    #[test]
    fn trailing_bytes_are_an_error() {
        let mut bytes = encode(&(1_u32, "x")).unwrap();
        bytes.push(0);
        let error = decode::<(u32, String)>(&bytes).unwrap_err();
        assert!(matches!(error, DecodeError::Trailing { bytes: 1 }));
    }

    #[test]
    fn a_claimed_length_beyond_the_limit_is_an_error_before_anything_is_allocated() {
        // 253 announces a u64: a string of 2^60 bytes.
        let mut bytes = vec![253];
        bytes.extend((1_u64 << 60).to_le_bytes());
        assert!(matches!(decode::<String>(&bytes), Err(DecodeError::Malformed(_))));
        assert!(matches!(decode::<Vec<u64>>(&bytes), Err(DecodeError::Malformed(_))));
        assert!(matches!(
            decode::<u8>(&vec![0; FRAME_BYTES_MAX + 1]),
            Err(DecodeError::TooLong { .. })
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let _client = decode::<ClientMessage>(&bytes);
            let _server = decode::<ServerMessage>(&bytes);
            let _to = decode::<ToWorker>(&bytes);
            let _from = decode::<FromWorker>(&bytes);
        }
    }
}
