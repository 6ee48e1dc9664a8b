//! The CUDA driver's functions by address, taken from the library that cudarc loads.
//!
//! cudarc's own bindings return a closed enum: a code that it does not list, from a newer driver, is
//! undefined behaviour. They also panic where a symbol is missing.
//! So only cudarc's loader and its handle types are used, and every function is taken here under a
//! type that returns a plain `u32`. Nothing is called in this file.

#![expect(unsafe_code, reason = "symbols of a C library are what their types say they are")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::transmute;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode,
    CUmodule, CUstream, CUuuid,
};

use crate::fault::Fault;

macro_rules! api {
    ($($symbol:ident as $field:ident($($argument:ty),*);)*) => {
        /// The driver's functions; each gives its result code as a number.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Api {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Api {
            /// Takes every function that `find` gives for its name.
            ///
            /// # Safety
            /// What `find` gives must be the driver's function of that name, or one with its type.
            pub(super) unsafe fn over(
                find: impl Fn(&'static str) -> Option<*const c_void>,
            ) -> Result<Self, Fault> {
                $(
                    let symbol = stringify!($symbol);
                    let $field = find(symbol).filter(|address| !address.is_null());
                    let $field = $field.ok_or(Fault::MissingSymbol { symbol })?;
                )*
                Ok(Self {
                    $(
                        // SAFETY: cuda.h declares the function with these parameters, under the
                        // versioned name that was asked for, and its result as a C enum of 32 bits.
                        $field: unsafe {
                            transmute::<
                                *const c_void,
                                unsafe extern "C" fn($($argument),*) -> u32,
                            >($field)
                        },
                    )*
                })
            }
        }
    };
}

/// `CUDA_MEMCPY3D`, with its enums as plain numbers.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct CopyParams {
    pub(super) from: CopyEnd,
    pub(super) to: CopyEnd,
    extent: [usize; 3],
}

/// One end of a copy.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct CopyEnd {
    place: [usize; 4],
    /// `CUmemorytype`.
    pub(super) kind: c_uint,
    host: usize,
    pub(super) device: CUdeviceptr,
    array: usize,
    reserved: usize,
    pitch: [usize; 2],
}

api! {
    cuCtxSetCurrent as ctx_set_current(CUcontext);
    cuDeviceGet as device_get(*mut CUdevice, c_int);
    cuDeviceGetAttribute as device_get_attribute(*mut c_int, c_uint, CUdevice);
    cuDeviceGetCount as device_get_count(*mut c_int);
    cuDeviceGetName as device_get_name(*mut c_char, c_int, CUdevice);
    cuDeviceGetUuid_v2 as device_get_uuid(*mut CUuuid, CUdevice);
    cuDevicePrimaryCtxRetain as device_primary_ctx_retain(*mut CUcontext, CUdevice);
    cuDriverGetVersion as driver_get_version(*mut c_int);
    cuEventCreate as event_create(*mut CUevent, c_uint);
    cuEventElapsedTime as event_elapsed_time(*mut f32, CUevent, CUevent);
    cuEventRecord as event_record(CUevent, CUstream);
    cuEventRecordWithFlags as event_record_with_flags(CUevent, CUstream, c_uint);
    cuGraphDestroy as graph_destroy(CUgraph);
    cuGraphExecDestroy as graph_exec_destroy(CUgraphExec);
    cuGraphGetNodes as graph_get_nodes(CUgraph, *mut CUgraphNode, *mut usize);
    cuGraphInstantiateWithFlags as graph_instantiate(*mut CUgraphExec, CUgraph, u64);
    cuGraphLaunch as graph_launch(CUgraphExec, CUstream);
    cuGraphMemcpyNodeGetParams as graph_memcpy_node_get_params(CUgraphNode, *mut CopyParams);
    cuGraphNodeGetType as graph_node_get_type(CUgraphNode, *mut c_uint);
    cuInit as init(c_uint);
    cuLaunchKernel as launch_kernel(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
        *mut *mut c_void, *mut *mut c_void
    );
    cuMemAlloc_v2 as mem_alloc(*mut CUdeviceptr, usize);
    cuMemFreeHost as mem_free_host(*mut c_void);
    cuMemFree_v2 as mem_free(CUdeviceptr);
    cuMemGetInfo_v2 as mem_get_info(*mut usize, *mut usize);
    cuMemHostAlloc as mem_host_alloc(*mut *mut c_void, usize, c_uint);
    cuMemHostGetDevicePointer_v2 as mem_host_get_device_pointer(
        *mut CUdeviceptr, *mut c_void, c_uint
    );
    cuMemHostRegister_v2 as mem_host_register(*mut c_void, usize, c_uint);
    cuMemHostUnregister as mem_host_unregister(*mut c_void);
    cuMemcpyDtoHAsync_v2 as memcpy_dtoh_async(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyHtoDAsync_v2 as memcpy_htod_async(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemsetD8Async as memset_d8_async(CUdeviceptr, u8, usize, CUstream);
    cuModuleGetFunction as module_get_function(*mut CUfunction, CUmodule, *const c_char);
    cuModuleLoadData as module_load_data(*mut CUmodule, *const c_void);
    cuPointerGetAttribute as pointer_get_attribute(*mut c_void, c_uint, CUdeviceptr);
    cuStreamBeginCapture_v2 as stream_begin_capture(CUstream, c_uint);
    cuStreamCreate as stream_create(*mut CUstream, c_uint);
    cuStreamEndCapture as stream_end_capture(CUstream, *mut CUgraph);
    cuStreamQuery as stream_query(CUstream);
    cuStreamSynchronize as stream_synchronize(CUstream);
}

impl Api {
    /// Finds every function in the driver's library.
    pub(super) fn load() -> Result<Self, Fault> {
        // SAFETY: the NVIDIA driver's library may be loaded and initialised at any time.
        if !unsafe { sys::is_culib_present() } {
            return Err(Fault::NoDriver);
        }
        // SAFETY: the library is present.
        let library = unsafe { sys::culib() };
        let find = |name: &'static str| {
            // SAFETY: of a function only the address is taken.
            let symbol = unsafe { library.get::<*const c_void>(name.as_bytes()) };
            symbol.ok().map(|address| *address)
        };
        // SAFETY: these are the functions of the driver.
        unsafe { Self::over(find) }
    }
}
