//! Regions of shared memory, on Triton's paths.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Extension, Router};
use gridpool_client::{Principal, Secret};
use serde::Deserialize;
use serde_json::Value;

use super::{RouteResult, document};
use crate::gateway::Server;
use crate::gateway::access;
use crate::gateway::failure::Failure;
use crate::gateway::regions::{Holder, Named};
use crate::gateway::seats::Seat;

pub(super) fn routes() -> Router<Arc<Server>> {
    let of = |what: &str| format!("/v2/systemsharedmemory/region/{{region}}/{what}");
    Router::new()
        .route("/v2/systemsharedmemory/status", get(status_of_all))
        .route("/v2/systemsharedmemory/unregister", post(unregister_all))
        .route(&of("status"), get(status))
        .route(&of("register"), post(register))
        .route(&of("unregister"), post(unregister))
}

/// Where a region lies.
#[derive(Deserialize)]
struct Registration {
    key: String,
    #[serde(default)]
    offset: u64,
    byte_size: u64,
}

async fn status_of_all(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
) -> RouteResult {
    gateway.regions.status(&principal, None).map(|rows| document(&Value::from(rows)))
}

async fn status(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> RouteResult {
    gateway.regions.status(&principal, Some(&name)).map(|rows| document(&Value::from(rows)))
}

async fn register(
    State(gateway): State<Arc<Server>>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let (body, _held) = gateway.budget.read((&principal, &seat), &headers, body).await?;
    let asked: Registration = serde_json::from_slice(&body).map_err(|error| {
        Failure::bad(format!(
            "the body is not a region, {{\"key\", \"offset\", \"byte_size\"}}: {error}"
        ))
    })?;
    let Registration { key, offset, byte_size: bytes } = asked;
    let holder = Holder::new(principal, access::bearer(&headers).ok().map(Secret), &seat);
    gateway.register(holder, Named { name, key, offset, bytes }).await.map(|()| StatusCode::OK)
}

async fn unregister(
    State(gateway): State<Arc<Server>>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    gateway.budget.read((&principal, &seat), &headers, body).await?;
    gateway.unregister(principal, Some(name)).await.map(|()| StatusCode::OK)
}

async fn unregister_all(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    gateway.budget.read((&principal, &seat), &headers, body).await?;
    gateway.unregister(principal, None).await.map(|()| StatusCode::OK)
}
