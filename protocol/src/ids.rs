//! Ids. Each is a newtype, so that a job cannot be mistaken for an arena.

use std::fmt;
use std::str::FromStr;

use crate::named::named;

use serde::{Deserialize, Serialize};

named! {
    /// What kind of processor a device is.
    #[derive(Default)]
    pub enum DeviceKind {
        /// The reference implementation on CPU threads.
        #[default]
        Cpu = "cpu",
        /// An NVIDIA GPU.
        Gpu = "gpu",
    }
}

/// One device of the pool, printed as `gpu0` or `cpu1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId {
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// Position: NVML's index for a GPU, a count from 0 for a CPU device.
    pub index: u32,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind, self.index)
    }
}

/// The name of a worker process, printed as `gpu0#4`: its device, and its number among all processes of
/// that device, whatever their role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerName {
    /// The device that the worker serves.
    pub device: DeviceId,
    /// 1 for the first process on the device, then 2, and so on.
    pub generation: u32,
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.device, self.generation)
    }
}

/// One worker process: device, role and generation. Printed as its name, which is unique in the pool.
///
/// A message with an older generation comes from a process that has ended or is ending. The pool ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId {
    /// The device that the worker serves.
    pub device: DeviceId,
    /// The worker's group.
    pub group: Group,
    /// Its number among all processes of the device, from 1 on.
    pub generation: u32,
}

impl WorkerId {
    /// Its name, as it is shown.
    #[must_use]
    pub fn name(self) -> WorkerName {
        WorkerName { device: self.device, generation: self.generation }
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// Which worker a command is for. Reads and prints as `gpu0`, `gpu0/mlp` or `gpu0#4`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerSelector {
    /// The device's active worker, whichever process that is; that for programs, if it has one.
    Device(DeviceId),
    /// The device's active worker of the group of this name: `grid`, or one of models.
    Group(DeviceId, String),
    /// This process, and no later one.
    Process(WorkerName),
}

impl From<DeviceId> for WorkerSelector {
    fn from(device: DeviceId) -> Self {
        Self::Device(device)
    }
}

impl From<WorkerName> for WorkerSelector {
    fn from(name: WorkerName) -> Self {
        Self::Process(name)
    }
}

impl fmt::Display for WorkerSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => device.fmt(f),
            Self::Group(device, group) => write!(f, "{device}/{group}"),
            Self::Process(name) => name.fmt(f),
        }
    }
}

/// A text that is not `cpu0`, `gpu1`, `gpu1/mlp` or `gpu1#4`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` names no worker: write a device (`gpu0`), a group of models on one (`gpu0/mlp`) or a process of one \
     (`gpu0#4`)"
)]
pub struct ParseIdError {
    text: String,
}

impl FromStr for DeviceId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let (kind, digits) = match (text.strip_prefix("cpu"), text.strip_prefix("gpu")) {
            (Some(digits), _) => (DeviceKind::Cpu, digits),
            (_, Some(digits)) => (DeviceKind::Gpu, digits),
            (None, None) => return Err(ParseIdError { text: text.to_owned() }),
        };
        let index = digits.parse().map_err(|_| ParseIdError { text: text.to_owned() })?;
        Ok(Self { kind, index })
    }
}

impl FromStr for WorkerName {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let bad = || ParseIdError { text: text.to_owned() };
        let (device, generation) = text.split_once('#').ok_or_else(bad)?;
        Ok(Self {
            device: device.parse().map_err(|_| bad())?,
            generation: generation.parse().map_err(|_| bad())?,
        })
    }
}

impl FromStr for WorkerSelector {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        match text.split_once('/') {
            Some((device, group)) if !group.is_empty() => {
                let device = device.parse().map_err(|_| ParseIdError { text: text.to_owned() })?;
                Ok(Self::Group(device, group.to_owned()))
            }
            Some(_) | None => {
                text.parse().map(Self::Process).or_else(|_| text.parse().map(Self::Device))
            }
        }
    }
}

/// The client's name for a job: 128 bits, printed as 32 hexadecimal digits.
///
/// While the pool remembers the verdict of a key, it answers a second submission under that key without running
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey(pub u128);

/// The two hexadecimal digits of each byte.
const HEX: [[u8; 2]; 256] = {
    let (digits, mut all, mut byte) = (b"0123456789abcdef", [[0; 2]; 256], 0);
    while byte < all.len() {
        all[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    all
};

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By hand, because every receipt has one and `{:032x}` takes 2,000 instructions.
        let mut text = [0; 32];
        for (two, byte) in text.as_chunks_mut().0.iter_mut().zip(self.0.to_be_bytes()) {
            *two = HEX[usize::from(byte)];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// The supervisor's number for an accepted job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without a formatter, because every receipt has one.
        f.write_str("job")?;
        f.write_str(itoa::Buffer::new().format(self.0))
    }
}

/// One run of a job's shard on a worker. The pool ignores a late answer that names another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The job.
    pub job: JobId,
    /// 1 for the first attempt.
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.number)
    }
}

named! {
    /// The role of a worker process. A process has one role.
    pub enum Role {
        /// Programs over grids.
        Grid = "grid",
        /// Requests of models.
        Infer = "infer",
    }
}

/// Workers of one kind: those of programs, or those of some models. Groups share no process, so what one of them
/// suffers costs the others nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Programs over grids.
    Grid,
    /// The models of one group. The pool uses the number of a group without models again.
    Models(u16),
}

impl Group {
    /// The role of its workers.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            Self::Grid => Role::Grid,
            Self::Models(_) => Role::Infer,
        }
    }
}

/// One connection to the supervisor. A client that reconnects is a new client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client{}", self.0)
    }
}

/// SHA-256 over a job's work and input, independent of client and key. Printed as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentHash(pub [u8; 32]);

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a job's content: write the 64 hexadecimal digits that the verdict POISON names"
)]
pub struct ParseContentError {
    text: String,
}

impl FromStr for ContentHash {
    type Err = ParseContentError;

    fn from_str(text: &str) -> Result<Self, ParseContentError> {
        let bad = || ParseContentError { text: text.to_owned() };
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
        }
        Ok(Self(hash))
    }
}

/// An arena: shared memory that belongs to one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ArenaId(pub u64);

impl ArenaId {
    /// The memory in which a worker records its [`position`](crate::position). No client's arena has this number.
    pub const POSITION: Self = Self(0);
}

impl fmt::Display for ArenaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arena{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_read_back_as_they_print() {
        let content = ContentHash(std::array::from_fn(|at| u8::try_from(at * 8).unwrap()));
        assert_eq!(content.to_string().parse(), Ok(content));
        let digits = content.to_string();
        for text in [&digits[1..], &digits.replace('8', "+"), "gpu0", ""] {
            assert!(text.parse::<ContentHash>().is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn a_job_prints_its_number() {
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(JobId(number).to_string(), format!("job{number}"));
        }
    }

    #[test]
    fn worker_names_read_back_as_they_print() {
        for text in ["gpu0#4", "cpu17#1"] {
            let worker: WorkerName = text.parse().unwrap();
            assert_eq!(worker.to_string(), text);
        }
        for text in ["gpu0", "gpu#1", "tpu0#1", "gpu0#", "gpu0#x", ""] {
            assert!(text.parse::<WorkerName>().is_err(), "{text} was accepted");
        }
        for text in ["gpu0", "cpu1#2"] {
            assert_eq!(text.parse::<WorkerSelector>().unwrap().to_string(), text);
        }
        for text in ["", "1", "zebra", "gpu0#", "gpu-1"] {
            let error = text.parse::<WorkerSelector>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` names no worker: write")), "{error}");
        }
    }
}
