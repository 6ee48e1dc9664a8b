//! `GET /metrics`: the counts of the pool and of this gateway, in Prometheus's text format.
//!
//! The supervisor counts jobs and workers ([`gridpool_protocol::metrics`]), so those sums survive a restart
//! of the gateway. This process counts HTTP requests and requests of models. If the supervisor does not
//! answer, the page says `gridpool_up 0` and leaves out its other families: no number is ever stale.
//!
//! A metric that means the same as Triton's has Triton's name; any other is `gridpool_…` in base units. No
//! label grows without bound: a worker is named by its device and role, not by its generation.

mod families;
#[cfg(test)]
mod monitoring;
mod page;
mod principals;
mod requests;
mod sources;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::Server;
use super::failure::Failure;
use super::models::Model;
use families::FAMILIES;
use page::Page;
use sources::{Load, PageInput};

use crate::traces::PacketSender;

pub(super) use requests::{CountedCall, Requests, count};

/// Version 0.0.4 of the text format. Every Prometheus reads it.
const CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Answers with all families.
pub(super) async fn metrics(State(gateway): State<Arc<Server>>) -> Result<Response, Failure> {
    let measured = gateway.observer.measure().await;
    let view = match &measured {
        Ok(_) => gateway.observer.view().await,
        Err(error) => Err(error.clone()),
    };
    let view = view.unwrap_or_else(|_| gateway.observer.latest());
    let numbers = |model: Model| {
        let named = (model.name().to_owned(), model.version().into_owned());
        (named, gateway.statistics.of(&model).numbers())
    };
    let models: Vec<_> = view.models().map(numbers).collect();
    let load = Load {
        refused: gateway.refusals.counts().collect(),
        connections: gateway.seats.counts(),
        body_bytes: gateway.budget.bytes(),
        spans_unsent: gateway.traces.as_ref().map_or(0, PacketSender::unsent),
        is_saturated: gateway.why_saturated(None).is_some(),
    };
    let (metrics, requests) = (measured.as_ref().ok(), &gateway.requests);
    let view = PageInput { metrics, requests, load: &load, models: &models };
    let text = page(&view).text().map_err(|error| Failure::internal(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

fn page(view: &PageInput<'_>) -> Page {
    let mut page = Page::default();
    for family in FAMILIES.iter().flat_map(|(_, families)| *families) {
        page.add(family.head, &family.source.labels(), family.source.rows(view));
    }
    page
}
