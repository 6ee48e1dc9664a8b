//! A stream on which ONNX Runtime computes, with copies between host and device, programs over grids, and times.
//! Whatever is put into it runs in order, so nobody waits between a copy and what computes on it.
//!
//! A stream is never destroyed: one that is dropped is kept for the next owner.

#![expect(unsafe_code, reason = "copies and kernels between addresses that another library gave")]

mod capture;

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::module::{CUDA_VERSION_MIN, Kernel};
use gridpool_kernels::solve::{SOLVERS, SolveArgument};

use super::driver::{ContextHandle, Driver, Event, Stream};
use super::grids::{GridPlaces, GridsOnDevice, Solved};
use super::launch::{Launcher, Module};
use super::solve::kernel::Kernel as SolverKernel;
use crate::fault::Fault;

pub use capture::{CaptureError, StreamGraph};

/// Streams without an owner. All are of the one device of this process.
static SPARE: Mutex<Vec<Parts>> = Mutex::new(Vec::new());

/// See the module's text.
#[derive(Debug)]
pub struct ComputeStream {
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    driver: Driver,
    context: ContextHandle,
    stream: Stream,
    /// Marks, made when they are first set.
    marks: Vec<Event>,
    /// For programs over grids.
    launcher: Launcher,
    /// What is put into it is captured and not run.
    is_captured: bool,
}

// SAFETY: the driver's handles belong to a process, not to a thread; the owner enters the context on its thread.
unsafe impl Send for Parts {}

/// The kernels of programs over grids, in the context of the one device that this process sees.
#[derive(Debug)]
pub struct GridKernels {
    module: Module,
    /// If one of them is a solver.
    solver: Option<SolverKernel>,
}

// SAFETY: a module's functions belong to a process, not to a thread, and are only read.
unsafe impl Send for GridKernels {}

// SAFETY: as above.
unsafe impl Sync for GridKernels {}

impl GridKernels {
    /// Loads them, and starts each over nothing: a driver loads a kernel at its first launch. Those of solvers are
    /// loaded if `has_solver`.
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub fn load(stream: &mut ComputeStream, has_solver: bool) -> Result<Self, Fault> {
        stream.enter()?;
        let Parts { driver, launcher, stream: queue, .. } = stream.parts_mut();
        let module = Module::load(driver)?;
        launcher.reset();
        launcher.launch_all_over_nothing(driver, &module)?;
        let solver = match has_solver {
            true => {
                let mut kernel = SolverKernel::new(driver, SOLVERS)?;
                kernel.load_queued(driver)?;
                // SAFETY: the kernel reads the number of items first, and with none uses no address.
                unsafe {
                    solve(driver, *queue, &kernel, SolveArgument::default(), DeviceAddress::NULL)?
                };
                Some(kernel)
            }
            false => None,
        };
        stream.wait()?;
        Ok(Self { module, solver })
    }
}

impl ComputeStream {
    /// A stream of the one device that this process sees.
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub fn open() -> Result<Self, Fault> {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match spare {
            Some(parts) => Ok(Self { parts: Some(parts) }),
            None => Self::over(Driver::open(CUDA_VERSION_MIN)?),
        }
    }

    pub(super) fn over(driver: Driver) -> Result<Self, Fault> {
        let context = driver.enter_context(driver.only_device()?)?;
        let stream = driver.stream()?;
        let (marks, launcher) = (Vec::new(), Launcher::new(stream));
        let parts = Parts { driver, context, stream, marks, launcher, is_captured: false };
        Ok(Self { parts: Some(parts) })
    }

    fn parts(&self) -> &Parts {
        self.parts.as_ref().expect("only a drop takes them")
    }

    fn parts_mut(&mut self) -> &mut Parts {
        self.parts.as_mut().expect("only a drop takes them")
    }

    /// Its address, for another library in this process.
    #[must_use]
    pub fn address(&self) -> *mut c_void {
        Driver::address(self.parts().stream)
    }

    /// Makes this thread the one that uses the stream.
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub fn enter(&self) -> Result<(), Fault> {
        let Parts { driver, context, .. } = self.parts();
        driver.enter(*context)
    }

    /// Queues a copy to the device.
    ///
    /// # Safety
    /// `to` is the address of as many bytes of device memory as `from` has. Both stay as they are, and valid, until
    /// [`ComputeStream::wait`].
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub unsafe fn upload(&self, to: *mut u8, from: &[u8]) -> Result<(), Fault> {
        if from.is_empty() {
            return Ok(());
        }
        let Parts { driver, stream, .. } = self.parts();
        // SAFETY: by this function's own contract.
        unsafe { driver.copy_to_device(on_device(to), from.as_ptr(), from.len(), *stream) }
    }

    /// Queues a copy to the host.
    ///
    /// # Safety
    /// `from` is the address of as many bytes of device memory as `to` has. Both stay valid until
    /// [`ComputeStream::wait`], and nothing reads `to` before that.
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub unsafe fn download(&self, to: &mut [u8], from: *mut u8) -> Result<(), Fault> {
        if to.is_empty() {
            return Ok(());
        }
        let Parts { driver, stream, .. } = self.parts();
        // SAFETY: by this function's own contract.
        unsafe { driver.copy_to_host(to.as_mut_ptr(), on_device(from), to.len(), *stream) }
    }

