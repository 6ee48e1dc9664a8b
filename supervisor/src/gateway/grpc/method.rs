//! The methods of the service, and who may call each.

use axum::http::StatusCode;
use gridpool_inference::SERVICE;

use crate::gateway::failure::Failure;
use crate::gateway::tokens::Scope;
use crate::gateway::unserved::{NO_CUDA_MEMORY, NO_LOG, NO_TRACES};

/// The path of gRPC's own health check, which load balancers and kubelets ask.
const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// The other method of that service.
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const NO_WATCH: &str = "the health is not sent as it changes: call Check again and again";

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Method {
    /// One request.
    ModelInfer,
    /// Requests and answers, one after the other.
    ModelStreamInfer,
    /// A document.
    Served(Document),
    /// A method of Triton that is not served, for this reason.
    Unserved(&'static str),
}

/// A method that says something of the server or a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Document {
    Health,
    ModelConfig,
    ModelMetadata,
    ModelReady,
    ModelStatistics,
    RepositoryIndex,
    RepositoryModelLoad,
    RepositoryModelUnload,
    ServerLive,
    ServerMetadata,
    ServerReady,
    SharedMemoryRegister,
    SharedMemoryStatus,
    SharedMemoryUnregister,
}

/// The methods that are counted under their own names.
pub(in crate::gateway) const SERVED: [(&str, Method); 16] = [
    ("Check", Method::Served(Document::Health)),
    ("ModelConfig", Method::Served(Document::ModelConfig)),
    ("ModelInfer", Method::ModelInfer),
    ("ModelMetadata", Method::Served(Document::ModelMetadata)),
    ("ModelReady", Method::Served(Document::ModelReady)),
    ("ModelStatistics", Method::Served(Document::ModelStatistics)),
    ("ModelStreamInfer", Method::ModelStreamInfer),
    ("RepositoryIndex", Method::Served(Document::RepositoryIndex)),
    ("RepositoryModelLoad", Method::Served(Document::RepositoryModelLoad)),
    ("RepositoryModelUnload", Method::Served(Document::RepositoryModelUnload)),
    ("ServerLive", Method::Served(Document::ServerLive)),
    ("ServerMetadata", Method::Served(Document::ServerMetadata)),
    ("ServerReady", Method::Served(Document::ServerReady)),
    ("SystemSharedMemoryRegister", Method::Served(Document::SharedMemoryRegister)),
    ("SystemSharedMemoryStatus", Method::Served(Document::SharedMemoryStatus)),
    ("SystemSharedMemoryUnregister", Method::Served(Document::SharedMemoryUnregister)),
];

/// The service of a method that is counted under this name.
pub(in crate::gateway) fn service_of(name: &str) -> &'static str {
    if name == "Check" { "grpc.health.v1.Health" } else { SERVICE }
}

const UNSERVED: [(&str, &str); 5] = [
    ("CudaSharedMemoryRegister", NO_CUDA_MEMORY),
    ("CudaSharedMemoryStatus", NO_CUDA_MEMORY),
    ("CudaSharedMemoryUnregister", NO_CUDA_MEMORY),
    ("LogSettings", NO_LOG),
    ("TraceSetting", NO_TRACES),
];

impl Method {
    /// The method that a path names.
    pub(in crate::gateway) fn find(path: &str) -> Option<Self> {
        if path == HEALTH {
            return Some(Self::Served(Document::Health));
        }
        if path == WATCH {
            return Some(Self::Unserved(NO_WATCH));
        }
        let name = path.strip_prefix('/')?.strip_prefix(SERVICE)?.strip_prefix('/')?;
        // `Check` is first, and is no method of this service.
        let served =
            SERVED[1..].iter().find(|(known, _)| *known == name).map(|&(_, method)| method);
        let unserved = || UNSERVED.iter().find(|(known, _)| *known == name);
        served.or_else(|| unserved().map(|&(_, why)| Self::Unserved(why)))
    }

    /// Whether it is served whoever has taken the other connections.
    pub(in crate::gateway) fn is_reserved(self) -> bool {
        let health = [Document::Health, Document::ServerLive, Document::ServerReady];
        health.iter().any(|&document| self == Self::Served(document))
    }

    /// The scopes of which a token must have one; `None` needs no token.
    pub(in crate::gateway) fn scopes(self) -> Option<&'static [Scope]> {
        use Scope::{Infer, Memory, Metrics, Operate};
        Some(match self {
            Self::ModelInfer | Self::ModelStreamInfer => &[Infer],
            Self::Served(document) => match document {
                Document::Health | Document::ServerLive | Document::ServerReady => return None,
                Document::ModelConfig | Document::ModelMetadata | Document::ModelReady => &[Infer],
                Document::ModelStatistics => &[Infer, Metrics],
                Document::RepositoryIndex => &[Infer, Operate],
                Document::RepositoryModelLoad | Document::RepositoryModelUnload => &[Operate],
                Document::SharedMemoryRegister
                | Document::SharedMemoryStatus
                | Document::SharedMemoryUnregister => &[Memory],
                Document::ServerMetadata => &[Infer, Metrics, Operate, Memory],
            },
            Self::Unserved(_) => &[Infer, Metrics, Operate, Memory],
        })
    }
}

/// There is no such method.
pub(super) fn unknown(path: &str) -> Failure {
    let shown: String = path.chars().take(100).collect();
    let why = format!("there is no method `{shown}`; the service is {SERVICE}");
    Failure::new(StatusCode::NOT_IMPLEMENTED, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_method_or_none() {
        let of = |method: &str| Method::find(&format!("/{SERVICE}/{method}"));
        assert_eq!(of("ModelInfer"), Some(Method::ModelInfer));
        assert_eq!(of("TraceSetting"), Some(Method::Unserved(NO_TRACES)));
        assert_eq!(Method::find(HEALTH), Some(Method::Served(Document::Health)));
        for wrong in ["Check", "modelinfer", "ModelInfer/", ""] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(Method::find(WATCH), Some(Method::Unserved(NO_WATCH)));
        assert_eq!(SERVED[0].1, Method::Served(Document::Health));
        assert_eq!(Method::find("/v2/health/live"), None);
    }
}
