//! Which scopes the paths need.

use crate::gateway::tokens::Scope;
use crate::gateway::{events, grpc, page};

/// The scopes of which a token must have one; `None` needs no token.
pub(super) fn scopes_of(path: &str) -> Option<&'static [Scope]> {
    use Scope::{Infer, Memory, Metrics, Operate};
    if let Some(method) = grpc::Method::find(path) {
        return method.scopes();
    }
    let rest = path.strip_prefix("/v2/").unwrap_or(path);
    Some(match rest {
        // Load balancers and kubelets ask these.
        "health/live" | "health/ready" => return None,
        path if page::has(path) => return None,
        "gridpool/events" => events::SCOPES,
        "gridpool/receipts" | "gridpool/verdicts" => &[Infer, Operate],
        rest if rest.starts_with("gridpool/") => &[Operate],
        rest if rest.starts_with("systemsharedmemory/") => &[Memory],
        "/metrics" => &[Metrics],
        "repository/index" => &[Infer, Operate],
        rest if rest.starts_with("repository/") => &[Operate],
        rest if rest.starts_with("models/") && rest.ends_with("/stats")
            || rest == "models/stats" =>
        {
            &[Infer, Metrics]
        }
        rest if rest.starts_with("models/") => &[Infer],
        _ => &[Infer, Metrics, Operate, Memory],
    })
}
