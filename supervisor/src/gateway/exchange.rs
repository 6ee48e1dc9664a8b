//! One inference request on its way from a body to an answer. The protocol says how both are written; everything
//! between is the same.

use std::sync::Arc;
use std::time::Duration;

use gridpool_client::Principal;
use gridpool_ipc::clock;
use serde_json::Value;

use super::Server;
use super::blocking::run_blocking;
use super::body::HeldBytes;
use super::failure::Failure;
use super::job::PoolJob;
use super::limits::{REQUESTS_EACH_MAX, REQUESTS_MAX};
use super::models::Model;
use super::outliving::Outliving;
use super::pool::{Asker, HangUp, Origin};
use super::reason::Reason;
use super::regions::Memory;
use super::reply::{self, Reply};
use super::request::{Request, WantedOutputs};
use super::shares::{Full, Share};
use super::tally::GatewayTimes;

/// An IO thread reads and sends requests, and encodes results, up to this size itself, bytes, but touches no client's
/// file: a client that allocates gigabytes in it holds the file's lock for seconds.
pub(super) const QUICK_BYTES_MAX: usize = 16 << 10;

/// A body of a protocol.
pub(super) trait Exchange: Send + 'static {
    /// What must be known of the body to write the answer.
    type Form: Send + 'static;
    /// The answer.
    type Answer: Send + 'static;

    /// The request, with those of its tensors that lie in shared memory.
    fn read(&self, memory: &mut Memory) -> Result<Request<'_>, Failure>;

    /// The request has been read.
    fn into_form(self) -> Self::Form;

    /// Writes the answer. It keeps the request's share of the memory until it is sent.
    fn write(
        form: Self::Form,
        reply: &Reply,
        wanted: &WantedOutputs,
        held: HeldBytes,
    ) -> Result<Self::Answer, Failure>;
}

impl Server {
    /// Answers a request, if there is a place for it. If this is dropped, the job is cancelled.
    pub(super) async fn ask<E: Exchange>(
        self: Arc<Self>,
        model: Model,
        exchange: E,
        (asker, held): (Asker, HeldBytes),
    ) -> Result<E::Answer, Failure> {
        let slot = self.slot(&asker.principal)?;
        self.ask_in(slot, model, exchange, (asker, held)).await
    }

    /// A place for a request, if there is one.
    pub(super) fn slot(&self, principal: &Principal) -> Result<Share, Failure> {
        let mut slot = self.slots.share(principal.clone());
        slot.grow(1).map_err(|full| match full {
            Full::All => {
                Failure::busy(format!("BUSY: {REQUESTS_MAX} requests are in progress already"))
                    .because(Reason::RequestsFull)
            }
            Full::Own => Failure::busy(format!(
                "BUSY: {REQUESTS_EACH_MAX} requests of yours are in progress already"
            ))
            .because(Reason::RequestsOwn),
        })?;
        Ok(slot)
    }

    /// Answers a request that has its place. If this is dropped, the job is cancelled.
    pub(super) async fn ask_in<E: Exchange>(
        self: Arc<Self>,
        slot: Share,
        model: Model,
        exchange: E,
        (asker, held): (Asker, HeldBytes),
    ) -> Result<E::Answer, Failure> {
        let hang_up = HangUp::default();
        let watch = hang_up.watch();
        let origin = Origin { asker, hang_up };
        // The request is counted even if its client hangs up.
        let answer = Outliving::new(async move {
            let answer = self.infer(model, exchange, (origin, held)).await;
            drop(slot);
            answer
        })
        .await;
        drop(watch);
        answer
    }

    /// Runs one inference request, from its body to its answer. No thread blocks on the job.
    async fn infer<E: Exchange>(
        self: Arc<Self>,
        model: Model,
        exchange: E,
        (origin, held): (Origin, HeldBytes),
    ) -> Result<E::Answer, Failure> {
        let began = clock::now();
        let _in_flight = self.statistics.of(&model).enter();
        let done = self.try_infer(&model, exchange, (origin, held)).await;
        if done.is_err() {
            self.statistics.of(&model).failed(began.elapsed());
        }
        done
    }

    async fn try_infer<E: Exchange>(
        &self,
        model: &Model,
        exchange: E,
        (origin, held): (Origin, HeldBytes),
    ) -> Result<E::Answer, Failure> {
        let (began, principal) = (clock::now(), origin.asker.principal.clone());
        let (pool, asked) = (Arc::clone(&self.pool), model.clone());
        let (regions, door) = (Arc::clone(&self.regions), self.door.current());
        let mut memory = Memory::new(regions, Some(door), (principal.clone(), held));
        let read = match memory.is_at_most(QUICK_BYTES_MAX) {
            true => memory.without_files(|own| ParsedRequest::read(&asked, &exchange, own))?,
            false => None,
        };
        let sent = match &read {
            Some((_, work)) => work.try_send(&pool, &origin)?,
            None => None,
        };
        let (form, ParsedRequest { id, wanted, items, input }, (answer, held)) = match (read, sent)
        {
            (Some((parsed, _)), Some(sent)) => {
                (exchange.into_form(), parsed, (sent, memory.into_held()))
            }
            (read, _) => {
                let work = move || {
                    let read = read
                        .map_or_else(|| ParsedRequest::read(&asked, &exchange, &mut memory), Ok);
                    let (parsed, work) = read?;
                    let sent = work.send(&pool, origin)?;
                    Ok((exchange.into_form(), parsed, (sent, memory.into_held())))
                };
                run_blocking(work).await?
            }
        };
        let (receipt, unread) = answer.await?;
        let answered = clock::now();
        let model = &self.observer.ran(model, &receipt);
        model.has_answered(&receipt);
        let mut parameters = reply::proof(&receipt)?;
        let is_quick = unread.bytes <= QUICK_BYTES_MAX && !wanted.are_in_regions();
        let (name, version) = (model.name().to_owned(), model.version());
        let write = move || {
            let (outputs, errors) = (unread.read)()?;
            if !errors.is_empty() {
                parameters.push(("errors", Value::Array(errors).to_string().into()));
            }
            E::write(form, &Reply { model: name, version, id, parameters, outputs }, &wanted, held)
        };
        let response = if is_quick { write()? } else { run_blocking(write).await? };
        let (output, total) = (answered.elapsed(), began.elapsed());
        self.statistics.of(model).succeeded(items, &receipt, GatewayTimes { input, output, total });
        self.receipts.keep(principal, receipt);
        Ok(response)
    }
}

/// A parsed request, apart from its job.
pub(super) struct ParsedRequest {
    id: Option<String>,
    wanted: WantedOutputs,
    pub(super) items: u64,
    /// Time spent parsing.
    input: Duration,
}

impl ParsedRequest {
    pub(super) fn read(
        model: &Model,
        exchange: &impl Exchange,
        memory: &mut Memory,
    ) -> Result<(Self, PoolJob), Failure> {
        let began = clock::now();
        let mut request = exchange.read(memory)?;
        let items = model.items(&request);
        let work = model.work(&mut request)?;
        let Request { id, wanted, .. } = request;
        Ok((Self { id, wanted, items, input: began.elapsed() }, work))
    }
}
