//! Models as HTTP asks them, under Triton's names: what `/v2/models/stats` says, for Prometheus.

use super::super::models::{Model, VERSION};
use super::super::statistics::{Numbers, Statistics};
use super::page::{Page, labels};
use super::requests::number;

/// A counter of Triton's: its name, what it says of us, where it is.
type Family = (&'static str, &'static str, fn(&Numbers) -> u64);

/// Those whose meaning is ours. `nv_inference_pending_request_count` is none: a gateway does not know
/// when its job begins to run.
const FAMILIES: [Family; 9] = [
    (
        "nv_inference_request_success",
        "Inference requests over HTTP that got their result.",
        |numbers| numbers.successes,
    ),
    (
        "nv_inference_request_failure",
        "Inference requests over HTTP that did not, refused ones included.",
        |numbers| numbers.failures,
    ),
    (
        "nv_inference_count",
        "Inferences: items or rows of the requests that got their result.",
        |numbers| numbers.inferences,
    ),
    (
        "nv_inference_exec_count",
        "Executions for them; requests that share one count it once.",
        |numbers| numbers.executions,
    ),
    (
        "nv_inference_request_duration_us",
        "Microseconds from a request's body to the body of its answer.",
        |numbers| numbers.request_us,
    ),
    (
        "nv_inference_queue_duration_us",
        "Microseconds that they waited in the pool, from acceptance to the first dispatch.",
        |numbers| numbers.queue_us,
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Microseconds from a body to a job, in the gateway.",
        |numbers| numbers.input_us,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Microseconds in workers, of attempts that answered.",
        |numbers| numbers.infer_us,
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Microseconds from a verdict to a body, in the gateway.",
        |numbers| numbers.output_us,
    ),
];

/// Adds all of them for every model.
pub(super) fn add(page: &mut Page, statistics: &Statistics, models: impl Iterator<Item = Model>) {
    let rows: Vec<_> = models
        .map(|model| {
            let numbers = statistics.of(&model).numbers();
            (model, numbers)
        })
        .collect();
    let of = |model: &Model| labels([("model", &model.name()), ("version", &VERSION)]);
    for (name, help, field) in FAMILIES {
        let row = |(model, numbers): &(Model, Numbers)| (of(model), number(field(numbers)));
        page.counters(name, help, rows.iter().map(row));
    }
    page.gauges(
        "gridpool_model_requests_in_flight",
        "Inference requests over HTTP that are being worked on: those that wait, and those that run.",
        rows.iter().map(|(model, numbers)| (of(model), number(numbers.in_flight))),
    );
}
