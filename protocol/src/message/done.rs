//! A verdict whose receipt is encoded already.

use serde::ser::SerializeStructVariant;
use serde::{Serialize, Serializer};

use crate::codec;
use crate::ids::JobKey;

/// [`ServerMessage::Done`](super::ServerMessage::Done) with a receipt that is encoded already.
#[derive(Clone, Copy, Debug)]
pub struct EncodedDone<'a> {
    /// The job.
    pub key: JobKey,
    /// The encoded receipt.
    pub receipt: &'a [u8],
    /// As in the message.
    pub output: Option<&'a [u8]>,
    /// As in the message.
    pub replayed: bool,
}

impl EncodedDone<'_> {
    /// The position of `Done` among the variants.
    const VARIANT: u32 = 3;
}

impl Serialize for EncodedDone<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { key, receipt, output, replayed } = *self;
        let mut to = to.serialize_struct_variant("ServerMessage", Self::VARIANT, "Done", 4)?;
        to.serialize_field("key", &key)?;
        to.serialize_field("receipt", &codec::Bytes(receipt))?;
        to.serialize_field("output", &output.map(codec::Bytes))?;
        to.serialize_field("replayed", &replayed)?;
        to.end()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Inline, ServerMessage};
    use super::*;
    use crate::receipt::Receipt;

    #[test]
    fn a_verdict_with_an_encoded_receipt_is_the_same_message() {
        let receipt = Receipt { reason: "a reason".to_owned(), ..Receipt::default() };
        let (key, output, replayed) = (JobKey(7), Some(Inline(vec![1, 2, 3])), true);
        let bytes = codec::encode(&receipt).unwrap();
        let encoded = EncodedDone { key, receipt: &bytes, output: Some(&[1, 2, 3]), replayed };
        let encoded = codec::encode(&encoded).unwrap();
        let whole = ServerMessage::Done { key, receipt: Box::new(receipt), output, replayed };
        assert_eq!(codec::encode(&whole).unwrap(), encoded);
        assert_eq!(codec::decode::<ServerMessage>(&encoded).unwrap(), whole);
    }
}
