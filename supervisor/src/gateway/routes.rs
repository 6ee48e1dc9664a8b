//! The paths of the Open Inference Protocol and their handlers.
//!
//! Every handler reads the body to its end before it refuses the request for another reason. An unread
//! body would end the connection, and with it the client's next request.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use gridpool_client::Principal;
use gridpool_protocol::tensor::model::check_model_name;
use serde_json::{Value, json};

use super::Server;
use super::access;
use super::body::BodyBudget;
use super::failure::Failure;
use super::limits::{REQUESTS_EACH_MAX, REQUESTS_MAX};
use super::metrics;
use super::models::{Model, VERSION, why_taken};
use super::observer::PoolView;
use super::pool::{HangUp, Origin};
use super::reason::Reason;
use super::seats::{Kind, Seat};
use super::shares::Full;

/// The extensions of the protocol that are served, Triton's included.
const EXTENSIONS: [&str; 4] =
    ["binary_tensor_data", "model_configuration", "model_repository", "statistics"];

/// Every path, for `GET /v2`. A model's path may name the version: `/v2/models/M/versions/1`.
const PATHS: [&str; 13] = [
    "GET /metrics",
    "GET /v2",
    "GET /v2/health/live",
    "GET /v2/health/ready",
    "GET /v2/models/stats",
    "GET /v2/models/MODEL",
    "GET /v2/models/MODEL/ready",
    "GET /v2/models/MODEL/config",
    "GET /v2/models/MODEL/stats",
    "POST /v2/models/MODEL/infer",
    "POST /v2/repository/index",
    "POST /v2/repository/models/MODEL/load",
    "POST /v2/repository/models/MODEL/unload",
];

type RouteResult = Result<Response, Failure>;

/// The router for every path.
pub(super) fn router(gateway: Arc<Server>) -> Router {
    let of_model = |path: &str| [format!("/v2/models/{{model}}{path}"), versioned(path)];
    let mut router = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/v2", get(about_server))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/stats", get(all_stats))
        .route("/v2/repository/index", post(index))
        .route("/v2/repository/models/{model}/load", post(load))
        .route("/v2/repository/models/{model}/unload", post(unload));
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
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    BodyBudget::discard(&seat, &headers, body).await.map_err(Failure::unread)?;
    Err(Failure::unknown("there is no such path; GET /v2 lists the paths"))
}

async fn no_method(
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    BodyBudget::discard(&seat, &headers, body).await.map_err(Failure::unread)?;
    let why = "the path does not take this method: use POST for infer, load, unload and index, GET for all others";
    Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, why))
}

// ---- the server ----

/// Describes the server. Clients of the protocol read the first three fields.
async fn about_server(State(gateway): State<Arc<Server>>) -> Response {
    let view = gateway.observer.view().await;
    let names =
        |view: Arc<PoolView>| view.models().map(|model| json!(model.name())).collect::<Value>();
    document(&json!({
        "name": "gridpool",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": EXTENSIONS,
        "paths": PATHS,
        "models": view.map_or(Value::Null, names),
    }))
}

/// Says that this process answers.
async fn live() -> StatusCode {
    StatusCode::OK
}

/// Checks that a request of whoever asks would be taken, and that grids, and models if the pool has some, ran on a
/// device recently.
async fn ready(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
) -> Result<StatusCode, Failure> {
    let saturated = |why: String| Failure::unavailable(format!("saturated: {why}"));
    if let Kind::Reserved(reason) = seat.kind() {
        return Err(saturated(access::why_reserved(reason)));
    }
    if let Some(why) = gateway.why_saturated(Some(&principal)) {
        return Err(saturated(why));
    }
    let view = gateway.check_grids().await?;
    gateway.check_models(&view).await?;
    Ok(StatusCode::OK)
}

// ---- models ----

async fn metadata(PathModel(model): PathModel) -> Response {
    document(&model.metadata())
}

async fn config(PathModel(model): PathModel) -> Response {
    document(&model.config())
}

