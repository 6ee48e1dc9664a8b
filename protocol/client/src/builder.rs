//! How a client connects.

use std::fmt::Debug;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridpool_ipc::socket;
use gridpool_ipc::spin::SPIN_DEFAULT;

use super::connection::Connection;
use super::link::Given;
use super::{Client, ClientError};

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// How long the reading thread polls before it sleeps.
    pub(super) spin: Duration,
    /// How long the client waits for a pool when it connects for the first time; `None` for the default.
    pub(super) pool_timeout: Option<Duration>,
    /// How long the client tries to reconnect.
    pub(super) reconnect_for: Duration,
    /// How long the pool may take to answer a query.
    pub(super) reply_timeout: Duration,
    /// Ends a wait for shared memory.
    pub(super) gives_up: fn() -> bool,
}

/// Builds a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    socket: Option<PathBuf>,
    #[cfg(feature = "nats")]
    nats: Option<gridpool_nats::NatsOptions>,
    settings: Settings,
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        let settings = Settings {
            spin: SPIN_DEFAULT,
            pool_timeout: None,
            reconnect_for: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(30),
            gives_up: || false,
        };
        Self {
            socket: None,
            #[cfg(feature = "nats")]
            nats: None,
            settings,
        }
    }

    /// Sets the path of the pool's socket, or with the feature `nats` the address of a cluster, `nats://a,b,c`. The
    /// default is [`default_socket`](crate::default_socket).
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Connects to a cluster: pools of several hosts that take jobs from NATS JetStream. Jobs, results and
    /// receipts are those of a pool; orders and the status are not to be had.
    #[cfg(feature = "nats")]
    #[must_use]
    pub fn nats(mut self, options: gridpool_nats::NatsOptions) -> Self {
        self.nats = Some(options);
        self
    }

    /// Sets how long a waiting thread polls for an answer before it sleeps, at most 1 ms. An answer that
    /// arrives meanwhile costs no wake-up. A thread polls only if the previous message arrived within that
    /// time, and only one thread for every four cores polls, so long jobs waste no CPU time. Zero turns
    /// polling off. The default is 200 µs.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Self {
        self.settings.spin = spin;
        self
    }

    /// Sets how long [`ClientBuilder::connect`] waits for a pool that starts again, or for the servers and the streams
    /// of a cluster. The default for a pool is zero: it fails at once if there is none. For a cluster it is 30 s, the
    /// default deadline of a job.
    #[must_use]
    pub fn wait_for_pool(mut self, timeout: Duration) -> Self {
        self.settings.pool_timeout = Some(timeout);
        self
    }

    /// Sets how long the client tries to reconnect before its jobs fail with [`ClientError::Lost`]. Until
    /// then, jobs that a stopped pool has not finished wait for the next pool, which runs them. Zero turns
    /// reconnecting off. The default is 10 s.
    #[must_use]
    pub fn reconnect_for(mut self, span: Duration) -> Self {
        self.settings.reconnect_for = span;
        self
    }

    /// Sets how long the pool may take to answer a query, such as [`Client::status`]. The default is 30 s.
    #[must_use]
    pub fn reply_timeout(mut self, timeout: Duration) -> Self {
        self.settings.reply_timeout = timeout;
        self
    }

    /// Sets what is asked every 20 ms while a job waits for shared memory, by the thread that sends it: `true` ends the
    /// wait, and the pool's refusal is the error. The default is `false`, until the job's deadline.
    #[must_use]
    pub fn give_up_if(mut self, gives_up: fn() -> bool) -> Self {
        self.settings.gives_up = gives_up;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`ClientError::NoPool`] if no pool listens at the socket, [`ClientError::NotAllowed`] if this user
    /// may not connect.
    pub fn connect(self) -> Result<Client, ClientError> {
        #[cfg(feature = "nats")]
        if let Some(options) = &self.nats {
            return self.connect_to_cluster(options);
        }
        let path = self.socket.clone().unwrap_or_else(socket::path_of_environment);
        #[cfg(feature = "nats")]
        if let Some(text) =
            path.to_str().filter(|text| gridpool_nats::NatsOptions::is_address(text))
        {
            let options = gridpool_nats::NatsOptions::parse(text);
            let options = options.map_err(|error| ClientError::Cluster(error.to_string()))?;
            return self.connect_to_cluster(&options);
        }
        let connection = Connection::open(path, self.settings)?;
        Ok(Client { connection: Arc::new(connection) })
    }

    #[cfg(feature = "nats")]
    fn connect_to_cluster(
        &self,
        options: &gridpool_nats::NatsOptions,
    ) -> Result<Client, ClientError> {
        use gridpool_protocol::chain::Chain;
        use gridpool_protocol::limits::DEADLINE_DEFAULT;
        let wait = self.settings.pool_timeout.unwrap_or(DEADLINE_DEFAULT);
        let patience = gridpool_nats::Patience::of(wait);
        let connected = gridpool_nats::Sender::connect(options, patience);
        let (sender, socket) =
            connected.map_err(|error| ClientError::Cluster(Chain(&error).to_string()))?;
        self.clone().connect_through(socket, Box::new(sender))
    }

    /// Connects to a supervisor at the other end of a socket pair. The client does not reconnect.
    ///
    /// # Errors
    /// [`ClientError`] if the handshake fails.
    pub fn connect_over(self, socket: UnixStream) -> Result<Client, ClientError> {
        self.over(Given { socket, kept: None })
    }

    /// Connects to what answers in a pool's place at the other end of a socket pair, such as the sender of a cluster.
    /// It lives as long as the client, which does not reconnect.
    ///
    /// # Errors
    /// [`ClientError`] if the handshake fails.
    pub fn connect_through(
        self,
        socket: UnixStream,
        agent: Box<dyn Debug + Send + Sync>,
    ) -> Result<Client, ClientError> {
        self.over(Given { socket, kept: Some(agent) })
    }

    fn over(self, given: Given) -> Result<Client, ClientError> {
        let connection = Connection::over(given, self.settings)?;
        Ok(Client { connection: Arc::new(connection) })
    }
}
