//! Searches on CPU workers: every verdict is the reference's, whatever the order, the duplicates, the cut into jobs,
//! the kills; a program that kills its workers is convicted alone.

mod bytecode;
mod commands;
mod hostile;
mod on_gpus;
mod scarce;
mod templates;

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_client::{
    Candidate, Check, Client, Score, Search, SearchOutcome, SearchResult, SearchSummary,
};
use gridpool_kernels::reference::machine::Machine;
use gridpool_kernels::reference::search::{SearchPairs, judge};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::limits::STEPS_MAX;
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::search::{PROGRAM_ALIGN, compile};
use gridpool_protocol::solver::{Code, Source};
use gridpool_tests::oracle::samples::{SplitMix64, random_grids};
use gridpool_tests::oracle::tasks;
use nix::sys::signal::Signal;

use crate::pool::{Pool, cpu, named};

/// Steps of a program in these tests.
const STEPS: u32 = 2_000;

/// A program whose body runs over and over.
const ENDLESS: &str = "O = power(rot90, multiply(width(I), 9999))(I)";

/// Pairs of which each is solved by some op.
pub(crate) fn pairs() -> GridBatch {
    let inputs = random_grids(11, 6);
    let texts = ["rot90", "hmirror", "replace(1, 5)", "identity", "rot180", "vmirror"];
    let outputs: Vec<Grid> =
        inputs.iter().zip(texts).map(|(grid, text)| applied(text, grid)).collect();
    GridBatch::from_pairs(inputs.iter().zip(outputs.iter().map(Some))).expect("pairs")
}

/// What a chain gives for a grid.
fn applied(text: &str, grid: &Grid) -> Grid {
    let program =
        gridpool_protocol::program::Program::compile(text, Ties::Cpython).expect("a program");
    let batch = GridBatch::from_grids([grid]).expect("a batch");
    let outputs = gridpool_kernels::reference::run_batch(&program, &batch).expect("outputs");
    match outputs.item(0).expect("an output").expect("an item") {
        gridpool_protocol::output::Output::Grid(grid) => grid,
        other => panic!("{other:?}"),
    }
}

/// Programs of many kinds: equal ones, ill-typed ones, ones that fail, one that never ends.
pub(crate) fn population(seed: u64, count: usize) -> Vec<Candidate> {
    let mut rng = SplitMix64::new(seed);
    let turns =
        ["rot90", "rot180", "rot270", "hmirror", "vmirror", "dmirror", "cmirror", "identity"];
    let text = |rng: &mut SplitMix64| {
        let (a, b) = (rng.pick(&turns), rng.pick(&turns));
        let (c, d) = (rng.below(10), rng.below(10));
        match rng.below(9) {
            0 => format!("{a} | {b}"),
            1 => format!("x = {a}(I)\nO = {b}(x)"),
            2 => format!("O = replace({a}(I), {c}, {d})"),
            3 => format!("O = fill(I, {c}, ofcolor({a}(I), {d}))"),
            4 => format!("x = objects(I, T, F, T)\ny = argmax(x, size)\nO = {a}(subgrid(y, I))"),
            5 => format!("O = subgrid(ofcolor(I, {c}), I)"),
            6 => format!("O = {a}(increment(I))"),
            7 => format!("o_g({}) | argmin(size) | subgrid | {a}", rng.below(8)),
            _ => ENDLESS.to_owned(),
        }
    };
    (0..count).map(|at| Candidate::new(at.to_string(), text(&mut rng))).collect()
}

/// What the reference says of a program: its bytes, or nothing if it is refused.
fn expected(text: &str, pairs: &SearchPairs) -> Option<(Vec<u8>, Vec<u16>)> {
    let code = compile(text, Ties::Cpython, STEPS).ok()?;
    let mut machine = Machine::default();
    let judged = (0..pairs.len()).map(|pair| judge(&mut machine, &code, pairs, pair));
    Some(judged.map(|(status, score)| (status.byte(), score.number())).unzip())
}

