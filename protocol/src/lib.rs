//! gridpool's protocol.

pub mod batch;
pub mod exit;
pub mod ids;
pub mod limits;
pub mod output;
pub mod program;
pub mod receipt;
pub mod shared;
