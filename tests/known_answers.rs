//! Computes the self-test's table again with the oracle, because the table was made by the reference itself.

use gridpool_kernels::known_answer::{KNOWN_ANSWERS, KnownAnswer, batch, pair_batch};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::output::{Object, Output};
use gridpool_protocol::program::{Program, Ties, hex};
use gridpool_protocol::solver::Literal;
use gridpool_tests::oracle::{self, Failure, Item};
use sha2::{Digest, Sha256};

#[test]
fn the_oracle_gives_every_known_answer() {
    let grids = grids_of(&batch());
    let pairs = grids_of(&pair_batch());
    let mut wrong = String::new();
    for known in KNOWN_ANSWERS {
        let program = known.program();
        let items: Vec<Item<'_>> = if program.grids_per_item() == 2 {
            let output = |grid| Some(grid).filter(|grid: &&Grid| !grid.is_empty());
            pairs.chunks(2).map(|pair| Item::Pair(&pair[0], output(&pair[1]))).collect()
        } else {
            grids.iter().map(Item::Grid).collect()
        };
        let lines = items.iter().map(|&item| line(&program, &oracle::run(&program, item)));
        let digest = hex(&Sha256::digest(lines.collect::<String>()));
        if digest != known.digest {
            wrong += &format!("{} | {} | {digest}\n", known.text, known.ties);
        }
    }
    assert!(wrong.is_empty(), "kernels/src/known_answer/table.rs should say:\n{wrong}");
}

#[test]
fn both_tie_modes_have_known_answers_that_differ() {
    for name in ["mostcolor", "leastcolor", "palette"] {
        let digest = |ties| {
            let known = KNOWN_ANSWERS.iter().find(|k| k.text == name && k.ties == ties);
            known.map(|known| known.digest).ok_or((name, ties))
        };
        let [cpython, lowest] = [Ties::Cpython, Ties::Lowest].map(digest);
        assert_ne!(cpython.unwrap(), lowest.unwrap(), "{name}: the batch has no tie that matters");
    }
    // Ops that need the background.
    for name in ["underfill", "cover", "fgpartition", "underpaint", "move"] {
        let asks = |known: &&KnownAnswer| known.text.contains(name);
        assert!(KNOWN_ANSWERS.iter().any(|known| asks(&known)), "{name}");
    }
}

fn grids_of(batch: &gridpool_protocol::batch::GridBatch) -> Vec<Grid> {
    (0..batch.tables().shapes().len()).map(|grid| batch.grid(grid)).collect()
}

/// One item in the canonical text, as the head of `kernels/src/known_answer.rs` defines it.
fn line(program: &Program, result: &Result<Output, Failure>) -> String {
    match result {
        Ok(output) => text(output) + "\n",
        Err(Failure { code, step: None }) => format!("error {} input\n", code.name()),
        Err(Failure { code, step: Some(step) }) => {
            format!("error {} {}\n", code.name(), program.steps()[*step])
        }
    }
}

fn text(output: &Output) -> String {
    let spaced = |numbers: &[u8]| numbers.iter().map(|n| format!(" {n}")).collect::<String>();
    match output {
        Output::Colors(colors) => format!("colors{}", spaced(colors)),
        Output::Flag(flag) => format!("flag {flag}"),
        Output::Grid(grid) => format!("grid {} {}{}", grid.h(), grid.w(), spaced(grid.cells())),
        Output::Number(number) => format!("number {number}"),
        Output::Object(object) => format!("object{}", cells(object)),
        Output::Objects(objects) => {
            format!("objects{}", objects.iter().map(cells).collect::<String>())
        }
        Output::Patch(places) => {
            let places = places.iter().map(|place| format!("{},{}", place.row, place.col));
            format!("patch{}", list(places.collect()))
        }
        Output::Tuple(elements) => {
            let elements = elements.iter().map(|element| format!(" [{}]", text(element)));
            format!("tuple{}", elements.collect::<String>())
        }
        Output::Value(kind, value) => format!("value {}", Literal(kind, value)),
        Output::Vector { row, col } => format!("vector {row} {col}"),
    }
}

fn cells(object: &Object) -> String {
    list(object.iter().map(|c| format!("{},{},{}", c.color, c.row, c.col)).collect())
}

fn list(members: Vec<String>) -> String {
    if members.is_empty() { String::new() } else { format!(" {}", members.join(";")) }
}
