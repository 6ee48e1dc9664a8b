//! The last deaths of workers, with the blocks that the log has of them. The page shows them.

use std::collections::VecDeque;
use std::time::SystemTime;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::limits::FRAME_BYTES_MAX;
use gridpool_protocol::message;

use super::death_report::{self, Death};

/// Deaths that are kept.
const DEATHS_MAX: usize = 24;
/// Longest block, bytes; the rest is left out. All of them fit one message.
const BLOCK_BYTES_MAX: usize = 9 << 10;
const _: () = assert!(DEATHS_MAX * (BLOCK_BYTES_MAX + 256) < FRAME_BYTES_MAX);
/// What stands for the program or the model of a job in the block for those who are no operators.
const LEFT_OUT: &str = "for operators";

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Deaths(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// The number of the latest.
    latest: u64,
    kept: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// With the block for everybody.
    death: message::Death,
    /// The block for operators.
    whole: String,
}

impl Deaths {
    /// Keeps a death, unless it was expected.
    pub(super) fn keep(&self, death: &Death) {
        if death.report.is_expected {
            return;
        }
        let worker = death.report.worker;
        let (whole, shared) = (death_report::block(death), death_report::block(&redacted(death)));
        let since = clock::time_of_day().duration_since(SystemTime::UNIX_EPOCH);
        let mut ring = self.0.lock();
        ring.latest += 1;
        let death = message::Death {
            number: ring.latest,
            at_s: since.map_or(0, |since| since.as_secs()),
            worker: worker.to_string(),
            role: worker.group.role().name().to_owned(),
            block: shortened(&shared),
        };
        if ring.kept.len() == DEATHS_MAX {
            ring.kept.pop_front();
        }
        ring.kept.push_back(Kept { death, whole: shortened(&whole) });
    }

    /// The number of the latest.
    pub(super) fn latest(&self) -> u64 {
        self.0.lock().latest
    }

    /// Those with a larger number, the latest last.
    pub(super) fn after(&self, number: u64, is_whole: bool) -> Vec<message::Death> {
        let ring = self.0.lock();
        let later = ring.kept.iter().filter(|kept| kept.death.number > number);
        let shown = later.map(|Kept { death, whole }| match is_whole {
            true => message::Death { block: whole.clone(), ..death.clone() },
            false => death.clone(),
        });
        shown.collect()
    }
}

/// A death without what others run: as in the status, that is for operators. A worker may print anything.
fn redacted(death: &Death) -> Death {
    let mut shared = Death { stderr: Vec::new(), ..death.clone() };
    (shared.report.exit.last_words, shared.position) = (None, None);
    for lost in &mut shared.report.attempts {
        (lost.label, lost.trace) = (LEFT_OUT.into(), None);
    }
    shared
}

fn shortened(block: &str) -> String {
    match block.len() > BLOCK_BYTES_MAX {
        true => format!("{}…", &block[..block.floor_char_boundary(BLOCK_BYTES_MAX)]),
        false => block.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::trace::TraceId;

    use super::*;
    use crate::shell::death_report::tests::a_death;

    #[test]
    fn the_last_deaths_are_kept_whole_for_operators_alone() {
        let deaths = Deaths::default();
        let mut one = a_death();
        one.stderr = vec!["a line of its own".to_owned()];
        one.report.exit.last_words = Some("words of its own".to_owned());
        one.report.attempts[0].trace = TraceId::new([0xab; 16]);
        for _ in 0..DEATHS_MAX + 3 {
            deaths.keep(&one);
        }
        let numbers =
            |after| deaths.after(after, true).iter().map(|death| death.number).collect::<Vec<_>>();
        assert_eq!(numbers(0).len(), DEATHS_MAX);
        assert_eq!(numbers(25), [26, 27]);
        let [whole, shared] = [true, false].map(|is_whole| deaths.after(26, is_whole).remove(0));
        assert_eq!((&*whole.worker, &*whole.role), ("gpu0#3", "grid"));
        let label = &*one.report.attempts[0].label;
        assert!(whole.block.contains("a line of its own") && whole.block.contains(label));
        assert!(!shared.block.contains("a line of its own") && !shared.block.contains(label));
        assert!(whole.block.contains("words of its own"));
        assert!(!shared.block.contains("words of its own"), "{}", shared.block);
        assert!(shared.block.contains(LEFT_OUT), "{}", shared.block);
        assert!(whole.block.contains("trace_id") && !shared.block.contains("trace_id"));
    }

    #[test]
    fn a_death_that_was_expected_is_not_kept() {
        let deaths = Deaths::default();
        let mut one = a_death();
        one.report.is_expected = true;
        deaths.keep(&one);
        assert_eq!(deaths.after(0, true), []);
    }
}
