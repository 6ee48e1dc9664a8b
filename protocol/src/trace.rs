//! The trace that a job is a part of: W3C Trace Context, as the header `traceparent` has it.
//!
//! Owns its form. Whoever is sent a wrong one goes on without it, as the standard says.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of the header of HTTP and of the metadata of gRPC.
pub const HEADER: &str = "traceparent";
/// The variable of the environment from which the command line takes it.
pub const VARIABLE: &str = "TRACEPARENT";

/// Bytes of `traceparent`: version, trace, span and flags in hexadecimal, with dashes between them.
const TEXT_BYTES: usize = 55;
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// The number of a trace, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "[u8; 16]", into = "[u8; 16]")]
pub struct TraceId([u8; 16]);

/// The number of a span of a trace, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "[u8; 8]", into = "[u8; 8]")]
pub struct SpanId([u8; 8]);

/// Where in which trace something belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span that asks.
    pub span: SpanId,
    /// Bit 0: whoever began the trace records it.
    pub flags: u8,
}

/// Why a text or bytes are no trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The number of a trace or span is 0.
    #[error("the numbers of a trace and of a span are not 0")]
    Zero,
    /// The text has another form.
    #[error(
        "write version, trace, span and flags as the W3C says: \
         00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    )]
    Form,
}

macro_rules! number {
    ($name:ident, $bytes:literal) => {
        impl $name {
            /// A number of these bytes; `None` if all are 0.
            #[must_use]
            pub fn new(bytes: [u8; $bytes]) -> Option<Self> {
                (bytes != [0; $bytes]).then_some(Self(bytes))
            }

            /// Its bytes.
            #[must_use]
            pub fn bytes(self) -> [u8; $bytes] {
                self.0
            }
        }

        impl TryFrom<[u8; $bytes]> for $name {
            type Error = TraceError;

            fn try_from(bytes: [u8; $bytes]) -> Result<Self, TraceError> {
                Self::new(bytes).ok_or(TraceError::Zero)
            }
        }

        impl From<$name> for [u8; $bytes] {
            fn from($name(bytes): $name) -> Self {
                bytes
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}

number!(TraceId, 16);
number!(SpanId, 8);

impl TraceContext {
    /// Whether whoever began the trace records it.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same trace, seen from another span of it.
    #[must_use]
    pub fn at(self, span: SpanId) -> Self {
        Self { span, ..self }
    }

    /// A trace that begins at this span.
    #[must_use]
    pub fn begin(trace: TraceId, span: SpanId, is_sampled: bool) -> Self {
        Self { trace, span, flags: if is_sampled { SAMPLED } else { 0 } }
    }
}

impl FromStr for TraceContext {
    type Err = TraceError;

    /// Reads `traceparent`. A later version may have more after its first four parts; of version 0 that is an error.
    fn from_str(text: &str) -> Result<Self, TraceError> {
        let bytes = text.as_bytes();
        let (head, rest) = bytes.split_at_checked(TEXT_BYTES).ok_or(TraceError::Form)?;
        let [version] = hex(&head[..2]).ok_or(TraceError::Form)?;
        let may_have_more = version != 0 && rest.first() == Some(&b'-');
        let dashes = [2, 35, 52].iter().all(|&at| head[at] == b'-');
        if version == u8::MAX || !dashes || !(rest.is_empty() || may_have_more) {
            return Err(TraceError::Form);
        }
        let trace = TraceId::try_from(hex(&head[3..35]).ok_or(TraceError::Form)?)?;
        let span = SpanId::try_from(hex(&head[36..52]).ok_or(TraceError::Form)?)?;
        let [flags] = hex(&head[53..]).ok_or(TraceError::Form)?;
        // Nobody knows what other flags, or those of a later version, mean.
        Ok(Self { trace, span, flags: flags & SAMPLED })
    }
}

/// The bytes of small hexadecimal digits. Capital ones are an error.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, flags } = self;
        write!(f, "00-{trace}-{span}-{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_read_as_the_standard_says_and_written_as_it_was() {
        let context: TraceContext = TEXT.parse().unwrap();
        assert_eq!(context.to_string(), TEXT);
        assert_eq!(context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(context.is_sampled());
        let not_sampled = TEXT.replace("-01", "-00");
        assert!(!not_sampled.parse::<TraceContext>().unwrap().is_sampled());
        // Other flags are not passed on.
        assert_eq!(TEXT.replace("-01", "-ff").parse(), Ok(context));
        // A later version may say more.
        for later in [TEXT.replacen("00", "01", 1), format!("cc{}-more", &TEXT[2..])] {
            assert_eq!(later.parse(), Ok(context), "{later}");
        }
    }

    #[test]
    fn what_the_standard_forbids_is_refused() {
        let zero = |part: &str| TEXT.replace(part, &"0".repeat(part.len()));
        for part in ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"] {
            assert_eq!(zero(part).parse::<TraceContext>(), Err(TraceError::Zero));
        }
        for wrong in [
            "",
            "00",
            &TEXT[1..],
            &TEXT[..54],
            &format!("{TEXT}0"),
            &format!("{TEXT}-00"),
            &format!(" {TEXT}"),
            &format!("01{}.more", &TEXT[2..]),
            &TEXT.replacen("00", "ff", 1),
            &TEXT.to_uppercase(),
            &TEXT.replace("0af7", "0ag7"),
            &TEXT.replace('-', "_"),
            &"é".repeat(30),
        ] {
            assert_eq!(wrong.parse::<TraceContext>(), Err(TraceError::Form), "{wrong}");
        }
    }

    #[test]
    fn a_context_has_25_bytes_on_the_wire_and_none_is_decoded_to_zero() {
        let context: TraceContext = TEXT.parse().unwrap();
        let bytes = codec::encode(&context).unwrap();
        assert_eq!(bytes.len(), 25);
        assert_eq!(codec::decode::<TraceContext>(&bytes).unwrap(), context);
        for zeros in [0..16, 16..24] {
            let mut wrong = bytes.clone();
            wrong[zeros].fill(0);
            assert!(codec::decode::<TraceContext>(&wrong).is_err());
        }
    }
}
