//! The way of a line to standard error where nobody may wait for whoever reads that: a queue with limits,
//! and one thread that writes. What finds no room is left out and counted, and the count is written as
//! soon as there is room again.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Texts that may wait: a text is a line, or the block of a death.
pub(super) const TEXTS_MAX: usize = 4_096;
/// Bytes of all texts that may wait.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// Texts on their way.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    texts: VecDeque<Vec<u8>>,
    /// Of all texts that wait.
    bytes: usize,
    /// Lines that found no room. Until that is said nothing else gets in, so that it is said where they
    /// are missing.
    left_out: u64,
    is_writing: bool,
}

impl Queue {
    pub(super) const fn new() -> Self {
        let texts = VecDeque::new();
        let state = State { texts, bytes: 0, left_out: 0, is_writing: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes a text, or counts its lines. Never waits for a reader.
    pub(super) fn put(&self, text: &[u8]) {
        let mut state = self.lock();
        if state.has_room_for(text) {
            state.bytes += text.len();
            state.texts.push_back(text.to_vec());
        } else {
            state.left_out += text.split_inclusive(|&byte| byte == b'\n').count() as u64;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until all is written, for at most so long; whether it is.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        let is_left = |state: &mut State| state.is_writing || !state.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_left);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Writes all that comes, for ever. `missing` says that so many lines were left out.
    pub(super) fn serve(&self, mut out: impl Write, missing: impl Fn(u64) -> String) -> ! {
        let mut state = self.lock();
        loop {
            if let Some(count) = state.take_left_out() {
                let text = missing(count).into_bytes();
                state.bytes += text.len();
                state.texts.push_back(text);
            }
            let Some(text) = state.texts.pop_front() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.bytes -= text.len();
            state.is_writing = true;
            drop(state);
            // A log that nobody reads any more is no reason to end.
            drop(out.write_all(&text));
            state = self.lock();
            state.is_writing = false;
            if state.is_empty() {
                self.changed.notify_all();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.left_out == 0
    }

    fn has_room_for(&self, text: &[u8]) -> bool {
        self.left_out == 0
            && self.texts.len() < TEXTS_MAX
            && self.bytes.saturating_add(text.len()) <= BYTES_MAX
    }

    /// How many lines were left out, once there is room for many more: else there would be one such
    /// line for every line.
    fn take_left_out(&mut self) -> Option<u64> {
        let is_time =
            self.left_out > 0 && self.texts.len() <= TEXTS_MAX / 2 && self.bytes <= BYTES_MAX / 2;
        is_time.then(|| std::mem::take(&mut self.left_out))
    }
}

/// Standard error without the lock that the standard library has for it: whoever writes there may be
/// stuck, and a panic must not wait for that lock.
#[derive(Debug)]
pub(super) struct Unlocked;

impl Write for Unlocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stderr = io::stderr();
        loop {
            match nix::unistd::write(&stderr, bytes) {
                // Whoever we have it from has set it so.
                Err(Errno::EAGAIN) => {
                    let mut wanted = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
                    match poll(&mut wanted, PollTimeout::NONE) {
                        Ok(_) | Err(Errno::EINTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// Nothing in these tests takes longer.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn missing(count: u64) -> String {
        format!("{count} lines are missing\n")
    }

    /// A queue whose thread writes to a pipe, and the end to read from.
    fn piped() -> (Arc<Queue>, BufReader<io::PipeReader>) {
        let (reader, writer) = io::pipe().unwrap();
        let queue = Arc::new(Queue::new());
        let for_thread = Arc::clone(&queue);
        thread::spawn(move || for_thread.serve(writer, missing));
        (queue, BufReader::new(reader))
    }

    fn next(reader: &mut BufReader<io::PipeReader>) -> String {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told_where_it_is_missing() {
        // Lines that the pipe cannot hold, then lines without number: nobody reads, nobody waits.
        for (length, count) in [(10, 20_000_u64), (5_000, 1_000)] {
            let (queue, mut reader) = piped();
            let fill = "x".repeat(length);
            (0..count).for_each(|number| queue.put(format!("{number} {fill}\n").as_bytes()));
            assert!(!queue.flush(Duration::ZERO), "there is more than a pipe holds");
            {
                let state = queue.lock();
                assert!(state.texts.len() <= TEXTS_MAX && state.bytes <= BYTES_MAX);
            }
            let (mut seen, mut told) = (0, 0);
            while seen + told < count {
                let line = next(&mut reader);
                let (number, rest) = line.split_once(' ').unwrap();
                let number: u64 = number.parse().unwrap();
                if rest == "lines are missing" {
                    told += number;
                } else {
                    assert_eq!(number, seen + told, "in order, and none is missing before");
                    seen += 1;
                }
            }
            assert!(seen > 0 && told > 0, "{seen} of {count}, {told} missing");
            queue.put(b"later\n");
            assert_eq!(next(&mut reader), "later");
            assert!(queue.flush(PATIENCE), "all is written");
        }
    }

    #[test]
    fn all_lines_of_a_block_are_counted() {
        let queue = Queue::new();
        queue.put(&vec![b'x'; BYTES_MAX + 1]);
        queue.put(b"died\n    next\n    stderr\n");
        assert_eq!(queue.lock().take_left_out(), Some(4));
        assert_eq!(queue.lock().take_left_out(), None);
    }

    #[test]
    fn a_log_that_nobody_can_read_holds_nobody_up() {
        let (queue, reader) = piped();
        drop(reader);
        (0..100).for_each(|_| queue.put(&[b'x'; 4_096]));
        assert!(queue.flush(PATIENCE));
    }
}
