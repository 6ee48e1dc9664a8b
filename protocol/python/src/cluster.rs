//! Where a client connects to: the socket of a pool, or a cluster's NATS servers.

use std::path::PathBuf;

use gridpool_client::{Client, ClientBuilder, NatsOptions};
use pyo3::PyResult;
use pyo3::exceptions::PyValueError;

use crate::process::is_interrupted;

/// What opens a cluster's servers: credentials, their authorities, a certificate and its key.
pub(crate) type ClusterFiles = [Option<PathBuf>; 4];

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    nats: Option<NatsOptions>,
}

impl Place {
    /// `nats://a,b,c`, or the path of a socket. Prefix and files are a cluster's.
    pub(crate) fn new(
        socket: Option<PathBuf>,
        prefix: Option<String>,
        files: ClusterFiles,
    ) -> PyResult<Self> {
        let socket = socket.unwrap_or_else(gridpool_client::default_socket);
        let wrong = |why: String| PyValueError::new_err(why);
        let text = socket.to_str().filter(|text| NatsOptions::is_address(text));
        let Some(text) = text else {
            let is_set = prefix.is_some() || files.iter().any(Option::is_some);
            let what = "prefix, credentials, ca, cert and key are for a cluster: connect(\"nats://a,b,c\", …)";
            return if is_set {
                Err(wrong(what.to_owned()))
            } else {
                Ok(Self { socket, nats: None })
            };
        };
        let mut nats = NatsOptions::parse(text).map_err(|error| wrong(error.to_string()))?;
        if let Some(prefix) = prefix {
            NatsOptions::check_prefix(&prefix).map_err(wrong)?;
            nats.prefix = prefix;
        }
        [nats.credentials, nats.ca, nats.cert, nats.key] = files;
        Ok(Self { socket: socket.clone(), nats: Some(nats) })
    }

    /// The builder of a connection to it.
    pub(crate) fn builder(&self) -> ClientBuilder {
        let builder = Client::builder().give_up_if(is_interrupted);
        match &self.nats {
            Some(nats) => builder.nats(nats.clone()),
            None => builder.socket(&self.socket),
        }
    }
}
