//! The streams and buckets of a cluster: made by the first pool, opened by all.

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind, KeyValueError};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{
    Config, ConsumerError, ConsumerErrorKind, DiscardPolicy, Info, RawMessageError,
    RawMessageErrorKind, Republish, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{Context, ErrorCode, context::ContextBuilder, kv};
use futures_util::TryStreamExt;
use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::limits::DEADLINE_MAX;
use std::error::Error;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use tokio::time::sleep;

use crate::data::DATA_AGE;
use crate::hosts::HOST_AGE;
use crate::publish::Link;
use crate::{
    Connection, Hosts, Lane, NatsError, Poison, Results, Runs, Store, StreamLimits, Subjects,
};

/// How long a server may take to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two tries.
const SEEK_AGAIN: Duration = Duration::from_millis(200);
/// How long a job may stay in the stream. It is past every deadline then.
const JOB_AGE: Duration = Duration::from_secs(2 * 3_600);
/// How long a result's identity is remembered, for a host that publishes it again because it has heard no answer.
const RESULT_WINDOW: Duration = Duration::from_secs(600);
/// How long the identity of a change of a bucket is remembered.
const KV_WINDOW: Duration = Duration::from_secs(120);
/// How long a lane is kept that no host asks for jobs. The next host that does makes it again.
const CONSUMER_AGE: Duration = Duration::from_secs(24 * 3_600);
/// What refusals say if they are of the opening of streams: of its requests, or of their answers.
const OPENING: [&str; 3] = ["\"$JS.API.STREAM.INFO.", "\"$JS.API.STREAM.CREATE.", "\"_INBOX."];
/// How long a conviction counts.
pub(crate) const POISON_AGE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Streams {
    /// The servers.
    pub connection: Connection,
    pub(crate) link: Link,
    /// The names.
    pub subjects: Subjects,
    /// Jobs.
    pub jobs: Stream<Info>,
    /// Results.
    pub results: Results,
    /// Large batches and results.
    pub data: Store,
    /// Convictions.
    pub poison: Poison,
    /// Runs under way of jobs that have to be watched.
    pub runs: Runs,
    /// Hosts.
    pub hosts: Hosts,
}

impl Streams {
    /// Opens the streams. With limits, it makes those that are not there; without, they must be there.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn open(
        connection: &Connection,
        prefix: &str,
        limits: Option<&StreamLimits>,
    ) -> Result<Self, NatsError> {
        connection.refusals.or(&OPENING, Self::opened(connection, prefix, limits)).await
    }

    /// Opens streams that must be there, and follows convictions if it is told to. Servers that do not answer are asked
    /// again until that time: if one that leads has died, another has to lead first.
    pub(crate) async fn sought(
        connection: &Connection,
        prefix: &str,
        follows: bool,
        until: Instant,
    ) -> Result<Self, NatsError> {
        loop {
            let opened = async {
                let streams = Self::open(connection, prefix, None).await?;
                if follows {
                    streams.poison.follow().await?;
                }
                Ok::<_, NatsError>(streams)
            };
            match opened.await {
                Err(error) if error.is_silence() && !clock::until(until).is_zero() => {
                    tracing::debug!(
                        error = Chain(&error).to_string(),
                        "asking for the streams again"
                    );
                }
                opened => return opened,
            }
            sleep(SEEK_AGAIN).await;
        }
    }

    async fn opened(
        connection: &Connection,
        prefix: &str,
        limits: Option<&StreamLimits>,
    ) -> Result<Self, NatsError> {
        let client = &connection.client;
        let context = ContextBuilder::new()
            .timeout(ANSWER_TIMEOUT)
            .ack_timeout(ANSWER_TIMEOUT)
            .build(client.clone());
        let subjects = Subjects::new(prefix, connection.version);
        let open = |config, limit| stream(&context, config, limits.is_some().then_some(limit));
        let unused = StreamLimits::new(1);
        let configs = configs(&subjects, limits.unwrap_or(&unused));
        let [jobs, results, data] = configs;
        let jobs = open(jobs, "jobs_bytes_max").await?;
        let results = open(results, "results_bytes_max").await?;
        let data = open(data, "data_bytes_max").await?;
        let replicas = limits.map(|limits| limits.replicas);
        let poison = bucket(&context, subjects.stream("poison"), POISON_AGE, replicas).await?;
        let hosts = bucket(&context, subjects.stream("hosts"), HOST_AGE, replicas).await?;
        let link = Link { context, refusals: connection.refusals.clone() };
        Ok(Self {
            results: Results::new(link.clone(), results, subjects.clone()),
            data: Store::new(link.clone(), data, subjects.clone(), client.max_payload()),
            runs: Runs::new(poison.clone()),
            poison: Poison::new(poison),
            hosts: Hosts::new(hosts),
            connection: connection.clone(),
            link,
            subjects,
            jobs,
        })
    }

    /// The numbers of the first and the last job of the stream; empty if there is none.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn span_of_jobs(&self) -> Result<RangeInclusive<u64>, NatsError> {
        let info = self.jobs.get_info().await;
        let state = info.map_err(NatsError::jetstream("the stream of jobs says nothing"))?.state;
        let first = if state.messages == 0 { u64::MAX } else { state.first_sequence };
        Ok(first..=state.last_sequence)
    }

    /// The first job of this number or a later one.
    pub(crate) async fn job_from(&self, number: u64) -> Result<Option<StreamMessage>, NatsError> {
        let all = self.subjects.jobs();
        read(self.jobs.get_first_raw_message_by_subject(all, number).await)
    }

    /// Removes the job of this number. Returns whether it was there.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn remove_job(&self, number: u64) -> Result<bool, NatsError> {
        let removed = self.jobs.delete_message(number).await;
        removed.map_err(NatsError::jetstream("a job cannot be removed"))
    }

    /// How the names of consumers ended when these were opened.
    #[must_use]
    pub fn opened_generation(&self) -> Generation {
        Generation::of(self.jobs.cached_info())
    }

    /// How the names of consumers end now.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn generation(&self) -> Result<Generation, NatsError> {
        let info = self.jobs.get_info().await;
        let info = info.map_err(NatsError::jetstream("the stream of jobs says nothing"))?;
        Ok(Generation::of(&info))
    }

    /// The consumer of a lane, which all hosts of a version share. If streams are made anew, consumers have other
    /// names: jobs are acknowledged to one by their numbers, which begin again, and some host may have a job of the
    /// streams before.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn consumer(
        &self,
        lane: &Lane,
        ack_wait: Duration,
        generation: Generation,
    ) -> Result<PullConsumer, NatsError> {
        let made = match self.made(lane, ack_wait, generation).await {
            Err(error) if is_another_there(&error) => {
                let generation = self.generation().await?;
                self.remove_others(lane, generation).await?;
                self.made(lane, ack_wait, generation).await
            }
            made => made,
        };
        made.map_err(NatsError::jetstream("a consumer of jobs cannot be made"))
    }

    async fn made(
        &self,
        lane: &Lane,
        ack_wait: Duration,
        generation: Generation,
    ) -> Result<PullConsumer, ConsumerError> {
        let name = self.subjects.consumer(lane) + &generation.end();
        let config = pull::Config {
            durable_name: Some(name.clone()),
            filter_subject: self.subjects.job(lane),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait,
            // A job is given up by its deadline, or as a suspect, and not by a count.
            max_deliver: -1,
            max_ack_pending: -1,
            inactive_threshold: CONSUMER_AGE,
            ..pull::Config::default()
        };
        self.jobs.get_or_create_consumer(&name, config).await
    }

    /// The stream has one consumer for a lane. If there is another, a host has made it for the stream before just when
    /// this one was made. It is removed: its host finds that out, and makes the right one.
    async fn remove_others(&self, lane: &Lane, generation: Generation) -> Result<(), NatsError> {
        let own = self.subjects.consumer(lane) + &generation.end();
        let subject = self.subjects.job(lane);
        let all = self.jobs.consumers().try_collect::<Vec<_>>().await;
        let failed = "the consumers of jobs cannot be looked at";
        for other in all.map_err(NatsError::jetstream(failed))? {
            if other.config.filter_subject == subject && other.name != own {
                tracing::info!(consumer = other.name, "of a stream that is gone: it is removed");
                let removed = self.jobs.delete_consumer(&other.name).await;
                removed
                    .map_err(NatsError::jetstream("a consumer of a stream before is in the way"))?;
            }
        }
        Ok(())
    }
}

