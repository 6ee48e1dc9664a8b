//! gridpool's protocol: what clients, supervisor and workers say to each other, and the client
//! library.
//!
//! TODO-DOC
pub mod arena;
pub mod batch;
pub mod chain;
pub mod channel;
pub mod client;
pub mod clock;
pub mod codec;
pub mod exit;
pub mod frame;
pub mod ids;
pub mod limits;
pub mod message;
pub mod output;
pub mod program;
pub mod receipt;
pub mod shared;
pub mod status;