/// Runs a search to its end.
fn searched(
    client: &Client,
    search: Search,
    programs: Vec<Candidate>,
) -> (Vec<SearchResult>, SearchSummary) {
    let mut stream = client.search(search, programs).expect("a search");
    let results = stream.by_ref().map(|result| result.expect("a result")).collect();
    (results, stream.summary().clone())
}

fn search(score: Score) -> Search {
    Search { score, steps: STEPS, threads: 2, ..Search::new(pairs()) }
}

/// Whether each result is what the reference says, in the order of the programs.
#[track_caller]
fn are_right(results: &[SearchResult], programs: &[Candidate]) {
    let pairs = SearchPairs::of_batch(&pairs());
    assert_eq!(results.len(), programs.len());
    let mut known = BTreeMap::new();
    for (result, program) in results.iter().zip(programs) {
        assert_eq!(result.id, program.id);
        let text = program.text().expect("a text").to_owned();
        let want = known.entry(text.clone()).or_insert_with(|| expected(&text, &pairs));
        match (&result.outcome, want) {
            (SearchOutcome::Refused(_), None) => {}
            (SearchOutcome::Done(verdicts), Some((statuses, scores))) => {
                assert_eq!(verdicts.bytes(), statuses, "{text}");
                if let Some(got) = verdicts.score_numbers() {
                    assert_eq!(got, scores, "{text}");
                }
            }
            (got, want) => panic!("{text}: {got:?}, and the reference says {want:?}"),
        }
    }
}

#[test]
fn every_verdict_is_the_references_and_the_counts_add_up() {
    let pool = cpu(2).start();
    let programs = population(1, 1_500);
    for score in Score::ALL {
        // Jobs enough for both devices, however fast one is.
        let search = Search { job_programs_max: 100, ..search(score) };
        let (results, summary) = searched(&pool.client(), search, programs.clone());
        are_right(&results, &programs);
        let done = results.iter().filter(|of| matches!(of.outcome, SearchOutcome::Done(_))).count();
        let SearchSummary { requested, refused, deduplicated, failed, evaluations, .. } = summary;
        assert_eq!((requested, failed), (1_500, 0));
        assert!(refused > 50 && deduplicated > 300, "{refused} {deduplicated}");
        assert_eq!(requested - refused, done as u64);
        assert_eq!(evaluations.executed, 6 * (requested - refused - deduplicated));
        assert_eq!(evaluations.capped, 6, "one program ran on six pairs, once");
        assert_eq!((summary.attempts_lost, summary.devices.len()), (0, 2));
    }
}

#[test]
fn order_duplicates_and_the_cut_into_jobs_change_no_verdict() {
    let pool = cpu(2).start();
    let programs = population(2, 400);
    let mut seen: BTreeMap<String, Vec<SearchOutcome>> = BTreeMap::new();
    let mut note = |results: Vec<SearchResult>| {
        for SearchResult { id, outcome } in results {
            seen.entry(id).or_default().push(outcome);
        }
    };
    let twice: Vec<_> = programs.iter().chain(&programs).cloned().collect();
    let reversed: Vec<_> = programs.iter().rev().cloned().collect();
    for (programs, threads, jobs, most) in
        [(programs.clone(), 1, 1, 1), (twice, 2, 3, 7), (reversed, 4, 8, 1_000)]
    {
        let search = Search { threads, jobs, job_programs_max: most, ..search(Score::Cells) };
        note(searched(&pool.client(), search, programs).0);
    }
    for (id, outcomes) in seen {
        assert_eq!(outcomes.len(), 4);
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{id}: {outcomes:?}");
    }
}

