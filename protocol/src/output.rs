//! The packed results of a batch: what a worker writes and a client reads.
//!
//! An item's result is one value, or a tuple of `width` values; value `v` is element `v % width` of
//! item `v / width`. The parts of a result, each with an entry for every value:
//!
//! ```text
//! every kind             [ status: (code, op) as u8 ]
//! grids, objects,        [ shapes: (h, w) as u8 ]
//! objects of a list      (the shapes of their grids)
//! objects and patches    [ origins: (row, col) as i16 ]
//! packed                 [ offsets: u32 ]
//! numbers                [ numbers: i32 ]      flags: 0 or 1      vectors: (row, col) as i16
//! colours                [ palettes: 12 bytes: count, then up to 10 colours, then zeros ]
//! lists of objects       [ counts: u16 ] [ label low bytes: u8 ] [ label high bytes: u8 ]
//! all that have a shape  [ cells: u8 ]
//! ```
//!
//! Numbers are little-endian; each part starts at a multiple of [`PART_ALIGN`] bytes. *In place*, where
//! every grid has as many cells as the input's, cells and labels of value `v` start at the *input's*
//! offset of grid `v`. Else the result is *packed*: they start at the value's own offset. Values in
//! error have no cells, whatever their shape says.
//!
//! A picture is `h * w` cells, row-major; of an object or a patch it is the box, whose upper left corner
//! is the origin, and cells of the box that do not belong to it are [`HOLE`]. In a patch the others are
//! 0. A label is 0 outside every object, else the object's number from 1, objects being numbered by their
//! first cell in row-major order; its high byte is read only where a value has more than 255 objects.
//! The cells of a list of objects are there only if ops before it changed the input.
//!
//! [`PART_ALIGN`]: crate::batch::PART_ALIGN

mod bytes;
mod compare;
mod decode;
mod layout;
mod plain;
mod value;

pub(crate) use bytes::Bytes;
pub use decode::{MalformedOutput, Outputs};
pub use layout::OutputLayout;
pub use plain::Labels;
pub use value::{ItemError, ItemErrorCode, Object, ObjectCell, Output, PatchCell};

/// Bytes of one palette: a count, ten colours, one byte of padding.
pub const PALETTE_BYTES: usize = 12;
/// Stands for the op in a status whose value was bad before the first op.
pub const NO_OP: u8 = u8::MAX;
/// Stands in the box of an object or a patch where it has no cell.
pub const HOLE: u8 = u8::MAX;
