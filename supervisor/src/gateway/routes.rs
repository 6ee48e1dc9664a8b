//! The paths of the Open Inference Protocol and their handlers.
//!
//! Every handler reads the body to its end before it refuses the request for another reason. An unread
//! body would end the connection, and with it the client's next request.

mod memory;

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use gridpool_client::Principal;
use serde_json::{Value, json};

use super::Server;
use super::access;
use super::body::{BodyBudget, HeldBytes};
use super::documents::{load_of, unload_of};
use super::events;
use super::exchange::Exchange;
use super::failure::Failure;
use super::metrics;
use super::models::Model;
use super::orders;
use super::page;
use super::pool::Asker;
use super::record::Record;
use super::regions::Memory;
use super::reply::Reply;
use super::request::{self, Request, WantedOutputs};
use super::seats::Seat;
use super::unserved;

/// Every path, for `GET /v2`. A model's path may name the version: `/v2/models/M/versions/1`.
pub(super) const PATHS: [&str; 27] = [
    "GET /",
    "GET /metrics",
    "GET /v2",
    "GET /v2/gridpool/deaths",
    "GET /v2/gridpool/events",
    "GET /v2/gridpool/receipts",
    "GET /v2/gridpool/status",
    "GET /v2/gridpool/verdicts",
    "GET /v2/health/live",
    "GET /v2/health/ready",
    "GET /v2/models/stats",
    "GET /v2/models/MODEL",
    "GET /v2/models/MODEL/ready",
    "GET /v2/models/MODEL/config",
    "GET /v2/models/MODEL/stats",
    "GET /v2/systemsharedmemory/status",
    "GET /v2/systemsharedmemory/region/REGION/status",
    "POST /v2/gridpool/drain",
    "POST /v2/gridpool/kill",
    "POST /v2/gridpool/release",
    "POST /v2/models/MODEL/infer",
    "POST /v2/repository/index",
    "POST /v2/repository/models/MODEL/load",
    "POST /v2/repository/models/MODEL/unload",
    "POST /v2/systemsharedmemory/unregister",
    "POST /v2/systemsharedmemory/region/REGION/register",
    "POST /v2/systemsharedmemory/region/REGION/unregister",
];

type RouteResult = Result<Response, Failure>;

/// The router for every path.
pub(super) fn router(gateway: Arc<Server>) -> Router {
    let of_model = |path: &str| [format!("/v2/models/{{model}}{path}"), versioned(path)];
    let mut router = page::routes()
        .merge(memory::routes())
        .route("/metrics", get(metrics::metrics))
        .route("/v2", get(about_server))
        .route("/v2/gridpool/deaths", get(orders::deaths))
        .route(events::PATH, get(events::events))
        .route("/v2/gridpool/receipts", get(orders::receipts))
        .route("/v2/gridpool/status", get(orders::status))
        .route("/v2/gridpool/verdicts", get(orders::verdicts))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/stats", get(all_stats))
        .route("/v2/repository/index", post(index))
        .route("/v2/repository/models/{model}/load", post(load))
        .route("/v2/repository/models/{model}/unload", post(unload));
    for what in orders::ALL {
        let give = move |gateway, principal, seat, headers, body| {
            orders::order(what, gateway, principal, seat, headers, body)
        };
        router = router.route(&format!("/v2/gridpool/{what}"), post(give));
    }
    for path in of_model("") {
        router = router.route(&path, get(metadata));
    }
    for path in of_model("/ready") {
        router = router.route(&path, get(model_ready));
    }
    for path in of_model("/config") {
        router = router.route(&path, get(config));
    }
    for path in of_model("/stats") {
        router = router.route(&path, get(stats));
    }
    for path in of_model("/infer") {
        router = router.route(&path, post(infer));
    }
    let counted = middleware::from_fn_with_state(Arc::clone(&gateway), metrics::count);
    let router = router.fallback(no_path).method_not_allowed_fallback(no_method);
    let admitted = middleware::from_fn_with_state(Arc::clone(&gateway), access::admit);
    router.layer(admitted).layer(counted).with_state(gateway)
}

fn versioned(path: &str) -> String {
    format!("/v2/models/{{model}}/versions/{{version}}{path}")
}

/// Extracts the model that a path names, perhaps with its version.
struct PathModel(Model);

impl FromRequestParts<Arc<Server>> for PathModel {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Server>) -> Result<Self, Failure> {
        let names = Path::<Vec<(String, String)>>::from_request_parts(parts, gateway).await;
        let Path(names) = names.map_err(|error| Failure::bad(error.to_string()))?;
        let find = |key: &str| names.iter().find(|(name, _)| name == key).map(|(_, text)| &**text);
        let name = find("model").unwrap_or_default();
        gateway.observer.find(name, find("version")).await.map(Self)
    }
}

