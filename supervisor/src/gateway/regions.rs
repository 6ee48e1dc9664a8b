//! Regions: clients' own shared memory, under names that they give it. Requests may have tensors there, as with Triton.
//!
//! This process can open no file. `opening` asks the supervisor, which checks who may have which and passes the
//! descriptor. A region is read and written through its descriptor and never mapped: its client may shrink the file at
//! any time, and who touches a mapped page that is gone is killed by SIGBUS. A read ends early instead, which is the
//! error of one request.
//!
//! A region is its principal's: nobody else sees it, uses it or takes its name. It ends with this process, or when the
//! token that registered it is no longer there, or has expired, or has lost its scope.

mod opening;
mod part;

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use axum::http::StatusCode;
use gridpool_client::{Principal, Secret};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::Server;
use super::blocking::run_blocking;
use super::desk::Desk;
use super::door::Door;
use super::failure::Failure;
use super::limits::{
    REGION_NAME_BYTES_MAX, REGIONS_BYTES_EACH_MAX, REGIONS_BYTES_MAX, REGIONS_EACH_MAX,
    REGIONS_LOOK_EVERY, REGIONS_MAX,
};
use super::seats::Seat;
use super::shares::{Portions, Share, Shares};
use super::tokens::{self, Scope, TokenHash};

pub use opening::{OpenOrder, Opened, Unopened};
pub(super) use part::{Memory, Part, REGION};

/// What the kernel counts a file's space in.
const BLOCK_BYTES: u64 = 512;

/// What `GET /v2` calls it.
pub(super) const EXTENSION: &str = "system_shared_memory";

/// What is said where it is not served.
const NOT_SERVED: &str = "shared memory is not served: send the tensors in the request, or have the pool started \
                          with --shared-memory";

/// The regions of all principals.
#[derive(Debug)]
pub(super) struct Regions {
    desk: Option<Desk>,
    places: Arc<Shares>,
    bytes: Arc<Shares>,
    known: Mutex<BTreeMap<(Principal, String), Arc<Region>>>,
}

/// One region.
#[derive(Debug)]
struct Region {
    key: String,
    /// Where it begins in the file.
    offset: u64,
    bytes: u64,
    file: File,
    /// The token that registered it. Another may have its name later.
    token: Option<TokenHash>,
    _place: Share,
    /// Of the bytes of files: as many as its own had when it was looked at last.
    held: Mutex<Share>,
}

/// Who registers a region.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) principal: Principal,
    pub(super) token: Option<Secret>,
    /// The user at the other end of a Unix socket.
    pub(super) uid: Option<u32>,
}

