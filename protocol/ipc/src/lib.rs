//! System calls that the processes of a pool share: sealed memory ([`arena`]), framed sockets ([`frame`]),
//! users ([`account`]), the channel to a worker, the sandbox of processes that serve, busy polling ([`spin`]),
//! files that people name ([`regular`]), the clock, and `/proc`.
//!
//! It knows no rule of the pool.

pub mod account;
pub mod arena;
#[cfg(feature = "channel")]
pub mod channel;
pub mod clock;
pub mod frame;
pub mod maps;
pub mod memory;
pub mod mutex;
pub mod regular;
#[cfg(feature = "sandbox")]
pub mod sandbox;
pub mod socket;
pub mod spin;
pub mod trust;
