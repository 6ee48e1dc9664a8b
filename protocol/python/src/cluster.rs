//! Where a client connects to: the socket of a pool, or a cluster's NATS servers.

use std::path::PathBuf;

use gridpool_client::{Client, ClientBuilder, NatsOptions};
use pyo3::PyResult;
use pyo3::exceptions::PyValueError;

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    nats: Option<NatsOptions>,
}

impl Place {
    /// `nats://a,b,c`, or the path of a socket. The options are a cluster's: prefix, credentials file, authorities.
    pub(crate) fn new(
        socket: Option<PathBuf>,
        options: (Option<String>, Option<PathBuf>, Option<PathBuf>),
    ) -> PyResult<Self> {
        let socket = socket.unwrap_or_else(gridpool_client::default_socket);
        let wrong = |why: String| PyValueError::new_err(why);
        let (prefix, credentials, ca) = options;
        let text = socket.to_str().filter(|text| NatsOptions::is_address(text));
        let Some(text) = text else {
            let is_set = prefix.is_some() || credentials.is_some() || ca.is_some();
            let what = "prefix, credentials and ca are for a cluster: connect(\"nats://a,b,c\", …)";
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
        (nats.credentials, nats.ca) = (credentials, ca);
        Ok(Self { socket: socket.clone(), nats: Some(nats) })
    }

    /// The builder of a connection to it.
    pub(crate) fn builder(&self) -> ClientBuilder {
        let builder = Client::builder();
        match &self.nats {
            Some(nats) => builder.nats(nats.clone()),
            None => builder.socket(&self.socket),
        }
    }
}