    /// Queues the kernels of a program.
    ///
    /// # Safety
    /// `places` are addresses of device memory of at least the lengths that [`GridsOnDevice`] says, the tables as it
    /// writes them. All of it stays valid until [`ComputeStream::wait`].
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub unsafe fn run_grids(
        &mut self,
        kernels: &GridKernels,
        run: &GridsOnDevice,
        places: &GridPlaces,
    ) -> Result<(), Fault> {
        let Parts { driver, stream, launcher, .. } = self.parts_mut();
        let places = places.each(|address| Ok::<_, Fault>(on_device(address)))?;
        let cleared = run.cleared_bytes();
        if cleared > 0 {
            // SAFETY: by this function's own contract.
            unsafe { driver.clear(places.results, cleared, *stream)? };
        }
        launcher.reset();
        if let Some(take) = run.take(&places) {
            // SAFETY: by this function's own contract: the layout gives each kernel what it needs.
            unsafe { launcher.launch(driver, &kernels.module, Kernel::TAKE_PLANES, &take)? };
        }
        if run.solver().is_none() {
            for (kernel, step) in run.chain(&places) {
                // SAFETY: as above.
                unsafe { launcher.launch(driver, &kernels.module, kernel, &step)? };
            }
            return Ok(());
        }
        let solver = kernels.solver.as_ref().expect("they were loaded with those of solvers");
        for Solved { solve: argument, used_bytes, arenas, put } in run.solved(&places) {
            // SAFETY: as above.
            unsafe { driver.clear(argument.used, used_bytes, *stream)? };
            // SAFETY: as above. The program was verified when it was compiled.
            unsafe { solve(driver, *stream, solver, argument, arenas)? };
            // SAFETY: as above.
            unsafe { launcher.launch(driver, &kernels.module, Kernel::PUT_PLANES, &put)? };
        }
        Ok(())
    }

    /// Sets a mark, by its number, behind what was queued so far.
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub fn mark(&mut self, number: usize) -> Result<(), Fault> {
        let Parts { driver, stream, marks, is_captured, .. } = self.parts_mut();
        while marks.len() <= number {
            marks.push(driver.event()?);
        }
        match *is_captured {
            true => driver.record_in_capture(marks[number], *stream),
            false => driver.record(marks[number], *stream),
        }
    }

    /// Microseconds of device time from a mark to a later one. Both have been passed.
    ///
    /// # Errors
    /// [`Fault`] of the driver.
    pub fn between(&self, first: usize, last: usize) -> Result<f64, Fault> {
        let Parts { driver, marks, .. } = self.parts();
        driver.elapsed_us(marks[first], marks[last])
    }

    /// Waits until everything that was queued is done.
    ///
    /// # Errors
    /// [`Fault`] of the driver, also of what was queued.
    pub fn wait(&self) -> Result<(), Fault> {
        let Parts { driver, stream, .. } = self.parts();
        driver.synchronize(*stream)
    }
}

impl Drop for ComputeStream {
    fn drop(&mut self) {
        // One whose capture a panic has left open is nobody's.
        let parts = self.parts.take().filter(|parts| !parts.is_captured);
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).extend(parts);
    }
}

/// Queues the launches of a solver over items, with larger and larger arenas. Each runs what the one before left.
///
/// # Safety
/// What `argument` and `arenas` name on the device must be as long as the numbers there and the kernel say, until
/// `stream` has been waited for.
unsafe fn solve(
    driver: &Driver,
    stream: Stream,
    kernel: &SolverKernel,
    argument: SolveArgument,
    arenas: DeviceAddress,
) -> Result<(), Fault> {
    let launches = kernel.queued(argument.items_count, arenas);
    for (order, (arena_words, launch)) in launches.enumerate() {
        let again = u32::from(order > 0);
        let mut argument = SolveArgument { arena_words, arenas: launch.arenas, again, ..argument };
        let mut arguments = [(&raw mut argument).cast::<c_void>()];
        // SAFETY: by this function's own contract.
        unsafe { driver.launch(launch.function, launch.shape, &mut arguments, stream)? };
    }
    Ok(())
}

fn on_device(address: *mut u8) -> DeviceAddress {
    DeviceAddress::new(address.addr() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::fake;

    #[test]
    fn copies_are_queued_and_done_after_the_wait() {
        let driver = fake::driver("").unwrap();
        let mut stream = ComputeStream::over(driver).unwrap();
        let memory = driver.allocate(64).unwrap();
        let device =
            std::ptr::with_exposed_provenance_mut(usize::try_from(memory.number()).unwrap());
        let (given, mut got) = ([7_u8; 64], [0_u8; 64]);
        stream.enter().unwrap();
        stream.mark(0).unwrap();
        // SAFETY: the memory has 64 bytes, and all of it lives until the wait.
        unsafe { stream.upload(device, &given) }.unwrap();
        // SAFETY: as above.
        unsafe { stream.download(&mut got, device) }.unwrap();
        // SAFETY: nothing is copied.
        unsafe { stream.upload(std::ptr::null_mut(), &[]) }.unwrap();
        stream.mark(1).unwrap();
        stream.wait().unwrap();
        assert_eq!(got, given);
        assert!(stream.between(0, 1).unwrap() >= 0.0);
        assert!(!stream.address().is_null());
        // The stub's device is of this thread: no other test may get the stream.
        std::mem::forget(stream);
    }

    #[test]
    fn a_fault_of_what_was_queued_comes_with_the_wait() {
        let stream = ComputeStream::over(fake::driver("").unwrap()).unwrap();
        fake::fail("cuStreamSynchronize", 700);
        let fault = stream.wait().unwrap_err();
        assert_eq!(fault, Fault::Cuda { call: "cuStreamSynchronize", code: 700 });
        std::mem::forget(stream);
    }
}
