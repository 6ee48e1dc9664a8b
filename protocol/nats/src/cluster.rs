//! A cluster as its operator sees it: hosts, what waits in the stream, what is convicted. Calls block.

use std::ops::Deref;
use std::sync::mpsc;
use std::time::Duration;

use futures_util::TryStreamExt;
use gridpool_protocol::ids::ContentHash;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use crate::streams::Generation;
use crate::{Conviction, HostRow, NatsError, NatsOptions, Streams, connect};

/// How long the servers may take for all that a call asks them.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

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
    /// One row for each priority of programs, and of each model.
    pub lanes: Vec<LaneRow>,
    /// Contents that no host runs any more.
    pub convicted: Vec<(String, Conviction)>,
}

/// Jobs that the same hosts can run, of one priority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRow {
    /// As `grid-normal` or `model-NAME-high`.
    pub name: String,
    /// Jobs that no host has.
    pub waiting: u64,
    /// Jobs that a host has.
    pub running: u64,
    /// Of those, jobs that were delivered before.
    pub redelivered: u64,
    /// Open questions of hosts for jobs.
    pub asking: u64,
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
        let streams = within(&runtime, async move {
            let connection = connect(&options, "gridpool cluster").await?;
            Streams::sought(&connection, &options.prefix, false).await
        })?;
        Ok(Self { runtime, streams })
    }

    /// How the cluster is.
    ///
    /// # Errors
    /// [`NatsError`].
    pub fn status(&self) -> Result<ClusterStatus, NatsError> {
        let streams = self.streams.clone();
        within(&self.runtime, async move { status(streams).await })
    }

    /// Lets a convicted content run again. Returns whether it was convicted.
    ///
    /// # Errors
    /// [`NatsError`].
    pub fn release(&self, content: ContentHash) -> Result<bool, NatsError> {
        let poison = self.streams.poison.clone();
        within(&self.runtime, async move { poison.release(content).await })
    }
}

async fn status(streams: Streams) -> Result<ClusterStatus, NatsError> {
    let failed = "the stream of jobs cannot be looked at";
    let info = streams.jobs.get_info().await.map_err(NatsError::jetstream(failed))?;
    let Generation(end) = Generation::of(&info);
    let lane = |consumer: String| consumer.strip_suffix(&end).unwrap_or(&consumer).to_owned();
    let mut lanes: Vec<_> = streams
        .jobs
        .consumers()
        .map_ok(|consumer| LaneRow {
            name: lane(consumer.name),
            waiting: consumer.num_pending,
            running: u64::try_from(consumer.num_ack_pending).unwrap_or(0),
            redelivered: u64::try_from(consumer.num_redelivered).unwrap_or(0),
            asking: u64::try_from(consumer.num_waiting).unwrap_or(0),
        })
        .try_collect()
        .await
        .map_err(NatsError::jetstream(failed))?;
    lanes.sort_by(|one: &LaneRow, other| one.name.cmp(&other.name));
    let servers = info.cluster.as_ref();
    Ok(ClusterStatus {
        hosts: streams.hosts.list().await?,
        jobs: info.state.messages,
        jobs_bytes: info.state.bytes,
        replicas: info.config.num_replicas as u64,
        leader: servers.and_then(|servers| servers.leader.clone()).unwrap_or_default(),
        followers: servers
            .into_iter()
            .flat_map(|servers| &servers.replicas)
            .map(|server| (server.name.clone(), server.current && !server.offline))
            .collect(),
        lanes,
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

/// Runs a future on a runtime, from any thread: also from one of another runtime.
pub(crate) fn within<T: Send + 'static>(
    runtime: &Runtime,
    future: impl Future<Output = Result<T, NatsError>> + Send + 'static,
) -> Result<T, NatsError> {
    let (tell, told) = mpsc::sync_channel(1);
    runtime.spawn(async move { tell.send(future.await) });
    told.recv_timeout(ANSWER_TIMEOUT).unwrap_or(Err(NatsError::Silent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_ends_inside_another() {
        let build = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let inner = Background(Some(build()));
        assert_eq!(within(&inner, async { Ok(7) }).unwrap(), 7);
        build().block_on(async move { drop(inner) });
    }
}
