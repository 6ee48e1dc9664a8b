//! What the gateway says of itself and its models, whichever protocol asks.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use gridpool_client::{ClientError, Principal};
use gridpool_protocol::message::{Refusal, RepositoryCommand};
use gridpool_protocol::tensor::model::check_model_name;
use serde_json::{Map, Value, json};

use super::Server;
use super::access;
use super::blocking::run_blocking;
use super::failure::Failure;
use super::listing::UNAVAILABLE;
use super::models::{Asked, Availability, Model, OnnxModel, why_taken};
use super::observer::PoolView;
use super::regions;
use super::seats::{Kind, Seat};
use crate::repository::NOT_BY_REQUEST;

/// The extensions of the protocol that are served, Triton's included.
const EXTENSIONS: [&str; 4] =
    ["binary_tensor_data", "model_configuration", "model_repository", "statistics"];

/// What is done to a model of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Load {
        /// Longest time for each version; by default that of the pool.
        load_timeout_s: Option<u32>,
    },
    Unload,
}

impl Server {
    /// Describes the server. Clients of the protocol read the first three fields.
    pub(super) async fn about(&self) -> Value {
        let view = self.observer.view().await;
        let names = |view: Arc<PoolView>| {
            view.models().map(|model| model.name().to_owned()).collect::<BTreeSet<_>>()
        };
        let shared = self.regions.are_served().then_some(regions::EXTENSION);
        let extensions = EXTENSIONS.into_iter().chain(shared);
        json!({
            "name": "gridpool",
            "version": env!("CARGO_PKG_VERSION"),
            "extensions": extensions.collect::<Vec<_>>(),
            "models": view.map_or(Value::Null, |view| json!(names(view))),
        })
    }

    /// Checks that a request of whoever asks would be taken, and that grids, and models if the pool has some, ran on a
    /// device recently. Returns the models that are missing all the same.
    pub(super) async fn check_ready(
        &self,
        principal: &Principal,
        seat: &Seat,
    ) -> Result<Vec<String>, Failure> {
        let saturated = |why: String| Failure::unavailable(format!("saturated: {why}"));
        if let Kind::Reserved(reason) = seat.kind() {
            return Err(saturated(access::why_reserved(reason)));
        }
        if let Some(why) = self.why_saturated(Some(principal)) {
            return Err(saturated(why));
        }
        let view = self.check_grids().await?;
        self.check_models(&view).await?;
        // Who asks for health may have no token: the names must do.
        Ok(view.missing.iter().map(|missing| missing.model.clone()).collect())
    }

    /// The document of a model.
    pub(super) fn metadata_of(&self, model: &Model) -> Value {
        let view = self.observer.latest();
        let mut versions: Vec<_> = match model {
            Model::Grid(_) => vec![1],
            Model::Onnx(model, _) => {
                let all = view.catalogue.versions(model.name());
                let all: Vec<_> =
                    all.filter(|own| own.availability != Availability::Unloaded).collect();
                // The workers of one that was unloaded may still be ending.
                let is_here = |own: &&&Arc<OnnxModel>| !own.workers.is_empty();
                let here: Vec<_> = all.iter().filter(is_here).map(|own| own.version()).collect();
                if here.is_empty() { all.iter().map(|own| own.version()).collect() } else { here }
            }
        };
        versions.sort_unstable();
        model.metadata(&versions.iter().map(u32::to_string).collect::<Vec<_>>())
    }

    /// Checks that a model is ready.
    pub(super) async fn check_ready_of(&self, model: &Model) -> Result<(), Failure> {
        match model {
            Model::Grid(_) => self.check_grids().await.map(drop),
            Model::Onnx(model, asked) => {
                let version = (*asked == Asked::Version).then(|| model.version());
                self.check_model(model.name(), version).await
            }
        }
    }

    /// The statistics of one model, or of all.
    pub(super) async fn statistics_of(&self, model: Option<Model>) -> Result<Value, Failure> {
        match model {
            Some(model) => Ok(self.statistics.document([model])),
            None => Ok(self.statistics.document(self.observer.view().await?.models())),
        }
    }

