//! The messages between supervisor and worker: over ipc-channel, and over the lifeline if they carry a
//! descriptor.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Inline, ModelCommand, Payload, Priority, Work};
use crate::chaos::ChaosFault;
use crate::fault::FaultCode;
use crate::ids::{ArenaId, AttemptId, ClientId, WorkerName};
use crate::limits::JOIN_MAX;
use crate::receipt::{DeviceInfo, ItemRange, ReportError, RunReport, check_bytes};
use crate::search::SearchReport;
use crate::status::{LoadPhase, WorkerMemory};
use crate::tensor::model::ModelInfo;
use crate::trace::TraceId;

/// Supervisor to worker, over ipc-channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Run these attempts and answer each.
    Dispatch(Box<Dispatch>),
    /// Change the models while requests run, then send `CommandEnded`. Earlier requests run with the old models.
    Model {
        /// Echoed.
        number: u64,
        /// How.
        command: Box<ModelCommand>,
    },
    /// Unmap these arenas, then send `Forgot`.
    Forget {
        /// The arenas.
        arenas: Vec<ArenaId>,
    },
    /// End.
    Stop,
}

/// Attempts that a worker runs together. They have the same work and may belong to many jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// The work of all attempts.
    pub work: Work,
    /// At least one, at most [`JOIN_MAX`](crate::limits::JOIN_MAX). Each gets an answer of its own.
    pub assignments: Vec<Assignment>,
}

/// [`ToWorker::Dispatch`] with work and payloads that lie elsewhere: sending copies none.
#[derive(Debug, Serialize)]
pub enum BorrowedDispatch<'a> {
    /// As in the message.
    Dispatch {
        /// As in [`Dispatch`].
        work: &'a Work,
        /// As in [`Dispatch`].
        assignments: Vec<Assignment<&'a Payload>>,
    },
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment<P = Payload> {
    /// The attempt.
    pub attempt: AttemptId,
    /// The job's client. A worker begins the requests of one client by priority, and then in their order.
    pub client: ClientId,
    /// The job's priority among those of its client.
    pub priority: Priority,
    /// The bytes of the whole job.
    pub payload: P,
    /// The items of this attempt. It reads and writes no others.
    pub shard: ItemRange,
    /// Milliseconds until the deadline. A worker need not begin it later.
    pub deadline_ms: u64,
    /// The job's trace, for the log.
    pub trace: Option<TraceId>,
    /// The fault to inject.
    pub chaos: Option<ChaosFault>,
}

/// Worker to supervisor, over ipc-channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// First message: the worker's name and version.
    Hello {
        /// The worker's [`PROTOCOL_VERSION`](crate::limits::PROTOCOL_VERSION).
        version: u32,
        /// Its package version.
        build: String,
        /// The name that the supervisor gave it.
        worker: WorkerName,
        /// Where it listens for its channel.
        listens_at: String,
    },
    /// Every kernel has run once, and the known-answer tests were right.
    Ready {
        /// The device as the worker found it.
        device: DeviceInfo,
    },
    /// A sign of life, sent every 250 ms by a separate thread.
    Heartbeat {
        /// What the worker holds.
        memory: WorkerMemory,
        /// Chunks of work that its device has finished so far.
        chunks: u64,
    },
    /// The answer to one attempt.
    Answer {
        /// The attempt.
        attempt: AttemptId,
        /// Its result.
        result: Result<AttemptAnswer, AttemptError>,
    },
    /// The answers to attempts that ran together.
    Answers(Box<Answers>),
    /// The arenas of `Forget` are unmapped.
    Forgot,
    /// The models of an inference worker. Sent before `Ready` and after each change.
    Models {
        /// All models, those that could not be loaded included.
        models: Vec<ModelInfo>,
    },
    /// How far it is with loading a model.
    Loading {
        /// The model's full name.
        model: String,
        /// How far.
        phase: LoadPhase,
    },
    /// The result of `Model`, sent after the new `Models`.
    CommandEnded {
        /// Which.
        number: u64,
        /// An error means that nothing has changed.
        result: Result<(), String>,
    },
    /// Last words: the process is about to end with this exit code.
    Dying {
        /// One of [`crate::exit::worker`].
        code: i32,
        /// What went wrong, if it was a fault.
        fault: Option<FaultCode>,
        /// One sentence.
        message: String,
        /// The attempt that was running.
        attempt: Option<AttemptId>,
    },
}

