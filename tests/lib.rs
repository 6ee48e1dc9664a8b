//! Code that the tests share.

pub mod harness;
pub mod storm;

pub use gridpool_oracle as oracle;
