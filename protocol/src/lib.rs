//! What clients, supervisor and workers of gridpool say to each other, and the Rust client.
//!
//! # Using a pool from another process
//!
//! [`client::Client`] is all that most users need. Compile a [`program::Program`], put
//! [`grid::Grid`]s into a [`batch::GridBatch`], submit both as a [`client::Job`], wait, and decode
//! the [`output::Outputs`] item by item; [`client`] shows the whole in ten lines. The
//! [`receipt::Receipt`] says where and how the job ran.
//!
//! A large batch, or one that many programs run over, is packed into shared memory once
//! ([`client::Client::load`]) or written there in the first place ([`client::Client::build`]); results
//! stay where the worker has put them until they are asked for.
//!
//! What a client can rely on:
//! - `submit` returns once the job is *accepted*. From then on it gets exactly one verdict
//!   ([`receipt::Verdict`]) while the supervisor and the connection live.
//! - Execution is at least once, publication once: results of an attempt that was given up are
//!   dropped. [`client::Job::at_most_once`] forbids a second attempt.
//! - If the supervisor goes away, the client connects again for 10 s and submits every job that has
//!   no verdict under its old key. What became of a job in between is not known.
//! - A full pool is BUSY: `submit` tries again until the job's deadline, or says so at once.
//!
//! # The wire
//!
//! A client and the supervisor speak over a Unix stream socket (`pool.sock`), in [`frame`]s whose
//! bodies are [`message`]s in the encoding of [`codec`]:
//!
//! 1. The client sends `Hello` with its [`limits::PROTOCOL_VERSION`]; the supervisor answers
//!    `Welcome`, or `Closing` with a sentence if the version is another or the hello does not come
//!    within [`limits::HANDSHAKE_TIMEOUT`].
//! 2. `Submit` carries the program's text and says where the packed [`batch`] lies: in the message,
//!    up to [`limits::INLINE_BYTES_MAX`], or in an arena. The answer is `Accepted` and later one
//!    `Done`, or `Refused`.
//! 3. `CreateArena` is answered by `ArenaCreated` with a descriptor: sealed shared memory
//!    ([`arena`]) that belongs to this connection. The client writes its batch there and names the
//!    slice of it where the packed [`output`] goes. No cell passes through the supervisor. After a
//!    verdict other than OK an arena must not be used again: a worker that is being killed may
//!    still write to it. Give it back with `DropArena`.
//! 4. Anything that is no message of this protocol ends the connection, with `Closing` and a
//!    sentence where that is possible.
//!
//! The supervisor and a worker speak over ipc-channel ([`channel`]) and hand arenas over on a socket
//! of their own, the lifeline, whose end is the end of both.
//!
//! [`limits`] names every bound. [`exit`] lists the exit codes. [`status`] is what
//! `gridpool status --json` prints, [`mod@bench`] what the parts of `gridpool bench` say to each other,
//! and [`diagnose`] those of `gridpool diagnose`.

pub mod arena;
pub mod batch;
pub mod bench;
pub mod build;
pub mod chain;
pub mod channel;
pub mod chaos;
pub mod client;
pub mod clock;
pub mod codec;
pub mod diagnose;
pub mod exit;
pub mod fault;
pub mod frame;
pub mod grid;
pub mod ids;
mod lease;
pub mod limits;
pub mod log;
pub mod maps;
pub mod memory;
pub mod message;
pub mod metrics;
pub mod monitor;
pub mod output;
pub mod program;
pub mod receipt;
pub mod shared;
pub mod spin;
pub mod status;
pub mod tables;
pub mod tensor;
