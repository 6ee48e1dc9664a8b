//! What was submitted and has no answer yet: waiting for it, giving it up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{Connection, RETRY_EVERY};
use super::state::Stage;
use super::task::Task;
use super::{ClientError, Job, JobAnswer};
use crate::clock;
use crate::ids::JobKey;
use crate::limits::DEADLINE_MAX;
use crate::output::Bytes;
use crate::receipt::Receipt;

/// How long after its deadline a job's verdict is still waited for: a pool that lives is not late.
const VERDICT_MARGIN: Duration = Duration::from_secs(15);

/// The claim to one answer, of whatever kind. Dropping it gives the task up.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) connection: Arc<Connection>,
    key: JobKey,
    deadline: Instant,
    /// The answer has been taken: the key is no longer this handle's.
    taken: bool,
}

impl Handle {
    /// Sends a task without waiting for a word on it.
    pub(super) fn send(connection: &Arc<Connection>, task: Task) -> Result<Self, ClientError> {
        let terms = task.terms();
        let key = terms.key.unwrap_or_else(|| connection.next_key());
        let deadline = clock::now() + terms.deadline.min(DEADLINE_MAX);
        connection.send_job(key, task, deadline)?;
        // From here on the handle's end is the task's end.
        Ok(Self { connection: Arc::clone(connection), key, deadline, taken: false })
    }

    pub(super) fn key(&self) -> JobKey {
        self.key
    }

    pub(super) fn cancel(&self) {
        self.connection.cancel(self.key);
    }

    pub(super) fn canceller(&self) -> Canceller {
        Canceller { connection: Arc::clone(&self.connection), key: self.key }
    }

    /// Waits until the pool has accepted it.
    pub(super) fn accepted(self) -> Result<Self, ClientError> {
        self.wait_until(|stage| match stage {
            Stage::Accepted | Stage::Done(..) => true,
            Stage::Abandoned | Stage::Lost | Stage::Refused(_) | Stage::Sent => false,
        })?;
        Ok(self)
    }

    /// Waits for the verdict, and gives the bytes of the result if that is OK.
    pub(super) fn answer(mut self) -> Result<(Receipt, Option<Bytes>), ClientError> {
        self.wait_until(|stage| matches!(stage, Stage::Done(..)))?;
        self.taken = true;
        self.connection.take_answer(self.key)
    }

    /// Waits until the task's stage is `enough`, submitting it again as long as the pool is busy.
    fn wait_until(&self, enough: impl Fn(&Stage) -> bool) -> Result<(), ClientError> {
        loop {
            let refusal = self.connection.wait_for(self.deadline + VERDICT_MARGIN, |state| {
                let stage = &state.jobs.get(&self.key)?.stage;
                match stage {
                    Stage::Lost => Some(Err(ClientError::Lost)),
                    Stage::Refused(refusal) => Some(Ok(Some(refusal.clone()))),
                    Stage::Abandoned | Stage::Accepted | Stage::Done(..) | Stage::Sent => {
                        enough(stage).then_some(Ok(None))
                    }
                }
            })??;
            let Some(refusal) = refusal else { return Ok(()) };
            if !self.connection.may_try_again(self.key, &refusal) {
                return Err(refusal.into());
            }
            self.connection.pause(RETRY_EVERY);
            self.connection.send_again(self.key)?;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.taken {
            self.connection.abandon(self.key);
        }
    }
}

/// Gives up a job, or a request of a model, from another thread than the one that waits for it. It holds
/// nothing of the job.
#[derive(Clone, Debug)]
pub struct Canceller {
    connection: Arc<Connection>,
    key: JobKey,
}

impl Canceller {
    /// As [`JobHandle::cancel`]; nothing happens to a job that has its verdict.
    pub fn cancel(&self) {
        self.connection.cancel(self.key);
    }
}

/// A job that was accepted. Dropping the handle cancels the job.
#[derive(Debug)]
pub struct JobHandle {
    handle: Handle,
    job: Job,
}

impl JobHandle {
    pub(super) fn send(connection: &Arc<Connection>, job: Job) -> Result<Self, ClientError> {
        let handle = Handle::send(connection, Task::Grids(job.clone()))?;
        Ok(Self { handle, job })
    }

    pub(super) fn accepted(self) -> Result<Self, ClientError> {
        Ok(Self { handle: self.handle.accepted()?, ..self })
    }

    /// The job's key.
    #[must_use]
    pub fn key(&self) -> JobKey {
        self.handle.key()
    }

    /// Gives the job up: the verdict will be CANCELLED, unless another is under way already.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// The same for another thread, while this one waits.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.handle.canceller()
    }

    /// Waits for the verdict.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the connection was lost and could not be made again, or the job may
    /// run once at most and may have; [`ClientError::Refused`] if a supervisor that came in its place
    /// does not take the job; [`ClientError::Silent`] if no verdict comes although its time is over.
    pub fn wait(self) -> Result<JobAnswer, ClientError> {
        let (receipt, bytes) = self.handle.answer()?;
        let outputs = bytes.map(|bytes| self.job.outputs(bytes)).transpose()?;
        Ok(JobAnswer { receipt, outputs })
    }
}
