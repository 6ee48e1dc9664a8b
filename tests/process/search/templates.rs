//! Templates that the devices expand: the same verdicts as those of their texts, whatever happens on the way.

use std::collections::BTreeMap;
use std::path::Path;

use gridpool_client::{Candidate, Check, PairStatus, Score, Search, SearchOutcome, SearchResult};
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::search::{CompiledTemplate, Template, compile};
use nix::sys::signal::Signal;

use super::{STEPS, are_right, search, searched};
use crate::pool::{cpu, named};

/// 1,400 programs: `identity` is no instruction, so its 100 are compiled one by one.
const TEMPLATE: &str = "O = ?f:Grid->Grid(replace(I, ?a:color, ?b:color))";

/// The programs of a template one by one, by the names that their results have.
fn texts(id: &str, text: &str) -> BTreeMap<String, Candidate> {
    let template = Template::parse(text).expect("a template").expect("holes");
    let one = |(choice, text): (String, String)| {
        let id = format!("{id}[{choice}]");
        (id.clone(), Candidate::new(id, text))
    };
    template.texts().map(one).collect()
}

/// The texts of results, in their order.
fn in_order(results: &[SearchResult], texts: &BTreeMap<String, Candidate>) -> Vec<Candidate> {
    results.iter().map(|result| texts[&result.id].clone()).collect()
}

#[test]
fn every_program_of_a_template_has_the_verdict_of_its_text() {
    let pool = cpu(2).start();
    for score in Score::ALL {
        let before = Candidate::new("before", "rot90");
        let programs =
            vec![before.clone(), Candidate::new("t", TEMPLATE), Candidate::new("z", "trim")];
        let (results, summary) = searched(&pool.client(), search(score), programs);
        let mut texts = texts("t", TEMPLATE);
        texts.insert("before".to_owned(), before);
        texts.insert("z".to_owned(), Candidate::new("z", "trim"));
        assert_eq!((results.len(), results[0].id.as_str()), (1_402, "before"));
        assert_eq!(results[1_401].id, "z");
        are_right(&results, &in_order(&results, &texts));
        assert_eq!((summary.requested, summary.expanded, summary.failed), (1_402, 1_300, 0));
        // Each of those runs, equal or not.
        assert!(summary.evaluations.executed >= 6 * 1_300, "{summary:?}");
        assert_eq!(summary.statuses.values().sum::<u64>(), 6 * 1_402);
    }
}

#[test]
fn only_what_solves_a_pair_is_given_and_all_is_counted() {
    let pool = cpu(2).start();
    let programs = || vec![Candidate::new("t", TEMPLATE), Candidate::new("wrong", "mostcolor")];
    let (all, counted) = searched(&pool.client(), search(Score::Exact), programs());
    let solving = Search { only_solving: true, ..search(Score::Exact) };
    let (some, summary) = searched(&pool.client(), solving, programs());
    let is_of_note = |result: &SearchResult| match &result.outcome {
        SearchOutcome::Done(verdicts) => verdicts.bytes().contains(&PairStatus::EQUAL),
        SearchOutcome::Refused(_) | SearchOutcome::Failed { .. } => true,
    };
    let want: Vec<_> = all.into_iter().filter(is_of_note).collect();
    assert!(want.len() > 1 && want.len() < 700, "{}", want.len());
    assert_eq!(some, want);
    assert_eq!((summary.requested, &summary.statuses), (1_401, &counted.statuses));
}

#[test]
fn a_program_of_a_template_that_kills_its_workers_is_convicted_alone() {
    let deadly = "O = rot180(replace(I, 7, 3))";
    let hash = compile(deadly, Ties::Cpython, STEPS).unwrap().hash();
    let pool = cpu(2).args(&["--allow-chaos"]).env("GRIDPOOL_TEST_DEADLY", &hash[..32]).start();
    let programs = vec![Candidate::new("t", TEMPLATE)];
    let (mut results, summary) = searched(&pool.client(), search(Score::Exact), programs);
    let is_failed = |of: &SearchResult| matches!(of.outcome, SearchOutcome::Failed { .. });
    let convicted = results.iter().position(is_failed).expect("a conviction");
    let SearchResult { id, outcome } = results.remove(convicted);
    assert_eq!(id, "t[f=rot180,a=7,b=3]");
    let SearchOutcome::Failed { verdict, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((verdict, summary.failed, summary.requested), (Verdict::Poison, 1, 1_400));
    are_right(&results, &in_order(&results, &texts("t", TEMPLATE)));
}

#[test]
fn workers_that_are_killed_and_small_jobs_change_no_verdict_of_a_template() {
    let pool = cpu(2).start();
    let small = Search { job_programs_max: 50, ..search(Score::Cells) };
    let mut stream = pool.client().search(small, vec![Candidate::new("t", TEMPLATE)]).unwrap();
    let mut results = Vec::new();
    for result in stream.by_ref() {
        results.push(result.unwrap());
        if results.len() % 300 == 150 {
            // It may be starting: then there is nothing to kill.
            drop(pool.observer().kill(named("cpu0"), Signal::SIGKILL as i32));
        }
    }
    are_right(&results, &in_order(&results, &texts("t", TEMPLATE)));
    assert!(stream.summary().jobs >= 26, "{:?}", stream.summary());
}

#[test]
fn a_share_of_the_verdicts_of_a_template_is_compared() {
    let pool = cpu(1).start();
    let wrong = |_: &[u8], _: usize| Err("it was asked".to_owned());
    let checked =
        Search { check: Some(Check::new(0.5, 1, Box::new(wrong))), ..search(Score::Exact) };
    let mut stream = pool.client().search(checked, vec![Candidate::new("t", TEMPLATE)]).unwrap();
    let error = stream.find_map(Result::err).expect("the check fails").to_string();
    assert!(error.contains("it was asked"), "{error}");
}

#[test]
fn the_devices_expand_the_books_templates() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/templates.jsonl");
    let (mut all, mut expanded) = (0, 0);
    for line in std::fs::read_to_string(file).expect("the file").lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let text = line["program"].as_str().expect("a text");
        let template = Template::parse(text).expect("a template").expect("holes");
        for part in template.parts() {
            all += part.count();
            let compiled = CompiledTemplate::compile(&part, Ties::Cpython, STEPS);
            expanded += compiled.map_or(0, |(compiled, _)| compiled.count());
        }
    }
    // What stands in a loop is compiled one by one.
    assert!(all == 274_104 && expanded > 273_000, "{expanded} of {all}");
}
