//! Futures of answers, for any executor.
//!
//! A future stores its waker with its job. While a future waits, a thread of the connection reads the
//! socket, unless a thread that waits in a blocking call does so already.

use std::future::{Future, IntoFuture};
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;

use super::busy::RETRY_EVERY;
use super::connection::Connection;
use super::handle::{Claim, Handle};
use super::runnable::Produces;
use super::state::{Pending, Stage, State};
use super::{Answer, ClientError};

/// Interval at which the reading thread checks for overdue futures.
const TICK: Duration = Duration::from_secs(1);
/// Refused jobs that are sent again together, and the others after the next pause.
const SENT_AGAIN_MAX: usize = 64;

/// The future of `handle.await`: it waits for the answer of a job. Dropping it cancels the job.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited, and dropping it cancels the job"]
pub struct Answering<O> {
    /// `None` after the answer was returned.
    claim: Option<Claim>,
    runnable: Arc<dyn Produces<O>>,
}

impl<O: 'static> IntoFuture for Handle<O> {
    type Output = Result<Answer<O>, ClientError>;
    type IntoFuture = Answering<O>;

    /// Waits for the verdict, as [`Handle::wait`] does, without blocking the thread.
    fn into_future(self) -> Answering<O> {
        let (claim, runnable) = self.into_parts();
        claim.connection.lock().futures += 1;
        Answering { claim: Some(claim), runnable }
    }
}

impl<O: 'static> Future for Answering<O> {
    type Output = Result<Answer<O>, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(claim) = &self.claim else { return Poll::Pending };
        let connection = Arc::clone(&claim.connection);
        let polled = connection.lock().poll(claim, context.waker());
        Poll::Ready(match polled {
            Poll::Pending => match connection.start_reading() {
                Ok(()) => return Poll::Pending,
                Err(error) => Err(error),
            },
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) => {
                connection.lock().futures -= 1;
                let mut claim = self.claim.take().expect("it was there above");
                claim.take(&*self.runnable)
            }
        })
    }
}

impl<O> Drop for Answering<O> {
    fn drop(&mut self) {
        if let Some(claim) = &self.claim {
            claim.connection.lock().futures -= 1;
        }
    }
}

impl State {
    /// Whether a job has its answer. If not, `waker` is woken when that may have changed.
    fn poll(&mut self, claim: &Claim, waker: &Waker) -> Poll<Result<(), ClientError>> {
        if claim.taken {
            return Poll::Ready(Err(ClientError::Taken));
        }
        let broken = self.why_broken().filter(|_| !self.wire.is_open());
        let Some((sent, pending)) = self.sent_for(claim.key) else {
            return Poll::Ready(Err(ClientError::Lost));
        };
        match &pending.stage {
            Stage::Done(..) => return Poll::Ready(Ok(())),
            Stage::Lost => return Poll::Ready(Err(ClientError::Lost)),
            Stage::Refused(refusal) if !pending.may_try_again(refusal) => {
                return Poll::Ready(Err(refusal.clone().into()));
            }
            Stage::Abandoned
            | Stage::Accepted
            | Stage::Bundled(_)
            | Stage::GivenBack(_)
            | Stage::Refused(_)
            | Stage::Sent => {}
        }
        if let Some(error) = broken {
            return Poll::Ready(Err(error));
        }
        if pending.is_late() {
            return Poll::Ready(Err(ClientError::Silent));
        }
        for key in [claim.key, sent] {
            self.jobs.entry(key).and_modify(|pending| pending.waker = Some(waker.clone()));
        }
        Poll::Pending
    }

    /// Jobs of futures that the pool has refused for the moment, those after `last` first.
    fn refused(&self, last: Option<JobKey>) -> impl Iterator<Item = JobKey> {
        let (after, until) = match last {
            Some(last) => ((Bound::Excluded(last), Bound::Unbounded), Some(..=last)),
            None => ((Bound::Unbounded, Bound::Unbounded), None),
        };
        let all = self
            .jobs
            .range(after)
            .chain(until.into_iter().flat_map(|until| self.jobs.range(until)));
        let awaited = all.filter(|(_, pending)| pending.waker.is_some());
        let refused = awaited.filter(|(_, pending)| matches!(pending.stage, Stage::Refused(_)));
        refused.map(|(&key, _)| key)
    }

    /// Whether a future waits for a job that the pool has refused for the moment.
    pub(super) fn has_refused(&self) -> bool {
        self.refused(None).next().is_some()
    }

    /// Notes that a job could not be submitted again.
    fn fail(&mut self, key: JobKey, error: ClientError) {
        let is_refused = if let ClientError::Refused(why) = error { Some(why) } else { None };
        self.set_stage(key, is_refused.map_or(Stage::Lost, Stage::Refused));
    }

    /// Collects the wakers of futures whose time is over.
    pub(super) fn wake_late(&mut self) {
        let is_over = |pending: &Pending| match &pending.stage {
            Stage::Refused(refusal) => !pending.may_try_again(refusal),
            Stage::Abandoned
            | Stage::Accepted
            | Stage::Bundled(_)
            | Stage::Done(..)
            | Stage::GivenBack(_)
            | Stage::Lost
            | Stage::Sent => pending.is_late(),
        };
        // Those in a bundle are woken with it.
        let over =
            |&&key: &&JobKey| self.sent_for(key).is_some_and(|(_, pending)| is_over(pending));
        let over: Vec<JobKey> = self.jobs.keys().filter(over).copied().collect();
        let wakers = over.iter().filter_map(|key| self.jobs.get_mut(key)?.waker.take());
        self.wakers.extend(wakers);
    }
}

impl Connection {
    /// Has a thread read until no future waits, unless a [`Watch`](super::Watch) does.
    fn start_reading(self: &Arc<Self>) -> Result<(), ClientError> {
        if self.is_watched.load(Ordering::Acquire) { Ok(()) } else { self.have_thread_read() }
    }

    pub(super) fn have_thread_read(self: &Arc<Self>) -> Result<(), ClientError> {
        let connection = Arc::downgrade(self);
        let started = self.reading.start(move || {
            connection.upgrade().map(|connection| connection.read_for_futures()).is_some()
        });
        started.map_err(ClientError::System)
    }

    /// Reads while a future waits, and submits jobs again that a busy pool has refused.
    fn read_for_futures(&self) {
        let mut last = None;
        loop {
            let refused: Vec<JobKey> = self.lock().refused(last).take(SENT_AGAIN_MAX).collect();
            last = refused.last().copied();
            let span = if refused.is_empty() { TICK } else { RETRY_EVERY };
            let waited = self.wait_for(clock::now() + span, |state| {
                let is_news = refused.is_empty() && state.has_refused();
                let is_watched = self.is_watched.load(Ordering::Acquire);
                let is_needed = state.futures > 0 && (!is_watched || state.has_refused());
                (!is_needed || is_news).then_some(is_needed)
            });
            match waited {
                Ok(true) => continue,
                Err(ClientError::Silent) => {}
                // No future waits, or the connection is lost and every future has been woken.
                Ok(false) | Err(_) => return,
            }
            self.lock().wake_late();
            for key in refused {
                let is_awaited = |pending: &Pending| pending.waker.is_some();
                if self.lock().jobs.get(&key).is_some_and(is_awaited)
                    && let Err(error) = self.send_again(key)
                {
                    self.lock().fail(key, error);
                }
            }
            self.wake();
        }
    }
}
