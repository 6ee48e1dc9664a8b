//! One run: the parts of requests that run together, from their start to their answers.

use std::sync::Arc;

use gridpool_ipc::clock;
use gridpool_protocol::tensor::model::ModelInfo;

use super::super::batcher::Part;
use super::super::context::Context;
use super::super::inputs::RunInputs;
use super::super::job::{InferError, Job, ModelRun};
use super::super::seam::Stop;
use super::{Queue, Shared};

/// Parts that run together.
pub(super) struct Begun {
    parts: Vec<Part<Arc<Job>>>,
    number: u64,
    stop: Arc<Stop>,
}

/// Begins a run of those of these parts that have no answer yet, if there are any. It is called under the lock under
/// which they were taken: one that is withdrawn waits, or finds its run.
pub(super) fn begin(
    queue: &mut Queue,
    parts: Vec<Part<Arc<Job>>>,
    context: &Context,
) -> Option<Begun> {
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.request.is_over()).collect();
    if parts.is_empty() {
        return None;
    }
    match context.new_stop() {
        Ok(stop) => {
            let stop = Arc::new(stop);
            let wanted = parts.iter().map(|part| Arc::clone(&part.request)).collect();
            Some(Begun { parts, number: queue.runs.begin(wanted, &stop), stop })
        }
        Err(fault) => {
            fail(&parts, &InferError::Run(fault.into()));
            None
        }
    }
}

fn fail(parts: &[Part<Arc<Job>>], why: &InferError) {
    parts.iter().for_each(|part| part.request.fail(why.clone()));
}

/// Runs parts together. If that fails and the device is still usable, it runs them one by one, so that a wrong request
/// does not fail the others.
pub(super) fn run(shared: &Shared, context: &mut Context, info: &ModelInfo, begun: Begun) {
    let Begun { parts, number, stop } = begun;
    let shares: Vec<RunInputs<'_>> =
        parts.iter().map(|part| part.request.run_inputs(part.rows.clone())).collect();
    if let Some(deadly) = &shared.deadly {
        deadly.strike_run(&info.name, || shares.iter().flat_map(RunInputs::singles).collect());
    }
    let ready = context.ready(&shares, &stop);
    // A run's time is without that of a capture, its own or another context's.
    let began = clock::now();
    let ran = ready.and_then(|ready| context.run_ready(ready, &shares, &stop));
    let took = began.elapsed();
    let device_us = took.as_secs_f64() * 1e6;
    let growth = context.take_growth();
    let mut queue = shared.queue.lock();
    if growth > 0 && queue.info.device_bytes > 0 {
        let more = growth.saturating_mul(queue.info.contexts.into());
        let device_bytes = queue.info.device_bytes.saturating_add(more);
        queue.info = Arc::new(ModelInfo { device_bytes, ..(*queue.info).clone() });
    }
    let is_stopped = queue.runs.end(number);
    queue.waiting.ran(took);
    drop(queue);
    match ran {
        Ok(_) if is_stopped => fail(&parts, &InferError::Cancelled),
        Err(error) if is_stopped && error.leaves_device_usable() => {
            fail(&parts, &InferError::Cancelled);
        }
        Ok(given) => {
            let rows = |part: &Part<_>| part.rows.as_ref().map_or(0, |rows| rows.end - rows.start);
            let joined_rows = parts.iter().map(rows).sum::<u64>().max(1);
            let whole = ModelRun { given: &given, joined_rows, device_us };
            let mut at = 0;
            for part in &parts {
                part.request.deliver(info, whole, part.rows.clone(), at);
                at += rows(part);
            }
        }
        Err(error) if parts.len() > 1 && error.leaves_device_usable() => {
            for alone in parts {
                let begun = begin(&mut shared.queue.lock(), vec![alone], context);
                if let Some(begun) = begun {
                    run(shared, context, info, begun);
                }
            }
        }
        Err(error) => {
            for part in parts {
                let error = error.clone().of_rows(part.rows.as_ref());
                part.request.fail(InferError::Run(error));
            }
        }
    }
}
