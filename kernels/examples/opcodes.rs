//! Prints the header of opcodes with which `kernels/build_ptx.py` compiles the kernels.

#![expect(clippy::print_stdout, reason = "it prints")]

fn main() {
    print!("{}", gridpool_kernels::module::opcodes());
}
