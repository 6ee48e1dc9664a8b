//! The single argument of every kernel, byte for byte as in `kernels/cuda/step.cuh`, which explains each
//! field. Plain data: a worker fills it in, a device reads it.

mod ops;

use gridpool_protocol::limits::PROGRAM_OPS_MAX;
use gridpool_protocol::program::{Arguments, Extent};

pub use ops::{chain, of_tuples};

/// An address on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct DeviceAddress(u64);

impl DeviceAddress {
    /// No address.
    pub const NULL: Self = Self(0);

    /// The address with this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The address as a number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The address `bytes` bytes further.
    #[must_use]
    pub fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// `Extent` of `kernels/cuda/step.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "explained where kernels read it")]
pub struct ExtentArgument {
    pub per_cell: u32,
    pub per_value: u32,
    pub width: u32,
    pub grids: u32,
}

impl Default for ExtentArgument {
    /// No capacity: every place in it is 0.
    fn default() -> Self {
        Self { per_cell: 0, per_value: 0, width: 1, grids: 1 }
    }
}

impl From<Extent> for ExtentArgument {
    fn from(extent: Extent) -> Self {
        let aligned = extent.is_aligned();
        Self {
            per_cell: extent.per_cell(),
            per_value: extent.per_value(),
            // If each value comes from one grid, grids can stand for items.
            width: if aligned { 1 } else { extent.width() },
            grids: if aligned { 1 } else { extent.grids_per_item() },
        }
    }
}

/// `Pictures` of `kernels/cuda/step.cuh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "explained where kernels read it")]
pub struct PicturesArgument {
    pub shapes: DeviceAddress,
    pub origins: DeviceAddress,
    pub cells: DeviceAddress,
    pub extent: ExtentArgument,
}

/// `Op` of `kernels/cuda/step.cuh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "explained where kernels read it")]
pub struct OpArgument {
    pub code: u8,
    pub place: u8,
    pub gives: u8,
    pub unused: u8,
    pub args: Arguments,
}

/// `Step` of `kernels/cuda/step.cuh`. A kernel that serves no values uses no field that is 0 or null by
/// default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "explained where kernels read it")]
pub struct StepArgument {
    pub values: u32,
    pub width_before: u32,
    pub width: u32,
    pub ties: u32,
    pub blanks: u32,
    pub validates: u32,
    pub op_count: u32,
    pub values_per_warp: u32,
    pub offsets: DeviceAddress,
    pub status_before: DeviceAddress,
    pub status: DeviceAddress,
    pub from: PicturesArgument,
    pub to: PicturesArgument,
    pub counts: DeviceAddress,
    pub labels_low: DeviceAddress,
    pub labels_high: DeviceAddress,
    pub numbers: DeviceAddress,
    pub palettes: DeviceAddress,
    pub places_before: DeviceAddress,
    pub lengths: DeviceAddress,
    pub sums: DeviceAddress,
    pub places: DeviceAddress,
    pub packed_low: DeviceAddress,
    pub packed_high: DeviceAddress,
    pub sizes_before: DeviceAddress,
    pub sizes: DeviceAddress,
    pub ops: [OpArgument; PROGRAM_OPS_MAX],
}

// The kernels assert the size of theirs.
const _: () = assert!(size_of::<StepArgument>() == 240 + 12 * PROGRAM_OPS_MAX);

impl Default for StepArgument {
    fn default() -> Self {
        let null = DeviceAddress::NULL;
        let pictures = PicturesArgument::default();
        Self {
            values: 0,
            width_before: 1,
            width: 1,
            ties: 0,
            blanks: 0,
            validates: 0,
            op_count: 0,
            values_per_warp: 1,
            offsets: null,
            status_before: null,
            status: null,
            from: pictures,
            to: pictures,
            counts: null,
            labels_low: null,
            labels_high: null,
            numbers: null,
            palettes: null,
            places_before: null,
            lengths: null,
            sums: null,
            places: null,
            packed_low: null,
            packed_high: null,
            sizes_before: null,
            sizes: null,
            ops: [OpArgument::default(); PROGRAM_OPS_MAX],
        }
    }
}
