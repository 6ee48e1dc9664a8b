//! NVML's functions, by the names that a loader asks for: the GPUs, the processes that use them, and events
//! that a test sends through a FIFO.

#![expect(unsafe_code, reason = "functions with NVML's own signatures, by NVML's names")]

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cuda::{exports, give, give_text};
use crate::machine::{Machine, uuid_text};

/// Results of calls, except 0.
mod code {
    pub(super) const UNINITIALIZED: u32 = 1;
    pub(super) const INVALID_ARGUMENT: u32 = 2;
    pub(super) const NOT_SUPPORTED: u32 = 3;
    pub(super) const NOT_FOUND: u32 = 6;
    pub(super) const INSUFFICIENT_SIZE: u32 = 7;
    pub(super) const TIMEOUT: u32 = 10;
}

const NAME: &CStr = c"gridpool stub GPU";
const DRIVER_VERSION: &CStr = c"580.0.0";
/// All event types of nvml.h in CUDA 13.
const EVENT_TYPES: u64 = 65_439;
/// The recovery action that a GPU needs: `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`.
const RECOVERY_ACTION: c_uint = 230;
const UNSIGNED_INT: c_uint = 1;
const MEMORY_BYTES: u64 = 80 << 30;
/// The memory of a context.
const CONTEXT_BYTES: u64 = 512 << 20;

type Device = *mut c_void;
type Set = *mut c_void;

/// `nvmlEventData_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventData {
    device: Device,
    kind: u64,
    data: u64,
    instances: [c_uint; 2],
}

