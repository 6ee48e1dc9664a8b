//! The packed results of a batch. A worker writes them, and a client reads them.
//!
//! An item's result is one value, or a tuple of `width` values. Value `v` is element `v % width` of item
//! `v / width`. A result has these parts, each with an entry for every value:
//!
//! ```text
//! every kind             [ status: (code, op) as u8 ]      solvers: [ numbers: i32, the instruction that failed ]
//! grids, objects,        [ shapes: (h, w) as u8 ]
//! objects of a list      (the shapes of their grids)
//! objects and patches    [ origins: (row, col) as i16 ]
//! packed                 [ offsets: u32 ]
//! numbers                [ numbers: i32 ]      flags: 0 or 1      vectors: (row, col) as i16
//! colours                [ palettes: 12 bytes: count, then up to 10 colours, then zeros ]
//! lists of objects       [ counts: u16 ] [ label low bytes: u8 ] [ label high bytes: u8 ]
//! all that have a shape  [ cells: u8 ]
//! values of solvers      [ cells: their bytes, as docs/src/design/machine.md says ]
//! ```
//!
//! Numbers are little-endian. Each part starts at a multiple of [`PART_ALIGN`] bytes. If every grid has as many
//! cells as the input's, the result is *in place*: cells and labels of value `v` start at the *input's* offset
//! of grid `v`. Otherwise the result is *packed*: they start at the value's own offset. A value in error has
//! no cells, whatever its shape.
//!
//! A picture is `h * w` cells, row-major. For an object or a patch it is the box, whose upper left corner is the
//! origin. Cells of the box outside of the object are [`HOLE`]; the others are 0 in a patch. A label is 0
//! outside of every object, else the object's number from 1. Objects are numbered by their first cell in
//! row-major order. The high byte of a label counts only if a value has more than 255 objects. A list of objects
//! has cells only if earlier ops changed the input.
//!
//! [`PART_ALIGN`]: crate::batch::PART_ALIGN

mod bytes;
mod compare;
mod decode;
mod layout;
mod part;
mod plain;
mod value;

pub use bytes::Bytes;
pub use decode::{MalformedOutput, Outputs};
pub use layout::OutputLayout;
pub use plain::Labels;
pub use value::{ItemError, ItemErrorCode, Object, ObjectCell, Output, PatchCell};

/// Bytes of one palette: a count, ten colours, one byte of padding.
pub const PALETTE_BYTES: usize = 12;
/// The op in the status of a value that was bad before the first op.
pub const NO_OP: u8 = u8::MAX;
/// A cell in the box of an object or a patch that is not part of it.
pub const HOLE: u8 = u8::MAX;
