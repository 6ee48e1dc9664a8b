//! What is fuzzed: a target for every decoder that reads what another process, or a user, wrote. It panics
//! on a bug and on nothing else. The fuzzer runs the targets, and so does the ordinary test `decoders`,
//! over the seeds and mutations of them.
//!
//! A target is a file here, with `run` and `seeds`; its name twice below; and a `[[bin]]` in
//! `tests/fuzz/Cargo.toml`. Seeds are values that are encoded when they are needed, so that they follow the
//! protocol. The first line writes them for the fuzzer:
//!
//! ```sh
//! GRIDPOOL_WRITE=1 cargo test -p gridpool-tests --test decoders seeds
//! cargo install cargo-fuzz
//! cd tests && cargo +nightly fuzz run client_message -- -max_total_time=300
//! ```
//!
//! A finding goes to `tests/fuzz/regressions/TARGET/` once it is fixed.

pub(crate) mod any;
pub(crate) mod client_frame;
pub(crate) mod client_message;
pub(crate) mod config;
pub(crate) mod from_worker;
pub(crate) mod grpc_body;
pub(crate) mod infer_message;
pub(crate) mod infer_request;
pub(crate) mod input_arrow;
pub(crate) mod input_json;
pub(crate) mod input_npy;
pub(crate) mod input_npz;
pub(crate) mod json_line;
pub(crate) mod lifeline;
pub(crate) mod names;
pub(crate) mod outputs;
pub(crate) mod program;
pub(crate) mod search;
pub(crate) mod server_message;
pub(crate) mod solver_code;
pub(crate) mod solver_text;
pub(crate) mod tables;
pub(crate) mod tensors;
pub(crate) mod to_worker;

mod inputs;
mod message;

/// Expands `$macro!` with the names of all targets.
macro_rules! with_targets {
    ($macro:ident) => {
        $macro! {
            client_frame client_message config from_worker grpc_body infer_message infer_request input_arrow
            input_json input_npy input_npz json_line lifeline names outputs program search server_message solver_code
            solver_text tables tensors to_worker
        }
    };
}

macro_rules! declare {
    ($($target:ident)*) => {
        /// All of them.
        pub(crate) const TARGETS: &[Target] = &[
            $(Target { name: stringify!($target), run: $target::run, seeds: $target::seeds }),*
        ];
    };
}

with_targets!(declare);
pub(crate) use with_targets;

/// A decoder that is fuzzed.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&[u8]),
    /// What fuzzing starts from.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
}

/// The target of that name.
pub(crate) fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("it is a target")
}
