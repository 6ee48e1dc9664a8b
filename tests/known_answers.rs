//! The self-test's table, computed again by the oracle: a wrong reference cannot bless itself.

use std::collections::BTreeSet;

use gridpool_kernels::known_answer::{KNOWN_ANSWERS, batch};
use gridpool_protocol::output::{Object, Output};
use gridpool_protocol::program::{OPS, hex};
use gridpool_tests::oracle;
use sha2::{Digest, Sha256};

#[test]
fn the_oracle_gives_every_known_answer() {
    let batch = batch();
    let mut wrong = String::new();
    for known in KNOWN_ANSWERS {
        let program = known.program();
        let lines = (0..batch.len()).map(|item| line(&oracle::run(&program, &batch.grid(item))));
        let digest = hex(&Sha256::digest(lines.collect::<String>()));
        if digest != known.digest {
            wrong += &format!("{} | {} | {digest}\n", known.text, known.ties);
        }
    }
    assert!(wrong.is_empty(), "kernels/src/known_answer/table.rs should say:\n{wrong}");
}

#[test]
fn no_op_is_without_a_known_answer() {
    let programs: Vec<_> = KNOWN_ANSWERS.iter().map(|known| known.program()).collect();
    let asked: BTreeSet<_> = programs.iter().flat_map(|p| p.ops()).map(|op| op.name()).collect();
    let synonyms = ["o_g", "p_g", "transpose"];
    let names = OPS.iter().map(|spec| spec.name).filter(|name| !synonyms.contains(name));
    assert_eq!(asked, names.collect());
}

/// One item in the canonical text that the head of `kernels/src/known_answer.rs` lays down.
fn line(output: &Output) -> String {
    let spaced = |numbers: &[u8]| numbers.iter().map(|n| format!(" {n}")).collect::<String>();
    match output {
        Output::Colors(colors) => format!("colors{}\n", spaced(colors)),
        Output::Grid(grid) => format!("grid {} {}{}\n", grid.h(), grid.w(), spaced(grid.cells())),
        Output::Number(number) => format!("number {number}\n"),
        Output::Objects(objects) => {
            let objects: Vec<String> = objects.iter().map(cells).collect();
            format!("objects{}\n", objects.concat())
        }
    }
}

fn cells(object: &Object) -> String {
    let cells = object.iter().map(|cell| format!("{},{},{}", cell.color, cell.row, cell.col));
    format!(" {}", cells.collect::<Vec<_>>().join(";"))
}
