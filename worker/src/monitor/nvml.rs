//! NVML for the monitor: samples through nvml-wrapper; events as numbers, because the wrapper drops the bits
//! of unknown events.

use std::mem;
use std::time::Duration;

use gridpool_device::nvml::{FUNCTION_NOT_FOUND, NOT_SUPPORTED, Refused, code_of, recovery_action};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::reclaim::{Process, Usage};
use super::{DeviceReader, Event, EventSource, Load, Sample};

/// `nvmlEventTypeXidCriticalError`.
const XID_CRITICAL: u64 = 0x8;
/// `nvmlEventTypeGpuUnavailableError`.
const UNAVAILABLE: u64 = 0x4000;
/// `nvmlEventTypeGpuRecoveryAction`.
const RECOVERY: u64 = 0x8000;

const TIMEOUT: u32 = 10;

/// NVML, open.
pub(super) struct Opened {
    pub(super) reader: Nvmls,
    pub(super) events: Events,
    /// Devices whose events cannot be watched, and NVML's error for each.
    pub(super) missed: Vec<(String, Refused)>,
}

/// Opens NVML and registers for the events of these devices.
pub(super) fn open(uuids: &[String]) -> Result<Opened, Refused> {
    let nvml = Nvml::init().map_err(refused("nvmlInit_v2"))?;
    // It lives as long as the process, which may end at any moment without calling NVML.
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    let set = nvml.create_event_set().map_err(refused("nvmlEventSetCreate"))?;
    let register = |uuid: &String| Some((uuid.clone(), register(nvml, &set, uuid).err()?));
    let missed = uuids.iter().filter_map(register).collect();
    Ok(Opened { reader: Nvmls(nvml), events: Events { nvml, set }, missed })
}

fn refused(call: &'static str) -> impl FnOnce(NvmlError) -> Refused {
    move |error| Refused { call, code: code_of(error) }
}

fn check(call: &'static str, code: u32) -> Result<(), Refused> {
    if code == 0 { Ok(()) } else { Err(Refused { call, code }) }
}

/// Registers for those of the three kinds of event that the device supports.
fn register(nvml: &'static Nvml, set: &EventSet<'static>, uuid: &str) -> Result<(), Refused> {
    let device = nvml.device_by_uuid(uuid).map_err(refused("nvmlDeviceGetHandleByUUID"))?;
    let missing = |call| move |_: &_| Refused { call, code: FUNCTION_NOT_FOUND };
    let (ask, say) = ("nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents");
    let supported = nvml.lib().nvmlDeviceGetSupportedEventTypes.as_ref().map_err(missing(ask))?;
    let register = nvml.lib().nvmlDeviceRegisterEvents.as_ref().map_err(missing(say))?;
    #[expect(unsafe_code, reason = "the wrapper drops the bits of events that it does not know")]
    // SAFETY: the handle is used here alone, while NVML is open.
    let handle = unsafe { device.handle() };
    let mut bits = 0;
    #[expect(unsafe_code, reason = "as above")]
    // SAFETY: NVML gave the handle; it writes one number to `bits`, which outlives the call.
    check(ask, unsafe { supported(handle, &raw mut bits) })?;
    #[expect(unsafe_code, reason = "as above")]
    // SAFETY: the copy of the set's handle does not outlive the set.
    let events = unsafe { set.handle() };
    #[expect(unsafe_code, reason = "as above")]
    // SAFETY: both handles are NVML's own and valid.
    check(say, unsafe { register(handle, bits & (XID_CRITICAL | UNAVAILABLE | RECOVERY), events) })
}

/// Reads devices through NVML.
pub(super) struct Nvmls(&'static Nvml);

impl DeviceReader for Nvmls {
    fn sample(&mut self, uuid: &str) -> Result<Sample, Refused> {
        let device = self.0.device_by_uuid(uuid);
        let device = device.map_err(refused("nvmlDeviceGetHandleByUUID"))?;
        // The list is read before and after the sum: memory of a process that allocates in between would
        // otherwise seem to have no owner.
        let before = processes(&device)?;
        let memory = device.memory_info().map_err(refused("nvmlDeviceGetMemoryInfo_v2"))?;
        let mut processes = processes(&device)?;
        if before != processes {
            processes.iter_mut().for_each(|process| process.used = None);
        }
        let recovery = recovery_action(&device)?;
        let usage = Usage { used: memory.used, processes };
        Ok(Sample { usage, memory_total: memory.total, recovery })
    }

    fn load(&mut self, uuid: &str) -> Load {
        let Ok(device) = self.0.device_by_uuid(uuid) else { return Load::default() };
        Load {
            busy_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
            power_mw: device.power_usage().ok(),
        }
    }
}

/// The processes with a context; empty if the driver does not list them.
fn processes(device: &Device<'_>) -> Result<Vec<Process>, Refused> {
    let listed = match device.running_compute_processes() {
        Ok(listed) => listed,
        Err(error) => match code_of(error) {
            NOT_SUPPORTED | FUNCTION_NOT_FOUND => Vec::new(),
            code => return Err(Refused { call: "nvmlDeviceGetComputeRunningProcesses_v3", code }),
        },
    };
    let process = |info: &nvml_wrapper::struct_wrappers::device::ProcessInfo| Process {
        pid: info.pid,
        used: match info.used_gpu_memory {
            UsedGpuMemory::Unavailable => None,
            UsedGpuMemory::Used(bytes) => Some(bytes),
        },
    };
    Ok(listed.iter().map(process).collect())
}

/// Waits for events of NVML.
pub(super) struct Events {
    nvml: &'static Nvml,
    set: EventSet<'static>,
}

impl EventSource for Events {
    fn wait(&mut self, timeout: Duration) -> Result<Option<Event>, Refused> {
        let call = "nvmlEventSetWait_v2";
        let wait = self.nvml.lib().nvmlEventSetWait_v2.as_ref();
        let wait = wait.map_err(|_| Refused { call, code: FUNCTION_NOT_FOUND })?;
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        #[expect(
            unsafe_code,
            reason = "the wrapper drops the bits of events that it does not know"
        )]
        // SAFETY: the copy of the set's handle does not outlive the set.
        let set = unsafe { self.set.handle() };
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: a plain C struct of numbers and one pointer, for which all zeros are a value.
        let mut data = unsafe { mem::zeroed() };
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: the set is open; NVML fills in the struct, which outlives the call.
        match unsafe { wait(set, &raw mut data, timeout_ms) } {
            0 => {}
            TIMEOUT => return Ok(None),
            code => return Err(Refused { call, code }),
        }
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: NVML has just named this device, and is never closed.
        let device = unsafe { Device::new(data.device, self.nvml) };
        let uuid = device.uuid().map_err(refused("nvmlDeviceGetUUID"))?;
        let (kind, xid) = (data.eventType, data.eventData);
        Ok(if kind & XID_CRITICAL != 0 {
            Some(Event::Xid { uuid, xid })
        } else if kind & UNAVAILABLE != 0 {
            Some(Event::Unavailable { uuid })
        } else if kind & RECOVERY != 0 {
            Some(Event::Recovery { uuid })
        } else {
            None
        })
    }
}