    /// Every model and whether it is ready.
    pub(super) async fn index(&self, only_ready: bool) -> Result<Value, Failure> {
        let view = self.observer.view().await?;
        let why_no_grids = self.readiness.check().and_then(|()| view.is_open()).err();
        let row = |model: Model| {
            let why = match &model {
                Model::Grid(_) => why_no_grids.clone(),
                Model::Onnx(model, _) => model.why_not_ready().or_else(|| view.is_open().err()),
            };
            let state = if why.is_none() { "READY" } else { UNAVAILABLE };
            let reason = why.unwrap_or_default();
            json!({
                "name": model.name(),
                "version": model.version(),
                "state": state,
                "reason": reason,
            })
        };
        let mut rows: Vec<_> = view.models().map(row).collect();
        if only_ready {
            rows.retain(|row| row["state"] == "READY");
        } else {
            rows.extend(self.never_loaded(&view).await);
        }
        Ok(rows.into())
    }

    /// Loads or unloads a model of the pool's model repository. Clients of the network name no files on this machine.
    pub(super) async fn change(&self, name: &str, change: Change) -> Result<(), Failure> {
        let (what, how, command) = match change {
            Change::Load { load_timeout_s } => {
                let how = format!("gridpool model load {name}=PATH");
                ("loaded", how, RepositoryCommand::Load { name: name.to_owned(), load_timeout_s })
            }
            Change::Unload => {
                let how = format!("gridpool model unload {name}");
                ("unloaded", how, RepositoryCommand::Unload { name: name.to_owned() })
            }
        };
        if why_taken(name).is_some() {
            let why = format!("`{name}` is built in: it is always there and cannot be {what}");
            return Err(Failure::new(StatusCode::NOT_IMPLEMENTED, why));
        }
        check_model_name(name).map_err(|error| Failure::bad(error.to_string()))?;
        let client = self.observer.client().clone();
        let done = run_blocking(move || Ok(client.change_repository(&command))).await?;
        match done {
            Ok(_) => {}
            Err(ClientError::Refused(Refusal::NotAllowed(why))) if why != NOT_BY_REQUEST => {
                return Err(Failure::new(StatusCode::CONFLICT, why));
            }
            Err(ClientError::Refused(Refusal::NotAllowed(_))) => {
                let why = format!(
                    "models are not {what} over HTTP or gRPC: run `{how}` where the pool runs, or have the pool \
                     started with --model-repository DIR --repository request"
                );
                return Err(Failure::new(StatusCode::NOT_IMPLEMENTED, why));
            }
            Err(error) => return Err(error.into()),
        }
        // The next request finds it so.
        self.observer.view().await.map(drop)
    }
}

/// The parameter of a load that says how long it may take.
const LOAD_TIMEOUT: &str = "load_timeout_s";

/// A load as its parameters ask for it: they set nothing of the model, whose files are those of the repository.
pub(super) fn load_of(parameters: &Value) -> Result<Change, Failure> {
    check_change(parameters, LOAD_TIMEOUT)?;
    let given = &parameters[LOAD_TIMEOUT];
    let seconds = given.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
    let load_timeout_s = seconds.filter(|&seconds| seconds > 0);
    if load_timeout_s.is_none() && !given.is_null() {
        let why = format!("`{LOAD_TIMEOUT}` is {given}: write whole seconds, at least 1");
        return Err(Failure::bad(why));
    }
    Ok(Change::Load { load_timeout_s })
}

/// An unload as its parameters ask for it.
pub(super) fn unload_of(parameters: &Value) -> Result<Change, Failure> {
    check_change(parameters, "unload_dependents").map(|()| Change::Unload)
}

/// Checks that there is no parameter but this.
fn check_change(parameters: &Value, known: &str) -> Result<(), Failure> {
    let none = Map::new();
    let given = parameters.as_object().unwrap_or(&none);
    match given.keys().find(|key| *key != known) {
        Some(key) => Err(Failure::bad(format!(
            "the parameter `{key}` is not served: a model is loaded as its folder in the model repository has it"
        ))),
        None => Ok(()),
    }
}