fn document(value: &Value) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], value.to_string()).into_response()
}

async fn no_path(
    Extension(seat): Extension<Arc<Seat>>,
    path: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    BodyBudget::discard(&seat, &headers, body).await.map_err(Failure::unread)?;
    Err(match unserved::of_path(path.path()) {
        Some(why) => Failure::new(StatusCode::NOT_IMPLEMENTED, why),
        None => Failure::unknown("there is no such path; GET /v2 lists the paths"),
    })
}

async fn no_method(
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    BodyBudget::discard(&seat, &headers, body).await.map_err(Failure::unread)?;
    let why = "the path does not take this method: use POST for infer, load, unload, index, register, \
               unregister, drain, kill and release, GET for all others";
    Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, why))
}

// ---- the server ----

/// Describes the server, and lists the paths.
async fn about_server(State(gateway): State<Arc<Server>>) -> Response {
    let mut about = gateway.about().await;
    about["paths"] = json!(PATHS);
    document(&about)
}

/// Says that this process answers.
async fn live() -> StatusCode {
    StatusCode::OK
}

async fn ready(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
) -> Result<Response, Failure> {
    let missing = gateway.check_ready(&principal, &seat).await?;
    Ok(match missing.as_slice() {
        [] => StatusCode::OK.into_response(),
        missing => document(&json!({ "missing": missing })),
    })
}

// ---- models ----

async fn metadata(State(gateway): State<Arc<Server>>, PathModel(model): PathModel) -> Response {
    document(&gateway.metadata_of(&model))
}

async fn config(PathModel(model): PathModel) -> Response {
    document(&model.config())
}

async fn model_ready(
    State(gateway): State<Arc<Server>>,
    PathModel(model): PathModel,
) -> Result<StatusCode, Failure> {
    gateway.check_ready_of(&model).await.map(|()| StatusCode::OK)
}

async fn stats(State(gateway): State<Arc<Server>>, PathModel(model): PathModel) -> RouteResult {
    gateway.statistics_of(Some(model)).await.map(|stats| document(&stats))
}

async fn all_stats(State(gateway): State<Arc<Server>>) -> RouteResult {
    gateway.statistics_of(None).await.map(|stats| document(&stats))
}

/// The body of an inference request, with its headers.
#[derive(Debug)]
pub(super) struct HttpBody {
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Exchange for HttpBody {
    type Form = ();
    type Answer = Response;

    fn read(&self, memory: &mut Memory) -> Result<Request<'_>, Failure> {
        request::parse(&self.headers, &self.body, memory)
    }

    fn into_form(self) {}

    fn write(
        (): (),
        reply: &Reply,
        wanted: &WantedOutputs,
        mut held: HeldBytes,
    ) -> Result<Response, Failure> {
        let encoded = reply.encode(wanted, &mut held)?;
        Ok(encoded.respond(held))
    }
}

async fn infer(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    Extension(record): Extension<Arc<Record>>,
    named: Result<PathModel, Failure>,
    headers: HeaderMap,
    body: Body,
) -> RouteResult {
    let (body, held) = gateway.budget.read((&principal, &seat), &headers, body).await?;
    let PathModel(model) = named?;
    let asker = Asker { principal, trace: record.context(), trace_state: record.state() };
    gateway.ask(model, HttpBody { headers, body }, (asker, held)).await
}

// ---- the repository ----

/// Lists every model and whether it is ready.
async fn index(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> RouteResult {
    let body = gateway.budget.read_document((&principal, &seat), &headers, body).await?;
    let only_ready = match body.as_slice() {
        [] => false,
        json => {
            let asked: Value = serde_json::from_slice(json)
                .map_err(|error| Failure::bad(format!("the body is not valid JSON: {error}")))?;
            asked["ready"].as_bool().unwrap_or(false)
        }
    };
    gateway.index(only_ready).await.map(|rows| document(&rows))
}

async fn load(
    State(gateway): State<Arc<Server>>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let body = gateway.budget.read_document((&principal, &seat), &headers, body).await?;
    gateway.change(&name, load_of(&parameters(&body)?)?).await.map(|()| StatusCode::OK)
}

async fn unload(
    State(gateway): State<Arc<Server>>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let body = gateway.budget.read_document((&principal, &seat), &headers, body).await?;
    gateway.change(&name, unload_of(&parameters(&body)?)?).await.map(|()| StatusCode::OK)
}

/// The parameters of a body that may be empty.
fn parameters(body: &[u8]) -> Result<Value, Failure> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let mut asked: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad(format!("the body is not valid JSON: {error}")))?;
    Ok(asked.get_mut("parameters").map(Value::take).unwrap_or_default())
}