#[test]
fn workers_that_are_killed_cost_attempts_and_no_verdict() {
    let pool = cpu(2).start();
    let programs = population(3, 3_000);
    let mut stream = pool.client().search(search(Score::Exact), programs.clone()).unwrap();
    let mut results = Vec::new();
    for (at, result) in stream.by_ref().enumerate() {
        results.push(result.unwrap());
        if at % 500 == 250 {
            // It may be starting: then there is nothing to kill.
            drop(
                pool.observer().kill(named(["cpu0", "cpu1"][at / 500 % 2]), Signal::SIGKILL as i32),
            );
        }
    }
    are_right(&results, &programs);
    assert_eq!(stream.summary().failed, 0);
}

#[test]
fn a_program_that_kills_its_workers_is_convicted_alone() {
    let deadly = "O = replace(rot90(I), 7, 3)";
    let hash = compile(deadly, Ties::Cpython, STEPS).unwrap().hash();
    let pool = cpu(2).args(&["--allow-chaos"]).env("GRIDPOOL_TEST_DEADLY", &hash[..32]).start();
    let mut programs: Vec<_> = population(4, 600)
        .into_iter()
        .filter(|program| {
            let code = compile(program.text().unwrap(), Ties::Cpython, STEPS);
            code.map_or(true, |code| code.hash() != hash)
        })
        .collect();
    programs.insert(300, Candidate::new("deadly", deadly));
    let (mut results, summary) = searched(&pool.client(), search(Score::Exact), programs.clone());
    let convicted = results.remove(300);
    programs.remove(300);
    let SearchOutcome::Failed { verdict, reason } = convicted.outcome else {
        panic!("{convicted:?}")
    };
    assert_eq!((convicted.id.as_str(), verdict), ("deadly", Verdict::Poison), "{reason}");
    are_right(&results, &programs);
    assert_eq!(summary.failed, 1);
    // Three rounds: a job, its parts, a program. Each costs two workers, and at most as many attempts at the
    // job's other shard, on the other worker, are given up.
    assert!((2..=12).contains(&summary.attempts_lost), "{summary:?}");
    // The same search again: its first job is denylisted at once.
    programs.insert(300, Candidate::new("deadly", deadly));
    let (again, _) = searched(&pool.client(), search(Score::Exact), programs);
    assert!(matches!(again[300].outcome, SearchOutcome::Failed { verdict: Verdict::Poison, .. }));
}

#[test]
fn programs_that_take_too_long_cost_the_others_no_verdict() {
    let pool = cpu(1).start();
    // In jobs of their own among the others, or the first of one job.
    too_long(&pool, (36, 1), |at| at.is_multiple_of(12));
    too_long(&pool, (12, 12), |at| at < 3);
}

/// Runs programs of which some are endless: these alone have no verdict.
fn too_long(pool: &Pool, (count, job_programs_max): (usize, usize), is_endless: fn(usize) -> bool) {
    let text = |at: usize| match is_endless(at) {
        true => {
            format!("x = multiply(width(I), 999999)\nO = power(rot90, multiply(x, {}))(I)", 20 + at)
        }
        false => format!("O = replace(rot90(I), {}, {})", at % 10, at / 10),
    };
    let programs: Vec<_> = (0..count).map(|at| Candidate::new(at.to_string(), text(at))).collect();
    // Those behind an endless one wait for as long as it may take.
    let search = Search {
        steps: STEPS_MAX,
        jobs: 4,
        job_programs_max,
        deadline: Duration::from_secs(2),
        ..search(Score::Exact)
    };
    let (results, summary) = searched(&pool.client(), search, programs.clone());
    let failed = |result: &SearchResult| matches!(result.outcome, SearchOutcome::Failed { .. });
    let (endless, others): (Vec<_>, Vec<_>) =
        results.into_iter().zip(programs).enumerate().partition(|(at, _)| is_endless(*at));
    assert!(endless.iter().all(|(_, (result, _))| failed(result)), "{endless:?}");
    assert_eq!(summary.failed, endless.len() as u64);
    let (results, programs): (Vec<_>, Vec<_>) = others.into_iter().map(|(_, of)| of).unzip();
    are_right(&results, &programs);
}

