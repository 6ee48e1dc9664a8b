//! A cluster as its operator sees it: hosts, what waits in the stream, what is convicted. Calls block.

use std::ops::Deref;
use std::sync::mpsc;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::ids::ContentHash;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use crate::{Conviction, HostRow, LaneRow, NatsError, NatsOptions, Streams, connect};

/// How long the servers may take for all that a call asks them.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a cluster, for questions about it.
#[derive(Debug)]
pub struct Cluster {
    runtime: Background,
    streams: Streams,
}

/// A cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The hosts that said something within the last 10 s.
    pub hosts: Vec<HostRow>,
    /// Jobs in the stream: they wait, or a host has them.
    pub jobs: u64,
    /// Their bytes.
    pub jobs_bytes: u64,
    /// Copies that the stream of jobs keeps.
    pub replicas: u64,
    /// The server that leads the stream of jobs; empty if there is one server, or none leads at the moment.
    pub leader: String,
    /// Other servers with a copy: their names, and whether they are up to date.
    pub followers: Vec<(String, bool)>,
    /// One row for each priority of programs, and of each model, for each version of the protocol.
    pub lanes: Vec<LaneRow>,
    /// Contents that no host runs any more.
    pub convicted: Vec<(String, Conviction)>,
}

impl Cluster {
    /// Connects.
    ///
    /// # Errors
    /// [`NatsError`].
    pub fn connect(options: &NatsOptions) -> Result<Self, NatsError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Background(Some(runtime.map_err(NatsError::System)?));
        let options = options.clone();
        let until = clock::now() + ANSWER_TIMEOUT;
        let streams = within(&runtime, ANSWER_TIMEOUT, async move {
            let connection = connect(&options, "gridpool cluster").await?;
            Streams::sought(&connection, &options.prefix, false, until).await
        })?;
        Ok(Self { runtime, streams })
    }

    /// How the cluster is.
    ///
    /// # Errors
    /// [`NatsError`].
    pub fn status(&self) -> Result<ClusterStatus, NatsError> {
        let streams = self.streams.clone();
        within(&self.runtime, ANSWER_TIMEOUT, async move { status(streams).await })
    }

    /// Lets a convicted content run again, by its hash or the one that pools have of it. Returns the former if it was
    /// convicted.
    ///
    /// # Errors
    /// [`NatsError`].
    pub fn release(&self, content: ContentHash) -> Result<Option<String>, NatsError> {
        let poison = self.streams.poison.clone();
        within(&self.runtime, ANSWER_TIMEOUT, async move { poison.release(content).await })
    }
}

async fn status(streams: Streams) -> Result<ClusterStatus, NatsError> {
    let failed = "the stream of jobs cannot be looked at";
    let info = streams.jobs.get_info().await.map_err(NatsError::jetstream(failed))?;
    let hosts = streams.hosts.list().await?;
    let servers = info.cluster.as_ref();
    Ok(ClusterStatus {
        lanes: streams.lanes(&hosts).await?,
        hosts,
        jobs: info.state.messages,
        jobs_bytes: info.state.bytes,
        replicas: info.config.num_replicas as u64,
        leader: servers.and_then(|servers| servers.leader.clone()).unwrap_or_default(),
        followers: servers
            .into_iter()
            .flat_map(|servers| &servers.replicas)
            .map(|server| (server.name.clone(), server.current && !server.offline))
            .collect(),
        convicted: streams.poison.list().await?,
    })
}

/// A runtime that may end anywhere, also on a thread of another runtime: it waits for nothing.
#[derive(Debug)]
pub(crate) struct Background(pub(crate) Option<Runtime>);

impl Deref for Background {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is taken only when it is dropped")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs a future on a runtime, from any thread: also from one of another runtime. It may take so long.
pub(crate) fn within<T: Send + 'static>(
    runtime: &Runtime,
    timeout: Duration,
    future: impl Future<Output = Result<T, NatsError>> + Send + 'static,
) -> Result<T, NatsError> {
    let (tell, told) = mpsc::sync_channel(1);
    runtime.spawn(async move { tell.send(future.await) });
    told.recv_timeout(timeout).unwrap_or(Err(NatsError::Silent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_ends_inside_another() {
        let build = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let inner = Background(Some(build()));
        assert_eq!(within(&inner, ANSWER_TIMEOUT, async { Ok(7) }).unwrap(), 7);
        build().block_on(async move { drop(inner) });
    }
}
