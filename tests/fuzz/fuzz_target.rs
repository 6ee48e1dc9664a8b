//! Fuzzes the target of `shared` that the binary is named for.

#![no_main]

#[allow(dead_code, unused_imports, reason = "the fuzzer needs no seeds and no list of names")]
mod shared;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (shared::target(env!("CARGO_BIN_NAME")).run)(bytes));