/// A job that was asked for; `None` if there is none.
fn read(asked: Result<StreamMessage, RawMessageError>) -> Result<Option<StreamMessage>, NatsError> {
    match asked {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(NatsError::jetstream("a job cannot be read")(error)),
    }
}

fn is_another_there(error: &ConsumerError) -> bool {
    let not_unique = ErrorCode::CONSUMER_WQ_CONSUMER_NOT_UNIQUE;
    matches!(error.kind(), ConsumerErrorKind::JetStream(why) if why.error_code() == not_unique)
}

/// Which stream of jobs it is, by the time at which it was made. The names of consumers end with it. Which of two is
/// there now it does not say: an older one comes back with its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(i128);

impl Generation {
    pub(crate) fn of(jobs: &Info) -> Self {
        Self::made_at(jobs.created.unix_timestamp_nanos())
    }

    /// That of a stream which was made then, nanoseconds since 1970.
    #[must_use]
    pub fn made_at(nanoseconds: i128) -> Self {
        Self(nanoseconds)
    }

    fn end(self) -> String {
        format!("-{:x}", self.0)
    }
}

/// What the streams of jobs, results and data are made with.
fn configs(subjects: &Subjects, limits: &StreamLimits) -> [Config; 3] {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let common = Config {
        storage: StorageType::File,
        num_replicas: limits.replicas,
        discard: DiscardPolicy::New,
        allow_direct: true,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        ..Config::default()
    };
    let jobs = Config {
        name: subjects.stream("jobs"),
        subjects: vec![subjects.jobs()],
        retention: RetentionPolicy::WorkQueue,
        max_messages: signed(limits.jobs_max),
        max_bytes: signed(limits.jobs_bytes_max),
        max_age: JOB_AGE,
        duplicate_window: DEADLINE_MAX,
        ..common.clone()
    };
    let results = Config {
        name: subjects.stream("results"),
        subjects: vec![subjects.results()],
        max_messages_per_subject: 1,
        max_bytes: signed(limits.results_bytes_max),
        max_age: limits.results_age,
        duplicate_window: RESULT_WINDOW.min(limits.results_age),
        republish: Some(Republish {
            source: subjects.results(),
            destination: subjects.notes(),
            headers_only: false,
        }),
        ..common.clone()
    };
    let data = Config {
        name: subjects.stream("data"),
        subjects: vec![subjects.all_data()],
        max_messages_per_subject: 1,
        max_bytes: signed(limits.data_bytes_max),
        max_age: DATA_AGE + limits.results_age,
        ..common
    };
    [jobs, results, data]
}

