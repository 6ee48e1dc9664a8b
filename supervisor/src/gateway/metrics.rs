//! `GET /metrics`: what the pool and this gateway have counted, as Prometheus reads it. The supervisor
//! counts ([`gridpool_protocol::metrics`]), so its sums outlive a gateway; what is said of requests of
//! HTTP and of models is this process's own. A pool that does not answer is `gridpool_up 0`, without the
//! rest of its families: no number is older than the question.
//!
//! Names are Triton's where theirs mean the same, else `gridpool_…` in base units. Labels hold no numbers
//! that only grow: a worker is called by its device and role, not by its generation.

mod models;
mod page;
mod pool;
mod requests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::Gateway;
use super::failure::Failure;
use page::Page;

pub(super) use requests::{Requests, count};

/// Version 0.0.4 of the text format, which every Prometheus reads.
const CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// All families.
pub(super) async fn metrics(State(gateway): State<Arc<Gateway>>) -> Result<Response, Failure> {
    let measured = gateway.observer.measure().await;
    let view = match &measured {
        Ok(_) => gateway.observer.look().await,
        Err(error) => Err(error.clone()),
    };
    let view = view.unwrap_or_else(|_| gateway.observer.last());
    let mut page = Page::default();
    pool::add(&mut page, measured.as_ref().ok());
    gateway.requests.add(&mut page);
    models::add(&mut page, &gateway.statistics, view.models());
    let text = page.text().map_err(|error| Failure::internal(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
