//! In which memory tensors lie, copies between the two, and programs over grids that are tensors of the device.

use std::ptr;

use gridpool_device::cuda::{ComputeStream, GridKernels, GridPlaces, GridsOnDevice, StreamGraph};
use ort::ep;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::sys;

use super::{HostMemory, OwnedAllocator, RuntimeFault, SharedSession, Side, Value, fault};

/// The memory of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// What the host reads and writes.
    Host,
    /// The GPU's. A cpu device has none of its own.
    Device,
}

impl Place {
    /// This memory for sessions whose host memory is of this kind.
    pub(super) fn info(self, host: HostMemory) -> Result<MemoryInfo<'static>, RuntimeFault> {
        match (self, host) {
            (Self::Host, host) => host.info(MemoryType::CPUOutput),
            (Self::Device, HostMemory::Plain) => HostMemory::Plain.info(MemoryType::Default),
            (Self::Device, HostMemory::Pinned) => {
                let (device, kind) = (AllocationDevice::CUDA, AllocatorType::Device);
                MemoryInfo::new(device, 0, kind, MemoryType::Default)
                    .map_err(|error| fault("CreateMemoryInfo", &error, true))
            }
        }
    }
}

impl OwnedAllocator {
    /// The allocator of host memory that copies to and from the device at full speed.
    pub(crate) fn of_host(session: &SharedSession) -> Result<Self, RuntimeFault> {
        let plain = HostMemory::Plain.info(MemoryType::Default)?;
        match session.host {
            HostMemory::Plain => Self::new(session, &plain),
            HostMemory::Pinned => {
                let pinned = session.host.info(MemoryType::CPUOutput)?;
                Self::new(session, &pinned).or_else(|fault| {
                    // Pageable memory gives the same result, more slowly.
                    tracing::warn!(%fault, "inputs are copied from memory that is not pinned");
                    Self::new(session, &plain)
                })
            }
        }
    }

    /// The allocator of the device's memory.
    pub(crate) fn of_device(session: &SharedSession) -> Result<Self, RuntimeFault> {
        Self::new(session, &Place::Device.info(session.host)?)
    }
}

/// Where a session takes its inputs or makes its outputs, which are so many, in the model's order. On a cpu device that
/// is the device.
pub(crate) fn places(
    session: &SharedSession,
    side: Side,
    count: usize,
) -> Result<Vec<Place>, RuntimeFault> {
    if session.host == HostMemory::Plain {
        return Ok(vec![Place::Device; count]);
    }
    let mut infos = vec![ptr::null::<sys::OrtMemoryInfo>(); count];
    let (name, call) = match side {
        Side::Input => ("SessionGetMemoryInfoForInputs", ort::api().SessionGetMemoryInfoForInputs),
        Side::Output => {
            ("SessionGetMemoryInfoForOutputs", ort::api().SessionGetMemoryInfoForOutputs)
        }
    };
    #[expect(unsafe_code, reason = "ort has no wrapper for it")]
    // SAFETY: it reads the session, which has so many on this side; what it gives belongs to the session.
    let status = unsafe { call(session.address(), infos.as_mut_ptr(), count) };
    session.check(name, status)?;
    Ok(infos.iter().map(|&info| place(info)).collect())
}

fn place(info: *const sys::OrtMemoryInfo) -> Place {
    if info.is_null() {
        return Place::Host;
    }
    let mut device = sys::OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU;
    #[expect(unsafe_code, reason = "ort has no wrapper for what a session gave")]
    // SAFETY: the session that gave it lives; `device` is written.
    unsafe {
        (ort::api().MemoryInfoGetDeviceType)(info, &raw mut device);
    }
    match device == sys::OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_GPU {
        true => Place::Device,
        false => Place::Host,
    }
}

/// Queues a copy of a tensor of the host to one of the device that has its type and shape. Both must live until the
/// stream has been waited for.
pub(crate) fn upload(
    from: &Value,
    to: &Value,
    session: &SharedSession,
    stream: &ComputeStream,
) -> Result<(), RuntimeFault> {
    let (start, bytes) = to.memory(session)?;
    let host = from.bytes(session)?;
    assert_eq!(host.len(), bytes, "tensors of one type and shape");
    let start = start.map_or(ptr::null_mut(), ptr::NonNull::as_ptr);
    #[expect(unsafe_code, reason = "a copy between memories")]
    // SAFETY: both tensors have so many bytes; the caller keeps them until the stream has been waited for.
    let copied = unsafe { stream.upload(start, host) };
    Ok(copied?)
}

/// Queues a copy the other way.
pub(crate) fn download(
    from: &Value,
    to: &mut Value,
    session: &SharedSession,
    stream: &ComputeStream,
) -> Result<(), RuntimeFault> {
    let (start, bytes) = from.memory(session)?;
    let host = to.bytes_mut(session)?;
    assert_eq!(host.len(), bytes, "tensors of one type and shape");
    let start = start.map_or(ptr::null_mut(), ptr::NonNull::as_ptr);
    #[expect(unsafe_code, reason = "a copy between memories")]
    // SAFETY: as above.
    let copied = unsafe { stream.download(host, start) };
    Ok(copied?)
}

/// Queues the kernels of a program over tensors of the device, which are as long as the layout says and must live until
/// the stream has been waited for.
pub(crate) fn run_grids(
    kernels: &GridKernels,
    run: &GridsOnDevice,
    tensors: &GridPlaces<&Value>,
    session: &SharedSession,
    stream: &mut ComputeStream,
) -> Result<(), RuntimeFault> {
    let start = |value: &Value| -> Result<*mut u8, RuntimeFault> {
        let (start, _) = value.memory(session)?;
        Ok(start.map_or(ptr::null_mut(), ptr::NonNull::as_ptr))
    };
    let places = tensors.each(start)?;
    #[expect(unsafe_code, reason = "kernels over tensors of another library")]
    // SAFETY: the tensors are as long as the layout says; the caller keeps them until the stream has been waited for.
    let queued = unsafe { stream.run_grids(kernels, run, &places) };
    Ok(queued?)
}

/// Queues what a chain has captured.
pub(crate) fn replay(graph: &StreamGraph, stream: &ComputeStream) -> Result<(), RuntimeFault> {
    #[expect(unsafe_code, reason = "kernels over memory of another library")]
    // SAFETY: the chain that captured it owns the sessions whose memory it uses, and the tensors; it waits for the
    // stream after this.
    let queued = unsafe { stream.replay(graph) };
    Ok(queued?)
}

/// The CUDA provider that computes on a stream, which must outlive the session.
pub(crate) fn on_stream(cuda: ep::CUDA, stream: &ComputeStream) -> ep::CUDA {
    #[expect(unsafe_code, reason = "a session does not keep its stream")]
    // SAFETY: a stream is never destroyed, and one context owns it with the sessions that compute on it.
    unsafe {
        cuda.with_compute_stream(stream.address().cast())
    }
}

/// The TensorRT provider that computes on a stream.
pub(crate) fn on_stream_too(engine: ep::TensorRT, stream: &ComputeStream) -> ep::TensorRT {
    #[expect(unsafe_code, reason = "a session does not keep its stream")]
    // SAFETY: as above.
    unsafe {
        engine.with_compute_stream(stream.address().cast())
    }
}