/// A region as a client names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Regions {
    /// None yet. Without a socket to the supervisor there will be none.
    pub(super) fn new(desk: Option<UnixStream>) -> Arc<Self> {
        let of_bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (all, each) = (of_bytes(REGIONS_BYTES_MAX), of_bytes(REGIONS_BYTES_EACH_MAX));
        Arc::new(Self {
            desk: desk.map(Desk::new),
            places: Shares::new(Portions::of_places(REGIONS_MAX, REGIONS_EACH_MAX)),
            bytes: Shares::new(Portions::of_places(all, each)),
            known: Mutex::default(),
        })
    }

    /// Whether clients may register any.
    pub(super) fn are_served(&self) -> bool {
        self.desk.is_some()
    }

    fn desk(&self) -> Result<&Desk, Failure> {
        let none = || Failure::new(StatusCode::NOT_IMPLEMENTED, NOT_SERVED);
        self.desk.as_ref().ok_or_else(none)
    }

    /// Registers a region. Waits for the supervisor.
    fn register(&self, door: &Door, holder: Holder, named: Named) -> Result<Arc<Region>, Failure> {
        self.sweep(door);
        let desk = self.desk()?;
        let Holder { principal, token, uid } = holder;
        let Named { name, key, offset, bytes } = named;
        check_name(&name)?;
        let end = offset.checked_add(bytes).filter(|_| bytes > 0);
        let end = end.ok_or_else(|| {
            Failure::bad(format!(
                "Invalid offset + byte size for shared memory region: '{name}': it is of {bytes} bytes from {offset}"
            ))
        })?;
        let id = (principal.clone(), name);
        self.check_new(&id)?;
        let place = self.place(&principal)?;
        let hash = token.as_ref().map(|token| tokens::hash(&token.0));
        let file = opening::open(desk, &OpenOrder { key: key.clone(), token, uid })?;
        let meta = file.metadata().map_err(|error| Failure::internal(error.to_string()))?;
        let has = meta.len();
        if end > has {
            return Err(Failure::bad(format!(
                "Invalid offset + byte size for shared memory region: '{}': it ends at {end}, and '{key}' has {has} \
                 bytes",
                id.1
            )));
        }
        let held = Mutex::new(self.hold(principal, &meta)?);
        // Over HTTP without tokens a client may send one, which nobody knows.
        let token = hash.filter(|_| door.tokens.is_some());
        let region = Arc::new(Region { key, offset, bytes, file, token, _place: place, held });
        let mut known = self.known.lock();
        // Another request may have come first.
        if known.contains_key(&id) {
            return Err(is_there(&id.1));
        }
        known.insert(id, Arc::clone(&region));
        Ok(region)
    }

    /// Registers a region on another thread. If this is dropped before, for instance at a deadline, there will be none:
    /// whoever tries again finds the name free.
    async fn register_in_time(
        self: &Arc<Self>,
        door: Arc<Door>,
        (holder, named): (Holder, Named),
        slot: impl Send + 'static,
    ) -> Result<(), Failure> {
        let regions = Arc::clone(self);
        let (says, said) = oneshot::channel();
        let work = run_blocking(move || {
            // Held to the end.
            let _slot = slot;
            if let Err(Ok(region)) = says.send(regions.register(&door, holder, named)) {
                regions.known.lock().retain(|_, own| !Arc::ptr_eq(own, &region));
            }
            Ok(())
        });
        work.await?;
        let ended = |_| Failure::internal("a thread that registers a region ended without a word");
        said.await.map_err(ended)?.map(drop)
    }

    fn check_new(&self, id: &(Principal, String)) -> Result<(), Failure> {
        if self.known.lock().contains_key(id) { Err(is_there(&id.1)) } else { Ok(()) }
    }

    fn place(&self, principal: &Principal) -> Result<Share, Failure> {
        let mut place = self.places.share(principal.clone());
        place.grow(1).map_err(|_| {
            Failure::busy(format!(
                "BUSY: there are {REGIONS_MAX} shared memory regions, or {REGIONS_EACH_MAX} of yours: unregister those \
                 that you do not need"
            ))
        })?;
        Ok(place)
    }

    /// The share of a region's file: all of it stays while the region is registered, whatever part that is.
    fn hold(&self, principal: Principal, meta: &Metadata) -> Result<Share, Failure> {
        let mut bytes = self.bytes.share(principal);
        bytes.grow(size(meta)).map_err(|_| {
            Failure::busy(format!(
                "BUSY: the files of shared memory regions would have more than {REGIONS_BYTES_MAX} bytes, or those of \
                 yours more than {REGIONS_BYTES_EACH_MAX}: unregister those that you do not need"
            ))
        })?;
        Ok(bytes)
    }

    /// Forgets the regions whose token may not have them any more, and those whose file has grown to more bytes than
    /// there is room for.
    fn sweep(&self, door: &Door) {
        let mut gone = Vec::new();
        self.known.lock().retain(|(principal, _), region| {
            let stays = region.is_of(principal, door) && region.still_fits();
            if !stays {
                gone.push(Arc::clone(region));
            }
            stays
        });
        if !gone.is_empty() {
            tracing::info!(
                count = gone.len(),
                "regions of shared memory are forgotten: their token is gone, or their files have grown too large"
            );
        }
    }

    /// Forgets a region of a principal, or all. As with Triton, one that is not there is no error. Requests that have
    /// begun go on with it.
    fn unregister(&self, principal: &Principal, name: Option<&str>) -> Result<(), Failure> {
        self.desk()?;
        let mut gone = Vec::new();
        {
            let mut known = self.known.lock();
            match name {
                Some(name) => gone.extend(known.remove(&(principal.clone(), name.to_owned()))),
                None => known.retain(|(owner, _), region| {
                    let is_other = owner != principal;
                    if !is_other {
                        gone.push(Arc::clone(region));
                    }
                    is_other
                }),
            }
        }
        // The last descriptor of a large file takes its time, and nobody waits for it.
        drop(gone);
        Ok(())
    }

    /// The regions of a principal, or one, in Triton's terms.
    pub(super) fn status(
        &self,
        principal: &Principal,
        name: Option<&str>,
    ) -> Result<Vec<Value>, Failure> {
        self.desk()?;
        let row = |name: &str, region: &Region| {
            let Region { key, offset, bytes, .. } = region;
            json!({ "name": name, "key": key, "offset": offset, "byte_size": bytes })
        };
        if let Some(name) = name {
            return Ok(vec![row(name, &*self.find(principal, name)?)]);
        }
        let known = self.known.lock();
        let own = known.iter().filter(|((owner, _), _)| owner == principal);
        Ok(own.map(|((_, name), region)| row(name, region)).collect())
    }

    fn find(&self, principal: &Principal, name: &str) -> Result<Arc<Region>, Failure> {
        self.desk()?;
        let found = self.known.lock().get(&(principal.clone(), name.to_owned())).map(Arc::clone);
        found.ok_or_else(|| unable(name))
    }
}

