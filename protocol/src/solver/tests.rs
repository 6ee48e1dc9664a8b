//! What compiles, to which kinds, and what is said of what does not.

use super::*;

fn compile(text: &str) -> Solver {
    Solver::compile(text, Ties::Cpython).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn mistakes(text: &str) -> String {
    Solver::compile(text, Ties::Cpython).unwrap_err().to_string()
}

/// The folder with arc-dsl's solvers, if the tests have it.
fn arc_dsl() -> Option<String> {
    let folder = std::env::var("GRIDPOOL_ARC_DSL").ok()?;
    Some(std::fs::read_to_string(format!("{folder}/solvers.py")).unwrap())
}

#[test]
fn all_solvers_of_arc_dsl_compile() {
    let Some(text) = arc_dsl() else { return };
    let (mut compiled, mut most, mut registers, mut refused) = (0, 0, 0, Vec::new());
    let source = Source::parse(&text).unwrap();
    for (name, _) in source.definitions() {
        let (part, _) = source.extract(name).unwrap();
        match Solver::compile(&part, Ties::Cpython) {
            Ok(solver) => {
                compiled += 1;
                most = most.max(solver.code.instructions().len());
                registers = registers.max(solver.code.registers());
                let bytes = solver.code.to_bytes();
                assert_eq!(Code::from_bytes(&bytes), Ok(solver.code), "{name}");
            }
            Err(mistakes) => refused.push(format!("{name}: {mistakes}")),
        }
    }
    assert!(refused.is_empty(), "{} refused:\n{}", refused.len(), refused.join("\n"));
    assert_eq!(compiled, 400);
    println!("{most} instructions and {registers} registers at most");
}
