//! Handles of sent jobs: wait for the answer, or cancel.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::limits::DEADLINE_MAX;
use gridpool_protocol::message::{Packing, Refusal};
use gridpool_protocol::receipt::Verdict;

use super::buffers::Buffers;
use super::bundle;
use super::busy::{UNREAD_BYTES_MAX, pause_after};
use super::connection::{Connection, Outgoing};
use super::model::OUTPUT_BYTES_DEFAULT;
use super::runnable::{AnyJob, Produces};
use super::state::{Pending, Stage, State, VERDICT_MARGIN};
use super::{Answer, ClientError, Job};

/// A job that was sent. Wait for its answer with [`Handle::wait`] or, with the feature `async`, `.await`.
/// Dropping the handle cancels the job.
#[derive(Debug)]
#[must_use = "dropping the handle cancels the job"]
pub struct Handle<O> {
    claim: Claim,
    runnable: Arc<dyn Produces<O>>,
}

impl<O: 'static> Handle<O> {
    /// Sends jobs together without waiting for their acceptance.
    pub(super) fn send(
        connection: &Arc<Connection>,
        jobs: impl IntoIterator<Item = Job<O>>,
    ) -> Result<Vec<Self>, ClientError> {
        let (mut outgoing, mut runnables) = (Vec::new(), Vec::new());
        for Job { runnable, options } in jobs {
            let output_bytes = match options.output_bytes {
                Some(bytes) => bytes,
                None => runnable.output_bytes(connection)?.unwrap_or(OUTPUT_BYTES_DEFAULT),
            };
            let any = Arc::<dyn Produces<O>>::clone(&runnable);
            outgoing
                .push(Claim::prepare(connection, AnyJob { runnable: any, options, output_bytes }));
            runnables.push(runnable);
        }
        let claims = Claim::send(connection, outgoing)?;
        let handle = |(claim, runnable)| Self { claim, runnable };
        Ok(claims.into_iter().zip(runnables).map(handle).collect())
    }

    /// Sends a job if that takes no wait.
    pub(super) fn try_send(
        connection: &Arc<Connection>,
        job: &Job<O>,
    ) -> Result<Option<Self>, ClientError> {
        let Job { runnable, options } = job;
        let output_bytes = match options.output_bytes {
            Some(bytes) => bytes,
            // The pool may have to be asked.
            None if matches!(runnable.packing(), Packing::Tensors) => return Ok(None),
            None => runnable.output_bytes(connection)?.unwrap_or(OUTPUT_BYTES_DEFAULT),
        };
        let (runnable, options) = (Arc::clone(runnable), options.clone());
        let any = Arc::<dyn Produces<O>>::clone(&runnable);
        let job = Claim::prepare(connection, AnyJob { runnable: any, options, output_bytes });
        let (key, deadline) = (job.key, job.deadline);
        let is_sent = connection.try_send(job)?;
        let claim = || Claim::new(connection, key, deadline);
        Ok(is_sent.then(|| Self { claim: claim(), runnable }))
    }

    /// Waits until the pool has accepted the job.
    pub(super) fn accepted(self) -> Result<Self, ClientError> {
        self.claim.accepted()?;
        Ok(self)
    }

    /// The job's key.
    #[must_use]
    pub fn key(&self) -> JobKey {
        self.claim.key
    }

    /// Cancels the job. The verdict is then CANCELLED, unless the job has another already. A job that waits for a busy
    /// pool is not submitted again: the refusal is then the error of [`Handle::wait`].
    pub fn cancel(&self) {
        // Another job may have the key after the answer was taken.
        if !self.claim.taken {
            self.claim.connection.cancel(self.claim.key);
        }
    }

    /// Returns a handle with which another thread can cancel the job.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { connection: Arc::clone(&self.claim.connection), key: self.claim.key }
    }

    /// Waits for the verdict.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the client cannot reconnect, or if it has lost the connection and the job may
    /// run only once; [`ClientError::Refused`] if the pool does not accept the job;
    /// [`ClientError::Silent`] if no verdict arrives long after the deadline; [`ClientError::Malformed`] or
    /// [`ClientError::Tensors`] if the outputs cannot be read.
    pub fn wait(self) -> Result<Answer<O>, ClientError> {
        let Self { mut claim, runnable } = self;
        claim.wait_until(|stage| matches!(stage, Stage::Done(..)))?;
        claim.take(&*runnable)
    }

    /// Waits for the verdict, but at most for `span`: `None` if it has not come by then. A program that must look
    /// after something else from time to time waits so.
    ///
    /// # Errors
    /// As for [`Handle::wait`]; [`ClientError::Taken`] if an earlier call has returned the answer.
    pub fn wait_for(&mut self, span: Duration) -> Result<Option<Answer<O>>, ClientError> {
        let until = clock::now() + span;
        if self.claim.wait_within(until, |stage| matches!(stage, Stage::Done(..)))? {
            self.claim.take(&*self.runnable).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns the answer if it has arrived, and `None` if not. It does not wait for the verdict, nor for a
    /// reconnect. It takes as long as [`Client::send`](super::Client::send) only when it submits a job again
    /// that a busy pool has refused.
    ///
    /// ```no_run
    /// # use gridpool_client::{Answer, ClientError, Handle, Outputs};
    /// # fn work_on_something_else() {}
    /// # fn poll(mut handle: Handle<Outputs>) -> Result<Answer<Outputs>, ClientError> {
    /// loop {
    ///     if let Some(answer) = handle.try_wait()? {
    ///         return Ok(answer);
    ///     }
    ///     work_on_something_else();
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Handle::wait`]; [`ClientError::Taken`] if an earlier call has returned the answer.
    pub fn try_wait(&mut self) -> Result<Option<Answer<O>>, ClientError> {
        if self.claim.is_done()? { self.claim.take(&*self.runnable).map(Some) } else { Ok(None) }
    }

    #[cfg(feature = "async")]
    pub(super) fn into_parts(self) -> (Claim, Arc<dyn Produces<O>>) {
        (self.claim, self.runnable)
    }
}

/// The claim to the answer of a job of any kind. Dropping it cancels the job.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) connection: Arc<Connection>,
    pub(super) key: JobKey,
    deadline: Instant,
    /// When to submit the job again, if the pool was busy when this was last looked at.
    retry_at: Option<Instant>,
    /// The answer has been taken, so the key may belong to another job by now.
    pub(super) taken: bool,
}

impl Claim {
    fn new(connection: &Arc<Connection>, key: JobKey, deadline: Instant) -> Self {
        let connection = Arc::clone(connection);
        Self { connection, key, deadline, retry_at: None, taken: false }
    }

    fn prepare(connection: &Connection, job: AnyJob) -> Outgoing {
        let key = job.options.key.unwrap_or_else(|| connection.next_key());
        let deadline = clock::now() + job.options.deadline.min(DEADLINE_MAX);
        Outgoing { key, job, deadline, buffers: Buffers::default(), bundle: None }
    }

    fn send(connection: &Arc<Connection>, jobs: Vec<Outgoing>) -> Result<Vec<Self>, ClientError> {
        connection.lock().check_keys(&jobs)?;
        let jobs = if connection.bundles() { bundle::gather(connection, jobs) } else { jobs };
        let (mut jobs, mut claims) = (VecDeque::from(jobs), Vec::new());
        while !jobs.is_empty() {
            connection.make_room()?;
            let (mut some, mut bytes) = (Vec::new(), 0);
            while bytes < UNREAD_BYTES_MAX
                && let Some(job) = jobs.pop_front()
            {
                bytes += job.job.message_bytes();
                some.push(job);
            }
            let mut named: Vec<_> = some.iter().flat_map(Outgoing::handles).collect();
            let wait = connection.send_jobs(some)?;
            let unsent: usize = wait.iter().map(|job| job.handles().len()).sum();
            named.truncate(named.len() - unsent);
            wait.into_iter().rev().for_each(|job| jobs.push_front(job));
            // From here on, dropping a claim cancels its job.
            let claim = |(key, deadline)| Self::new(connection, key, deadline);
            claims.extend(named.into_iter().map(claim));
        }
        Ok(claims)
    }

    fn accepted(&self) -> Result<(), ClientError> {
        self.wait_until(|stage| match stage {
            Stage::Accepted | Stage::Done(..) => true,
            Stage::Abandoned
            | Stage::Bundled(_)
            | Stage::GivenBack(_)
            | Stage::Lost
            | Stage::Refused(_)
            | Stage::Sent => false,
        })
    }

    /// Takes the answer of a job whose verdict has come.
    pub(super) fn take<O>(&mut self, runnable: &dyn Produces<O>) -> Result<Answer<O>, ClientError> {
        self.taken = true;
        let (receipt, bytes) = self.connection.take_answer(self.key)?;
        if receipt.verdict != Verdict::Ok {
            runnable.has_failed(&self.connection);
            let done = receipt.items_done();
            let partial = bytes.filter(|_| !done.is_empty());
            // The verdict stands whether or not what was done can be read.
            let partial = partial.and_then(|bytes| runnable.partial(bytes, done).ok().flatten());
            return Ok(Answer::new(receipt, None).with_partial(partial));
        }
        let bytes =
            bytes.ok_or_else(|| ClientError::Unexpected("OK without a result".to_owned()))?;
        Ok(Answer::new(receipt, Some(runnable.outputs(bytes)?)))
    }

    /// Waits until the job's stage is `enough`. Submits the job again while the pool is busy.
    fn wait_until(&self, enough: impl Fn(&Stage) -> bool) -> Result<(), ClientError> {
        let last = self.deadline + VERDICT_MARGIN;
        if self.wait_within(last, enough)? { Ok(()) } else { Err(ClientError::Silent) }
    }

    /// Waits until the job's stage is `enough`, or until that time; returns which. Submits the job again while the
    /// pool is busy.
    fn wait_within(
        &self,
        until: Instant,
        enough: impl Fn(&Stage) -> bool,
    ) -> Result<bool, ClientError> {
        let last = self.deadline + VERDICT_MARGIN;
        loop {
            let looked =
                self.connection.wait_for_job(self.key, until.min(last), |s| self.look(s, &enough));
            let refusal = match looked {
                Err(ClientError::Silent) if until < last => return Ok(false),
                looked => looked??,
            };
            let Some(refusal) = refusal else { return Ok(true) };
            if !self.connection.may_try_again(self.key, &refusal) {
                return Err(refusal.into());
            }
            // Reading brings the ends that make room for it.
            let pause = (clock::now() + pause_after(&refusal)).min(until);
            let is_sent = |state: &mut State| {
                let sent = state.sent_for(self.key);
                let waits = sent.is_some_and(|(_, pending)| pending.waits_for_retry());
                (!waits).then_some(())
            };
            match self.connection.wait_for(pause, is_sent) {
                Ok(()) => continue,
                Err(ClientError::Silent) => self.connection.send_again(self.key)?,
                Err(error) => return Err(error),
            }
            if until < last && clock::until(until).is_zero() {
                return Ok(false);
            }
        }
    }

    /// Whether the verdict has come. Submits the job again if the pool was busy a moment ago.
    fn is_done(&mut self) -> Result<bool, ClientError> {
        let done = |stage: &Stage| matches!(stage, Stage::Done(..));
        match self.connection.try_for(|state| self.look(state, done))?.transpose()? {
            None if clock::until(self.deadline + VERDICT_MARGIN).is_zero() => {
                Err(ClientError::Silent)
            }
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(refusal)) if !self.connection.may_try_again(self.key, &refusal) => {
                Err(refusal.into())
            }
            Some(Some(refusal)) => {
                let pause = pause_after(&refusal);
                let retry_at = *self.retry_at.get_or_insert_with(|| clock::now() + pause);
                if clock::until(retry_at).is_zero() {
                    self.retry_at = None;
                    self.connection.send_again(self.key)?;
                }
                Ok(false)
            }
        }
    }

    /// What the job's stage says: nothing yet, that it is `enough`, a refusal, or an error.
    fn look(
        &self,
        state: &State,
        enough: impl Fn(&Stage) -> bool,
    ) -> Option<Result<Option<Refusal>, ClientError>> {
        if self.taken {
            return Some(Err(ClientError::Taken));
        }
        let (_, Pending { stage, .. }) = state.sent_for(self.key)?;
        match stage {
            Stage::Lost => Some(Err(ClientError::Lost)),
            Stage::Refused(refusal) => Some(Ok(Some(refusal.clone()))),
            Stage::Abandoned
            | Stage::Accepted
            | Stage::Bundled(_)
            | Stage::Done(..)
            | Stage::GivenBack(_)
            | Stage::Sent => enough(stage).then_some(Ok(None)),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.taken {
            self.connection.abandon(self.key);
        }
    }
}

/// Cancels a job from any thread. It keeps nothing of the job alive.
#[derive(Clone, Debug)]
pub struct Canceller {
    connection: Arc<Connection>,
    key: JobKey,
}

impl Canceller {
    /// Cancels the job, as [`Handle::cancel`] does.
    pub fn cancel(&self) {
        self.connection.cancel(self.key);
    }
}
