//! What is fuzzed: one function for every decoder that reads what another process, or a user, wrote.
//! Each panics on a bug and on nothing else. The fuzz targets call them, and so does the ordinary test
//! `decoders`, with the corpus and with mutations of it.
//!
//! ```sh
//! cargo install cargo-fuzz
//! cd tests && cargo +nightly fuzz run client_message -- -max_total_time=300
//! cargo +nightly fuzz list
//! ```
//!
//! A finding goes to `tests/fuzz/regressions/TARGET/` once it is fixed. When a message changes, the
//! seeds are written anew: `FUZZ_WRITE_SEEDS=1 cargo test -p gridpool-tests --test decoders`.

mod frames;
mod inputs;
mod messages;
mod outputs;
mod programs;
mod requests;
pub(crate) mod seeds;
mod tables;
mod tensors;
pub(crate) mod values;

pub(crate) use frames::client_frame;
pub(crate) use inputs::{config, input_json, input_npy, names};
pub(crate) use messages::{
    client_message, from_worker, json_line, lifeline, server_message, to_worker,
};
pub(crate) use outputs::outputs;
pub(crate) use programs::program;
pub(crate) use requests::infer_request;
pub(crate) use tables::tables;
pub(crate) use tensors::tensors;

/// A decoder's name and its function.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All of them.
pub(crate) const TARGETS: [Target; 16] = [
    ("client_frame", client_frame),
    ("client_message", client_message),
    ("config", config),
    ("from_worker", from_worker),
    ("infer_request", infer_request),
    ("input_json", input_json),
    ("input_npy", input_npy),
    ("json_line", json_line),
    ("lifeline", lifeline),
    ("names", names),
    ("outputs", outputs),
    ("program", program),
    ("server_message", server_message),
    ("tables", tables),
    ("tensors", tensors),
    ("to_worker", to_worker),
];
