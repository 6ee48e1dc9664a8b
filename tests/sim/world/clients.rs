//! Clients: they submit, repeat themselves, cancel and go away.

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_core::config::PoolConfig;
use gridpool_core::event::{ClientEvent, Event, HandOver, JobRequest, Release, Timestamp, Work};
use gridpool_core::placing::DeviceMemory;
use gridpool_core::policy::PolicyTable;
use gridpool_core::quota::{Quota, Quotas, Rate};
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{ClientId, ContentHash, DeviceId, DeviceKind, JobId, JobKey};
use gridpool_protocol::message::Priority;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::search::Score;
use gridpool_protocol::trace::TraceId;

use super::{Delivery, Fate, World};
use crate::swarm::Swarm;

/// Submissions that may be repeated.
const REMEMBERED: usize = 12;

/// Of 1,000 upgrades, those in which the successor gets the devices one by one.
const ONE_BY_ONE: u64 = 500;

/// One job in this many is a search, if it is for no model.
const SEARCHES: u128 = 12;

/// One suspect job in this many is cancelled while it is hashed.
const CALLED_OFF: u64 = 16;

/// The contents for a program and a number of items: first those that kill workers, then those that do not,
/// then one for after the faults.
const POISONOUS: u8 = 2;
const HARMLESS: u8 = 8;
const PROBE: u8 = u8::MAX;
/// Whose probes are: it has cost no workers, and has no quota.
const PROBER: Principal = Principal::Uid(u32::MAX);

impl World {
    /// One step at `now`: a client or chance acts. Returns the event, if the core gets one.
    pub(crate) fn act(&mut self, now: Timestamp) -> Option<Event> {
        let rates = self.swarm.rates.clone();
        if self.rng.chance(rates.drains) {
            if self.rng.chance(rates.second_orders) {
                let at = self.soon(now, 200);
                self.send(at, Delivery::Event(Event::StopRequested));
            }
            return Some(Event::DrainRequested);
        }
        if self.rng.chance(rates.hand_overs) {
            if self.rng.chance(ONE_BY_ONE) {
                return Some(self.successor_comes_up(now));
            }
            self.successor_ends_well_or_not(now);
            return Some(Event::HandOver(HandOver::Begun));
        }
        if self.rng.chance(rates.reconfigures) {
            // Limits that count at the moment when they are looked at. The others have effects on what began
            // before, which the model does not remember.
            let drawn = Swarm::config(&mut self.rng);
            let config = PoolConfig {
                queue_jobs_max: drawn.queue_jobs_max,
                queue_bytes_max: drawn.queue_bytes_max,
                client_jobs_max: drawn.client_jobs_max,
                denylist_max: drawn.denylist_max,
                verdicts_kept: drawn.verdicts_kept,
                ready_timeout: drawn.ready_timeout,
                infer_ready_timeout: drawn.infer_ready_timeout,
                heartbeat_suspect: drawn.heartbeat_suspect,
                heartbeat_kill: drawn.heartbeat_kill,
                command_timeout: drawn.command_timeout,
                shard_cost_min: drawn.shard_cost_min,
                shards_per_device: drawn.shards_per_device,
                standbys: drawn.standbys,
                infer_window: drawn.infer_window,
                ..self.swarm.config.clone()
            };
            return Some(Event::Reconfigured(Box::new(config), PolicyTable::default()));
        }
        if self.rng.chance(rates.quotas) {
            return Some(Event::QuotasSet(self.quotas()));
        }
        if self.rng.chance(rates.stops) {
            return Some(Event::StopRequested);
        }
        if self.rng.chance(rates.model_losses) {
            self.loses_a_model(now);
            return None;
        }
        if self.swarm.has_helpers && self.rng.chance(rates.helper_chaos) {
            return self.helper_chaos(now);
        }
        if self.rng.chance(rates.chaos) {
            return self.chaos(now);
        }
        if self.rng.chance(rates.device_faults) {
            return Some(self.device_fault(now));
        }
        if self.clients.is_empty() {
            return None;
        }
        let client = {
            let clients = self.clients.clone();
            self.rng.pick(&clients)
        };
        if self.rng.chance(rates.releases) {
            return self.release(client);
        }
        if self.swarm.models > 0 && self.rng.chance(rates.model_changes) {
            if self.rng.chance(300) {
                let device = self.some_device();
                let memory = self.device_memory(device);
                self.tell(now, memory);
            }
            return Some(self.changes_models(client));
        }
        if self.rng.chance(rates.disconnects) {
            self.clients.retain(|&open| open != client);
            let at = self.soon(now, 20);
            self.connect(at);
            return Some(Event::Client(client, ClientEvent::Gone));
        }
        if self.rng.chance(rates.cancels) {
            return self.cancel(client);
        }
        Some(self.submit(now, client))
    }