async fn model_ready(
    State(gateway): State<Arc<Server>>,
    PathModel(model): PathModel,
) -> Result<StatusCode, Failure> {
    match model {
        Model::Grid(_) => drop(gateway.check_grids().await?),
        Model::Onnx(model) => gateway.check_model(&model.info.name).await?,
    }
    Ok(StatusCode::OK)
}

async fn stats(State(gateway): State<Arc<Server>>, PathModel(model): PathModel) -> Response {
    document(&gateway.statistics.document([model]))
}

async fn all_stats(State(gateway): State<Arc<Server>>) -> RouteResult {
    let view = gateway.observer.view().await?;
    Ok(document(&gateway.statistics.document(view.models())))
}

async fn infer(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    named: Result<PathModel, Failure>,
    headers: HeaderMap,
    body: Body,
) -> RouteResult {
    let (body, held) = gateway.budget.read((&principal, &seat), &headers, body).await?;
    let PathModel(model) = named?;
    let mut slot = gateway.slots.share(principal.clone());
    slot.grow(1).map_err(|full| match full {
        Full::All => {
            Failure::unavailable(format!("BUSY: {REQUESTS_MAX} requests are in progress already"))
                .because(Reason::RequestsFull)
        }
        Full::Own => Failure::unavailable(format!(
            "BUSY: {REQUESTS_EACH_MAX} requests of yours are in progress already"
        ))
        .because(Reason::RequestsOwn),
    })?;
    let hang_up = HangUp::default();
    let watch = hang_up.watch();
    let origin = Origin { principal, hang_up };
    // A task of its own, so that the request is counted even if its client hangs up.
    let work = tokio::spawn(async move {
        let answer = gateway.infer(model, (headers, body), (origin, held)).await;
        drop(slot);
        answer
    });
    let answer = work.await.map_err(|error| Failure::internal(error.to_string()))?;
    drop(watch);
    answer
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
    let (body, _held) = gateway.budget.read((&principal, &seat), &headers, body).await?;
    let only_ready = match body.as_slice() {
        [] => false,
        json => {
            let asked: Value = serde_json::from_slice(json)
                .map_err(|error| Failure::bad(format!("the body is not valid JSON: {error}")))?;
            asked["ready"].as_bool().unwrap_or(false)
        }
    };
    let view = gateway.observer.view().await?;
    let why_no_grids = gateway.readiness.check().and_then(|()| view.is_open()).err();
    let row = |model: Model| {
        let why = match &model {
            Model::Grid(_) => why_no_grids.clone(),
            Model::Onnx(model) => model.why_not_ready().or_else(|| view.is_open().err()),
        };
        let state = if why.is_none() { "READY" } else { "UNAVAILABLE" };
        let reason = why.unwrap_or_default();
        json!({ "name": model.name(), "version": VERSION, "state": state, "reason": reason })
    };
    let rows = view.models().map(row).filter(|row| !only_ready || row["state"] == "READY");
    Ok(document(&rows.collect()))
}

/// Refuses to load a model: HTTP clients must not name files on this machine.
async fn load(
    Path(name): Path<String>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    BodyBudget::discard(&seat, &headers, body).await.map_err(Failure::unread)?;
    Err(not_over_http(&name, "loaded", &format!("gridpool model load {name}=PATH")))
}

async fn unload(
    Path(name): Path<String>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    BodyBudget::discard(&seat, &headers, body).await.map_err(Failure::unread)?;
    Err(not_over_http(&name, "unloaded", &format!("gridpool model unload {name}")))
}

fn not_over_http(name: &str, what: &str, command: &str) -> Failure {
    let why = match (why_taken(name).is_some(), check_model_name(name)) {
        (true, _) => format!("`{name}` is built in: it is always there and cannot be {what}"),
        (false, Err(error)) => return Failure::bad(error.to_string()),
        (false, Ok(())) => {
            format!("models are not {what} over HTTP: run `{command}` where the pool runs")
        }
    };
    Failure::new(StatusCode::NOT_IMPLEMENTED, why)
}
