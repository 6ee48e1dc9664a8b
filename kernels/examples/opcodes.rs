//! Prints the headers of opcodes with which `kernels/build_ptx.py` compiles the kernels: that of chains, or with the
//! argument `solvers` that of the machine.

#![expect(clippy::print_stdout, reason = "it prints")]

fn main() {
    let of_solvers = std::env::args().nth(1).is_some_and(|which| which == "solvers");
    let header = if of_solvers {
        gridpool_kernels::solve::opcodes()
    } else {
        gridpool_kernels::module::opcodes()
    };
    print!("{header}");
}
