//! What the tests share.

pub mod oracle;
