//! A part of a region, where a tensor lies or goes.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use gridpool_client::Principal;
use serde_json::{Map, Value};

use super::{Region, Regions, unable};
use crate::gateway::access;
use crate::gateway::body::{BodyBudget, HeldBytes};
use crate::gateway::door::Door;
use crate::gateway::failure::Failure;
use crate::gateway::limits::{BODY_BYTES_MAX, HELD_PER_BYTE};
use crate::gateway::request::{Parameters, number, text};
use crate::gateway::tensors::OutputTensor;
use crate::gateway::tokens::Scope;

/// The parameters of a tensor that lies in a region.
pub(in crate::gateway) const REGION: &str = "shared_memory_region";
const OFFSET: &str = "shared_memory_offset";
const BYTES: &str = "shared_memory_byte_size";

/// A part of a region. While a request has it, the region's file stays open.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct Part {
    name: String,
    region: Arc<Region>,
    /// Where it begins in the region.
    offset: u64,
    bytes: usize,
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.region, &other.region)
            && (self.offset, self.bytes) == (other.offset, other.bytes)
    }
}

impl Eq for Part {}

/// The regions that a request may name, and its share of the memory for bodies, of which tensors that are read from
/// regions take their part.
#[derive(Debug)]
pub(in crate::gateway) struct Memory {
    regions: Arc<Regions>,
    /// Whom it admits, as of this request.
    door: Option<Arc<Door>>,
    principal: Principal,
    held: HeldBytes,
    /// Bytes that were read.
    taken: usize,
    /// Whether it may be used.
    usable: Usable,
}

/// Whether a request may use regions. A client may hold up for long who reads its file, or closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usable {
    /// It may.
    Yes,
    /// It may not, on this thread.
    Elsewhere,
    /// It may not, and has named one.
    Named,
}

impl Memory {
    pub(in crate::gateway) fn new(
        regions: Arc<Regions>,
        door: Option<Arc<Door>>,
        (principal, held): (Principal, HeldBytes),
    ) -> Self {
        Self { regions, door, principal, held, taken: 0, usable: Usable::Yes }
    }

    /// Whether the request has at most so many bytes.
    pub(in crate::gateway) fn is_at_most(&self, bytes: usize) -> bool {
        self.held.is_at_most(bytes)
    }

    /// Reads a request on a thread that must not wait; `None` if it names a region.
    pub(in crate::gateway) fn without_files<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        self.usable = Usable::Elsewhere;
        let read = read(self);
        match std::mem::replace(&mut self.usable, Usable::Yes) {
            Usable::Named => Ok(None),
            Usable::Elsewhere | Usable::Yes => read.map(Some),
        }
    }

    /// Without regions.
    pub(in crate::gateway) fn none() -> Self {
        let principal = Principal::Uid(0);
        let held = BodyBudget::new().held(&principal);
        Self::new(Regions::new(None), None, (principal, held))
    }

    /// Gives the share back, which has grown.
    pub(in crate::gateway) fn into_held(self) -> HeldBytes {
        self.held
    }

    /// The part of a region that a tensor's parameters name, if they do.
    pub(in crate::gateway) fn part(&mut self, of: &Parameters) -> Result<Option<Part>, Failure> {
        let Some(name) = text(of, REGION)? else {
            return match of.keys().find(|key| key.starts_with("shared_memory_")) {
                Some(key) => Err(Failure::bad(format!("there is {key}, but no {REGION}"))),
                None => Ok(None),
            };
        };
        let (offset, bytes) = (number(of, OFFSET)?.unwrap_or(0), number(of, BYTES)?);
        let bytes =
            bytes.ok_or_else(|| Failure::bad(format!("there is {REGION}, but no {BYTES}")))?;
        if self.usable != Usable::Yes {
            self.usable = Usable::Named;
            return Err(Failure::internal("it is read by another thread"));
        }
        let region = self.regions.find(&self.principal, name)?;
        if let Some(door) = &self.door {
            access::check_again(door, (&self.principal, None), &[Scope::Memory])?;
            if !region.is_of(&self.principal, door) {
                return Err(unable(name));
            }
        }
        let ends = offset.checked_add(bytes).filter(|&end| end <= region.bytes);
        let (Some(_), Ok(whole)) = (ends, usize::try_from(bytes)) else {
            return Err(Failure::bad(format!(
                "Invalid offset + byte size for shared memory region: '{name}': it has {} bytes, and {bytes} from \
                 {offset} on are asked for",
                region.bytes
            )));
        };
        Ok(Some(Part { name: name.to_owned(), region, offset, bytes: whole }))
    }

    /// What a part holds now.
    pub(in crate::gateway) fn read(&mut self, part: &Part) -> Result<Vec<u8>, Failure> {
        self.taken += part.bytes;
        if self.taken > BODY_BYTES_MAX {
            return Err(Failure::bad(format!(
                "the tensors in shared memory have more than {BODY_BYTES_MAX} bytes: send fewer rows at once"
            )));
        }
        self.held.hold_more(part.bytes * HELD_PER_BYTE)?;
        part.read()
    }
}

impl Part {
    pub(in crate::gateway) fn bytes(&self) -> usize {
        self.bytes
    }

    fn read(&self) -> Result<Vec<u8>, Failure> {
        let mut data = vec![0; self.bytes];
        let Region { file, offset, .. } = &*self.region;
        file.read_exact_at(&mut data, offset + self.offset).map_err(|error| self.lost(&error))?;
        Ok(data)
    }

    /// Writes an output there. What the file lost since it was registered, it gets back.
    pub(in crate::gateway) fn take(&self, output: &OutputTensor) -> Result<(), Failure> {
        let (name, bytes) = (output.tensor.name(), output.tensor.bytes());
        if bytes > self.bytes {
            let given = self.bytes;
            return Err(Failure::bad(format!(
                "shared memory size specified with the request for output '{name}' ({given} bytes) should be at least \
                 {bytes} bytes to hold the results"
            )));
        }
        let Region { file, offset, .. } = &*self.region;
        let mut at = offset + self.offset;
        let written = output.chunks(|chunk| {
            file.write_all_at(chunk, at)?;
            at += chunk.len() as u64;
            io::Result::Ok(())
        });
        written.map_err(|error| self.lost(&error))
    }

    /// How an answer names it, for an output of so many bytes.
    pub(in crate::gateway) fn parameters(&self, bytes: usize) -> Map<String, Value> {
        let mut named = Map::new();
        named.insert(REGION.to_owned(), self.name.as_str().into());
        if self.offset > 0 {
            named.insert(OFFSET.to_owned(), self.offset.into());
        }
        named.insert(BYTES.to_owned(), bytes.into());
        named
    }

    fn lost(&self, error: &io::Error) -> Failure {
        let (name, key) = (&self.name, &self.region.key);
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Failure::bad(format!(
                "shared memory region '{name}': the file '{key}' is shorter than when the region was registered"
            ));
        }
        Failure::bad(format!("shared memory region '{name}': '{key}': {error}"))
    }
}
