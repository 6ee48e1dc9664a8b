//! The trace that a job is a part of: W3C Trace Context, as the headers `traceparent` and `tracestate` have it.
//!
//! Owns its form. Whoever is sent a wrong one goes on without it, as the standard says.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of the header of HTTP and of the metadata of gRPC.
pub const HEADER: &str = "traceparent";
/// The same of what systems on the way have noted.
pub const STATE_HEADER: &str = "tracestate";
/// The variable of the environment from which the command line takes it.
pub const VARIABLE: &str = "TRACEPARENT";
/// The same of what systems on the way have noted.
pub const STATE_VARIABLE: &str = "TRACESTATE";

/// Bytes of `traceparent`: version, trace, span and flags in hexadecimal, with dashes between them.
const TEXT_BYTES: usize = 55;
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;
/// Bytes of the name of a system in `tracestate`, and of what it has noted.
const KEY_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 256;
/// Bytes of a whole entry.
const ENTRY_BYTES_MAX: usize = KEY_BYTES_MAX + 1 + VALUE_BYTES_MAX;
/// Entries of `tracestate`.
const STATE_ENTRIES_MAX: usize = 32;
/// Bytes of `tracestate` that are passed on. The standard asks for 512 at least; the longest entry has one more.
const STATE_BYTES_MAX: usize = ENTRY_BYTES_MAX;
/// Bytes that are looked at: those of the longest that is right.
const STATE_TEXT_BYTES_MAX: usize = STATE_ENTRIES_MAX * (ENTRY_BYTES_MAX + 1);

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

/// What systems on the way of a trace have noted in it: `tracestate`. It is passed on as it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceState(Box<str>);

/// Why a text or bytes are no trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The number of a trace or span is 0.
    #[error("the numbers of a trace and of a span are not 0")]
    Zero,
    /// The text of a state has another form.
    #[error("write entries as the W3C says: vendor=value,other=value")]
    State,
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

impl FromStr for TraceState {
    type Err = TraceError;

    /// Reads `tracestate`. Of one that is too long, entries that there is no more room for are left out. Whoever sends
    /// it may be nobody's client yet, so the work for it has a limit.
    fn from_str(text: &str) -> Result<Self, TraceError> {
        if text.len() > STATE_TEXT_BYTES_MAX {
            return Err(TraceError::State);
        }
        let entries = text.split(',').map(|entry| entry.trim_matches([' ', '\t']));
        let (mut keys, mut kept) = (Vec::new(), String::new());
        for entry in entries.filter(|entry| !entry.is_empty()) {
            let (key, value) = entry.split_once('=').ok_or(TraceError::State)?;
            let is_one_more = keys.len() == STATE_ENTRIES_MAX;
            if is_one_more || !is_key(key) || !is_value(value) || keys.contains(&key) {
                return Err(TraceError::State);
            }
            keys.push(key);
            let comma = usize::from(!kept.is_empty());
            if kept.len() + comma + entry.len() <= STATE_BYTES_MAX {
                kept += &","[..comma];
                kept += entry;
            }
        }
        match kept.is_empty() {
            true => Err(TraceError::State),
            false => Ok(Self(kept.into())),
        }
    }
}

fn is_key(key: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let begins =
        key.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    begins && key.len() <= KEY_BYTES_MAX && key.bytes().all(is_plain)
}

fn is_value(value: &str) -> bool {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b',' && byte != b'=';
    (1..=VALUE_BYTES_MAX).contains(&value.len())
        && !value.ends_with(' ')
        && value.bytes().all(is_plain)
}

impl TryFrom<String> for TraceState {
    type Error = TraceError;

    fn try_from(text: String) -> Result<Self, TraceError> {
        text.parse()
    }
}

impl From<TraceState> for String {
    fn from(TraceState(text): TraceState) -> Self {
        text.into()
    }
}

/// `tracestate`.
impl fmt::Display for TraceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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

    #[test]
    fn a_state_is_refused_at_its_33rd_entry_and_beyond_the_longest_without_a_look() {
        let begins = |rest: &str| {
            format!("{},{rest}", (0..32).map(|n| format!("k{n}=x")).collect::<Vec<_>>().join(","))
        };
        assert!(begins("").parse::<TraceState>().is_ok());
        assert_eq!(begins("k32=x").parse::<TraceState>(), Err(TraceError::State));
        let spaces = " ".repeat(STATE_TEXT_BYTES_MAX - 3);
        assert!(format!("a=1{spaces}").parse::<TraceState>().is_ok());
        assert_eq!(format!("a=1{spaces} ").parse::<TraceState>(), Err(TraceError::State));
    }

    #[test]
    fn a_state_is_passed_on_as_it_came_or_not_at_all() {
        let kept = |text: &str| text.parse::<TraceState>().map(|state| state.to_string());
        assert_eq!(kept("a=1, b@c=x y,, 9=z"), Ok("a=1,b@c=x y,9=z".to_owned()));
        let long: Vec<_> = (0..20).map(|n| format!("k{n}={}", "x".repeat(60))).collect();
        let state = kept(&long.join(",")).unwrap();
        assert!(state.len() <= STATE_BYTES_MAX && long.join(",").starts_with(&state), "{state}");
        assert_eq!(state.split(',').count(), 8);
        let many: Vec<_> = (0..33).map(|n| format!("k{n}=x")).collect();
        for wrong in
            ["", ",", "a", "a=", "A=1", "a=1,a=2", "a=1=2", "a=\u{7}", "=1", "é=1", &many.join(",")]
        {
            assert_eq!(kept(wrong), Err(TraceError::State), "{wrong}");
        }
        let [largest, wide] =
            ["a", "b"].map(|key| format!("{}={}", key.repeat(256), "x".repeat(256)));
        assert_eq!(kept(&largest), Ok(largest.clone()), "the longest entry fits");
        assert_eq!(kept(&format!("k=1,{wide},l=2")), Ok("k=1,l=2".to_owned()), "the next ones do");
        let state: TraceState = "a=1".parse().unwrap();
        let bytes = codec::encode(&state).unwrap();
        assert_eq!(codec::decode::<TraceState>(&bytes).unwrap(), state);
        assert!(codec::decode::<TraceState>(&codec::encode(&"a".to_owned()).unwrap()).is_err());
    }
}
