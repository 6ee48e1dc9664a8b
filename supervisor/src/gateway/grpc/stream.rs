//! Requests and answers on one call, one after the other. A few requests of a stream are in progress at a time, and
//! their answers come in the order of the requests. A request that fails has an answer that says why, and the stream
//! goes on.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::body::{Body, Bytes};
use gridpool_inference::{ModelInferResponse, ModelStreamInferResponse};
use gridpool_ipc::mutex::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tonic::Status;

use super::body::{EndsWithThis, Outcome, Part, Reading, framed};
use super::infer::{InferCall, mark_of_final, wants_final};
use super::scan::Head;
use super::status::{sentence, status};
use super::{Admitted, Messages, Method, decode, find, late, scan};
use crate::gateway::access;
use crate::gateway::body::HeldBytes;
use crate::gateway::failure::Failure;
use crate::gateway::limits::{STREAM_IDLE_MAX, STREAM_REQUESTS_MAX};
use crate::gateway::pool::Asker;
use crate::gateway::seats::{Call, Turn};
use crate::gateway::shares::Share;
use crate::gateway::turns::Rate;

/// Most bytes of the answer to a request that failed: its id, names, and the sentence.
const REFUSAL_BYTES_MAX: usize = 8 << 10;

/// A request in progress.
struct InProgress(JoinHandle<Bytes>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the two tasks of a stream know of each other.
#[derive(Debug, Default)]
struct Progress(Mutex<Doing>);

#[derive(Debug, Default)]
struct Doing {
    /// Requests without an answer.
    requests: usize,
    /// Whether the next request is waited for.
    is_waiting: bool,
}

impl Progress {
    /// Changes it. If the client is all that the stream waits for then, the call rests.
    fn change(&self, call: &Call, change: impl FnOnce(&mut Doing)) {
        let mut doing = self.0.lock();
        change(&mut doing);
        if !doing.is_waiting {
            Turn::from(call).works();
        } else if doing.requests == 0 {
            call.waits();
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
    let progress = Arc::new(Progress::default());
    let places = Arc::new(Semaphore::new(STREAM_REQUESTS_MAX));
    let (queue, mut requests) = mpsc::channel(STREAM_REQUESTS_MAX);
    let reading =
        read(Arc::clone(&admitted), body, (queue, Arc::clone(&places)), Arc::clone(&progress));
    let _reader = EndsWithThis(tokio::spawn(reading).abort_handle());
    let call = &admitted.call;
    let mut end = Status::ok("");
    while let Some(next) = requests.recv().await {
        let mut request: InProgress = match next {
            Ok(request) => request,
            Err(failure) => {
                end = noted(&failure, call);
                break;
            }
        };
        let message = match (&mut request.0).await {
            Ok(message) => message,
            Err(error) => {
                end = noted(&Failure::internal(error.to_string()), call);
                break;
            }
        };
        let reading = Reading::new(&message, Arc::clone(call));
        if parts.send(Part::Message(message, Arc::clone(&reading))).await.is_err() {
            return;
        }
        reading.watch().await;
        places.add_permits(1);
        progress.change(call, |doing| doing.requests -= 1);
    }
    // If nobody listens, the client is gone.
    parts.send(Part::End(end)).await.unwrap_or_default();
}

fn noted(failure: &Failure, call: &Call) -> Status {
    if let Some(reason) = failure.reason() {
        call.note(reason);
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
    let (principal, turn) = (&admitted.asker.principal, Turn::from(&*admitted.call));
    let body = (body, admitted.packing.requests);
    let mut messages = Messages::new(&admitted.gateway.budget, (principal, turn), body);
    loop {
        let next = next(&admitted, &mut messages, &places, &progress);
        let begun = match unless_over(&admitted, next).await {
            Ok(None) => return,
            Ok(Some((message, held, slot))) => {
                let answering = answer(Arc::clone(&admitted), message, (held, slot));
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

/// The next request, once there is a place for it on the stream and in the gateway.
async fn next(
    admitted: &Admitted,
    messages: &mut Messages<'_>,
    places: &Semaphore,
    progress: &Progress,
) -> Result<Option<(Bytes, HeldBytes, Share)>, Failure> {
    let Admitted { gateway, call, asker: Asker { principal, .. }, token, .. } = admitted;
    let stall = call.stalls();
    // The other task gives it back.
    places.acquire().await.expect("the semaphore is never closed").forget();
    drop(stall);
    progress.change(call, |doing| doing.is_waiting = true);
    let next = messages.next(STREAM_IDLE_MAX).await;
    let came = matches!(next, Ok(Some(_)));
    progress.change(call, |doing| {
        (doing.is_waiting, doing.requests) = (false, doing.requests + usize::from(came));
    });
    let Some((message, held)) = next? else { return Ok(None) };
    let scopes = Method::ModelStreamInfer.scopes().unwrap_or_default();
    access::check_again(&gateway.door.current(), (principal, token.as_ref()), scopes)?;
    let _stall = call.stalls();
    let mut slot = gateway.slots.share(principal.clone());
    slot.grow_in_time(1).await;
    Ok(Some((message, held, slot)))
}

/// What a stream waits for, unless the gateway ends, or the client's time is over.
async fn unless_over<T>(
    admitted: &Admitted,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut closing = admitted.gateway.closing.subscribe();
    let mut closed = pin!(closing.wait_for(|is| *is));
    let mut work = pin!(work);
    let over = async {
        match admitted.until {
            Some(until) => tokio::time::sleep_until(until.into()).await,
            None => std::future::pending().await,
        }
    };
    let mut over = pin!(over);
    // The end comes first: a client may always have another request ready.
    poll_fn(|cx| {
        if over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(late(
                "the time that the client allows for the stream is over",
            )));
        }
        if closed.as_mut().poll(cx).is_ready() {
            let why = "this gateway ends: open another stream, and send what has no answer again";
            return Poll::Ready(Err(Failure::unavailable(why)));
        }
        work.as_mut().poll(cx)
    })
    .await
}

/// Answers one request.
async fn answer(
    admitted: Arc<Admitted>,
    message: Bytes,
    (held, slot): (HeldBytes, Share),
) -> Bytes {
    let Admitted { gateway, asker, until, call, packing, .. } = &*admitted;
    // What it holds if it is refused: its bytes are gone then.
    let mut spare = gateway.budget.held(&asker.principal);
    let (mut head, mut says_final) = (Head::default(), false);
    let done = async {
        head = scan::head(&message)?;
        spare.hold_more(REFUSAL_BYTES_MAX)?;
        let model = find(gateway, &head.model, &head.version).await?;
        let (request, held) = decode(message, held).await?;
        says_final = wants_final(&request);
        let (until, is_packed) = (*until, packing.answers);
        let call = InferCall { request, until, is_of_stream: true, is_packed };
        Arc::clone(gateway).ask_in(slot, model, call, (asker.clone(), held)).await
    };
    match done.await {
        Ok(answer) => answer,
        Err(failure) => {
            if let Some(reason) = failure.reason() {
                call.note(reason);
            }
            if failure.is_of_client() {
                gateway.turns.wait_seated(&asker.principal, Rate::Document).await;
            }
            refusal(&failure, head, says_final, spare)
        }
    }
}

/// The answer to a request that failed. It has the request's own name, so that the client knows which.
fn refusal(failure: &Failure, head: Head, says_final: bool, mut spare: HeldBytes) -> Bytes {
    let response = ModelInferResponse {
        model_name: head.model,
        model_version: head.version,
        id: head.id,
        parameters: mark_of_final().into_iter().filter(|_| says_final).collect(),
        ..ModelInferResponse::default()
    };
    let error_message = sentence(failure).to_owned();
    let bytes = framed(&ModelStreamInferResponse { error_message, infer_response: Some(response) });
    spare.shrink(bytes.len());
    spare.bytes(bytes)
}
