//! Requests and answers on one call, one after the other. A few requests of a stream are in progress at a time, and
//! their answers come in the order of the requests. A request that fails has an answer that says why, and the stream
//! goes on.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use axum::body::{Body, Bytes};
use gridpool_inference::{ModelInferResponse, ModelStreamInferResponse};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tonic::Status;

use super::body::{EndsWithThis, Outcome, Part, Reading, framed};
use super::infer::InferCall;
use super::status::status;
use super::{Admitted, Messages, find, late, scan};
use crate::gateway::body::HeldBytes;
use crate::gateway::failure::Failure;
use crate::gateway::limits::{STREAM_IDLE_MAX, STREAM_REQUESTS_MAX};
use crate::gateway::seats::Seat;

/// A request in progress.
struct InProgress(JoinHandle<Bytes>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the two tasks of a stream know of each other.
#[derive(Debug)]
struct Progress {
    /// Requests without an answer.
    requests: AtomicUsize,
    /// Whether the next request is waited for.
    is_waiting: AtomicBool,
}

impl Progress {
    /// The client is all that the stream waits for, if so.
    fn rest(&self, seat: &Seat) {
        if self.is_waiting.load(Ordering::SeqCst) && self.requests.load(Ordering::SeqCst) == 0 {
            seat.waits();
        }
    }
}

/// Begins a stream. It ends with the outcome.
pub(super) fn begin(admitted: Admitted, body: Body) -> Outcome {
    let (sender, parts) = mpsc::channel(1);
    let task = tokio::spawn(run(admitted, body, sender));
    Outcome::Many(parts, EndsWithThis(task.abort_handle()))
}

/// Answers in order.
async fn run(admitted: Admitted, body: Body, parts: mpsc::Sender<Part>) {
    let admitted = Arc::new(admitted);
    let progress =
        Arc::new(Progress { requests: AtomicUsize::new(0), is_waiting: AtomicBool::new(false) });
    let places = Arc::new(Semaphore::new(STREAM_REQUESTS_MAX));
    let (queue, mut requests) = mpsc::channel(STREAM_REQUESTS_MAX);
    let reading =
        read(Arc::clone(&admitted), body, (queue, Arc::clone(&places)), Arc::clone(&progress));
    let _reader = EndsWithThis(tokio::spawn(reading).abort_handle());
    let seat = &admitted.seat;
    let mut end = Status::ok("");
    while let Some(next) = requests.recv().await {
        let mut request: InProgress = match next {
            Ok(request) => request,
            Err(failure) => {
                end = noted(&failure, seat);
                break;
            }
        };
        let failed = |error: tokio::task::JoinError| {
            refusal(&Failure::internal(error.to_string()), ("", ""), "")
        };
        let message = (&mut request.0).await.unwrap_or_else(failed);
        let reading = Reading::new(&message);
        if parts.send(Part::Message(message, Arc::clone(&reading))).await.is_err() {
            return;
        }
        reading.watch(seat).await;
        places.add_permits(1);
        progress.requests.fetch_sub(1, Ordering::SeqCst);
        progress.rest(seat);
    }
    // If nobody listens, the client is gone.
    parts.send(Part::End(end)).await.unwrap_or_default();
}

fn noted(failure: &Failure, seat: &Seat) -> Status {
    if let Some(reason) = failure.reason() {
        seat.note(reason);
    }
    status(failure)
}

/// Reads requests until the client has sent all, and begins each.
async fn read(
    admitted: Arc<Admitted>,
    body: Body,
    (queue, places): (mpsc::Sender<Result<InProgress, Failure>>, Arc<Semaphore>),
    progress: Arc<Progress>,
) {
    let mut messages = admitted.messages(body);
    loop {
        let place = places.acquire().await.expect("the semaphore is never closed");
        // The other task gives it back.
        place.forget();
        progress.is_waiting.store(true, Ordering::SeqCst);
        progress.rest(&admitted.seat);
        let next = next(&admitted, &mut messages).await;
        progress.is_waiting.store(false, Ordering::SeqCst);
        let begun = match next {
            Ok(None) => return,
            Ok(Some((message, held))) => {
                progress.requests.fetch_add(1, Ordering::SeqCst);
                let answering = answer(Arc::clone(&admitted), message, held);
                Ok(InProgress(tokio::spawn(answering)))
            }
            Err(failure) => Err(failure),
        };
        let is_over = begun.is_err();
        if queue.send(begun).await.is_err() || is_over {
            return;
        }
    }
}

/// The next request, unless the gateway ends, or the client's time is over.
async fn next(
    admitted: &Admitted,
    messages: &mut Messages<'_>,
) -> Result<Option<(Bytes, HeldBytes)>, Failure> {
    let mut closing = admitted.gateway.closing.subscribe();
    let mut closed = pin!(closing.wait_for(|is| *is));
    let mut next = pin!(messages.next(STREAM_IDLE_MAX));
    let over = async {
        match admitted.until {
            Some(until) => tokio::time::sleep_until(until.into()).await,
            None => std::future::pending().await,
        }
    };
    let mut over = pin!(over);
    poll_fn(|cx| {
        if let Poll::Ready(next) = next.as_mut().poll(cx) {
            return Poll::Ready(next);
        }
        if over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(late(
                "the time that the client allows for the stream is over",
            )));
        }
        if closed.as_mut().poll(cx).is_ready() {
            let why = "this gateway ends: open another stream, and send what has no answer again";
            return Poll::Ready(Err(Failure::unavailable(why)));
        }
        Poll::Pending
    })
    .await
}

/// Answers one request.
async fn answer(admitted: Arc<Admitted>, message: Bytes, mut held: HeldBytes) -> Bytes {
    let request = match scan::decode(message, &mut held) {
        Ok(request) => request,
        Err(failure) => return refusal(&failure, ("", ""), ""),
    };
    let Admitted { gateway, principal, until, seat } = &*admitted;
    let (name, version) = (request.model_name.clone(), request.model_version.clone());
    let id = request.id.clone();
    let done = async {
        let model = find(gateway, &name, &request.model_version).await?;
        let call = InferCall { request, until: *until, is_of_stream: true };
        Arc::clone(gateway).ask(model, call, (principal.clone(), held)).await
    };
    done.await.unwrap_or_else(|failure| {
        if let Some(reason) = failure.reason() {
            seat.note(reason);
        }
        refusal(&failure, (&name, &version), &id)
    })
}

/// The answer to a request that failed. It has the request's own name, so that the client knows which.
fn refusal(failure: &Failure, (model, version): (&str, &str), id: &str) -> Bytes {
    let response = ModelInferResponse {
        model_name: model.to_owned(),
        model_version: version.to_owned(),
        id: id.to_owned(),
        ..ModelInferResponse::default()
    };
    let error_message = failure.message().to_owned();
    framed(&ModelStreamInferResponse { error_message, infer_response: Some(response) })
}