impl Region {
    /// Whether it is still the principal's, as the door says who that is.
    fn is_of(&self, principal: &Principal, door: &Door) -> bool {
        match (&door.tokens, principal, &self.token) {
            (None, Principal::Token(_), _) => false,
            (None, _, _) => true,
            (Some(tokens), Principal::Token(name), Some(hash)) => {
                let known = tokens.named(name, clock::time_of_day());
                known.is_some_and(|known| known.is(hash) && known.may(&[Scope::Memory]))
            }
            (Some(_), _, _) => false,
        }
    }

    /// Counts its file as it is now. It never counts less than before.
    fn still_fits(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| self.held.lock().grow(size(&meta)).is_ok())
    }
}

impl Holder {
    /// Whoever sends a request on a connection.
    pub(super) fn new(principal: Principal, token: Option<Secret>, seat: &Seat) -> Self {
        Self { principal, token, uid: seat.peer.uid() }
    }
}

impl Server {
    /// Registers a region.
    pub(super) async fn register(&self, holder: Holder, named: Named) -> Result<(), Failure> {
        // The supervisor opens one file after the other: no more may wait than requests may be in progress.
        let slot = self.slot(&holder.principal)?;
        let (regions, door) = (Arc::clone(&self.regions), self.door.current());
        regions.register_in_time(door, (holder, named), slot).await
    }

    /// Forgets a region of a principal, or all. The last descriptor of a large file takes its time.
    pub(super) async fn unregister(
        &self,
        principal: Principal,
        name: Option<String>,
    ) -> Result<(), Failure> {
        let regions = Arc::clone(&self.regions);
        run_blocking(move || regions.unregister(&principal, name.as_deref())).await
    }
}

/// Forgets the regions that may not stay.
pub(super) async fn sweep(gateway: Arc<Server>) {
    let (regions, door) = (Arc::clone(&gateway.regions), gateway.door.current());
    let swept = run_blocking(move || {
        regions.sweep(&door);
        Ok(())
    });
    if let Err(failure) = swept.await {
        tracing::error!(error = failure.message(), "regions of shared memory cannot be looked at");
    }
}

/// Looks again and again whether regions may stay: tokens expire, and files grow.
pub(super) async fn look(gateway: Arc<Server>) {
    while gateway.regions.are_served() {
        sleep(REGIONS_LOOK_EVERY).await;
        sweep(Arc::clone(&gateway)).await;
    }
}

/// The bytes that a file takes, or will when it is full. Some may lie behind its end.
fn size(meta: &Metadata) -> usize {
    let taken = meta.blocks().saturating_mul(BLOCK_BYTES);
    usize::try_from(meta.len().max(taken)).unwrap_or(usize::MAX)
}

fn unable(name: &str) -> Failure {
    let shown: String = name.chars().take(REGION_NAME_BYTES_MAX).collect();
    Failure::unknown(format!(
        "Unable to find system shared memory region: '{shown}': register it first, also after the gateway was started \
         anew"
    ))
}

fn is_there(name: &str) -> Failure {
    let why = format!(
        "shared memory region '{name}' already in manager: unregister it, or take another name"
    );
    Failure::new(StatusCode::CONFLICT, why)
}

fn check_name(name: &str) -> Result<(), Failure> {
    match (1..=REGION_NAME_BYTES_MAX).contains(&name.len()) {
        true => Ok(()),
        false => Err(Failure::bad(format!(
            "the name of a shared memory region has 1 to {REGION_NAME_BYTES_MAX} bytes"
        ))),
    }
}

#[cfg(test)]
mod tests;
