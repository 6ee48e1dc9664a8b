//! Bytecode: `gridpool compile` makes it, and a search of it has the verdicts of the texts it came from.

use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gridpool_client::{
    Candidate, Score, Search, SearchOutcome, SearchResult, SearchSummary, bytecode,
};
use gridpool_protocol::program::Ties;
use serde_json::{Value, json};

use super::{are_right, population, search, searched};
use crate::command::gridpool;
use crate::jobs::data;
use crate::pool::cpu;

/// The bytecode of those of these programs that compile, and the programs.
fn compiled(programs: Vec<Candidate>) -> (Vec<Candidate>, Vec<Candidate>) {
    let made = bytecode(programs.clone(), Ties::Cpython).expect("threads");
    let made = made.map(|made| made.expect("no panic"));
    let both = programs.into_iter().zip(made).filter_map(|(program, (id, made))| {
        assert_eq!(program.id, id);
        Some((program, Candidate::of_bytecode(id, made.ok()?)))
    });
    both.unzip()
}

#[test]
fn bytecode_has_the_verdicts_of_its_text_and_equals_it() {
    let pool = cpu(2).start();
    let (texts, made) = compiled(population(7, 400));
    assert!(texts.len() > 300, "{} compile", texts.len());
    let (of_texts, alone) = searched(&pool.client(), search(Score::Cells), texts.clone());
    let (of_made, again) = searched(&pool.client(), search(Score::Cells), made.clone());
    are_right(&of_made, &texts);
    assert_eq!(of_texts, of_made);
    assert_eq!(alone.deduplicated, again.deduplicated);
    assert_eq!(alone.evaluations.capped, again.evaluations.capped, "the steps are the search's");
    let count = made.len() as u64;
    let both: Vec<_> = made.into_iter().chain(texts).collect();
    let (results, SearchSummary { deduplicated, .. }) =
        searched(&pool.client(), search(Score::Cells), both);
    assert_eq!(deduplicated, alone.deduplicated + count, "no text runs behind its bytecode");
    let outcomes = |results: &[SearchResult]| -> Vec<_> {
        results.iter().map(|result| result.outcome.clone()).collect()
    };
    let (first, second) = results.split_at(results.len() / 2);
    assert_eq!(outcomes(first), outcomes(second));
}

#[test]
fn bytes_that_are_no_bytecode_of_this_search_are_refused_and_the_others_run() {
    let pool = cpu(1).start();
    let (_, made) = compiled(vec![Candidate::new("0", "rot90")]);
    let Ok(gridpool_client::Given::Bytecode(bytes)) = &made[0].program else { panic!("{made:?}") };
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        Candidate::of_bytecode(at.to_string(), bytes)
    };
    let cut = Candidate::of_bytecode("cut", bytes[..bytes.len() - 1].to_vec());
    let programs = vec![with(0, 9), with(1, 1), with(16, 255), cut, made[0].clone()];
    let (results, summary) = searched(&pool.client(), search(Score::Exact), programs);
    let why = |at: usize| match &results[at].outcome {
        SearchOutcome::Refused(why) => why.as_str(),
        other => panic!("{other:?}"),
    };
    assert!(why(0).starts_with("the bytecode is for version 9 of the machine"), "{}", why(0));
    assert!(why(1).starts_with("the bytecode is for ties lowest"), "{}", why(1));
    assert!(why(2).contains("instruction 0: there is no such opcode"), "{}", why(2));
    assert!(why(3).contains("other lengths than its header says"), "{}", why(3));
    assert!(matches!(results[4].outcome, SearchOutcome::Done(_)), "{results:?}");
    assert_eq!((summary.requested, summary.refused), (5, 4));
    let lowest = Search { ties: Ties::Lowest, ..search(Score::Exact) };
    let (refused, _) = searched(&pool.client(), lowest, made);
    assert!(matches!(refused[0].outcome, SearchOutcome::Refused(_)), "{refused:?}");
}

/// Programs of the example tasks, and what has no bytecode.
const LINES: &str = r#"{"id": "turn", "program": "rot90"}
{"id": "five", "program": "O = replace(I, ONE, FIVE)"}
{"id": "t", "program": "replace(?a:color, 5)"}
{"id": "odd", "program": "O = rot91(I)"}
not json
"#;

