//! The models that hosts say they have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_protocol::message::{DeviceModel, Refusal, Reply, ServerMessage, Work};
use gridpool_protocol::tensor::model::ModelState;
use gridpool_protocol::tensor::version::{ModelRef, split};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout_at};

use super::Agent;
use crate::{HostRow, NatsError};

/// How long an answer of the hosts counts.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// Between two questions while no server answers.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long they are asked for the list of models. A client waits longer for an answer.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);
/// Rows in a message.
const ROWS_MAX: usize = 32;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Models {
    hosts: Mutex<Option<(Instant, Arc<Vec<HostRow>>)>>,
    /// See [`super::Patience`].
    until: Option<Instant>,
}

impl Models {
    pub(super) fn until(until: Option<Instant>) -> Self {
        Self { hosts: Mutex::default(), until }
    }
}

impl Agent {
    async fn hosts(&self) -> Result<Arc<Vec<HostRow>>, NatsError> {
        let mut known = self.models.hosts.lock().await;
        match &*known {
            Some((at, hosts)) if at.elapsed() < FRESH_FOR => Ok(Arc::clone(hosts)),
            Some(_) | None => {
                let hosts = Arc::new(self.streams.hosts.list().await?);
                *known = Some((clock::now(), Arc::clone(&hosts)));
                Ok(hosts)
            }
        }
    }

    /// The hosts that can read this client's jobs. Asks until that time while no server answers.
    async fn readers(&self, until: Instant) -> Result<Vec<HostRow>, NatsError> {
        let hosts = asked(until, || self.hosts()).await?;
        let version = self.streams.subjects.version();
        Ok(hosts.iter().filter(|host| host.protocol == version).cloned().collect())
    }

    /// Why no host takes this client's jobs, if there are hosts, and none is of its version.
    pub(super) async fn why_unread(&self) -> Option<String> {
        let (hosts, version) = (self.hosts().await.ok()?, self.streams.subjects.version());
        let theirs: BTreeSet<_> = hosts.iter().map(|host| host.protocol.to_string()).collect();
        if theirs.is_empty() || theirs.contains(&version.to_string()) {
            return None;
        }
        let theirs = theirs.into_iter().collect::<Vec<_>>().join(", ");
        Some(format!(
            "no host of the cluster reads jobs of protocol {version}: all are of {theirs}; use their build of gridpool \
             here, or this one on a host"
        ))
    }

    /// Answers with the models of all hosts that can read this client's jobs.
    pub(super) fn list_models(self: &Arc<Self>, request: u64, from: u32, runtime: &Handle) {
        let agent = Arc::clone(self);
        runtime.spawn(async move {
            let until = clock::now() + LIST_TIMEOUT;
            let until = agent.models.until.map_or(until, |end| end.min(until));
            let answer = match agent.readers(until).await {
                Ok(hosts) => {
                    let rows: Vec<_> = hosts.iter().flat_map(rows_of).collect();
                    let total = u32::try_from(rows.len()).unwrap_or(u32::MAX);
                    let models = rows.into_iter().skip(from as usize).take(ROWS_MAX).collect();
                    ServerMessage::Reply { request, reply: Reply::Models { models, total } }
                }
                Err(error) => {
                    let refusal = Refusal::Unable(error.to_string());
                    ServerMessage::Denied { request, refusal }
                }
            };
            agent.outbox.say(&answer);
        });
    }

    /// Why no host can run a job, if that is known. Without hosts a job waits for the first one.
    /// Asks until that time while no server answers.
    pub(super) async fn why_unservable(
        &self,
        work: &Work,
        until: Instant,
    ) -> Result<Option<String>, NatsError> {
        let Work::Model { name } = work else { return Ok(None) };
        let asked = match ModelRef::parse(name) {
            Ok(asked) => asked,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let hosts = self.readers(until).await?;
        let serves = |row: &DeviceModel| {
            let (own, version) = split(&row.model.name);
            own == asked.name
                && asked.version.map_or(row.serves, |asked| asked == version)
                && row.model.state == ModelState::Ready
        };
        let found = hosts.is_empty() || hosts.iter().flat_map(|host| &host.models).any(serves);
        Ok((!found).then(|| format!("no host of the cluster has a model `{name}` that is ready")))
    }
}

/// Asks until that time while there is no answer; once, for as long as that takes, if it has passed.
async fn asked<T, A: Future<Output = Result<T, NatsError>>>(
    until: Instant,
    ask: impl Fn() -> A,
) -> Result<T, NatsError> {
    if clock::until(until).is_zero() {
        return ask().await;
    }
    let asking = async {
        loop {
            match ask().await {
                Err(error) if !clock::until(until).is_zero() => {
                    tracing::debug!(%error, "asking for the hosts again");
                    sleep(ASK_AGAIN).await;
                }
                asked => return asked,
            }
        }
    };
    timeout_at(until.into(), asking).await.unwrap_or(Err(NatsError::Silent))
}

fn rows_of(host: &HostRow) -> impl Iterator<Item = DeviceModel> {
    host.models.iter().map(|row| {
        let worker = format!("{}/{}", host.host, row.worker);
        DeviceModel { worker, ..row.clone() }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};

    use futures_util::FutureExt;
    use tokio::runtime::Builder;
    use tokio::task::yield_now;

    use super::*;
    use crate::Patience;

    #[test]
    fn a_command_that_does_not_wait_asks_for_a_list_once() {
        let until = Patience::of_command(Duration::ZERO).lists_until.expect("commands have one");
        let questions = Cell::new(0);
        let third = || {
            questions.set(questions.get() + 1);
            ready(if questions.get() < 3 { Err(NatsError::Silent) } else { Ok(()) })
        };
        assert!(asked(until, third).now_or_never().expect("it does not wait").is_err());
        assert_eq!(questions.replace(0), 1);
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let slow = async || {
            yield_now().await;
            Ok(())
        };
        runtime.block_on(async { asked(until, slow).await }).expect("the answer may take its time");
        // One that waits asks again, and no longer than it waits.
        let late = clock::now() + Duration::from_secs(600);
        runtime.block_on(async { asked(late, third).await }).expect("the third answers");
        let soon = clock::now() + Duration::from_millis(1);
        let nobody = runtime.block_on(async { asked(soon, pending::<Result<(), _>>).await });
        assert!(matches!(nobody, Err(NatsError::Silent)), "{nobody:?}");
    }
}
