//! Work for all cores of the machine.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What `work` gives for each item, in their order. Each core takes the next item that none has taken.
///
/// # Panics
/// If `work` panics.
pub fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, work(item)));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(take)).collect();
        let done = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().flat_map(done).collect()
    });
    done.sort_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..1_000).collect();
        assert_eq!(
            each(&items, |item| item * 2),
            items.iter().map(|item| item * 2).collect::<Vec<_>>()
        );
        assert!(each(&[0; 0], |item: &i32| *item).is_empty());
    }

    #[test]
    #[should_panic(expected = "the third")]
    fn a_panic_is_handed_on() {
        each(&[1, 2, 3], |item| assert_ne!(*item, 3, "the third"));
    }
}
