//! TBD

pub mod device;
pub mod fault;
