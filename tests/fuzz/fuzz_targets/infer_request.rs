//! Fuzzes `infer_request` of `shared`.

#![no_main]

#[allow(dead_code, reason = "each target uses one of them")]
#[path = "../shared/mod.rs"]
mod shared;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shared::infer_request(bytes));
