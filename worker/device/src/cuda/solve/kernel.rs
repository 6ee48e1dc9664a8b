//! The kernel of solvers or of searches: which of its modules runs, with which arenas.

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::solve::{Images, Modules, NEAR_CAPABILITY, NEAR_WORDS, SOLVE_THREADS};

use crate::cuda::driver::{Driver, FunctionHandle, ModuleHandle};
use crate::cuda::gpu::Gpu;
use crate::cuda::memory::DeviceBuffer;
use crate::fault::Fault;

/// The arenas of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tier {
    /// Words of each warp's arena.
    pub(super) words: u32,
    /// In shared memory, else in global memory.
    is_near: bool,
}

/// From small arenas to large ones. Only the smallest lie in shared memory: of larger ones few fit a multiprocessor, and
/// few warps run longer on fast memory than many on slow.
const TIERS: [Tier; 9] = [
    Tier { words: NEAR_WORDS, is_near: true },
    far(1 << 12),
    far(1 << 14),
    far(1 << 16),
    far(1 << 18),
    far(1 << 20),
    far(1 << 22),
    far(1 << 24),
    far(1 << 26),
];

const fn far(words: u32) -> Tier {
    Tier { words, is_near: false }
}

impl Tier {
    /// Most blocks, each a warp with an arena.
    const fn blocks_max(self) -> u32 {
        /// As many as the largest GPU runs at once, and more.
        const NEAR: u32 = 1 << 13;
        /// As many as the largest GPU runs at once.
        const FAR: u32 = 1 << 12;
        /// Words of all arenas in global memory: 512 MiB.
        const WORDS: u32 = 1 << 27;
        if self.is_near {
            return NEAR;
        }
        let fit = WORDS / self.words;
        if fit < FAR { fit } else { FAR }
    }
}

/// What a launch takes besides its argument.
pub(super) struct Launch {
    pub(super) function: FunctionHandle,
    /// Of the launch before, if the kernel has one.
    pub(super) before: Option<FunctionHandle>,
    /// Blocks, threads of each, and bytes of shared memory of each.
    pub(super) shape: [u32; 3],
    /// Null for arenas in shared memory.
    pub(super) arenas: DeviceAddress,
}

/// Its modules are loaded when they are needed for the first time.
#[derive(Debug)]
pub(super) struct Kernel {
    modules: Modules,
    /// The compute capability of the GPU.
    capability: (u32, u32),
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
    pub(super) fn new(driver: &Driver, modules: Modules) -> Result<Self, Fault> {
        let capability = driver.capability(driver.only_device()?)?;
        Ok(Self { modules, capability, near: None, far: None })
    }

    /// The arenas to begin with, and those for what did not fit.
    pub(super) fn tiers(&self) -> &'static [Tier] {
        &TIERS[usize::from(self.capability < NEAR_CAPABILITY)..]
    }

    /// Prepares a launch over so many items.
    pub(super) fn launch(
        &mut self,
        gpu: &mut Gpu,
        arenas: &mut DeviceBuffer,
        tier: Tier,
        items: u32,
    ) -> Result<Launch, Fault> {
        let Entries { function, before } = self.entries(&gpu.driver, tier)?;
        let blocks = items.min(tier.blocks_max());
        let arena_bytes = 4 * tier.words;
        let (shared_bytes, arenas) = if tier.is_near {
            (arena_bytes, DeviceAddress::NULL)
        } else {
            arenas.reserve(&mut gpu.allocator, blocks as usize * arena_bytes as usize)?;
            (0, arenas.at(0))
        };
        let shape = [blocks, SOLVE_THREADS, shared_bytes];
        Ok(Launch { function, before, shape, arenas })
    }

    fn entries(&mut self, driver: &Driver, tier: Tier) -> Result<Entries, Fault> {
        let Modules { entry, before, near, far } = self.modules;
        let (known, images) = match tier.is_near {
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