    /// Other quotas, for all but the principal of probes.
    fn quotas(&mut self) -> Quotas {
        let default = self.quota();
        let own =
            [Principal::Token("a".to_owned()), Principal::Uid(0)].map(|own| (own, self.quota()));
        let mut own = BTreeMap::from(own);
        own.insert(PROBER, Quota::default());
        Quotas { default, own }
    }

    fn quota(&mut self) -> Quota {
        let rng = &mut self.rng;
        let time = Duration::from_millis(rng.pick(&[1, 1, 2, 20, 100]));
        // A quota that is paid back as time passes is often met to the nanosecond.
        let per = rng.pick(&[time, time, Duration::from_millis(7), Duration::from_millis(3_000)]);
        Quota {
            jobs_max: rng.pick(&[None, None, None, Some(0), Some(1), Some(3), Some(3)]),
            // Bytes of jobs are multiples of 50: two quotas are met, by one job alone too, and one is passed by a byte.
            bytes_max: rng.pick(&[None, None, Some(99), Some(1_000), Some(1_050)]),
            device_time: rng.pick(&[None, Some(Rate { time, per })]),
        }
    }

    /// The driver reports a fault, often again for each channel.
    fn device_fault(&mut self, now: Timestamp) -> Event {
        let device = self.some_device();
        if self.rng.chance(500) {
            return self.device_memory(device);
        }
        let fault = FaultCode::Xid(self.rng.pick(&[13, 45, 46, 46, 48, 74, 74, 79, 95, 109, 109]));
        let mut at = now;
        while self.rng.chance(500) {
            at = self.soon(at, 20);
            self.tell(at, Event::DeviceFault { device, fault });
        }
        Event::DeviceFault { device, fault }
    }

    /// The driver says what memory a device has.
    pub(super) fn device_memory(&mut self, device: DeviceId) -> Event {
        // What models may take here decides whether some of these differ by as much as counts.
        let used = self.rng.pick(&[0, 0, 150, (1 << 30) - 150, 1 << 30, 2 << 30]);
        let memory = DeviceMemory { used, total: 3 << 30 };
        Event::DeviceMemory { device, memory }
    }

    /// The pool ends a client's connection. What the client has sent before may still arrive.
    pub(super) fn on_let_go(&mut self, now: Timestamp, client: ClientId) {
        let at = self.soon(now, 50);
        self.tell(at, Event::Client(client, ClientEvent::Gone));
    }

    /// Opens a connection at `at`.
    pub(super) fn connect(&mut self, at: Timestamp) {
        self.next_client += 1;
        let client = ClientId(self.next_client);
        self.send(at, Delivery::Event(Event::Client(client, ClientEvent::Connected)));
    }

    /// Open connections.
    pub(crate) fn clients(&self) -> Vec<ClientId> {
        self.clients.clone()
    }

    /// An ordinary job with enough time, for a program or this model.
    pub(crate) fn probe(
        &mut self,
        now: Timestamp,
        client: ClientId,
        model: Option<&str>,
    ) -> (JobId, Event) {
        let work = match model {
            Some(name) => Work::Model { name: name.into() },
            None => program(0),
        };
        let request = JobRequest {
            work,
            jobs: 1,
            cost: 1,
            inline_bytes: 0,
            deadline: Duration::from_secs(600),
            idempotent: true,
            principal: PROBER,
            ..self.new_request(client)
        };
        (request.job, self.submitted(now, client, request, PROBE))
    }