/// A stream; with the setting that limits its bytes it is made if it is not there.
async fn stream(
    context: &Context,
    config: Config,
    limit: Option<&'static str>,
) -> Result<Stream<Info>, NatsError> {
    let name = config.name.clone();
    let failed = |error: &GetStreamError| match Chain(error).to_string().contains("timed out") {
        // Some servers have it, or their leader is gone and they choose another.
        true => "a stream cannot be opened: no server that leads it answers yet",
        false => "a stream cannot be opened: the servers need JetStream (`nats-server -js`)",
    };
    match context.get_stream(&name).await {
        Ok(stream) => Ok(stream),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(refused) if refused.code() == 404 => match limit {
                None => Err(NatsError::NoStream { stream: name }),
                Some(limit) => {
                    let made = context.get_or_create_stream(&config).await;
                    made.map_err(|error| NatsError::unmade(error, &config, limit))?;
                    let made = context.get_stream(&name).await;
                    made.map_err(NatsError::jetstream("a stream that was made cannot be opened"))
                }
            },
            GetStreamErrorKind::EmptyName
            | GetStreamErrorKind::InvalidStreamName
            | GetStreamErrorKind::JetStream(_)
            | GetStreamErrorKind::Request => Err(NatsError::jetstream(failed(&error))(error)),
        },
    }
}

/// Whether a bucket is not there.
fn is_absent(error: &KeyValueError) -> bool {
    let stream = error.source().and_then(|source| source.downcast_ref::<GetStreamError>());
    let why = stream.map(GetStreamError::kind);
    matches!(why, Some(GetStreamErrorKind::JetStream(refused)) if refused.code() == 404)
}

/// A bucket; with a number of replicas it is made if it is not there.
async fn bucket(
    context: &Context,
    bucket: String,
    max_age: Duration,
    replicas: Option<usize>,
) -> Result<kv::Store, NatsError> {
    let there = context.get_key_value(&bucket).await;
    match (there, replicas) {
        (Ok(store), _) => Ok(store),
        (Err(error), None) => Err(match is_absent(&error) {
            true => NatsError::NoStream { stream: format!("KV_{bucket}") },
            false => NatsError::jetstream("a bucket cannot be opened")(error),
        }),
        // The library's own call asks the account first, whose answer of server 2.9 it cannot read.
        (Err(_), Some(num_replicas)) => {
            let config = Config {
                name: format!("KV_{bucket}"),
                subjects: vec![format!("$KV.{bucket}.>")],
                max_age,
                num_replicas,
                max_messages: -1,
                max_messages_per_subject: 1,
                max_consumers: -1,
                max_bytes: -1,
                duplicate_window: KV_WINDOW.min(max_age),
                discard: DiscardPolicy::New,
                storage: StorageType::File,
                allow_rollup: true,
                // Notes of runs are removed by their numbers.
                deny_delete: false,
                allow_direct: true,
                ..Config::default()
            };
            let failed = "a bucket cannot be made";
            let made = context.get_or_create_stream(config).await;
            made.map_err(NatsError::jetstream(failed))?;
            context.get_key_value(&bucket).await.map_err(NatsError::jetstream(failed))
        }
    }
}
