//! Measures how many contexts of a model serve most, and makes so many.

use std::thread;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::limits::AUTO_CONTEXTS_TIME;
use gridpool_protocol::tensor::model::ContextsMeasured;
use gridpool_protocol::tensor::options::ModelOptions;

use super::{LoadError, Loaded};
use crate::choice::{best, candidates, goes_on, measured};
use crate::context::Context;
use crate::warm_up::{WarmUp, WarmUpError};

/// How long each number of contexts runs. A run that has begun is waited for.
const SLICE: Duration = Duration::from_millis(400);

impl Loaded {
    /// Runs 1, 2, 4, 8, … contexts at the same time and returns as many as serve most within the latency. It ends when
    /// more serve no more, when there is no memory for them, or when its time is over.
    pub(super) fn choose_contexts(
        &mut self,
        first: Context,
        options: &ModelOptions,
    ) -> Result<Vec<Context>, LoadError> {
        let latency = options.latency_ms.map(|ms| Duration::from_millis(ms.into()));
        let until = clock::now() + AUTO_CONTEXTS_TIME;
        let (mut contexts, mut rows) = (vec![first], Vec::new());
        self.check_budget(1)?;
        for count in candidates() {
            let have = u32::try_from(contexts.len()).expect("they are few");
            if self.check_budget(count).is_err()
                || !goes_on(&rows, latency)
                || until <= clock::now()
            {
                break;
            }
            match self.more_contexts(count - have) {
                Ok(more) => contexts.extend(more),
                Err(error) if error.end_of_device().is_some() => return Err(error),
                Err(error) => {
                    tracing::info!(count, %error, "no more contexts can be made");
                    break;
                }
            }
            let row = self.measure(&mut contexts)?;
            tracing::info!(%row, "contexts were measured");
            rows.push(row);
        }
        let chosen = best(&rows, latency).map_or(1, |row| row.contexts);
        if best(&rows, latency).is_none() {
            let latency_ms = options.latency_ms;
            tracing::warn!(latency_ms, "no number of contexts keeps the latency: it gets one");
        }
        tracing::info!(chosen, measured = ContextsMeasured::list(&rows), "contexts were chosen");
        contexts.truncate(usize::try_from(chosen).expect("they are few"));
        self.contexts_measured = rows;
        Ok(contexts)
    }

    /// Runs all contexts at the same time, each over the first warm-up's shapes.
    fn measure(&self, contexts: &mut [Context]) -> Result<ContextsMeasured, LoadError> {
        let count = u32::try_from(contexts.len()).expect("they are few");
        let warm_up = self.warm_ups.first().expect("there is one at least");
        let began = clock::now();
        let times: Result<Vec<Vec<Duration>>, WarmUpError> = thread::scope(|scope| {
            let run = |context| scope.spawn(move || run_for(SLICE, warm_up, context));
            let threads: Vec<_> = contexts.iter_mut().map(run).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        let took = began.elapsed();
        Ok(measured(count, took, times?.concat()))
    }
}

/// Runs a context again and again. Returns how long each run took.
fn run_for(
    slice: Duration,
    warm_up: &WarmUp,
    context: &mut Context,
) -> Result<Vec<Duration>, WarmUpError> {
    let until = clock::now() + slice;
    let mut times = Vec::new();
    loop {
        let began = clock::now();
        warm_up.run(context)?;
        times.push(began.elapsed());
        if clock::now() >= until {
            return Ok(times);
        }
    }
}
