//! The answer to a job.

use gridpool_protocol::receipt::{Receipt, Verdict};

/// The answer to a job: its verdict, the proof of where it ran, and its outputs if the verdict is OK.
#[derive(Clone, Debug)]
pub struct Answer<O> {
    /// Verdict and proof.
    pub receipt: Receipt,
    outputs: Option<O>,
    /// With another verdict than OK.
    partial: Option<O>,
}

/// The error of a job whose verdict is not OK.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[error("{}: {}", .receipt.verdict, .receipt.reason)]
pub struct JobError {
    /// Verdict, reason, and what was tried.
    pub receipt: Box<Receipt>,
}

impl JobError {
    /// How the job ended.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.receipt.verdict
    }

    /// Why, in a sentence.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.receipt.reason
    }
}

impl<O> Answer<O> {
    /// Makes an answer from its parts, for programs that store results or make examples.
    ///
    /// # Panics
    /// If there are outputs without the verdict OK, or that verdict without outputs.
    #[must_use]
    pub fn new(receipt: Receipt, outputs: Option<O>) -> Self {
        let is_ok = receipt.verdict == Verdict::Ok;
        assert_eq!(is_ok, outputs.is_some(), "a job has outputs if its verdict is OK");
        Self { receipt, outputs, partial: None }
    }

    /// Makes the answer of a job that was not OK, with what was done of it.
    #[must_use]
    pub fn with_partial(self, partial: Option<O>) -> Self {
        Self { partial, ..self }
    }

    /// How the job ended.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.receipt.verdict
    }

    /// The outputs, if the verdict is OK.
    #[must_use]
    pub fn outputs(&self) -> Option<&O> {
        self.outputs.as_ref()
    }

    /// What was done of a job that was cut into shards and is not OK, if any shard was:
    /// [`Outputs::has`](crate::Outputs::has) says which items have a result.
    #[must_use]
    pub fn partial(&self) -> Option<&O> {
        self.partial.as_ref()
    }

    /// Returns the outputs.
    ///
    /// # Errors
    /// [`JobError`] if the verdict is not OK.
    pub fn ok(self) -> Result<O, JobError> {
        let Self { receipt, outputs, .. } = self;
        outputs.ok_or_else(|| JobError { receipt: Box::new(receipt) })
    }

    /// Returns the receipt and, if the verdict is OK, the outputs.
    #[must_use]
    pub fn into_parts(self) -> (Receipt, Option<O>) {
        (self.receipt, self.outputs)
    }

    /// Converts the outputs with `map`.
    #[must_use]
    pub fn map<P>(self, map: impl Fn(O) -> P) -> Answer<P> {
        let Self { receipt, outputs, partial } = self;
        Answer { receipt, outputs: outputs.map(&map), partial: partial.map(&map) }
    }
}