#[test]
fn no_program_is_deadly_in_a_pool_that_allows_no_chaos() {
    let deadly = "O = replace(rot90(I), 7, 3)";
    let hash = compile(deadly, Ties::Cpython, STEPS).unwrap().hash();
    let pool = cpu(1).env("GRIDPOOL_TEST_DEADLY", &hash[..32]).start();
    let programs = vec![Candidate::new("0", deadly)];
    let (results, _) = searched(&pool.client(), search(Score::Exact), programs.clone());
    are_right(&results, &programs);
    assert!(pool.status().workers.iter().all(|row| row.generation == 1));
}

#[test]
fn results_come_while_programs_are_still_read() {
    let pool = cpu(1).start();
    let (give, given) = std::sync::mpsc::channel::<Candidate>();
    let mut stream = pool.client().search(search(Score::Exact), given).unwrap();
    for at in 0..5 {
        give.send(Candidate::new(at.to_string(), "rot90")).unwrap();
        let result = stream.next().unwrap().unwrap();
        assert_eq!(result.id, at.to_string());
    }
    drop(give);
    assert!(stream.next().is_none());
    assert_eq!(stream.summary().deduplicated, 4);
}

#[test]
fn a_search_that_is_stopped_ends_and_its_iterator_is_dropped() {
    let pool = cpu(1).start();
    let endless =
        (0_u64..).map(|at| Candidate::new(at.to_string(), format!("upscale({})", 1 + at % 9)));
    let mut stream = pool.client().search(search(Score::Exact), endless).unwrap();
    assert!(stream.by_ref().take(100).all(|result| result.is_ok()));
    let stopper = stream.stopper();
    stopper.stop();
    let rest = stream.count();
    assert!(rest < 200_000, "{rest}");
    crate::jobs::serves(&pool.client());
}

#[test]
fn attempts_that_a_stop_has_cancelled_are_not_lost() {
    let pool = cpu(1).start();
    let endless = Candidate::new("endless", "O = power(rot90, multiply(width(I), 999999))(I)");
    let stopped = || {
        let long = Search { steps: STEPS_MAX, ..search(Score::Exact) };
        let mut stream = pool.client().search(long, vec![endless.clone()]).unwrap();
        let stopper = stream.stopper();
        let ended = std::thread::spawn(move || (stream.next(), stream.summary().clone()));
        pool.until_busy("cpu0");
        stopper.stop();
        let (result, SearchSummary { jobs, attempts_lost, .. }) = ended.join().expect("an end");
        assert!(result.is_none(), "{result:?}");
        assert_eq!(attempts_lost, 0);
        pool.all_ready();
        jobs
    };
    // A stop before the stream has begun to wait for the job leaves it without a verdict.
    assert!((0..100).any(|_| stopped() == 1), "no search was stopped while it waited");
}

#[test]
fn templates_are_expanded_and_name_their_choices() {
    let pool = cpu(1).start();
    let programs = vec![
        Candidate::new("t", "O = replace(?f in [rot90, hmirror](I), ?a:color, 5)"),
        Candidate::new("wrong", "replace(?a, 1)"),
    ];
    let (results, _) = searched(&pool.client(), search(Score::Exact), programs);
    let ids: Vec<_> = results.iter().map(|result| result.id.as_str()).collect();
    assert_eq!((ids.len(), ids[0], ids[19]), (21, "t[f=rot90,a=0]", "t[f=hmirror,a=9]"));
    let SearchOutcome::Refused(why) = &results[20].outcome else { panic!("{:?}", results[20]) };
    assert!(why.contains("write ?a:color"), "{why}");
    let texts: Vec<_> = results[..20]
        .iter()
        .map(|result| {
            let (f, a) = result.id[4..result.id.len() - 1].split_once(",a=").unwrap();
            Candidate::new(result.id.clone(), format!("O = replace({f}(I), {a}, 5)"))
        })
        .collect();
    are_right(&results[..20], &texts);
}

