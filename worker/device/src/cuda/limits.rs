//! The limits of a GPU: copies one way and both ways, and the shortest round trip with one launch.
//!
//! It uses what a worker uses: sealed memory registered with the driver, three streams, and chunks of a
//! worker's size. It has no tables, checks or scheduling.

#![expect(unsafe_code, reason = "copies and one kernel over memory that this type alone has")]

use std::ffi::c_void;
use std::time::Duration;

use gridpool_ipc::arena::{Arena, ArenaError, ArenaMap};
use gridpool_ipc::clock;
use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::module::CUDA_VERSION_MIN;
use gridpool_protocol::bench::Measure;

use super::device::{driver_version, uuid_text};
use super::driver::{Driver, FunctionHandle, Stream};
use crate::fault::Fault;

/// Bytes of one copy: chunks of 7 to 45 MB reach the whole of the bus.
const CHUNK_BYTES: usize = 16 << 20;
/// Memory on each side; no cache holds so much.
const HOST_BYTES: usize = 256 << 20;
/// Streams, like the lanes of a worker.
const LANES: usize = 3;
/// Chunks queued in one stream, so that it does not run dry while another is waited for.
const QUEUED: usize = 2;
/// Cells of the grid of a round trip.
const GRID_CELLS: usize = 900;
const THREADS: u32 = 128;

/// Copies each byte once: the least work with a visible result.
const ECHO: &str = "
.version 6.0
.target sm_60
.address_size 64
.visible .entry gp_echo(.param .u64 from, .param .u64 to, .param .u32 bytes)
{
    .reg .pred %p;
    .reg .u16 %cell;
    .reg .u32 %block, %threads, %thread, %at, %bytes;
    .reg .u64 %from, %to, %offset;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %at, %block, %threads, %thread;
    ld.param.u32 %bytes, [bytes];
    setp.ge.u32 %p, %at, %bytes;
    @%p bra DONE;
    ld.param.u64 %from, [from];
    ld.param.u64 %to, [to];
    cvt.u64.u32 %offset, %at;
    add.u64 %from, %from, %offset;
    add.u64 %to, %to, %offset;
    ld.global.u8 %cell, [%from];
    st.global.u8 [%to], %cell;
DONE:
    ret;
}
";

/// Why a limit could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// A call of the driver failed, or the GPU is another one.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// There is no memory to copy.
    #[error("cannot allocate memory to copy")]
    Memory(#[from] ArenaError),
}

/// The only GPU that this process sees, and memory to copy.
#[derive(Debug)]
pub struct CopyLimits {
    driver: Driver,
    name: String,
    version: String,
    lanes: [(Stream, DeviceAddress); LANES],
    input: ArenaMap,
    output: ArenaMap,
    echo: FunctionHandle,
}

impl CopyLimits {
    /// Opens the only visible GPU, which must be `uuid`, and registers memory with it.
    ///
    /// # Errors
    /// [`LimitError`]: a [`Fault`] of the driver, or no memory.
    pub fn open(uuid: &str) -> Result<Self, LimitError> {
        Self::over(Driver::open(CUDA_VERSION_MIN)?, uuid, HOST_BYTES)
    }

    /// Uses the driver that is given, with `bytes` of memory.
    fn over(driver: Driver, uuid: &str, host_bytes: usize) -> Result<Self, LimitError> {
        let device = driver.only_device()?;
        let got = uuid_text(driver.uuid(device)?);
        if got != uuid {
            return Err(Fault::WrongDevice { want: uuid.to_owned(), got }.into());
        }
        driver.enter_context(device)?;
        let lane = || Ok::<_, Fault>((driver.stream()?, driver.allocate(CHUNK_BYTES)?));
        let memory = || registered(&driver, host_bytes);
        let (input, output) = (memory()?, memory()?);
        let module = driver.load_module(ECHO)?;
        Ok(Self {
            name: driver.name(device)?,
            version: driver_version(),
            lanes: [lane()?, lane()?, lane()?],
            input,
            output,
            echo: driver.function(module, "gp_echo")?,
            driver,
        })
    }

    /// The product's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The driver's version.
    #[must_use]
    pub fn driver_version(&self) -> &str {
        &self.version
    }

    /// Copies for about `span`; returns bytes per second, both ways together.
    ///
    /// # Errors
    /// [`LimitError::Fault`] of the driver.
    pub fn copy(&mut self, measure: Measure, span: Duration) -> Result<f64, LimitError> {
        let started = clock::now();
        let mut copied = 0.0;
        let mut at = 0;
        while started.elapsed() < span {
            for (stream, buffer) in self.lanes {
                self.driver.synchronize(stream)?;
                for _ in 0..QUEUED {
                    copied += self.copy_chunk(measure, at, buffer, stream)?;
                    at = (at + CHUNK_BYTES) % self.input.all().bytes();
                }
            }
        }
        for (stream, _) in self.lanes {
            self.driver.synchronize(stream)?;
        }
        Ok(copied / started.elapsed().as_secs_f64())
    }

