//! The kernel of solvers or of searches: which of its modules runs, with which arenas.

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::solve::{Images, Modules, NEAR_CAPABILITY, NEAR_WORDS, SOLVE, SOLVE_THREADS};

use crate::cuda::driver::{Driver, FunctionHandle, ModuleHandle};
use crate::cuda::gpu::Gpu;
use crate::cuda::memory::{Allocator, DeviceBuffer};
use crate::fault::Fault;

/// Words of each warp's arena in one launch after the other, the first in shared memory. Each launch lasts as long as
/// its longest item, and an item begins anew in each: so the sizes are few and far apart.
const ARENA_WORDS: [u32; 4] = [NEAR_WORDS, 1 << 15, 1 << 20, 1 << 26];
/// Most blocks with arenas in shared memory, each a warp: as many as the largest GPU runs at once, and more.
const NEAR_BLOCKS_MAX: u32 = 1 << 13;
/// Most blocks with arenas in global memory: as many as the largest GPU runs at once.
const FAR_BLOCKS_MAX: u32 = 1 << 12;
/// Most words of all arenas in global memory: 512 MiB.
const FAR_WORDS_MAX: u32 = 1 << 27;
const _: () = assert!(ARENA_WORDS[ARENA_WORDS.len() - 1] <= FAR_WORDS_MAX);

/// The same for launches that are queued without a look at what the one before left: the arenas are a part of the
/// memory of each context of a pipeline.
const QUEUED_ARENA_WORDS: [u32; 4] = [NEAR_WORDS, 1 << 15, 1 << 20, QUEUED_WORDS_MAX];
/// Most words of all arenas of such a launch: 64 MiB. What needs more ends with Overflow.
const QUEUED_WORDS_MAX: u32 = 1 << 24;
/// Bytes of the memory for the arenas of such launches.
pub(in crate::cuda) const QUEUED_ARENA_BYTES: usize = 4 * QUEUED_WORDS_MAX as usize;

/// What a launch takes besides its argument.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Launch {
    pub(in crate::cuda) function: FunctionHandle,
    /// Of the launch before, if the kernel has one.
    pub(super) before: Option<FunctionHandle>,
    /// Blocks, threads of each, and bytes of shared memory of each.
    pub(in crate::cuda) shape: [u32; 3],
    /// Null for arenas in shared memory.
    pub(in crate::cuda) arenas: DeviceAddress,
}

/// Its modules are loaded when they are needed for the first time.
#[derive(Debug)]
pub(in crate::cuda) struct Kernel {
    modules: Modules,
    /// The compute capability of the GPU.
    capability: (u32, u32),
    /// Most blocks with arenas in shared memory.
    near_blocks_max: u32,
    near: Option<Entries>,
    far: Option<Entries>,
}

/// What a module has.
#[derive(Clone, Copy, Debug)]
struct Entries {
    function: FunctionHandle,
    before: Option<FunctionHandle>,
}

impl Kernel {
    /// Of the GPU of this driver.
    pub(in crate::cuda) fn new(driver: &Driver, modules: Modules) -> Result<Self, Fault> {
        let device = driver.only_device()?;
        let capability = driver.capability(device)?;
        // Each block of a solver prepares the program once and serves items in turn: none should wait for another of
        // its launch to end. Those of a search take what is left from a queue.
        let near_blocks_max = match modules.entry {
            SOLVE => driver.resident(device, 4 * NEAR_WORDS)?.clamp(1, NEAR_BLOCKS_MAX),
            _ => NEAR_BLOCKS_MAX,
        };
        Ok(Self { modules, capability, near_blocks_max, near: None, far: None })
    }

