//! tonic's client, for threads that block. Outside of the gateway this file alone names an async runtime.

use std::sync::Arc;
use std::time::Duration;

use gridpool_inference::{ModelInferRequest, ModelStreamInferResponse, SERVICE};
use prost::Message;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::wait::TIMEOUT;

/// A client.
#[derive(Clone, Debug)]
pub(in crate::http) struct Grpc {
    runtime: Arc<Runtime>,
    channel: Channel,
    /// What its calls send besides, name and value.
    metadata: Vec<(&'static str, String)>,
}

/// A stream of requests and answers.
#[derive(Debug)]
pub(super) struct Duplex {
    runtime: Arc<Runtime>,
    requests: Option<mpsc::UnboundedSender<ModelInferRequest>>,
    answers: Streaming<ModelStreamInferResponse>,
}

/// A call that is in progress.
#[derive(Debug)]
pub(super) struct Pending<A> {
    runtime: Arc<Runtime>,
    task: tokio::task::JoinHandle<Result<A, Status>>,
}

impl Grpc {
    /// A client of an address, which connects with its first call.
    pub(in crate::http) fn open(address: &str) -> Self {
        let uri = if address.starts_with("unix:") {
            address.to_owned()
        } else {
            format!("http://{address}")
        };
        Self::over(Endpoint::from_shared(uri).expect("an address"))
    }

    /// The same, which calls the server by another name.
    pub(super) fn named(address: &str, name: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        Self::over(endpoint.origin(format!("http://{name}").parse().expect("a name")))
    }

    fn over(endpoint: Endpoint) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = Arc::new(runtime.worker_threads(1).enable_all().build().expect("a runtime"));
        let _inside = runtime.enter();
        let channel = endpoint.connect_lazy();
        Self { runtime: Arc::clone(&runtime), channel, metadata: Vec::new() }
    }

    /// The same with metadata in each call.
    pub(in crate::http) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.metadata.push((name, value.to_owned()));
        self
    }

    fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        for (name, value) in &self.metadata {
            request.metadata_mut().insert(*name, value.parse().expect("a value"));
        }
        request
    }

    /// Calls a method, and waits for the answer.
    pub(in crate::http) fn ask<A>(
        &self,
        method: &str,
        message: impl Message + 'static,
    ) -> Result<A, Status>
    where
        A: Message + Default + 'static,
    {
        self.begin(method, message).end()
    }

    /// Calls a method of another service.
    pub(super) fn ask_at<A>(&self, path: &str, message: impl Message + 'static) -> Result<A, Status>
    where
        A: Message + Default + 'static,
    {
        self.begin_at(path, message).end()
    }

    /// Calls a method.
    pub(super) fn begin<A>(&self, method: &str, message: impl Message + 'static) -> Pending<A>
    where
        A: Message + Default + 'static,
    {
        self.begin_at(&format!("/{SERVICE}/{method}"), message)
    }

    fn begin_at<A, Q>(&self, path: &str, message: Q) -> Pending<A>
    where
        A: Message + Default + 'static,
        Q: Message + 'static,
    {
        let (request, path) = (self.request(message), PathAndQuery::try_from(path));
        let (channel, path) = (self.channel.clone(), path.expect("a path"));
        let task = self.runtime.spawn(async move {
            let mut client = tonic::client::Grpc::new(channel);
            client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::<Q, A>::default();
            client.unary(request, path, codec).await.map(tonic::Response::into_inner)
        });
        Pending { runtime: Arc::clone(&self.runtime), task }
    }

    /// Opens a stream.
    pub(super) fn stream(&self) -> Duplex {
        let (requests, receiver) = mpsc::unbounded_channel();
        let request = self.request(Requests(receiver));
        let path = PathAndQuery::try_from(format!("/{SERVICE}/ModelStreamInfer")).expect("a path");
        let channel = self.channel.clone();
        let answers = self.block(async move {
            let mut client = tonic::client::Grpc::new(channel);
            client.ready().await.expect("a connection");
            let codec = ProstCodec::<ModelInferRequest, ModelStreamInferResponse>::default();
            client.streaming(request, path, codec).await
        });
        let answers = answers.expect("a stream").into_inner();
        Duplex { runtime: Arc::clone(&self.runtime), requests: Some(requests), answers }
    }

    fn block<T>(&self, work: impl Future<Output = T>) -> T {
        block(&self.runtime, TIMEOUT, work)
    }
}

fn block<T>(runtime: &Runtime, most: Duration, work: impl Future<Output = T>) -> T {
    runtime
        .block_on(async { tokio::time::timeout(most, work).await })
        .expect("it does not take so long")
}

/// The requests of a stream, as they come.
struct Requests(mpsc::UnboundedReceiver<ModelInferRequest>);

impl Stream for Requests {
    type Item = ModelInferRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<ModelInferRequest>> {
        self.0.poll_recv(cx)
    }
}

impl<A> Pending<A> {
    /// Waits for the answer.
    pub(super) fn end(self) -> Result<A, Status> {
        block(&self.runtime, TIMEOUT, self.task).expect("the call does not panic")
    }

    /// Cancels the call.
    pub(super) fn cancel(self) {
        self.task.abort();
    }
}

impl Duplex {
    pub(super) fn send(&self, request: ModelInferRequest) {
        let requests = self.requests.as_ref().expect("the stream is open");
        requests.send(request).expect("the stream is open");
    }

    /// Sends a request, unless the stream has ended. The next answer says so then.
    pub(super) fn offer(&self, request: ModelInferRequest) {
        let requests = self.requests.as_ref().filter(|requests| !requests.is_closed());
        if let Some(requests) = requests {
            // It may end in between.
            drop(requests.send(request));
        }
    }

    /// No more requests come.
    pub(super) fn close(&mut self) {
        self.requests = None;
    }

    /// The next answer; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<ModelStreamInferResponse>, Status> {
        let Self { runtime, answers, .. } = self;
        block(runtime, TIMEOUT, answers.message())
    }
}