/// `nvmlFieldValue_t`, for a number.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency_us: i64,
    kind: c_uint,
    code: c_uint,
    value: u64,
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemoryInfo {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlUtilization_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlProcessInfo_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProcessInfo {
    pid: c_uint,
    used_bytes: u64,
    instances: [c_uint; 2],
}

/// A set of events: the registered ones, and their source.
#[derive(Debug)]
pub(crate) struct EventSet {
    source: Option<Arc<Mutex<Source>>>,
    /// Devices and kinds of events.
    registered: Vec<(u32, u64)>,
}

/// A FIFO and the events that were read from it.
#[derive(Debug)]
struct Source {
    fifo: File,
    text: Vec<u8>,
    events: VecDeque<[u64; 3]>,
}

impl Source {
    fn open(path: &Path) -> Self {
        let mut options = File::options();
        // Opened for writing too, so that it has no end while no other process has it open.
        let options = options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let fifo = options.open(path).expect("the script names a FIFO that is there");
        Self { fifo, text: Vec::new(), events: VecDeque::new() }
    }

    /// The next wanted event, if it comes in time.
    fn next(&mut self, until: Instant, wanted: impl Fn(&[u64; 3]) -> bool) -> Option<[u64; 3]> {
        loop {
            while let Some(event) = self.events.pop_front() {
                if wanted(&event) {
                    return Some(event);
                }
            }
            let left = u16::try_from(clock::until(until).as_millis()).unwrap_or(u16::MAX);
            let mut fds = [PollFd::new(self.fifo.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::from(left)).unwrap_or(0);
            if ready > 0 {
                self.read();
            } else if clock::until(until).is_zero() {
                return None;
            }
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; 4_096];
        // Another process may have read it first.
        let count = self.fifo.read(&mut bytes).unwrap_or(0);
        self.text.extend_from_slice(&bytes[..count]);
        while let Some(end) = self.text.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let numbers: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
            let event = numbers.try_into().expect("a test writes GPU, kind and data");
            self.events.push_back(event);
        }
    }
}

fn handle(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

impl Machine {
    fn nvml(&mut self) -> Result<&mut Self, u32> {
        if self.is_initialised { Ok(self) } else { Err(code::UNINITIALIZED) }
    }

    /// The machine's number of a GPU.
    fn gpu(&mut self, device: Device) -> Result<u32, u32> {
        let number = u32::try_from(device.addr()).ok().and_then(|number| number.checked_sub(1));
        let known = number.filter(|&gpu| gpu < self.script.devices);
        self.nvml()?;
        known.ok_or(code::INVALID_ARGUMENT)
    }

    fn give_gpu(&mut self, to: *mut Device, gpu: u32) -> Result<(), u32> {
        let is_there = gpu < self.nvml()?.script.devices;
        if is_there { give(to, handle(gpu as usize + 1)) } else { Err(code::INVALID_ARGUMENT) }
    }

    fn watch(&mut self, set: Set) -> Result<&mut EventSet, u32> {
        let at = set.addr().checked_sub(1).ok_or(code::INVALID_ARGUMENT)?;
        self.nvml()?.watches.get_mut(at).ok_or(code::INVALID_ARGUMENT)
    }
}

exports! { SYMBOLS:
    nvmlDeviceGetComputeRunningProcesses_v3(
        device: Device, count: *mut c_uint, to: *mut ProcessInfo
    ) |mut machine, _| {
        let gpu = machine.gpu(device)?;
        let pids = machine.processes(gpu);
        let needed = c_uint::try_from(pids.len()).map_err(|_| code::INVALID_ARGUMENT)?;
        // SAFETY: the caller says here for how many there is capacity.
        let capacity = unsafe { count.read() };
        give(count, needed)?;
        if capacity < needed {
            return Err(code::INSUFFICIENT_SIZE);
        }
        let info = |pid| ProcessInfo { pid, used_bytes: CONTEXT_BYTES, instances: [c_uint::MAX; 2] };
        (0..).zip(pids).try_for_each(|(at, pid)| give(to.wrapping_add(at), info(pid)))
    };
    nvmlDeviceGetCount_v2(to: *mut c_uint) |mut machine, _| {
        give(to, machine.nvml()?.script.devices)
    };
    nvmlDeviceGetFieldValues(device: Device, count: c_int, values: *mut FieldValue)
    |mut machine, effects| {
        machine.gpu(device)?;
        for at in 0..usize::try_from(count).map_err(|_| code::INVALID_ARGUMENT)? {
            let place = values.wrapping_add(at);
                        // SAFETY: the caller passes this many.
            let asked = unsafe { place.read() };
            let code = if asked.field == RECOVERY_ACTION { 0 } else { code::NOT_SUPPORTED };
            let value = u64::from(effects.value.unwrap_or(0));
            give(place, FieldValue { kind: UNSIGNED_INT, code, value, ..asked })?;
        }
        Ok(())
    };
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Device) |mut machine, _| {
        machine.give_gpu(to, index)
    };
    nvmlDeviceGetHandleByUUID(uuid: *const c_char, to: *mut Device) |mut machine, _| {
        // SAFETY: the caller passes a text that ends with a zero.
        let uuid = unsafe { CStr::from_ptr(uuid) }.to_string_lossy();
        let gpu = (0..machine.script.devices).find(|&gpu| uuid_text(gpu) == uuid);
        machine.give_gpu(to, gpu.ok_or(code::NOT_FOUND)?)
    };
    nvmlDeviceGetIndex(device: Device, to: *mut c_uint) |mut machine, _| {
        give(to, machine.gpu(device)?)
    };
    nvmlDeviceGetMemoryInfo_v2(device: Device, to: *mut MemoryInfo) |mut machine, _| {
        let gpu = machine.gpu(device)?;
        let used = CONTEXT_BYTES * machine.processes(gpu).len() as u64;
        // SAFETY: the caller says in it which version it is.
        let version = unsafe { to.read() }.version;
        let free = MEMORY_BYTES - used;
        give(to, MemoryInfo { version, total: MEMORY_BYTES, reserved: 0, free, used })
    };
    nvmlDeviceGetName(device: Device, to: *mut c_char, capacity: c_uint) |mut machine, _| {
        machine.gpu(device)?;
        give_text(to, capacity as usize, NAME)
    };
    nvmlDeviceGetPowerUsage(device: Device, to: *mut c_uint) |mut machine, effects| {
        machine.gpu(device).and_then(|_| give(to, effects.value.unwrap_or(0)))
    };
    nvmlDeviceGetSupportedEventTypes(device: Device, to: *mut u64) |mut machine, _| {
        machine.gpu(device).and_then(|_| give(to, EVENT_TYPES))
    };
    nvmlDeviceGetUUID(device: Device, to: *mut c_char, capacity: c_uint) |mut machine, _| {
        let uuid = machine.gpu(device).map(uuid_text)?;
        let uuid = CString::new(uuid).map_err(|_| code::INVALID_ARGUMENT)?;
        give_text(to, capacity as usize, &uuid)
    };
    nvmlDeviceGetUtilizationRates(device: Device, to: *mut Utilization) |mut machine, effects| {
        let gpu = effects.value.unwrap_or(0);
        machine.gpu(device).and_then(|_| give(to, Utilization { gpu, memory: 0 }))
    };
    nvmlDeviceRegisterEvents(device: Device, kinds: u64, set: Set) |mut machine, _| {
        let gpu = machine.gpu(device)?;
        machine.watch(set)?.registered.push((gpu, kinds));
        Ok(())
    };
    nvmlEventSetCreate(to: *mut Set) |mut machine, _| {
        let path = machine.nvml()?.script.events.clone();
        let source = path.map(|path| Arc::new(Mutex::new(Source::open(&path))));
        machine.watches.push(EventSet { source, registered: Vec::new() });
        give(to, handle(machine.watches.len()))
    };
    nvmlEventSetFree(set: Set) |mut machine, _| {
        let watch = machine.watch(set)?;
        watch.registered.clear();
        watch.source = None;
        Ok(())
    };
    nvmlEventSetWait_v2(set: Set, to: *mut EventData, timeout_ms: c_uint) |mut machine, _| {
        let until = clock::now() + Duration::from_millis(timeout_ms.into());
        let watch = machine.watch(set)?;
        let (source, registered) = (watch.source.clone(), watch.registered.clone());
        // Unlocked, so that other threads may call meanwhile.
        drop(machine);
        let is_wanted = |&[gpu, kind, _]: &[u64; 3]| {
            registered.iter().any(|&(of, kinds)| u64::from(of) == gpu && kinds & kind != 0)
        };
        let Some(source) = source else {
            while !clock::until(until).is_zero() {
                thread::park_timeout(clock::until(until));
            }
            return Err(code::TIMEOUT);
        };
        let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
        let [gpu, kind, data] = source.next(until, is_wanted).ok_or(code::TIMEOUT)?;
        let gpu = usize::try_from(gpu).map_err(|_| code::INVALID_ARGUMENT)?;
        let instances = [c_uint::MAX; 2];
        give(to, EventData { device: handle(gpu + 1), kind, data, instances })
    };
    nvmlInit_v2() |mut machine, _| {
        machine.is_initialised = true;
        Ok(())
    };
    nvmlShutdown() |mut machine, _| {
        machine.nvml()?.is_initialised = false;
        Ok(())
    };
    nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) |mut machine, _| {
        give(to, machine.nvml()?.script.version)
    };
    nvmlSystemGetDriverVersion(to: *mut c_char, capacity: c_uint) |mut machine, _| {
        machine.nvml()?;
        give_text(to, capacity as usize, DRIVER_VERSION)
    };
}

#[cfg(test)]
mod tests;
