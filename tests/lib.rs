//! Code that the tests share.

pub mod cores;
pub mod harness;
pub mod oracle;
pub mod storm;
