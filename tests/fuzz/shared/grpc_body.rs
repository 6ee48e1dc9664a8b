//! The body of a call of gRPC, which comes in any pieces: its messages are the same however it is cut.

use gridpool::gateway::split_messages;

/// A count of pieces, the length of each, and the body.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else { return };
    let (pieces, body) = rest.split_at(rest.len().min(count.into()));
    let pieces: Vec<_> = pieces.iter().map(|&piece| piece.into()).collect();
    let (messages, end) = split_messages(body, &pieces);
    assert_eq!(split_messages(body, &[]), (messages.clone(), end.clone()));
    let read: usize = messages.iter().map(|message| 5 + message.len()).sum();
    match end {
        Ok(()) => assert_eq!(read, body.len(), "nothing is left"),
        Err(why) => assert!(read < body.len() && !why.is_empty(), "{why}"),
    }
}

/// Bodies that are right.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let framed = |flag: u8, message: &[u8]| {
        let length = u32::try_from(message.len()).expect("it is short").to_be_bytes();
        [&[flag], &length[..], message].concat()
    };
    let body = [framed(0, b"one"), framed(1, b""), framed(0, &[7; 40])].concat();
    [&[][..], &[1], &[4, 1, 5, 60], &[1; 30]]
        .map(|pieces| {
            let count = u8::try_from(pieces.len()).expect("they are few");
            [&[count], pieces, &body].concat()
        })
        .into()
}