    /// The content of the submission, if it can be read.
    pub(crate) fn content_of(&mut self, job: JobId, work: &Work) -> Option<ContentHash> {
        let content = self.fates[&job].content(work);
        (!self.rng.chance(self.swarm.rates.unreadable)).then_some(content)
    }

    /// A suspect job is hashed.
    pub(super) fn on_hash(&mut self, now: Timestamp, job: JobId, work: &Work) {
        let at = self.soon(now, self.swarm.hash_lag);
        let content = self.content_of(job, work);
        self.suspects.push(self.fates[&job].content(work));
        self.send(at, Delivery::Event(Event::ContentHashed { job, content }));
        // Chance alone seldom cancels a job before its hash is there.
        let mut submitted = self.submitted.iter();
        if job.0.is_multiple_of(CALLED_OFF)
            && let Some((client, request)) = submitted.find(|(_, request)| request.job == job)
            && self.clients.contains(client)
        {
            let cancel = ClientEvent::CancelRequested { key: request.key };
            self.send(now, Delivery::Event(Event::Client(*client, cancel)));
        }
    }

    fn release(&mut self, client: ClientId) -> Option<Event> {
        let release = match self.rng.below(6) {
            0 => Release::Contents,
            1..3 => {
                let latest = self.suspects.iter().rev().take(4).copied().collect::<Vec<_>>();
                if latest.is_empty() {
                    return None;
                }
                Release::Content(self.rng.pick(&latest))
            }
            _ => Release::Device(self.some_device()),
        };
        Some(self.release_of(client, release))
    }

    /// An operator releases something.
    pub(crate) fn release_of(&mut self, client: ClientId, release: Release) -> Event {
        self.next_request += 1;
        let request = self.next_request;
        Event::Client(client, ClientEvent::ReleaseRequested { request, release })
    }

    /// A device of the pool, or an unknown one.
    pub(super) fn some_device(&mut self) -> DeviceId {
        let index = self.rng.below(u64::from(self.swarm.devices) + 1);
        let index = u32::try_from(index).expect("there are few devices");
        DeviceId { kind: DeviceKind::Gpu, index }
    }

    fn cancel(&mut self, client: ClientId) -> Option<Event> {
        if self.submitted.is_empty() {
            return None;
        }
        // Often one of the latest, which has no verdict yet.
        let length = self.submitted.len() as u64;
        let below = if self.rng.chance(500) { length.min(2) } else { length };
        let index = length - 1 - self.rng.below(below);
        let (owner, request) = &self.submitted[usize::try_from(index).expect("it is a length")];
        let (owner, key) = (*owner, request.key);
        let client =
            if self.clients.contains(&owner) && self.rng.chance(850) { owner } else { client };
        Some(Event::Client(client, ClientEvent::CancelRequested { key }))
    }

    fn submit(&mut self, now: Timestamp, client: ClientId) -> Event {
        if self.submitted.is_empty() || !self.rng.chance(self.swarm.rates.repeated_keys) {
            let request = self.new_request(client);
            let batch = if self.rng.chance(self.swarm.rates.poisonous) {
                self.rng.below(POISONOUS.into())
            } else {
                self.rng.between(POISONOUS.into(), (POISONOUS + HARMLESS).into())
            };
            let batch = u8::try_from(batch).expect("there are few");
            return self.submitted(now, client, request, batch);
        }
        let index = self.rng.below(self.submitted.len() as u64);
        let (owner, request) =
            self.submitted[usize::try_from(index).expect("it is a length")].clone();
        let batch = self.fates[&request.job].batch;
        let mut request = JobRequest { job: self.new_job(), ..request };
        if self.rng.chance(120) {
            request.items += 1;
            request.fingerprint += 1_000_000;
        }
        if self.rng.chance(120) {
            request.work = Work::Program { hash: "vmirror".into() };
            request.fingerprint += 2_000_000;
        }
        let client =
            if self.clients.contains(&owner) && self.rng.chance(600) { owner } else { client };
        if client != owner && self.rng.chance(500) {
            request.principal = self.principal(client);
        }
        self.submitted(now, client, request, batch)
    }