#[test]
fn a_share_of_the_verdicts_is_compared_and_a_difference_ends_the_search() {
    let pool = cpu(1).start();
    let programs = population(5, 100);
    let reference = || {
        let (pairs, mut machine) = (SearchPairs::of_batch(&pairs()), Machine::default());
        move |program: &[u8], pair: usize| {
            let code =
                Code::from_padded(program, PROGRAM_ALIGN).map_err(|error| error.to_string())?;
            Ok(judge(&mut machine, &code, &pairs, pair))
        }
    };
    let checked = |check| {
        let search = Search { check: Some(check), ..search(Score::Cells) };
        let mut stream = pool.client().search(search, programs.clone()).unwrap();
        let ended = stream.by_ref().find_map(Result::err);
        (ended.map(|error| error.to_string()), stream.summary().checked)
    };
    let (ended, all) = checked(Check::new(1.0, 1, Box::new(reference())));
    assert_eq!(ended, None);
    let (_, some) = checked(Check::new(0.25, 1, Box::new(reference())));
    assert!(all / 8 < some && some < all / 2, "{some} of {all}");
    let mut right = reference();
    let mut count = 0;
    let wrong = move |program: &[u8], pair: usize| {
        count += 1;
        let (status, mut score) = right(program, pair)?;
        score.equal_cells ^= u16::from(count == 40);
        Ok((status, score))
    };
    let (ended, _) = checked(Check::new(1.0, 1, Box::new(wrong)));
    assert!(ended.unwrap().contains("do not trust the results of this search"));
    let failing = |_: &[u8], _: usize| Err("its process has ended".to_owned());
    let (ended, _) = checked(Check::new(1.0, 1, Box::new(failing)));
    let ended = ended.unwrap();
    assert!(ended.starts_with("the check of a verdict failed"), "{ended}");
    assert!(ended.contains("its process has ended") && !ended.contains("trust"), "{ended}");
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that was skipped says so")]
fn arc_dsls_solvers_on_their_own_and_on_foreign_tasks_give_the_references_verdicts() {
    let Some((folder, tasks)) = std::env::var_os("GRIDPOOL_ARC_DSL").zip(tasks::arc_tasks()) else {
        eprintln!("not tested: GRIDPOOL_ARC_DSL or GRIDPOOL_ARC is not set");
        return;
    };
    let text = std::fs::read_to_string(std::path::Path::new(&folder).join("solvers.py")).unwrap();
    let source = Source::parse(&text).unwrap();
    // Every twentieth task's pairs: each solver meets 20 tasks.
    let some: Vec<_> = tasks.iter().step_by(20).collect();
    let of_tasks: Vec<_> =
        some.iter().flat_map(|task| &task.pairs).filter(|(_, output)| output.is_some()).collect();
    let batch =
        GridBatch::from_pairs(of_tasks.iter().map(|(input, output)| (input, output.as_ref())));
    let batch = batch.unwrap();
    let pairs = SearchPairs::of_batch(&batch);
    let programs: Vec<_> = source
        .definitions()
        .map(|(name, _)| Candidate::new(name, source.extract(name).unwrap().0))
        .collect();
    let pool = cpu(2).start();
    let search = Search { steps: STEPS, ..Search::new(batch) };
    let (results, summary) = searched(&pool.client(), search, programs.clone());
    let mut wrong = Vec::new();
    for (result, program) in results.iter().zip(&programs) {
        let SearchOutcome::Done(verdicts) = &result.outcome else { panic!("{result:?}") };
        let want = expected(program.text().unwrap(), &pairs).unwrap().0;
        if verdicts.bytes() != want {
            wrong.push(result.id.clone());
        }
    }
    eprintln!("{} evaluations of {} solvers", summary.evaluations.executed, results.len());
    assert_eq!((wrong.as_slice(), results.len()), ([].as_slice(), 400));
}