#[test]
fn what_compile_prints_is_what_search_takes() {
    let ended = gridpool(["compile", "--programs", "-"]).stdin(LINES).run();
    assert_eq!(ended.code, Some(65), "{}", ended.stderr);
    let told: Vec<_> = ended.stderr.lines().filter(|line| line.contains("is refused: ")).collect();
    let says = "gridpool: standard input: program t is refused: it is a template, and bytecode is one program without \
                holes: ";
    assert!(told[0].starts_with(says), "{told:?}");
    let says = "gridpool: standard input: program odd is refused: line 1, column 5";
    assert!(told[1].starts_with(says), "{told:?}");
    assert!(
        told[2].contains("standard input: program 5 is refused: line 5: it is not JSON"),
        "{told:?}"
    );
    let lines: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ids: Vec<_> = lines.iter().map(|line| &line["id"]).collect();
    assert_eq!(ids, ["turn", "five"]);
    let bytes = BASE64_STANDARD.decode(lines[0]["bytecode"].as_str().expect("a text"));
    assert_eq!(bytes.expect("base64")[0], gridpool_protocol::solver::MACHINE_VERSION);
    let tasks = data("tasks").display().to_string();
    let pool = cpu(1).start();
    let search = |lines: String| {
        let ended =
            pool.cli(&["search", "--programs", "-", "--tasks", &tasks, "--json"]).stdin(lines);
        let ended = ended.run();
        let mut lines: Vec<Value> =
            ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let summary = lines.pop().expect("a summary");
        (ended.code, lines, summary["summary"]["deduplicated"].clone())
    };
    let texts: String = LINES.lines().take(2).map(|line| format!("{line}\n")).collect();
    let of_texts = search(texts.clone());
    assert_eq!((of_texts.0, of_texts.1.len()), (Some(0), 16));
    assert_eq!(search(ended.stdout.clone()), of_texts);
    assert_eq!(search(ended.stdout + &texts).2, 2);
    let bad = json!({ "bytecode": "rot90" }).to_string();
    assert_eq!(search(bad).0, Some(65));
}

#[test]
fn compile_takes_texts_definitions_and_files() {
    let solvers = data("solvers.py").display().to_string();
    let of = |arguments: &[&str]| gridpool([&["compile"][..], arguments].concat()).run();
    let all = of(&[solvers.as_str()]);
    assert_eq!((all.code, all.stdout.lines().count()), (Some(0), 5), "{}", all.stderr);
    let first: Value =
        serde_json::from_str(all.stdout.lines().next().expect("a line")).expect("JSON");
    let name = first["id"].as_str().expect("a name");
    let some = of(&["rot90", &format!("@{solvers}:{name}"), "O = rot90(I)"]);
    let lines: Vec<Value> =
        some.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["id"], &lines[2]["id"]), (&json!("1"), &json!("3")));
    assert_eq!(lines[0]["bytecode"], lines[2]["bytecode"], "they mean the same");
    assert_eq!(lines[1], first);
    let lowest = of(&["rot90", "--ties", "lowest"]);
    assert!(!lowest.stdout.contains(lines[0]["bytecode"].as_str().expect("a text")));
    let none = of(&["rot91"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(2), ""), "{}", none.stderr);
    assert!(none.stderr.ends_with("gridpool: the program cannot run: see why above\n"));
    let some = of(&["rot90", "rot91"]);
    assert_eq!((some.code, some.stdout.lines().count()), (Some(2), 1), "{}", some.stderr);
    let last = "gridpool: 1 of 2 programs have no bytecode: see why above\n";
    assert!(some.stderr.ends_with(last), "{}", some.stderr);
    let program = |text: &str| json!({ "program": text }).to_string() + "\n";
    let some = [program("rot90"), program("rot91"), program("rot180")].concat();
    let some = gridpool(["compile", "--programs", "-"]).stdin(some).run();
    assert_eq!((some.code, some.stdout.lines().count()), (Some(65), 2), "{}", some.stderr);
    gridpool(["compile", "--programs", "-"])
        .run()
        .complains(65, &["standard input has no program"]);
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, program(text)).expect("a file can be written");
        path.display().to_string()
    };
    let (right, wrong) = (file("right.jsonl", "rot90"), file("wrong.jsonl", "rot91"));
    let both = of(&["rot92", &right, &wrong]);
    assert_eq!((both.code, both.stdout.lines().count()), (Some(65), 1), "{}", both.stderr);
    assert!(both.stderr.starts_with("gridpool: program 1 is refused: "), "{}", both.stderr);
    let of_wrong = "wrong.jsonl: program 1 is refused: ";
    assert!(both.stderr.contains(of_wrong), "{}", both.stderr);
    assert!(!both.stderr.contains("right.jsonl"), "{}", both.stderr);
    assert_eq!(of(&["rot92", &right]).code, Some(2), "what is wrong was typed");
    let typed = gridpool(["compile", "-"]).stdin(program("rot90")).run().output();
    assert_eq!(typed.lines().count(), 1);
    let folder = data("tasks").display().to_string();
    of(&[&folder]).complains(65, &["data/tasks: cannot be read: is a directory"]);
    of(&["--programs", "/no/such/file.jsonl"]).complains(65, &["/no/such/file.jsonl"]);
    of(&[]).complains(2, &["PROGRAM"]);
}
