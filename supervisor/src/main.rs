//! `gridpool`: parses and calls the library.

use std::process::ExitCode;

/// A job's data is made by the thread of its client and freed by the thread of its worker. glibc's allocator makes that
/// cost 2 µs of a lone job more.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gridpool::cli::main()
}
