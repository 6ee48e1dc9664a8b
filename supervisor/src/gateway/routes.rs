//! The paths of the Open Inference Protocol, and what each does.
//!
//! A body is read to its end before anything else is wrong with its request: one that is left unread
//! would end the connection, and with it whatever its client sends next.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Gateway;
use super::failure::Failure;
use super::limits::{REQUESTS_MAX, STATUS_TIMEOUT};
use super::models::{Model, VERSION};
use super::pool::HangUp;

/// What of the protocol and of Triton's additions to it is served.
const EXTENSIONS: [&str; 4] =
    ["binary_tensor_data", "model_configuration", "model_repository", "statistics"];

type Answer = Result<Response, Failure>;

/// Every path.
pub(super) fn router(gateway: Arc<Gateway>) -> Router {
    let of_model = |path: &str| [format!("/v2/models/{{model}}{path}"), versioned(path)];
    let mut router = Router::new()
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
    router.fallback(no_path).method_not_allowed_fallback(no_method).with_state(gateway)
}

fn versioned(path: &str) -> String {
    format!("/v2/models/{{model}}/versions/{{version}}{path}")
}

/// The model that a path names: its name, and perhaps its version.
struct Named(Model);

impl Named {
    fn of(names: &[(String, String)]) -> Result<Model, Failure> {
        let find = |key: &str| names.iter().find(|(name, _)| name == key).map(|(_, text)| &**text);
        Model::find(find("model").unwrap_or_default(), find("version"))
    }
}

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Named {
    type Rejection = Failure;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Self, Failure> {
        let names = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Path(names) = names.map_err(|error| Failure::bad(error.to_string()))?;
        Self::of(&names).map(Self)
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

async fn about_server() -> Response {
    document(&json!({
        "name": "gridpool",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": EXTENSIONS,
    }))
}

/// This process answers: nothing more is said.
async fn live() -> StatusCode {
    StatusCode::OK
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Result<StatusCode, Failure> {
    check_ready(&gateway).await.map(|()| StatusCode::OK)
}

/// Whether a run on a device succeeded lately, and the pool still takes jobs.
async fn check_ready(gateway: &Arc<Gateway>) -> Result<(), Failure> {
    gateway.readiness.check().map_err(Failure::unavailable)?;
    // The supervisor is asked by one request at a time: so many answers are alike.
    let late = |_| Failure::unavailable("the supervisor does not answer");
    let asking = async {
        let _turn = gateway.asking.lock().await;
        let client = gateway.observer.clone();
        tokio::task::spawn_blocking(move || client.status()).await
    };
    let status = timeout(STATUS_TIMEOUT, asking).await.map_err(late)?;
    let status = status.map_err(|error| Failure::internal(error.to_string()))??;
    if status.supervisor.draining {
        return Err(Failure::unavailable("the pool is draining"));
    }
    Ok(())
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
    Named(_): Named,
) -> Result<StatusCode, Failure> {
    check_ready(&gateway).await.map(|()| StatusCode::OK)
}

async fn stats(State(gateway): State<Arc<Gateway>>, Named(model): Named) -> Response {
    document(&gateway.statistics.document([model].into_iter()))
}

async fn all_stats(State(gateway): State<Arc<Gateway>>) -> Response {
    document(&gateway.statistics.document(Model::all()))
}

async fn infer(
    State(gateway): State<Arc<Gateway>>,
    named: Result<Named, Failure>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (body, held) = gateway.budget.read(&headers, body).await?;
    let Named(model) = named?;
    let slot = Arc::clone(&gateway.slots).try_acquire_owned().map_err(|_| {
        Failure::unavailable(format!("BUSY: {REQUESTS_MAX} requests are being worked on already"))
    })?;
    let hang_up = HangUp::default();
    let watch = hang_up.watch();
    let work = tokio::task::spawn_blocking(move || {
        let answer = gateway.infer(model, &headers, &body, &hang_up);
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
    let why = check_ready(&gateway).await.err().map(|failure| failure.message().to_owned());
    let state = if why.is_none() { "READY" } else { "UNAVAILABLE" };
    let row = |model: Model| {
        let reason = why.as_deref().unwrap_or_default();
        json!({ "name": model.name(), "version": VERSION, "state": state, "reason": reason })
    };
    let models = Model::all().filter(|_| !only_ready || why.is_none());
    Ok(document(&models.map(row).collect()))
}

async fn load(
    State(gateway): State<Arc<Gateway>>,
    named: Result<Named, Failure>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    gateway.budget.read(&headers, body).await?;
    Err(built_in(named?.0, "loaded"))
}

async fn unload(
    State(gateway): State<Arc<Gateway>>,
    named: Result<Named, Failure>,
    headers: HeaderMap,
    body: Body,
) -> Result<Infallible, Failure> {
    gateway.budget.read(&headers, body).await?;
    Err(built_in(named?.0, "unloaded"))
}

fn built_in(model: Model, what: &str) -> Failure {
    let name = model.name();
    let why = format!("`{name}` is built in: it is always there and cannot be {what}");
    Failure::new(StatusCode::NOT_IMPLEMENTED, why)
}
