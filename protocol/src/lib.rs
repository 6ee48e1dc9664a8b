//! The messages of clients, supervisor and workers, and the data types that they share.
//!
//! This crate makes no system call. Sockets, shared memory, channels and the clock are in `gridpool-ipc`. The
//! Rust client is `gridpool-client`; it re-exports the types that its users need.
//!
//! # The wire
//!
//! A client and the supervisor use a Unix stream socket (`pool.sock`). Each frame has one [`message`], encoded
//! by [`codec`]:
//!
//! 1. The client sends `Hello` with its [`limits::PROTOCOL_VERSION`]. The supervisor answers `Welcome`. If the
//!    version differs, or no hello arrives within [`limits::HANDSHAKE_TIMEOUT`], it answers `Closing` with a
//!    sentence.
//! 2. The client sends `Submit` with the work and the place of its packed input: in the message, up to
//!    [`limits::INLINE_BYTES_MAX`], or in an arena. The supervisor answers `Refused`, or `Accepted` and later
//!    one `Done`.
//! 3. The client sends `CreateArena`. The supervisor answers `ArenaCreated` with a descriptor of sealed shared
//!    memory for this connection. The client writes its input there, and names the slice for the packed
//!    [`output`]. No cell passes through the supervisor. After a verdict other than OK, do not use the arena
//!    again, since a dying worker may still write to it: return it with `DropArena`.
//! 4. Anything else ends the connection, with `Closing` and a sentence if possible.
//!
//! The supervisor and a worker use ipc-channel. A second socket, the lifeline, carries arenas. If one side closes
//! it, the other ends, too.
//!
//! [`limits`] has every limit, [`exit`] the exit codes. [`status`] is the output of `gridpool status --json`.
//! [`mod@bench`] and [`diagnose`] have the messages between the processes of these commands.

pub mod batch;
pub mod bench;
pub mod build;
pub mod chain;
pub mod chaos;
pub mod codec;
pub mod color;
pub mod diagnose;
pub mod exit;
pub mod fault;
pub mod grid;
pub mod handover;
pub mod ids;
pub mod limits;
pub mod log;
pub mod message;
pub mod metrics;
pub mod monitor;
mod named;
pub mod near;
pub mod output;
pub mod position;
pub mod principal;
pub mod program;
pub mod receipt;
pub mod replay;
pub mod sandbox;
pub mod search;
pub mod shared;
pub mod solver;
pub mod status;
pub mod tensor;
pub mod timeline;
pub mod trace;
