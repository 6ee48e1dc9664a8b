//! The bytes of a machine's program: a device refuses them or runs them to an end.

use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::{Code, Solver};

use super::solver_text;

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(code) = Code::from_bytes(bytes) {
        assert_eq!(code.to_bytes(), bytes);
        solver_text::execute(&code);
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let code = |text: Vec<u8>| {
        let text = String::from_utf8(text).expect("seeds are text");
        Solver::compile(&text, Ties::Lowest).ok().map(|solver| solver.code().to_bytes())
    };
    solver_text::seeds().into_iter().filter_map(code).collect()
}
