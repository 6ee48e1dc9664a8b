//! The table in its forms, README's among them.

use super::*;

const OPENS: &str = "<!-- ops -->\n";
const CLOSES: &str = "<!-- /ops -->";

#[test]
fn readme_has_the_table_that_the_code_generates() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(path).expect("README.md");
    let (_, rest) = readme.split_once(OPENS).expect("README.md has the mark <!-- ops -->");
    let (table, _) = rest.split_once(CLOSES).expect("README.md has the mark <!-- /ops -->");
    let says = "README.md has another table of ops than protocol/src/program/table: put what \
                `gridpool ops --markdown` prints between <!-- ops --> and <!-- /ops -->";
    let (ours, theirs) = (markdown(), table.trim_matches('\n').to_owned() + "\n");
    let differs = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
    assert!(ours == theirs, "{says}\n{differs:#?}");
}

#[test]
fn every_op_is_in_every_form_and_no_line_is_too_wide() {
    let help = help();
    assert!(help.lines().all(|line| line.chars().count() <= HELP_COLUMNS), "{help}");
    for columns in [80, 132] {
        let screen = screen(columns);
        assert!(screen.lines().all(|line| line.chars().count() <= columns), "{screen}");
        for form in [&help, &screen] {
            let has = |op: &OpSpec| {
                let mut lines = form.lines().map(str::trim_start);
                lines.any(|line| line.split([' ', '(']).next() == Some(op.name))
            };
            let lost: Vec<_> = OPS.iter().filter(|op| !has(op)).map(|op| op.name).collect();
            assert!(lost.is_empty(), "{lost:?} are not in {form}");
        }
    }
    let document = serde_json::to_value(document()).unwrap();
    assert_eq!(document["ops"].as_array().unwrap().len(), OPS.len());
}

#[test]
fn kinds_are_said_in_as_few_words_as_they_take() {
    let kinds = |name: &str| kinds(OPS.iter().find(|op| op.name == name).expect(name));
    assert_eq!(kinds("rot90"), "grid -> grid");
    assert_eq!(kinds("hmirror"), "grid, object, patch -> the same");
    assert_eq!(kinds("mostcolor"), "grid, object -> number");
    assert_eq!(kinds("first"), "objects -> object; tuple of grids -> grid");
    assert_eq!(kinds("cellwise"), "pair of grids -> grid");
    assert_eq!(kinds("hsplit"), "grid -> tuple of grids");
}
