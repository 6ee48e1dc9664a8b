//! `run --output FILE`: results in files of each format, which are inputs again.

use std::fs;

use serde_json::Value;

use crate::command::gridpool;
use crate::documents::read;
use crate::jobs::data;

#[test]
fn results_in_a_file_of_any_format_are_an_input_again() {
    let folder = tempfile::tempdir().unwrap();
    for (name, input) in [
        ("turned.npz", "grids.json"),
        ("turned.jsonl", "grids.json"),
        ("turned.arrow", "grids.json"),
        ("turned.npy", "grids.npy"),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, "the content before").unwrap();
        let run = |program: &str| gridpool(["run", program, "--devices", "cpu:1", "--batch", "7"]);
        let first = run("rot90").arg(data(input)).arg("--output").arg(&file).run();
        assert_eq!(first.code, Some(0), "{}", first.stderr);
        let back = run("rot270").arg("--json").arg(&file).run().document();
        let before = run("identity").arg("--json").arg(data(input)).run().document();
        let output = |document: &Value| document["results"][0]["output"].clone();
        assert_eq!(output(&back), output(&before), "{name}");
    }
    let file = folder.path().join("all.json");
    let run = gridpool(["run", "o_g(5)", "--devices", "cpu:1", "--json", "--output"]);
    let document = run.arg(&file).arg(data("tasks")).run().document();
    assert_eq!(read(&file), document);
}

#[test]
fn a_file_that_cannot_hold_the_results_is_refused_before_the_pool_starts() {
    for (program, file, words) in [
        ("o_g(5)", "x.npz", "the program gives a list of objects, and a file .npz holds grids,"),
        ("rot90", "x.csv", "x.csv: the end of the name tells the format: write .npz,"),
    ] {
        let run = gridpool(["run", program, "--devices", "cpu:1", "--output", file]);
        let ended = run.arg(data("grids.json")).run();
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}
