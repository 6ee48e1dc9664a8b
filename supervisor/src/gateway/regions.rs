//! Regions: clients' own shared memory, under names that they give it. Requests may have tensors there, as with Triton.
//!
//! This process can open no file. `opening` asks the supervisor, which checks who may have which and passes the
//! descriptor. A region is read and written through its descriptor and never mapped: its client may shrink the file at
//! any time, and who touches a mapped page that is gone is killed by SIGBUS. A read ends early instead, which is the
//! error of one request.
//!
//! A region is its principal's: nobody else sees it, uses it or takes its name. It ends with this process.

mod opening;
mod part;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use axum::http::StatusCode;
use gridpool_client::{Principal, Secret};
use gridpool_ipc::mutex::Mutex;
use serde_json::{Value, json};

use super::Server;
use super::blocking::run_blocking;
use super::desk::Desk;
use super::failure::Failure;
use super::limits::{
    REGION_NAME_BYTES_MAX, REGIONS_BYTES_EACH_MAX, REGIONS_BYTES_MAX, REGIONS_EACH_MAX, REGIONS_MAX,
};
use super::seats::Seat;
use super::shares::{Portions, Share, Shares};

pub use opening::{OpenOrder, Opened, Unopened};
pub(super) use part::{Memory, Part, REGION};

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
    _shares: [Share; 2],
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
    fn register(&self, holder: Holder, named: Named) -> Result<(), Failure> {
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
        let shares = self.shares(&principal, end)?;
        let file = opening::open(desk, &OpenOrder { key: key.clone(), token, uid })?;
        let has = file.metadata().map_err(|error| Failure::internal(error.to_string()))?.len();
        if end > has {
            return Err(Failure::bad(format!(
                "Invalid offset + byte size for shared memory region: '{}': it ends at {end}, and '{key}' has {has} \
                 bytes",
                id.1
            )));
        }
        let region = Arc::new(Region { key, offset, bytes, file, _shares: shares });
        let mut known = self.known.lock();
        // Another request may have come first.
        if known.contains_key(&id) {
            return Err(is_there(&id.1));
        }
        known.insert(id, region);
        Ok(())
    }

    fn check_new(&self, id: &(Principal, String)) -> Result<(), Failure> {
        if self.known.lock().contains_key(id) { Err(is_there(&id.1)) } else { Ok(()) }
    }

    /// The shares of a region that ends there in its file: the whole file stays while the region is registered.
    fn shares(&self, principal: &Principal, end: u64) -> Result<[Share; 2], Failure> {
        let mut place = self.places.share(principal.clone());
        place.grow(1).map_err(|_| {
            Failure::busy(format!(
                "BUSY: there are {REGIONS_MAX} shared memory regions, or {REGIONS_EACH_MAX} of yours: unregister those \
                 that you do not need"
            ))
        })?;
        let mut bytes = self.bytes.share(principal.clone());
        bytes.grow(usize::try_from(end).unwrap_or(usize::MAX)).map_err(|_| {
            Failure::busy(format!(
                "BUSY: shared memory regions would reach over more than {REGIONS_BYTES_MAX} bytes, or yours over more \
                 than {REGIONS_BYTES_EACH_MAX}: unregister those that you do not need"
            ))
        })?;
        Ok([place, bytes])
    }

    /// Forgets a region of a principal, or all. As with Triton, one that is not there is no error. Requests that have
    /// begun go on with it.
    pub(super) fn unregister(
        &self,
        principal: &Principal,
        name: Option<&str>,
    ) -> Result<(), Failure> {
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
        found.ok_or_else(|| {
            let shown: String = name.chars().take(REGION_NAME_BYTES_MAX).collect();
            let why = format!(
                "Unable to find system shared memory region: '{shown}': register it first, also after the gateway was \
                 started anew"
            );
            Failure::unknown(why)
        })
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
        let regions = Arc::clone(&self.regions);
        run_blocking(move || {
            let done = regions.register(holder, named);
            drop(slot);
            done
        })
        .await
    }
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