    fn submitted(
        &mut self,
        now: Timestamp,
        client: ClientId,
        request: JobRequest,
        batch: u8,
    ) -> Event {
        let poisonous = batch < POISONOUS && !self.is_calm;
        let deadline = now.after(request.deadline);
        let fate = Fate { deadline, poisonous, batch, items: request.items };
        self.fates.insert(request.job, fate);
        if self.submitted.len() == REMEMBERED {
            self.submitted.remove(0);
        }
        self.submitted.push((client, request.clone()));
        Event::Client(client, ClientEvent::Submitted(Box::new(request)))
    }

    /// Who a job of a client is for.
    fn principal(&mut self, client: ClientId) -> Principal {
        if self.rng.chance(self.swarm.for_others) {
            return Principal::Token(self.rng.pick(&["a", "b"]).to_owned());
        }
        let uid = client.0 % u64::from(self.swarm.principals);
        Principal::Uid(u32::try_from(uid).expect("there are few"))
    }

    fn new_request(&mut self, client: ClientId) -> JobRequest {
        let job = self.new_job();
        self.next_key += 1;
        let deadline = if self.rng.chance(self.swarm.rates.short_deadlines) {
            self.rng.pick(&[0, 1, 5, 10, 20, 40, 60])
        } else {
            self.rng.pick(&[200, 500, 1_000, 2_000, 2_001, 3_000, 10_000])
        };
        let answer_inline = self.rng.chance(self.swarm.inline);
        let work = match self.some_model() {
            Some(name) => Work::Model { name },
            None => {
                let program = program(self.rng.below(self.swarm.programs));
                let is_search = self.next_key.is_multiple_of(SEARCHES);
                if is_search { Work::Search { score: Score::Exact } } else { program }
            }
        };
        let is_program = matches!(work, Work::Program { .. });
        let idempotent = !self.rng.chance(self.swarm.rates.not_idempotent);
        let jobs = if is_program && idempotent { self.rng.pick(&[1, 1, 1, 1, 2, 4]) } else { 1 };
        JobRequest {
            job,
            work,
            jobs,
            principal: self.principal(client),
            key: JobKey(self.next_key),
            fingerprint: u64::try_from(self.next_key).expect("there are few"),
            label: "".into(),
            items: self.rng.pick(&self.swarm.items),
            cost: self.rng.pick(&self.swarm.costs),
            inline_bytes: self.rng.pick(&[0, 0, 50, 100, 101, 30_000]),
            bytes: self.rng.pick(&[0, 50, 1_000]),
            deadline: Duration::from_millis(deadline),
            priority: self.rng.pick(&[
                Priority::High,
                Priority::Normal,
                Priority::Normal,
                Priority::Low,
            ]),
            idempotent,
            divisible: !answer_inline && !self.rng.chance(self.swarm.rates.indivisible),
            answer_inline,
            // Of every second job.
            trace: TraceId::new((self.next_key * (self.next_key % 2)).to_be_bytes()),
            content: None,
        }
    }

    fn new_job(&mut self) -> JobId {
        self.next_job += 1;
        JobId(self.next_job)
    }
}

impl Fate {
    /// The hash of its batch with its items and its work: equal content has an equal hash.
    fn content(&self, work: &Work) -> ContentHash {
        let mut hash = [0; 32];
        hash[0] = self.batch;
        hash[1..5].copy_from_slice(&self.items.to_le_bytes());
        let work = work.to_string();
        hash[5..5 + work.len()].copy_from_slice(work.as_bytes());
        ContentHash(hash)
    }
}

fn program(number: u64) -> Work {
    Work::Program { hash: format!("p{number}").into() }
}
