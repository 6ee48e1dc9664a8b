//! The methods that say something of the server or a model. Each gives the document that HTTP gives, as a message.

use axum::body::Body;
use gridpool_client::Secret;
use gridpool_inference::{
    Empty, ModelConfigResponse, ModelMetadataResponse, ModelRequest, ModelStatisticsResponse,
    ReadyResponse, RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelRequest,
    SERVICE, ServerLiveResponse, ServerMetadataResponse, SharedMemoryRegion, SharedMemoryRequest,
    SharedMemoryStatusResponse,
};
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::body::{Outcome, framed};
use super::messages::Messages;
use super::method::Document;
use super::{Admitted, find};
use crate::gateway::documents::{load_of, unload_of};
use crate::gateway::failure::Failure;
use crate::gateway::models::Model;
use crate::gateway::regions::{Holder, Named};
use crate::gateway::seats::Turn;

/// Of which service the health is asked. None is all.
#[derive(Clone, PartialEq, Eq, Message)]
struct HealthRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// Whether a service serves, in the words of gRPC's health check.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct HealthResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

impl Admitted {
    pub(super) async fn document(
        &self,
        document: Document,
        body: Body,
        token: Option<Secret>,
    ) -> Result<Outcome, Failure> {
        let gateway = &self.gateway;
        match document {
            Document::ServerLive => {
                let _: Empty = self.read(body).await?;
                Ok(message(&ServerLiveResponse { live: true }))
            }
            Document::ServerReady => {
                let _: Empty = self.read(body).await?;
                let ready =
                    gateway.check_ready(&self.asker.principal, self.call.seat()).await.is_ok();
                Ok(message(&ReadyResponse { ready }))
            }
            Document::Health => {
                let HealthRequest { service } = self.read(body).await?;
                if !service.is_empty() && service != SERVICE {
                    return Err(Failure::unknown(format!(
                        "there is no service `{service}`: ask for {SERVICE}, or for none"
                    )));
                }
                let ready =
                    gateway.check_ready(&self.asker.principal, self.call.seat()).await.is_ok();
                let status = if ready { SERVING } else { NOT_SERVING };
                Ok(message(&HealthResponse { status }))
            }
            Document::ServerMetadata => {
                let _: Empty = self.read(body).await?;
                of_document::<ServerMetadataResponse>(gateway.about().await)
            }
            Document::ModelReady => {
                let model = self.model(body).await;
                let ready = match model {
                    Ok(model) => gateway.check_ready_of(&model).await.is_ok(),
                    // As Triton says of a model that it does not have.
                    Err(failure) if failure.code() == tonic::Code::NotFound => false,
                    Err(failure) => return Err(failure),
                };
                Ok(message(&ReadyResponse { ready }))
            }
            Document::ModelMetadata => {
                let model = self.model(body).await?;
                of_document::<ModelMetadataResponse>(gateway.metadata_of(&model))
            }
            Document::ModelConfig => {
                let config =
                    of::<gridpool_inference::ModelConfig>(self.model(body).await?.config())?;
                Ok(message(&ModelConfigResponse { config: Some(config) }))
            }
            Document::ModelStatistics => {
                let ModelRequest { name, version } = self.read(body).await?;
                let model = match name.is_empty() {
                    true => None,
                    false => Some(find(gateway, &name, &version).await?),
                };
                of_document::<ModelStatisticsResponse>(gateway.statistics_of(model).await?)
            }
            Document::RepositoryIndex => {
                let asked: RepositoryIndexRequest = self.read(body).await?;
                let models = gateway.index(asked.ready).await?;
                of_document::<RepositoryIndexResponse>(json!({ "models": models }))
            }
            Document::RepositoryModelLoad => {
                let asked: RepositoryModelRequest = self.read(body).await?;
                gateway.change(&asked.model_name, load_of(&parameters(&asked))?).await?;
                Ok(message(&Empty {}))
            }
            Document::SharedMemoryRegister => {
                let asked: SharedMemoryRegion = self.read(body).await?;
                let SharedMemoryRegion { name, key, offset, byte_size: bytes } = asked;
                let holder = Holder::new(self.asker.principal.clone(), token, self.call.seat());
                gateway.register(holder, Named { name, key, offset, bytes }).await?;
                Ok(message(&Empty {}))
            }
            Document::SharedMemoryStatus => {
                let SharedMemoryRequest { name } = self.read(body).await?;
                let name = Some(name.as_str()).filter(|name| !name.is_empty());
                let rows = gateway.regions.status(&self.asker.principal, name)?.into_iter();
                let rows = rows.map(of::<SharedMemoryRegion>).collect::<Result<Vec<_>, _>>()?;
                let regions = rows.into_iter().map(|row| (row.name.clone(), row)).collect();
                Ok(message(&SharedMemoryStatusResponse { regions }))
            }
            Document::SharedMemoryUnregister => {
                let SharedMemoryRequest { name } = self.read(body).await?;
                let name = Some(name).filter(|name| !name.is_empty());
                gateway.unregister(self.asker.principal.clone(), name).await?;
                Ok(message(&Empty {}))
            }
            Document::RepositoryModelUnload => {
                let asked: RepositoryModelRequest = self.read(body).await?;
                gateway.change(&asked.model_name, unload_of(&parameters(&asked))?).await?;
                Ok(message(&Empty {}))
            }
        }
    }

    async fn model(&self, body: Body) -> Result<Model, Failure> {
        let ModelRequest { name, version } = self.read(body).await?;
        find(&self.gateway, &name, &version).await
    }

    async fn read<M: Message + Default>(&self, body: Body) -> Result<M, Failure> {
        let (client, is_packable) =
            ((&self.asker.principal, Turn::from(&*self.call)), self.packing.requests);
        let messages = Messages::of_document(client, (body, is_packable));
        let (bytes, _held) = messages.one().await?;
        M::decode(bytes).map_err(|error| {
            Failure::bad(format!("the message is not of the inference protocol: {error}"))
        })
    }
}

/// The parameters of a request for a change. Only numbers have their values.
fn parameters(asked: &RepositoryModelRequest) -> Value {
    let own = asked.parameters.iter();
    own.map(|(key, given)| (key.clone(), Value::from(given.int64_param))).collect()
}

fn message(message: &impl Message) -> Outcome {
    Outcome::One(framed(message).into())
}

fn of_document<M: Message + DeserializeOwned>(document: Value) -> Result<Outcome, Failure> {
    of::<M>(document).map(|read| message(&read))
}

/// The message with the fields of a document.
fn of<M: DeserializeOwned>(document: Value) -> Result<M, Failure> {
    serde_json::from_value(document)
        .map_err(|error| Failure::internal(format!("a document that is no message: {error}")))
}