    /// Words of the arenas to begin with, and of those for what did not fit.
    pub(in crate::cuda) fn arena_words(&self) -> &'static [u32] {
        &ARENA_WORDS[self.begins_at()..]
    }

    /// Whether launches begin with arenas in shared memory, so that several may run at once.
    pub(in crate::cuda) fn begins_near(&self) -> bool {
        self.begins_at() == 0
    }

    /// Shared memory comes first, where it serves for arenas.
    fn begins_at(&self) -> usize {
        usize::from(self.capability < NEAR_CAPABILITY)
    }

    /// Loads what [`Kernel::queued`] launches.
    pub(in crate::cuda) fn load_queued(&mut self, driver: &Driver) -> Result<(), Fault> {
        let all = &QUEUED_ARENA_WORDS[self.begins_at()..];
        all.iter().try_for_each(|&words| self.entries(driver, words == NEAR_WORDS).map(drop))
    }

    /// Launches over so many items, to be queued one after the other, with the words of each one's arenas. Those in
    /// global memory are at `arenas`, of [`QUEUED_ARENA_BYTES`].
    pub(in crate::cuda) fn queued(
        &self,
        items: u32,
        arenas: DeviceAddress,
    ) -> impl Iterator<Item = (u32, Launch)> {
        QUEUED_ARENA_WORDS[self.begins_at()..].iter().map(move |&words| {
            let (entries, blocks, shared_bytes, arenas) = match words == NEAR_WORDS {
                true => (self.near, self.near_blocks_max, 4 * words, DeviceAddress::NULL),
                false => (self.far, QUEUED_WORDS_MAX / words, 0, arenas),
            };
            let Entries { function, before } = entries.expect("all of them are loaded");
            let shape = [items.min(blocks).max(1), SOLVE_THREADS, shared_bytes];
            (words, Launch { function, before, shape, arenas })
        })
    }

    /// Prepares a launch over so many items, with arenas of so many words.
    pub(in crate::cuda) fn launch(
        &mut self,
        gpu: &mut Gpu,
        arenas: &mut DeviceBuffer,
        words: u32,
        items: u32,
    ) -> Result<Launch, Fault> {
        let is_near = words == NEAR_WORDS;
        let Entries { function, before } = self.entries(&gpu.driver, is_near)?;
        let (blocks, shared_bytes, arenas) = if is_near {
            (items.min(self.near_blocks_max), 4 * words, DeviceAddress::NULL)
        } else {
            let blocks = items.min(FAR_BLOCKS_MAX).min(FAR_WORDS_MAX / words);
            (reserve(arenas, &mut gpu.allocator, words, blocks)?, 0, arenas.at(0))
        };
        let shape = [blocks, SOLVE_THREADS, shared_bytes];
        Ok(Launch { function, before, shape, arenas })
    }

    fn entries(&mut self, driver: &Driver, is_near: bool) -> Result<Entries, Fault> {
        let Modules { entry, before, near, far } = self.modules;
        let (known, images) = match is_near {
            true => (&mut self.near, near),
            false => (&mut self.far, far),
        };
        match known {
            Some(entries) => Ok(*entries),
            None => {
                let module = load(driver, images, self.capability)?;
                let before = before.map(|name| driver.function(module, name)).transpose()?;
                Ok(*known.insert(Entries { function: driver.function(module, entry)?, before }))
            }
        }
    }
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// Reserves arenas of so many words for so many blocks, or for fewer if memory is short. Returns for how many.
fn reserve(
    arenas: &mut DeviceBuffer,
    allocator: &mut Allocator,
    words: u32,
    blocks: u32,
) -> Result<u32, Fault> {
    let mut fit = blocks;
    loop {
        match arenas.reserve(allocator, fit as usize * 4 * words as usize) {
            Err(Fault::Cuda { code: OUT_OF_MEMORY, .. }) if fit > 1 => fit /= 2,
            reserved => return reserved.map(|()| fit),
        }
    }
}

/// `CUDA_ERROR_INVALID_IMAGE` and `CUDA_ERROR_NO_BINARY_FOR_GPU`: what drivers say of machine code that they do not
/// take.
const INVALID_IMAGE: u32 = 200;
const NO_BINARY_FOR_GPU: u32 = 209;

/// Loads machine code for this GPU if there is some that the driver takes, else PTX.
fn load(driver: &Driver, images: Images, capability: (u32, u32)) -> Result<ModuleHandle, Fault> {
    match images.cubin(capability).map(|code| driver.load_image(&code)) {
        Some(Err(fault @ Fault::Cuda { code: INVALID_IMAGE | NO_BINARY_FOR_GPU, .. })) => {
            tracing::warn!(%fault, "the driver compiles a kernel from PTX");
        }
        Some(loaded) => return loaded,
        None => {}
    }
    driver.load_module(&images.ptx())
}
