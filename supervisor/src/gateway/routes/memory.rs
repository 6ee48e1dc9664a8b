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
        .route("/v2/systemsharedmemory/status", get(status))
        .route("/v2/systemsharedmemory/unregister", post(unregister))
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

/// Of one region, or of all.
async fn status(
    State(gateway): State<Arc<Server>>,
    Extension(principal): Extension<Principal>,
    name: Option<Path<String>>,
) -> RouteResult {
    let name = name.as_ref().map(|Path(name)| name.as_str());
    gateway.regions.status(&principal, name).map(|rows| document(&Value::from(rows)))
}

async fn register(
    State(gateway): State<Arc<Server>>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let body = gateway.budget.read_document((&principal, &seat), &headers, body).await?;
    let asked: Registration = serde_json::from_slice(&body).map_err(|error| {
        Failure::bad(format!(
            "the body is not a region, {{\"key\", \"offset\", \"byte_size\"}}: {error}"
        ))
    })?;
    let Registration { key, offset, byte_size: bytes } = asked;
    let holder = Holder::new(principal, access::bearer(&headers).ok().map(Secret), &seat);
    gateway.register(holder, Named { name, key, offset, bytes }).await.map(|()| StatusCode::OK)
}

/// Of one region, or of all.
async fn unregister(
    State(gateway): State<Arc<Server>>,
    name: Option<Path<String>>,
    Extension(principal): Extension<Principal>,
    Extension(seat): Extension<Arc<Seat>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    gateway.budget.read_document((&principal, &seat), &headers, body).await?;
    let name = name.map(|Path(name)| name);
    gateway.unregister(principal, name).await.map(|()| StatusCode::OK)
}
