//! `gridpool`: parses and calls the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    gridpool::cli::main()
}
