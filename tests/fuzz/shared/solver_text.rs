//! The text of a solver: it compiles or says why not, and what compiles runs to an end.

use gridpool_kernels::reference::machine::Machine;
use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::value::{Grid, Value};
use gridpool_protocol::solver::{Code, Solver};

/// Steps of one run; more only take longer.
const STEPS: u32 = 2_000;

pub(crate) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Solver::compile(&text, Ties::Cpython) {
        Ok(solver) => {
            let code = solver.code();
            assert_eq!(Code::from_bytes(&code.to_bytes()).as_ref(), Ok(code));
            assert!(!solver.to_string().is_empty());
            execute(code);
        }
        Err(mistakes) => assert!(!mistakes.to_string().is_empty()),
    }
}

/// Runs a program over a small grid. Its result, if it has one, is read back from its bytes.
pub(super) fn execute(code: &Code) {
    let cells = vec![0, 1, 0, 2, 2, 0, 1, 1, 5, 0, 0, 9];
    let grid = Grid::new(3, 4, cells).expect("it has as many cells");
    if let Ok(finished) = Machine::default().run(code, Value::Grid(grid.into()), STEPS) {
        let mut bytes = Vec::new();
        finished.value.write(code.gives(), &mut bytes);
        assert_eq!(Value::from_bytes(code.gives(), &bytes), Some(finished.value));
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "x1 = objects(I, T, F, T)\nx2 = argmax(x1, size)\nO = subgrid(x2, I)",
        "def s(I):\n return paint(I, mapply(lambda x: branch(positive(size(x)), recolor(1, x), x), partition(I)))",
        "O = I | o_g(5) | argmax(size) | subgrid | fill(5, ofcolor(0))",
        "x = power(fork(add, size, maximum), THREE)\nO = papply(astuple, (1, 2, 3), order(palette(I), invert))",
        "O = extract((rot90, rot180), lambda f: equality(f(I), I))(I)",
        "O = prapply(connect, ofcolor(I, 1), ofcolor(I, 2))",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
