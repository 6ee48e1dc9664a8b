//! NVML for the monitor: samples through nvml-wrapper; events by number, since the wrapper drops the
//! bits of those that it does not know.

use std::mem;
use std::time::Duration;

use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::reclaim::{Process, Usage};
use super::{Event, Gauge, Load, Refused, Sample, Watch};

/// `nvmlEventTypeXidCriticalError`.
const XID_CRITICAL: u64 = 0x8;
/// `nvmlEventTypeGpuUnavailableError`.
const UNAVAILABLE: u64 = 0x4000;
/// `nvmlEventTypeGpuRecoveryAction`.
const RECOVERY: u64 = 0x8000;
/// `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`.
const RECOVERY_ACTION: FieldId = FieldId(230);

const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const TIMEOUT: u32 = 10;
const LIBRARY_NOT_FOUND: u32 = 12;
const FUNCTION_NOT_FOUND: u32 = 13;

/// NVML, open.
pub(super) struct Opened {
    pub(super) gauge: Nvmls,
    pub(super) watch: Events,
    /// Devices whose events are not told, and what NVML returned for each.
    pub(super) missed: Vec<(String, Refused)>,
}

/// Opens NVML, and what it tells about these devices by itself.
pub(super) fn open(uuids: &[String]) -> Result<Opened, Refused> {
    let nvml = Nvml::init().map_err(refused("nvmlInit_v2"))?;
    // It lives as long as the process, which may end at any moment and is not to call NVML then.
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    let set = nvml.create_event_set().map_err(refused("nvmlEventSetCreate"))?;
    let register = |uuid: &String| Some((uuid.clone(), register(nvml, &set, uuid).err()?));
    let missed = uuids.iter().filter_map(register).collect();
    Ok(Opened { gauge: Nvmls(nvml), watch: Events { nvml, set }, missed })
}

fn refused(call: &'static str) -> impl FnOnce(NvmlError) -> Refused {
    move |error| Refused { call, code: code_of(error) }
}

/// NVML's number for an error, those of the wrapper's own making included.
pub(crate) fn code_of(error: NvmlError) -> u32 {
    if matches!(error, NvmlError::LibloadingError(_)) {
        LIBRARY_NOT_FOUND
    } else if matches!(error, NvmlError::FailedToLoadSymbol(_)) {
        FUNCTION_NOT_FOUND
    } else {
        error.into()
    }
}

fn check(call: &'static str, code: u32) -> Result<(), Refused> {
    if code == 0 { Ok(()) } else { Err(Refused { call, code }) }
}

/// Registers whatever of the three kinds of event the device can tell.
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

/// NVML that is asked.
pub(super) struct Nvmls(&'static Nvml);

impl Gauge for Nvmls {
    fn sample(&mut self, uuid: &str) -> Result<Sample, Refused> {
        let device = self.0.device_by_uuid(uuid);
        let device = device.map_err(refused("nvmlDeviceGetHandleByUUID"))?;
        // The list is read on both sides of the sum: a process that allocates in between would be
        // taken for memory of nobody.
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

/// The processes with a context; none where the driver lists none.
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

/// What the device needs, where the driver knows that field.
pub(crate) fn recovery_action(device: &Device<'_>) -> Result<Option<u32>, Refused> {
    let value = device.field_values_for(&[RECOVERY_ACTION]).and_then(|values| {
        let sample = values.into_iter().next().unwrap_or(Err(NvmlError::NotSupported))?;
        sample.value
    });
    match value {
        Ok(SampleValue::U32(action)) => Ok(Some(action)),
        Ok(SampleValue::U64(action)) => Ok(Some(u32::try_from(action).unwrap_or(u32::MAX))),
        Ok(SampleValue::F64(_) | SampleValue::I64(_)) => Ok(None),
        Err(error) => match code_of(error) {
            INVALID_ARGUMENT | NOT_SUPPORTED | FUNCTION_NOT_FOUND => Ok(None),
            code => Err(Refused { call: "nvmlDeviceGetFieldValues", code }),
        },
    }
}

/// NVML that tells.
pub(super) struct Events {
    nvml: &'static Nvml,
    set: EventSet<'static>,
}

impl Watch for Events {
    fn wait(&mut self, patience: Duration) -> Result<Option<Event>, Refused> {
        let call = "nvmlEventSetWait_v2";
        let wait = self.nvml.lib().nvmlEventSetWait_v2.as_ref();
        let wait = wait.map_err(|_| Refused { call, code: FUNCTION_NOT_FOUND })?;
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
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
        match unsafe { wait(set, &raw mut data, patience_ms) } {
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