/// A successful attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptAnswer {
    /// What was done.
    pub report: RunReport,
    /// The packed result, if it goes into the answer.
    pub output: Option<Inline>,
}

/// The answers to attempts that ran together. What is the same in all of their reports is said once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// What was done. What each attempt has for itself is empty here.
    pub report: RunReport,
    /// In the order of the dispatch; at most [`JOIN_MAX`].
    pub attempts: Vec<JoinedAnswer>,
    /// The packed results that go into the answers.
    pub outputs: Inline,
}

/// The answer to one of these attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinedAnswer {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its result.
    pub result: Result<OwnReport, AttemptError>,
}

/// What an attempt's report says of it alone: see the fields of [`RunReport`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnReport {
    /// Its items.
    pub items: u32,
    /// Those with an error.
    pub item_errors: u32,
    /// Bytes copied in.
    pub h2d_bytes: u64,
    /// Bytes copied back.
    pub d2h_bytes: u64,
    /// What a search did.
    pub search: Option<Box<SearchReport>>,
    /// Where its packed result lies in [`Answers::outputs`], bytes, if it goes into the answer.
    pub output: Option<Range<u32>>,
}

impl Answers {
    /// Checks that its numbers are possible. Answers from the first that is not are left out.
    ///
    /// # Errors
    /// The first [`ReportError`].
    pub fn check(&mut self) -> Result<(), ReportError> {
        // Each gets what is shared.
        let attempts = self.attempts.len();
        let shared = match attempts > JOIN_MAX {
            true => Err(ReportError::Attempts { attempts }),
            false => self.report.check(),
        };
        if shared.is_err() {
            self.attempts.clear();
            return shared;
        }
        let bytes = self.outputs.0.len();
        for (at, JoinedAnswer { result, .. }) in self.attempts.iter().enumerate() {
            if let Ok(own) = result
                && let Err(error) = own.check(bytes)
            {
                self.attempts.truncate(at);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Hands over each answer, in order, with a whole report.
    ///
    /// # Errors
    /// As for [`Answers::check`]. Answers before it have been handed over.
    pub fn each(
        mut self,
        mut take: impl FnMut(AttemptId, Result<AttemptAnswer, AttemptError>),
    ) -> Result<(), ReportError> {
        let checked = self.check();
        let Self { report, attempts, outputs: Inline(outputs) } = self;
        for JoinedAnswer { attempt, result } in attempts {
            let answer = result.map(|own| {
                let (report, place) = own.with(&report);
                AttemptAnswer { report, output: place.map(|at| Inline(outputs[at].to_vec())) }
            });
            take(attempt, answer);
        }
        checked
    }
}

impl OwnReport {
    /// Checks that its numbers are possible where all results have so many bytes.
    fn check(&self, bytes: usize) -> Result<(), ReportError> {
        check_bytes(self.h2d_bytes.max(self.d2h_bytes))?;
        match self.output {
            Some(Range { start, end }) if start > end || end as usize > bytes => {
                Err(ReportError::Place { start, end, bytes })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The whole report, and where the result lies.
    #[must_use]
    pub fn with(self, shared: &RunReport) -> (RunReport, Option<Range<usize>>) {
        let Self { items, item_errors, h2d_bytes, d2h_bytes, search, output } = self;
        let whole =
            RunReport { items, item_errors, h2d_bytes, d2h_bytes, search, ..shared.clone() };
        (whole, output.map(|Range { start, end }| start as usize..end as usize))
    }
}

/// An attempt that failed without harm to the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptError {
    /// The device failed for this job only. Another attempt may succeed.
    Device(String),
    /// Another attempt would fail, too, or the policy allows none.
    Refused(String),
}

/// Supervisor to worker, over the lifeline: what the worker must hear while its device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLifeline {
    /// An arena. Its descriptor comes with the message.
    Arena(SharedArena),
    /// Nobody wants the answer of an attempt any more: stop it, whether it has begun or not, and answer soon.
    Cancel {
        /// The attempt.
        attempt: AttemptId,
    },
}

/// An arena that the supervisor hands to a worker over the lifeline. Its descriptor comes with the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedArena {
    /// Its name.
    pub arena: ArenaId,
    /// Its size.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Destination, Input, Packing};
    use super::*;
    use crate::codec;
    use crate::ids::JobId;
    use crate::limits::REPORT_BYTES_MAX;
    use crate::receipt::KernelUse;

    fn attempt(job: u64) -> AttemptId {
        AttemptId { job: JobId(job), number: 1 }
    }

    fn own(output: Option<Range<u32>>) -> OwnReport {
        OwnReport { items: 2, item_errors: 1, h2d_bytes: 5, d2h_bytes: 6, search: None, output }
    }

    /// Answers of which the second has failed and the third is in an arena.
    fn answers() -> Answers {
        let why = AttemptError::Refused("no".to_owned());
        let results = [Ok(own(Some(0..3))), Err(why), Ok(own(None)), Ok(own(Some(4..6)))];
        let attempts = results.into_iter().zip(1..);
        let kernels = [KernelUse { name: "rot90".to_owned(), launches: 1, device_us: 1.5 }].into();
        Answers {
            report: RunReport { joined_items: 8, kernels, service_us: 9, ..RunReport::default() },
            attempts: attempts
                .map(|(result, job)| JoinedAnswer { attempt: attempt(job), result })
                .collect(),
            outputs: Inline(vec![1, 2, 3, 4, 5, 6]),
        }
    }

    #[test]
    fn a_dispatch_of_what_lies_elsewhere_is_the_same_message() {
        let work = Work::Model { name: "m".to_owned() };
        let (input, output) = (Input::Inline(Inline(vec![1, 2])), Destination::Inline);
        let payload = Payload { packing: Packing::Tensors, input, output };
        let assignment = Assignment {
            attempt: attempt(300),
            client: ClientId(7),
            priority: Priority::High,
            payload: &payload,
            shard: ItemRange { start: 0, end: 1 },
            deadline_ms: 1_000,
            trace: None,
            chaos: None,
        };
        let borrowed = BorrowedDispatch::Dispatch { work: &work, assignments: vec![assignment] };
        let bytes = codec::encode(&borrowed).unwrap();
        let ToWorker::Dispatch(whole) = codec::decode(&bytes).unwrap() else { panic!("{bytes:?}") };
        assert_eq!((&whole.work, &whole.assignments[0].payload), (&work, &payload));
        assert_eq!(codec::encode(&ToWorker::Dispatch(whole)).unwrap(), bytes);
    }

    #[test]
    fn each_answer_has_what_is_shared_and_what_is_its_own() {
        let mut got = Vec::new();
        answers().each(|attempt, result| got.push((attempt.job.0, result))).unwrap();
        let jobs: Vec<_> = got.iter().map(|(job, _)| *job).collect();
        assert_eq!(jobs, [1, 2, 3, 4]);
        let report =
            RunReport { items: 2, item_errors: 1, h2d_bytes: 5, d2h_bytes: 6, ..answers().report };
        let ok = |output: Option<&[u8]>| {
            let output = output.map(|bytes| Inline(bytes.to_vec()));
            Ok(AttemptAnswer { report: report.clone(), output })
        };
        assert_eq!(got[0].1, ok(Some(&[1, 2, 3])));
        assert_eq!(got[1].1, Err(AttemptError::Refused("no".to_owned())));
        assert_eq!(got[2].1, ok(None));
        assert_eq!(got[3].1, ok(Some(&[5, 6])));
    }

    #[test]
    fn impossible_answers_are_refused_behind_those_that_are_possible() {
        let refused = |change: &dyn Fn(&mut Answers)| {
            let (mut answers, mut taken) = (answers(), 0);
            change(&mut answers);
            let error = answers.each(|_, _| taken += 1).unwrap_err().to_string();
            (taken, error)
        };
        let last =
            |own: OwnReport| refused(&move |answers| answers.attempts[3].result = Ok(own.clone()));
        for (start, end) in [(4, 7), (7, 8), (5, 4), (0, u32::MAX)] {
            let (taken, why) = last(own(Some(start..end)));
            assert_eq!(taken, 3);
            assert_eq!(
                why,
                format!("its report says that a result of 6 bytes has bytes {start} to {end}")
            );
        }
        let (taken, why) = last(OwnReport { h2d_bytes: REPORT_BYTES_MAX + 1, ..own(None) });
        assert!(taken == 3 && why.contains("copied one way"), "{why}");
        let (taken, why) =
            refused(&|answers| Arc::make_mut(&mut answers.report.kernels)[0].device_us = f64::NAN);
        assert!(taken == 0 && why.contains("NaN us in rot90"), "{why}");
        let (taken, why) = refused(&|answers| {
            answers.attempts = vec![answers.attempts[0].clone(); JOIN_MAX + 1];
        });
        assert_eq!((taken, why.as_str()), (0, "it answers 65 attempts together; the limit is 64"));
    }
}