    /// Starts the copies of one chunk and gives their bytes.
    fn copy_chunk(
        &self,
        measure: Measure,
        at: usize,
        buffer: DeviceAddress,
        stream: Stream,
    ) -> Result<f64, Fault> {
        let bytes = f64::from(u32::try_from(CHUNK_BYTES).expect("a chunk has 16 MiB"));
        let (inward, outward) = match measure {
            Measure::In => (true, false),
            Measure::Out => (false, true),
            Measure::Both | Measure::RoundTrip => (true, true),
        };
        if inward {
            let from = self.input.all().as_ptr().wrapping_add(at);
            // SAFETY: `at` is a whole chunk before the memory's end, the buffer holds one, and both
            // live as long as the process.
            unsafe { self.driver.copy_to_device(buffer, from, CHUNK_BYTES, stream)? };
        }
        if outward {
            let to = self.output.all().as_ptr().wrapping_add(at);
            // SAFETY: as above; nothing reads the memory meanwhile.
            unsafe { self.driver.copy_to_host(to, buffer, CHUNK_BYTES, stream)? };
        }
        Ok(if inward && outward { 2.0 * bytes } else { bytes })
    }

    /// Sends one grid through a kernel and back `count` times, after a tenth as many to warm up. Returns the
    /// microseconds of each.
    ///
    /// # Errors
    /// [`LimitError::Fault`] of the driver, or if another grid came back.
    pub fn round_trips(&mut self, count: u32) -> Result<Vec<f64>, LimitError> {
        let mut times = Vec::new();
        for trip in 0..count + count / 10 {
            let grid = [trip.to_le_bytes()[0]; GRID_CELLS];
            self.input.all().write(0, &grid);
            let started = clock::now();
            self.round_trip()?;
            let took_us = started.elapsed().as_secs_f64() * 1e6;
            let mut back = [0; GRID_CELLS];
            self.output.all().read(0, &mut back);
            if back != grid {
                let detail = "the grid that was copied there and back is another".to_owned();
                return Err(Fault::WrongAnswer { detail }.into());
            }
            if trip >= count / 10 {
                times.push(took_us);
            }
        }
        Ok(times)
    }

    fn round_trip(&self) -> Result<(), Fault> {
        let [(stream, mut from), (_, mut to), _] = self.lanes;
        let mut bytes = u32::try_from(GRID_CELLS).expect("a grid has few cells");
        let blocks = bytes.div_ceil(THREADS);
        // SAFETY: memory and buffers are longer than a grid and live as long as the process.
        unsafe {
            self.driver.copy_to_device(from, self.input.all().as_ptr(), GRID_CELLS, stream)?;
        }
        let mut arguments = [
            (&raw mut from).cast::<c_void>(),
            (&raw mut to).cast::<c_void>(),
            (&raw mut bytes).cast::<c_void>(),
        ];
        // SAFETY: the kernel takes two addresses and a length; both buffers are longer.
        unsafe { self.driver.launch(self.echo, [blocks, THREADS, 0], &mut arguments, stream)? };
        // SAFETY: as for the copy to the device.
        unsafe { self.driver.copy_to_host(self.output.all().as_ptr(), to, GRID_CELLS, stream)? };
        self.driver.synchronize(stream)
    }
}

/// Memory like a client's arena, registered with the driver.
fn registered(driver: &Driver, bytes: usize) -> Result<ArenaMap, LimitError> {
    let map = Arena::create(bytes as u64)?.map()?;
    // SAFETY: the map lives as long as the process: nothing here unmaps it before the end.
    unsafe { driver.register(map.all().as_ptr(), bytes)? };
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    /// The UUID of the fake driver's device.
    const UUID: &str = "GPU-01010101-0101-0101-0101-010101010101";

    fn open(uuid: &str, script: &str) -> Result<CopyLimits, LimitError> {
        CopyLimits::over(fake::driver(script).unwrap(), uuid, 2 * CHUNK_BYTES)
    }

    #[test]
    fn a_grid_goes_there_and_back_through_a_kernel() {
        let trips = open(UUID, "").unwrap().round_trips(10).unwrap();
        assert_eq!(trips.len(), 10);
    }

    #[test]
    fn a_kernel_that_does_nothing_is_no_round_trip() {
        let mut limits = open(UUID, "call=cuLaunchKernel idle").unwrap();
        for measure in [Measure::In, Measure::Out, Measure::Both] {
            assert!(limits.copy(measure, Duration::ZERO).unwrap().is_finite());
            assert!(limits.copy(measure, Duration::from_millis(1)).unwrap() > 0.0);
        }
        let error = limits.round_trips(10).unwrap_err();
        assert!(error.to_string().contains("is another"), "{error}");
    }

    #[test]
    fn limits_are_those_of_the_gpu_that_was_named() {
        let error = open("GPU-other", "").unwrap_err();
        assert!(error.to_string().contains("started for GPU-other"), "{error}");
    }
}
