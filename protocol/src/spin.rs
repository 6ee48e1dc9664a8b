//! How a thread that waits for a message looks for it before it sleeps.
//!
//! To wake a thread costs 5 to 10 µs on the hosts that we serve, and a small job passes four that
//! wait: its connection's, the worker's, the worker's attendant and its client's. Where such jobs
//! come one after the other, a core that looks is worth more than one that idles; anywhere else it
//! is not. So a thread looks only if its last wait was short, only for a short time, and only
//! where the host has cores to spare.
//!
//! Owns that rule, and the count of those that look. May not read anything: who waits says how.

use std::hint;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;

/// How long a thread looks if nobody says otherwise, and what counts as a short wait. From end to end
/// a job of one grid takes 60 to 120 µs, and each end waits for nearly all of that; there is room for
/// a client that thinks a little in between. When the jobs stop, each end looks in vain this once.
pub const SPIN_DEFAULT: Duration = Duration::from_micros(200);
/// Longest time that a thread may look: beyond it, a wake-up is no part of the wait worth naming.
pub const SPIN_MAX: Duration = Duration::from_millis(1);
/// Of one process, one thread may look at a time for every so many cores. A supervisor, a worker and
/// a client together leave a quarter of the host alone, and on a host with fewer cores nobody looks.
pub const CORES_PER_LOOKOUT: usize = 4;

/// The posts of this process.
static POSTS: LazyLock<Posts> = LazyLock::new(|| Posts::new(lookouts_max()));

/// Most threads of this process that look at a time, on this host.
#[must_use]
pub fn lookouts_max() -> usize {
    thread::available_parallelism().map_or(1, usize::from) / CORES_PER_LOOKOUT
}

/// How a message is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// At once, with or without it.
    Now,
    /// When it comes, or nothing will: the thread may sleep.
    Sleeping,
}

/// One waiting thread's rule.
#[derive(Clone, Copy, Debug)]
pub struct Vigil {
    limit: Duration,
    /// The last wait was short, so the next may well be.
    is_hopeful: bool,
    posts: &'static Posts,
}

impl Vigil {
    /// A thread that looks for at most `limit`, itself at most [`SPIN_MAX`]. Zero never looks.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit: limit.min(SPIN_MAX), is_hopeful: false, posts: &POSTS }
    }

    /// Looks for so long from now on.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit.min(SPIN_MAX);
    }

    /// Receives a message: looks for it if that is promising, then sleeps. `receive` gives nothing
    /// where it is asked for it now and there is none, or where its own patience has ended.
    ///
    /// # Errors
    /// Those of `receive`.
    pub fn wait<T, E>(
        &mut self,
        mut receive: impl FnMut(Ask) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if self.limit.is_zero() {
            return receive(Ask::Sleeping);
        }
        let began = clock::now();
        let received = match self.look(began, &mut receive)? {
            Some(message) => Some(message),
            None => receive(Ask::Sleeping)?,
        };
        self.learn(began.elapsed());
        Ok(received)
    }

    /// Looks, if the last wait was short and a post is free.
    fn look<T, E>(
        &self,
        began: Instant,
        receive: &mut impl FnMut(Ask) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if !self.is_hopeful {
            return Ok(None);
        }
        let Some(_post) = self.posts.take() else { return Ok(None) };
        loop {
            let received = receive(Ask::Now)?;
            if received.is_some() || began.elapsed() >= self.limit {
                return Ok(received);
            }
            hint::spin_loop();
        }
    }

    /// Whether the next wait is worth a look, by the last.
    fn learn(&mut self, waited: Duration) {
        self.is_hopeful = waited < self.limit;
    }
}

/// The places where threads look.
#[derive(Debug)]
pub(crate) struct Posts {
    taken: AtomicUsize,
    max: usize,
}

impl Posts {
    pub(crate) const fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    /// A post, if one is free. It guards no data, so no order is asked of the count.
    fn take(&self) -> Option<Post<'_>> {
        let more = |taken| (taken < self.max).then_some(taken + 1);
        let took = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        took.ok().map(|_| Post(self))
    }
}

/// A post that is taken.
struct Post<'a>(&'a Posts);

impl Drop for Post<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::convert::Infallible;

    use super::*;

    static PLENTY: Posts = Posts::new(1_024);
    static NONE: Posts = Posts::new(0);

    /// One that looks at once, whatever the host.
    pub(crate) fn hopeful() -> Vigil {
        Vigil { limit: SPIN_MAX, is_hopeful: true, posts: &PLENTY }
    }

    /// What a thread asks for when a message comes at the second look, or else while it sleeps.
    fn asked(vigil: &mut Vigil) -> Vec<Ask> {
        let mut asked = Vec::new();
        let received = vigil.wait(|ask| {
            asked.push(ask);
            Ok::<_, Infallible>((ask == Ask::Sleeping || asked.len() == 2).then_some("here"))
        });
        assert_eq!(received, Ok(Some("here")));
        asked
    }

    #[test]
    fn only_a_wait_shorter_than_the_limit_promises_another() {
        let mut vigil = Vigil { limit: Duration::from_micros(100), ..hopeful() };
        let cases = [(0, true), (99, true), (100, false), (5_000, false), (1, true)];
        for (waited, is_hopeful) in cases {
            vigil.learn(Duration::from_micros(waited));
            assert_eq!(vigil.is_hopeful, is_hopeful, "{waited} µs");
        }
    }

    #[test]
    fn a_thread_that_hopes_looks_and_one_that_does_not_sleeps_at_once() {
        // Longer than any test takes, so that only the message can end a look.
        let mut vigil = Vigil { limit: Duration::MAX, is_hopeful: false, ..hopeful() };
        assert_eq!(asked(&mut vigil), [Ask::Sleeping]);
        assert_eq!(asked(&mut vigil), [Ask::Now, Ask::Now], "its last wait was short");
        vigil.learn(Duration::MAX);
        assert_eq!(asked(&mut vigil), [Ask::Sleeping]);
        assert!(!Vigil::new(SPIN_MAX).is_hopeful);
    }

    #[test]
    fn a_look_in_vain_ends_with_its_time_and_is_not_repeated() {
        let mut vigil = Vigil { limit: Duration::from_nanos(1), ..hopeful() };
        let mut last = None;
        let silence = vigil.wait(|ask| {
            last = Some(ask);
            Ok::<_, Infallible>(None::<()>)
        });
        assert_eq!((silence, last), (Ok(None), Some(Ask::Sleeping)));
        assert_eq!(asked(&mut vigil), [Ask::Sleeping]);
    }

    #[test]
    fn without_a_limit_or_a_free_post_nobody_looks() {
        let mut off = Vigil { limit: Duration::ZERO, ..hopeful() };
        let mut crowded = Vigil { posts: &NONE, ..hopeful() };
        assert_eq!(asked(&mut off), [Ask::Sleeping]);
        assert_eq!(asked(&mut crowded), [Ask::Sleeping]);
    }

    #[test]
    fn a_limit_above_the_longest_is_cut() {
        let mut vigil = Vigil::new(Duration::MAX);
        assert_eq!(vigil.limit, SPIN_MAX);
        vigil.set_limit(2 * SPIN_MAX);
        assert_eq!(vigil.limit, SPIN_MAX);
    }

    #[test]
    fn a_post_is_free_again_once_its_thread_has_looked() {
        let posts = Posts::new(1);
        let post = posts.take();
        assert!(post.is_some() && posts.take().is_none());
        drop(post);
        assert!(posts.take().is_some());
    }
}
