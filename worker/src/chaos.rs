//! Injects faults into a worker's answers, for jobs that ask for them. `gridpool_device::chaos` injects
//! those of the device and of the process.

use std::thread;

use gridpool_ipc::channel::{ChannelError, Replies};
use gridpool_ipc::clock;
use gridpool_protocol::chaos::{ChaosFault, ReplyFault, SLOW_REPLY};

/// No message begins like this: the first byte announces a number of 16 bytes.
const GARBAGE: [u8; 64] = [0xff; 64];

/// Applies the fault to an answer before it is sent; `false` if it must not be sent any more.
///
/// # Errors
/// The channel's.
pub(crate) fn before_the_answer(
    fault: Option<ChaosFault>,
    replies: &Replies,
) -> Result<bool, ChannelError> {
    match fault {
        Some(ChaosFault::Reply(ReplyFault::Corrupt)) => replies.send_raw(&GARBAGE).map(|()| false),
        Some(ChaosFault::Reply(ReplyFault::Slow)) => {
            let until = clock::now() + SLOW_REPLY;
            while !clock::until(until).is_zero() {
                thread::park_timeout(clock::until(until));
            }
            Ok(true)
        }
        Some(
            ChaosFault::Reply(ReplyFault::Wrong) | ChaosFault::Device(_) | ChaosFault::Host(_),
        )
        | None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use gridpool_ipc::channel::ReplyReader;
    use gridpool_protocol::chaos::HostFault;

    use super::*;

    #[test]
    fn a_corrupt_answer_cannot_be_decoded_and_other_faults_leave_the_answer_alone() {
        let (theirs, ours) = UnixStream::pair().unwrap();
        let (replies, mut heard) = (Replies::new(theirs), ReplyReader::new(ours));
        let wrong = ChaosFault::Reply(ReplyFault::Wrong);
        let exit = ChaosFault::Host(HostFault::Exit);
        for fault in [None, Some(wrong), Some(exit), Some(ChaosFault::Reply(ReplyFault::Slow))] {
            assert!(before_the_answer(fault, &replies).unwrap());
            assert!(heard.recv_until(clock::now()).unwrap().is_none());
        }
        let corrupt = Some(ChaosFault::Reply(ReplyFault::Corrupt));
        assert!(!before_the_answer(corrupt, &replies).unwrap());
        assert!(matches!(heard.recv(), Err(ChannelError::Decode(_))));
    }
}
