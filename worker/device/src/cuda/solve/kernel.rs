//! The kernel of solvers or of searches: which of its modules runs, with which arenas.

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::solve::{Images, Modules, NEAR_CAPABILITY, NEAR_WORDS};

use crate::cuda::driver::{Driver, FunctionHandle, ModuleHandle};
use crate::cuda::gpu::Gpu;
use crate::cuda::memory::DeviceBuffer;
use crate::fault::Fault;

/// Where the arenas of a launch lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In shared memory.
    Near,
    /// In global memory.
    Far,
}

/// The arenas of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tier {
    place: Place,
    /// Words of each warp's arena.
    pub(super) words: u32,
    /// Most blocks, each a warp.
    blocks_max: u32,
}

/// From small arenas to large ones. The first two have as many warps as the largest GPU runs at once.
const TIERS: [Tier; 5] = [
    Tier { place: Place::Near, words: NEAR_WORDS, blocks_max: 1 << 12 },
    Tier { place: Place::Far, words: 1 << 13, blocks_max: 1 << 12 },
    Tier { place: Place::Far, words: 1 << 15, blocks_max: 1 << 10 },
    Tier { place: Place::Far, words: 1 << 20, blocks_max: 1 << 6 },
    Tier { place: Place::Far, words: 1 << 26, blocks_max: 1 << 1 },
];

/// What a launch takes besides its argument.
pub(super) struct Launch {
    pub(super) function: FunctionHandle,
    pub(super) blocks: u32,
    /// Null for arenas in shared memory.
    pub(super) arenas: DeviceAddress,
}

/// Its modules are loaded when they are needed for the first time.
#[derive(Debug)]
pub(super) struct Kernel {
    modules: Modules,
    /// The compute capability of the GPU.
    capability: (u32, u32),
    near: Option<FunctionHandle>,
    far: Option<FunctionHandle>,
}

impl Kernel {
    /// Of the GPU of this driver.
    pub(super) fn new(driver: &Driver, modules: Modules) -> Result<Self, Fault> {
        let capability = driver.capability(driver.only_device()?)?;
        Ok(Self { modules, capability, near: None, far: None })
    }

    /// The arenas to begin with, and those for what did not fit.
    pub(super) fn tiers(&self) -> &'static [Tier] {
        if self.capability >= NEAR_CAPABILITY { &TIERS } else { &TIERS[1..] }
    }

    /// Prepares a launch over so many items.
    pub(super) fn launch(
        &mut self,
        gpu: &mut Gpu,
        arenas: &mut DeviceBuffer,
        tier: Tier,
        items: u32,
    ) -> Result<Launch, Fault> {
        let function = self.function(&gpu.driver, tier.place)?;
        let blocks = items.min(tier.blocks_max);
        let arenas = match tier.place {
            Place::Near => DeviceAddress::NULL,
            Place::Far => {
                let arena_bytes = 4 * tier.words as usize;
                arenas.reserve(&mut gpu.allocator, blocks as usize * arena_bytes)?;
                arenas.at(0)
            }
        };
        Ok(Launch { function, blocks, arenas })
    }

    fn function(&mut self, driver: &Driver, place: Place) -> Result<FunctionHandle, Fault> {
        let Modules { entry, near, far } = self.modules;
        let (known, images) = match place {
            Place::Near => (&mut self.near, near),
            Place::Far => (&mut self.far, far),
        };
        match known {
            Some(function) => Ok(*function),
            None => {
                let module = load(driver, images, self.capability)?;
                Ok(*known.insert(driver.function(module, entry)?))
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
