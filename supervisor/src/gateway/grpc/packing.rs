//! How messages are packed: with gzip, if the client says so and how it likes. Both directions have the limits of
//! messages that are not packed.

use std::io::{Read, Write};

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::messages::{PACKED, PREFIX_BYTES, too_much};
use crate::gateway::body::HeldBytes;
use crate::gateway::draft::Draft;
use crate::gateway::failure::Failure;

/// How the messages of a call are packed, and of its answer.
pub(super) const ENCODING: &str = "grpc-encoding";
/// What the other side can unpack.
pub(super) const ACCEPTS: &str = "grpc-accept-encoding";
/// What the gateway can.
pub(super) const ACCEPTED: HeaderValue = HeaderValue::from_static("identity,gzip");
pub(super) const GZIP: &str = "gzip";
const PLAIN: &str = "identity";
/// Bytes that are unpacked at a time.
const STEP_BYTES: usize = 64 << 10;

/// What of a call is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packing {
    /// Its messages may be.
    pub(super) requests: bool,
    /// Its answers are: as its messages, if its client says that it can unpack them.
    pub(super) answers: bool,
}

impl Packing {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let requests = match headers.get(ENCODING).map(HeaderValue::as_bytes) {
            None => false,
            Some(name) if name == PLAIN.as_bytes() => false,
            Some(name) if name == GZIP.as_bytes() => true,
            Some(other) => {
                let shown: String = String::from_utf8_lossy(other).chars().take(40).collect();
                let why = format!(
                    "messages that are compressed with `{shown}` are not served: use gzip, or send them as they are"
                );
                return Err(Failure::new(StatusCode::NOT_IMPLEMENTED, why));
            }
        };
        let mut accepted = headers.get_all(ACCEPTS).iter().filter_map(|value| value.to_str().ok());
        let answers = accepted.any(|text| text.split(',').any(|name| name.trim() == GZIP));
        Ok(Self { requests, answers: requests && answers })
    }
}

/// Unpacks a message into at most so many bytes.
pub(super) fn unpack(packed: &[u8], most: usize, held: &mut HeldBytes) -> Result<Vec<u8>, Failure> {
    let (mut reader, mut whole) = (GzDecoder::new(packed), Vec::new());
    let mut step = vec![0; STEP_BYTES];
    loop {
        let count = reader.read(&mut step).map_err(|error| {
            Failure::internal(format!("a message is not what {GZIP} makes: {error}"))
        })?;
        if count == 0 {
            return Ok(whole);
        }
        if whole.len() + count > most {
            return Err(too_much(most));
        }
        held.hold_request(packed.len() + whole.len() + count)?;
        whole.extend_from_slice(&step[..count]);
    }
}

/// Packs a message that has its prefix.
pub(super) fn pack(plain: Vec<u8>, held: &mut HeldBytes) -> Result<Vec<u8>, Failure> {
    held.hold_more(plain.len())?;
    let mut draft = Draft::new(held);
    let written = draft.write_all(&[PACKED, 0, 0, 0, 0]).and_then(|()| {
        let mut writer = GzEncoder::new(&mut draft, Compression::fast());
        writer.write_all(&plain[PREFIX_BYTES..])?;
        writer.finish().map(drop)
    });
    let mut packed = draft.finish(written)?;
    let length = u32::try_from(packed.len() - PREFIX_BYTES).expect("an answer has a limit");
    packed[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use gridpool_client::Principal;
    use tonic::Code;

    use super::*;
    use crate::gateway::body::BodyBudget;
    use crate::gateway::limits::{BODIES_EACH_MAX, BODIES_SMALL, BODY_BYTES_MAX};

    fn packing(asked: &[(&'static str, &'static str)]) -> Result<Packing, Failure> {
        let headers = asked.iter().map(|&(name, value)| (name.parse().unwrap(), value));
        Packing::of(&headers.map(|(name, value)| (name, HeaderValue::from_static(value))).collect())
    }

    #[test]
    fn answers_are_packed_as_requests_are_if_the_client_can_unpack_them() {
        let (requests, answers) = (true, true);
        let accepts = (ACCEPTS, "identity, deflate, gzip");
        assert_eq!(packing(&[accepts]), Ok(Packing::default()), "it does not ask for it");
        assert_eq!(packing(&[accepts, (ENCODING, "identity")]), Ok(Packing::default()));
        assert_eq!(packing(&[accepts, (ENCODING, "gzip")]), Ok(Packing { requests, answers }));
        let half = Packing { requests, answers: false };
        assert_eq!(packing(&[(ENCODING, "gzip"), (ACCEPTS, "deflate")]), Ok(half));
        let why = packing(&[(ENCODING, "deflate")]).unwrap_err();
        assert_eq!(why.code(), Code::Unimplemented);
    }

    #[test]
    fn a_message_that_is_packed_and_unpacked_is_the_same_and_has_the_limits_of_others() {
        let budget = BodyBudget::new();
        let mut held = budget.held(&Principal::Uid(0));
        let framed = |message: &[u8]| [&[0; PREFIX_BYTES][..], message].concat();
        let packed = pack(framed(&[7; 100_000]), &mut held).unwrap();
        assert!(packed.len() < 1_000 && packed[0] == PACKED);
        assert_eq!(packed[4] as usize + (packed[3] as usize) * 256, packed.len() - PREFIX_BYTES);
        let packed = &packed[PREFIX_BYTES..];
        assert_eq!(unpack(packed, 100_000, &mut held), Ok(vec![7; 100_000]));
        let why = unpack(packed, 99_999, &mut held).unwrap_err();
        assert_eq!(why.code(), Code::ResourceExhausted);
        let why = unpack(&packed[..100], 100_000, &mut held).unwrap_err();
        assert_eq!(why.code(), Code::Internal, "{why:?}");
        let bomb = pack(framed(&vec![0; 8 << 20]), &mut held).unwrap();
        drop(held);
        // Others hold so much that this one is refused before all of it is unpacked.
        let [mut others, mut held] = [(); 2].map(|()| budget.held(&Principal::Uid(0)));
        others.hold_more(BODIES_EACH_MAX - BODIES_SMALL).unwrap();
        let why = unpack(&bomb[PREFIX_BYTES..], BODY_BYTES_MAX, &mut held).unwrap_err();
        assert!(why.message().starts_with("BUSY"), "{why:?}");
        assert!(budget.bytes() <= BODIES_EACH_MAX);
    }
}
