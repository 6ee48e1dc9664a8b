//! Checked calls of the CUDA driver: a result other than success is a [`Fault`] with the call's name.
//! Handles are `Copy` and nothing is freed on `Drop`. Other files decide which calls to make, and when.

#![expect(unsafe_code, reason = "the one place that calls into libcuda")]

mod graph;

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream, CUuuid,
};
use gridpool_kernels::argument::DeviceAddress;

use super::api::Api;
use crate::fault::Fault;

pub(super) use graph::{GraphHandle, NodeKind};

const CUDA_SUCCESS: u32 = 0;
/// The result of a query of a stream that still has work. It is not a failure.
const CUDA_NOT_READY: u32 = 600;
/// The driver's own default.
const DEFAULT_FLAGS: c_uint = 0;
/// Kernels may write to the host's memory: `CU_MEMHOSTALLOC_DEVICEMAP` and `CU_MEMHOSTREGISTER_DEVICEMAP`
/// are the same bit. Write-combined memory is not used: the host reads it at a hundredth of the speed.
const DEVICE_MAP: c_uint = 2;
/// No implicit order with the legacy default stream.
const STREAM_NON_BLOCKING: c_uint = 1;
const DEVICE_NAME_BYTES: usize = 256;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `…_MINOR`.
const CAPABILITY_MAJOR: c_uint = 75;
const CAPABILITY_MINOR: c_uint = 76;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`; and of each `…_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR`, how much of it the
/// driver takes for each block, and `…_MAX_BLOCKS_PER_MULTIPROCESSOR`.
const MULTIPROCESSORS: c_uint = 16;
const SHARED_BYTES: c_uint = 81;
const RESERVED_SHARED_BYTES: c_uint = 111;
const BLOCKS_MAX: c_uint = 106;

/// The driver, initialised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Driver {
    api: Api,
}

/// The device by the driver's number.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceHandle(CUdevice);

/// The device's primary context, which ONNX Runtime uses too.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContextHandle(CUcontext);

/// A loaded module.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModuleHandle(CUmodule);

/// An entry point of a module.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionHandle(CUfunction);

/// A stream of copies and launches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(CUstream);

/// A point in a stream, with a time once the stream has passed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event(CUevent);

fn checked(call: &'static str, code: u32) -> Result<(), Fault> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(Fault::Cuda { call, code }) }
}

impl Driver {
    /// Loads the driver's library, if its CUDA is at least `version_min`, and initialises it.
    pub(super) fn open(version_min: u32) -> Result<Self, Fault> {
        Self::over(Api::load()?, version_min)
    }

    /// Uses the functions that are given.
    pub(super) fn over(api: Api, version_min: u32) -> Result<Self, Fault> {
        let have = Self::version(&api)?;
        if have < version_min {
            return Err(Fault::DriverTooOld { have, need: version_min });
        }
        // SAFETY: may be called at any time, from any thread.
        let code = unsafe { (api.init)(DEFAULT_FLAGS) };
        checked("cuInit", code)?;
        Ok(Self { api })
    }

    /// The CUDA version of the library, which it tells before it is initialised.
    pub(super) fn version(api: &Api) -> Result<u32, Fault> {
        let mut version: c_int = 0;
        // SAFETY: the call writes one int.
        let code = unsafe { (api.driver_get_version)(&raw mut version) };
        checked("cuDriverGetVersion", code)?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// The one device that this process sees.
    pub(super) fn only_device(&self) -> Result<DeviceHandle, Fault> {
        let mut count: c_int = 0;
        // SAFETY: the call writes one int.
        let code = unsafe { (self.api.device_get_count)(&raw mut count) };
        checked("cuDeviceGetCount", code)?;
        if count != 1 {
            return Err(Fault::NotOneDevice { count: u32::try_from(count).unwrap_or(0) });
        }
        let mut device: CUdevice = 0;
        // SAFETY: the call writes one device number.
        let code = unsafe { (self.api.device_get)(&raw mut device, 0) };
        checked("cuDeviceGet", code)?;
        Ok(DeviceHandle(device))
    }

    /// The product's name.
    pub(super) fn name(&self, device: DeviceHandle) -> Result<String, Fault> {
        let mut name = [0_u8; DEVICE_NAME_BYTES];
        let length = c_int::try_from(DEVICE_NAME_BYTES - 1).unwrap_or(0);
        // SAFETY: the call writes at most `length` bytes, the last of them a zero.
        let code = unsafe {
            (self.api.device_get_name)(name.as_mut_ptr().cast::<c_char>(), length, device.0)
        };
        checked("cuDeviceGetName", code)?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// The device's compute capability.
    pub(super) fn capability(&self, device: DeviceHandle) -> Result<(u32, u32), Fault> {
        let attribute = |attribute| self.attribute(device, attribute);
        Ok((attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?))
    }

    /// How many blocks with so many bytes of shared memory the device holds at once, as far as that decides.
    pub(super) fn resident(&self, device: DeviceHandle, bytes: u32) -> Result<u32, Fault> {
        let attribute = |attribute| self.attribute(device, attribute);
        let fit = attribute(SHARED_BYTES)? / (bytes + attribute(RESERVED_SHARED_BYTES)?).max(1);
        Ok(attribute(MULTIPROCESSORS)? * fit.min(attribute(BLOCKS_MAX)?))
    }

    fn attribute(&self, device: DeviceHandle, attribute: c_uint) -> Result<u32, Fault> {
        let mut value: c_int = 0;
        // SAFETY: the call writes one int.
        let code = unsafe { (self.api.device_get_attribute)(&raw mut value, attribute, device.0) };
        checked("cuDeviceGetAttribute", code)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// The device's 16 bytes of identity.
    pub(super) fn uuid(&self, device: DeviceHandle) -> Result<[u8; 16], Fault> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the call writes 16 bytes.
        let code = unsafe { (self.api.device_get_uuid)(&raw mut uuid, device.0) };
        checked("cuDeviceGetUuid", code)?;
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    /// Makes the device's primary context, which takes a quarter of a second, and enters it on this thread.
    pub(super) fn enter_context(&self, device: DeviceHandle) -> Result<ContextHandle, Fault> {
        let mut context = ptr::null_mut();
        // SAFETY: the call writes one handle.
        let code = unsafe { (self.api.device_primary_ctx_retain)(&raw mut context, device.0) };
        checked("cuDevicePrimaryCtxRetain", code)?;
        self.enter(ContextHandle(context))?;
        Ok(ContextHandle(context))
    }

    /// Enters a context on this thread.
    pub(super) fn enter(&self, context: ContextHandle) -> Result<(), Fault> {
        // SAFETY: the context was retained and is never released.
        let code = unsafe { (self.api.ctx_set_current)(context.0) };
        checked("cuCtxSetCurrent", code)
    }

    /// Compiles PTX for the device and loads it.
    pub(super) fn load_module(&self, ptx: &str) -> Result<ModuleHandle, Fault> {
        self.load_image(&[ptx.as_bytes(), b"\0"].concat())
    }

    /// Loads machine code, or PTX that ends with a zero.
    pub(super) fn load_image(&self, image: &[u8]) -> Result<ModuleHandle, Fault> {
        let mut module = ptr::null_mut();
        // SAFETY: the image is text that ends with a zero, or machine code, which says where it ends; the call
        // copies what it keeps.
        let code = unsafe {
            (self.api.module_load_data)(&raw mut module, image.as_ptr().cast::<c_void>())
        };
        checked("cuModuleLoadData", code)?;
        Ok(ModuleHandle(module))
    }

    /// An entry point by name.
    pub(super) fn function(
        &self,
        module: ModuleHandle,
        name: &'static str,
    ) -> Result<FunctionHandle, Fault> {
        let symbol = CString::new(name).map_err(|_| Fault::MissingSymbol { symbol: name })?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded and never unloaded; the name ends with a zero.
        let code =
            unsafe { (self.api.module_get_function)(&raw mut function, module.0, symbol.as_ptr()) };
        checked("cuModuleGetFunction", code)?;
        Ok(FunctionHandle(function))
    }

    /// A new stream.
    pub(super) fn stream(&self) -> Result<Stream, Fault> {
        let mut stream = ptr::null_mut();
        // SAFETY: the call writes one handle.
        let code = unsafe { (self.api.stream_create)(&raw mut stream, STREAM_NON_BLOCKING) };
        checked("cuStreamCreate", code)?;
        Ok(Stream(stream))
    }

    /// The address by which another library in this process knows a stream.
    pub(super) fn address(stream: Stream) -> *mut c_void {
        stream.0.cast()
    }

    /// Waits until everything in `stream` is done.
    pub(super) fn synchronize(&self, stream: Stream) -> Result<(), Fault> {
        // SAFETY: the stream is never destroyed.
        let code = unsafe { (self.api.stream_synchronize)(stream.0) };
        checked("cuStreamSynchronize", code)
    }

    /// Whether everything in `stream` is done.
    pub(super) fn is_done(&self, stream: Stream) -> Result<bool, Fault> {
        // SAFETY: the stream is never destroyed.
        let code = unsafe { (self.api.stream_query)(stream.0) };
        if code == CUDA_NOT_READY {
            return Ok(false);
        }
        checked("cuStreamQuery", code).map(|()| true)
    }

    /// A new event that takes times.
    pub(super) fn event(&self) -> Result<Event, Fault> {
        let mut event = ptr::null_mut();
        // SAFETY: the call writes one handle.
        let code = unsafe { (self.api.event_create)(&raw mut event, DEFAULT_FLAGS) };
        checked("cuEventCreate", code)?;
        Ok(Event(event))
    }

    /// Puts `event` into `stream`.
    pub(super) fn record(&self, event: Event, stream: Stream) -> Result<(), Fault> {
        // SAFETY: neither is ever destroyed.
        let code = unsafe { (self.api.event_record)(event.0, stream.0) };
        checked("cuEventRecord", code)
    }

    /// Microseconds of device time between two events that their stream has passed.
    pub(super) fn elapsed_us(&self, start: Event, end: Event) -> Result<f64, Fault> {
        let mut milliseconds = 0.0_f32;
        // SAFETY: the call writes one float; neither event is ever destroyed.
        let code = unsafe { (self.api.event_elapsed_time)(&raw mut milliseconds, start.0, end.0) };
        checked("cuEventElapsedTime", code)?;
        Ok(f64::from(milliseconds) * 1e3)
    }

    /// Free memory of the device, and all of it.
    pub(super) fn memory(&self) -> Result<(usize, usize), Fault> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the call writes two numbers.
        let code = unsafe { (self.api.mem_get_info)(&raw mut free, &raw mut total) };
        checked("cuMemGetInfo", code)?;
        Ok((free, total))
    }

    /// New device memory, uninitialised.
    pub(super) fn allocate(&self, bytes: usize) -> Result<DeviceAddress, Fault> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: the call writes one address.
        let code = unsafe { (self.api.mem_alloc)(&raw mut address, bytes) };
        checked("cuMemAlloc", code)?;
        Ok(DeviceAddress::new(address))
    }

    /// Frees device memory.
    ///
    /// # Safety
    /// The address must come from [`Driver::allocate`], and nothing may use it any more.
    pub(super) unsafe fn free(&self, address: DeviceAddress) -> Result<(), Fault> {
        // SAFETY: by this function's own contract.
        let code = unsafe { (self.api.mem_free)(address.number()) };
        checked("cuMemFree", code)
    }

    /// New page-locked host memory, zeroed.
    pub(super) fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>, Fault> {
        let mut start = ptr::null_mut();
        // SAFETY: the call writes one address.
        let code = unsafe { (self.api.mem_host_alloc)(&raw mut start, bytes, DEVICE_MAP) };
        checked("cuMemHostAlloc", code)?;
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or(Fault::Cuda { call: "cuMemHostAlloc", code })?;
        // SAFETY: the driver has just given `bytes` bytes here to this process alone.
        unsafe { start.write_bytes(0, bytes) };
        Ok(start)
    }

    /// Frees page-locked host memory.
    ///
    /// # Safety
    /// The address must come from [`Driver::allocate_host`], and nothing may use it any more.
    pub(super) unsafe fn free_host(&self, start: NonNull<u8>) -> Result<(), Fault> {
        // SAFETY: by this function's own contract.
        let code = unsafe { (self.api.mem_free_host)(start.as_ptr().cast::<c_void>()) };
        checked("cuMemFreeHost", code)
    }

    /// Locks the pages of a mapping, so that copies from and to it need no staging.
    ///
    /// # Safety
    /// The range must stay mapped until [`Driver::unregister`].
    pub(super) unsafe fn register(&self, start: *mut u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: by this function's own contract.
        let code =
            unsafe { (self.api.mem_host_register)(start.cast::<c_void>(), bytes, DEVICE_MAP) };
        checked("cuMemHostRegister", code)
    }

    /// The device address of page-locked or registered host memory.
    ///
    /// # Safety
    /// `start` must come from [`Driver::allocate_host`] or be what [`Driver::register`] was given.
    pub(super) unsafe fn mapped(&self, start: *mut u8) -> Result<DeviceAddress, Fault> {
        let mut address: CUdeviceptr = 0;
        let find = self.api.mem_host_get_device_pointer;
        // SAFETY: the call writes one address; the rest by this function's own contract.
        let code = unsafe { find(&raw mut address, start.cast::<c_void>(), DEFAULT_FLAGS) };
        checked("cuMemHostGetDevicePointer", code)?;
        Ok(DeviceAddress::new(address))
    }

    /// Undoes [`Driver::register`]; fails if nothing is registered at this address.
    pub(super) fn unregister(&self, start: *mut u8) -> Result<(), Fault> {
        // SAFETY: the driver looks the address up and touches nothing behind it.
        let code = unsafe { (self.api.mem_host_unregister)(start.cast::<c_void>()) };
        checked("cuMemHostUnregister", code)
    }

    /// Starts a copy to the device.
    ///
    /// # Safety
    /// Both ranges must be valid until `stream` has been waited for.
    pub(super) unsafe fn copy_to_device(
        &self,
        to: DeviceAddress,
        from: *const u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), Fault> {
        // SAFETY: by this function's own contract.
        let code = unsafe {
            (self.api.memcpy_htod_async)(to.number(), from.cast::<c_void>(), bytes, stream.0)
        };
        checked("cuMemcpyHtoDAsync", code)
    }

    /// Starts to fill memory with zeros.
    ///
    /// # Safety
    /// The range must be valid until `stream` has been waited for.
    pub(super) unsafe fn clear(
        &self,
        start: DeviceAddress,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), Fault> {
        // SAFETY: by this function's own contract.
        let code = unsafe { (self.api.memset_d8_async)(start.number(), 0, bytes, stream.0) };
        checked("cuMemsetD8Async", code)
    }

    /// Starts a copy to the host.
    ///
    /// # Safety
    /// Both ranges must be valid until `stream` has been waited for.
    pub(super) unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: DeviceAddress,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), Fault> {
        // SAFETY: by this function's own contract.
        let code = unsafe {
            (self.api.memcpy_dtoh_async)(to.cast::<c_void>(), from.number(), bytes, stream.0)
        };
        checked("cuMemcpyDtoHAsync", code)
    }

    /// Starts a kernel of `blocks` by `threads`, with so much shared memory for each block besides what it declares.
    ///
    /// # Safety
    /// `arguments` must point at the values that the kernel's parameters need, and what these name
    /// on the device must be valid until `stream` has been waited for.
    pub(super) unsafe fn launch(
        &self,
        function: FunctionHandle,
        [blocks, threads, shared_bytes]: [u32; 3],
        arguments: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<(), Fault> {
        let (arguments, extra) = (arguments.as_mut_ptr(), ptr::null_mut());
        let launch = self.api.launch_kernel;
        // SAFETY: by this function's own contract.
        let code = unsafe {
            launch(
                function.0,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared_bytes,
                stream.0,
                arguments,
                extra,
            )
        };
        checked("cuLaunchKernel", code)
    }
}
