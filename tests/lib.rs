//! Code that the tests share.

pub mod harness;
pub mod oracle;
pub mod storm;
