//! The paths of the Open Inference Protocol, and what each does.
//!
//! A body is read to its end before anything else is wrong with its request: one that is left unread
//! would end the connection, and with it whatever its client sends next.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gridpool_protocol::tensor::model::check_model_name;
use serde_json::{Value, json};

use super::Gateway;
use super::failure::Failure;
use super::limits::REQUESTS_MAX;
use super::metrics;
use super::models::{Model, VERSION, is_taken};
use super::observer::View;
use super::pool::HangUp;

/// What of the protocol and of Triton's additions to it is served.
const EXTENSIONS: [&str; 4] =
    ["binary_tensor_data", "model_configuration", "model_repository", "statistics"];

/// Every path, as `GET /v2` says it; those of a model may name its version: `/v2/models/M/versions/1`.
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

type Answer = Result<Response, Failure>;

/// Every path.
pub(super) fn router(gateway: Arc<Gateway>) -> Router {
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
    router.layer(counted).with_state(gateway)
}

fn versioned(path: &str) -> String {
    format!("/v2/models/{{model}}/versions/{{version}}{path}")
}

/// The model that a path names: its name, and perhaps its version.
struct Named(Model);

impl FromRequestParts<Arc<Gateway>> for Named {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Failure> {
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
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    gateway.budget.read(&headers, body).await?;
    Err(Failure::unknown("there is no such path; GET /v2 says what is served"))
}

async fn no_method(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    gateway.budget.read(&headers, body).await?;
    let why =
        "the path has no such method: infer, load, unload and index take POST, all others GET";
    Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, why))
}

// ---- the server ----

/// What is served, and where. Clients of the protocol read the first three.
async fn about_server(State(gateway): State<Arc<Gateway>>) -> Response {
    let view = gateway.observer.look().await;
    let names = |view: Arc<View>| view.models().map(|model| json!(model.name())).collect::<Value>();
    document(&json!({
        "name": "gridpool",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": EXTENSIONS,
        "paths": PATHS,
        "models": view.map_or(Value::Null, names),
    }))
}

/// This process answers: nothing more is said.
async fn live() -> StatusCode {
    StatusCode::OK
}

/// Whether grids have been run on a device lately, and a model has where there are models.
async fn ready(State(gateway): State<Arc<Gateway>>) -> Result<StatusCode, Failure> {
    let view = gateway.check_grids().await?;
    gateway.check_models(&view).await?;
    Ok(StatusCode::OK)
}

// ---- models ----

async fn metadata(Named(model): Named) -> Response {
    document(&model.metadata())
}

async fn config(Named(model): Named) -> Response {
    document(&model.config())
}

async fn model_ready(
    State(gateway): State<Arc<Gateway>>,
    Named(model): Named,
) -> Result<StatusCode, Failure> {
    match model {
        Model::Grid(_) => drop(gateway.check_grids().await?),
        Model::Onnx(model) => gateway.check_model(&model.info.name).await?,
    }
    Ok(StatusCode::OK)
}

async fn stats(State(gateway): State<Arc<Gateway>>, Named(model): Named) -> Response {
    document(&gateway.statistics.document([model]))
}

async fn all_stats(State(gateway): State<Arc<Gateway>>) -> Answer {
    let view = gateway.observer.look().await?;
    Ok(document(&gateway.statistics.document(view.models())))
}

async fn infer(
    State(gateway): State<Arc<Gateway>>,
    named: Result<Named, Failure>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (body, mut held) = gateway.budget.read(&headers, body).await?;
    let Named(model) = named?;
    let slot = Arc::clone(&gateway.slots).try_acquire_owned().map_err(|_| {
        Failure::unavailable(format!("BUSY: {REQUESTS_MAX} requests are being worked on already"))
    })?;
    let hang_up = HangUp::default();
    let watch = hang_up.watch();
    let work = tokio::task::spawn_blocking(move || {
        let answer = gateway.infer(&model, &headers, &body, (&hang_up, &mut held));
        drop(slot);
        answer.map(|encoded| encoded.respond(held))
    });
    let answer = work.await.map_err(|error| Failure::internal(error.to_string()))?;
    drop(watch);
    answer
}

// ---- the repository ----

/// Every model; those that are not ready are so because the pool is not.
async fn index(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, body: Body) -> Answer {
    let (body, _held) = gateway.budget.read(&headers, body).await?;
    let only_ready = match body.as_slice() {
        [] => false,
        json => {
            let asked: Value = serde_json::from_slice(json)
                .map_err(|error| Failure::bad(format!("the body is no JSON: {error}")))?;
            asked["ready"].as_bool().unwrap_or(false)
        }
    };
    let view = gateway.observer.look().await?;
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

/// The path of a file on this machine is not taken from whoever reaches the address.
async fn load(
    State(gateway): State<Arc<Gateway>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    gateway.budget.read(&headers, body).await?;
    Err(not_over_http(&name, "loaded", &format!("gridpool model load {name}=PATH")))
}

async fn unload(
    State(gateway): State<Arc<Gateway>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    gateway.budget.read(&headers, body).await?;
    Err(not_over_http(&name, "unloaded", &format!("gridpool model unload {name}")))
}

fn not_over_http(name: &str, what: &str, command: &str) -> Failure {
    let why = match (is_taken(name), check_model_name(name)) {
        (true, _) => format!("`{name}` is built in: it is always there and cannot be {what}"),
        (false, Err(error)) => return Failure::bad(error.to_string()),
        (false, Ok(())) => {
            format!("models are not {what} over HTTP: run `{command}` where the pool runs")
        }
    };
    Failure::new(StatusCode::NOT_IMPLEMENTED, why)
}
