//! The parts that need no pool; `tests/process/worker_diagnose.rs` tests the whole on a pool.

use gridpool_kernels::reference;
use gridpool_protocol::program::Ties;

use super::*;

fn outputs(text: &str, items: u32) -> Outputs {
    let program = Program::compile(text, Ties::Cpython).unwrap();
    let batch = Grids::new().batch(program.grids_per_item(), first_of(items), items).unwrap();
    reference::run_batch(&program, &batch).unwrap()
}

#[test]
fn a_wrong_result_is_found_with_its_item_and_difference() {
    let place = JobItems { start: 0, items: 33, size: 33 };
    let right = outputs("rot90", 33);
    assert_eq!(compare(&right, &outputs("rot90", 33), place), Ok(()));
    let program = Program::compile("rot90", Ties::Cpython).unwrap();
    let batch = Grids::new().batch(1, first_of(33), 33).unwrap();
    let layout = OutputLayout::new(&program, batch.layout().unwrap()).unwrap();
    let mut bytes = right.packed().into_owned();
    let last = batch.tables().cells_of(32).start + layout.cells().start;
    let must = bytes[last];
    bytes[last] ^= 1;
    let wrong = Outputs::new(program, batch, bytes).unwrap();
    let says = compare(&wrong, &right, place).unwrap_err();
    assert_eq!(says, format!("item 32 of 33: cell (0, 0) is {}, must be {must}", must ^ 1));
}

#[test]
fn an_item_of_a_split_job_is_numbered_within_its_size() {
    let place = JobItems { start: 100, items: 50, size: 200 };
    assert_eq!(place.item(3), "item 103 of 200");
    assert_eq!(place.within(), " (items 100 to 149 of 200)");
    let mut parts = Vec::new();
    halve(&mut parts, 10, 5);
    assert_eq!(parts, [(12, 3), (10, 2)]);
}

#[test]
fn a_program_builds_on_what_comes_before_and_on_what_is_applied() {
    let parts = |text: &str| {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        parts_of(&program).iter().map(|part| part.text().to_owned()).collect::<Vec<_>>()
    };
    assert!(parts("rot90").is_empty());
    assert_eq!(parts("rot90 | switch(0, 8) | palette"), ["rot90", "rot90 | switch(0, 8)"]);
    assert_eq!(
        parts("apply(rot90 | switch(0, 2))"),
        ["rot90", "rot90 | switch(0, 2)", "apply(rot90)"]
    );
    assert_eq!(parts("mapply(rot90)"), ["rot90"]);
}

#[test]
fn item_errors_are_counted() {
    // Grids with one or two cells are empty after `trim`.
    let outputs = outputs("trim | rot90", 25);
    let by_decoding = (0..25).filter(|&item| outputs.item(item).unwrap().is_err()).count();
    assert!(by_decoding > 0);
    assert_eq!(errors(&outputs), by_decoding as u64);
}
