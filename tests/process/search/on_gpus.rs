//! Searches on GPU workers over the stub driver: the same verdicts, and what the receipts say.

use std::thread;

use gridpool_client::{Candidate, GridBatch, Score, Search};
use gridpool_tests::oracle::samples::random_grids;

use super::{ENDLESS, are_right, population, search, searched};
use crate::jobs::serves;
use crate::stubbed::gpus;

#[test]
fn two_gpus_give_the_references_verdicts_and_report_their_kernel() {
    let pool = gpus(2, "").start();
    let programs = population(21, 300);
    for score in Score::ALL {
        let (results, summary) = searched(
            &pool.client(),
            Search { job_programs_max: 20, ..search(score) },
            programs.clone(),
        );
        are_right(&results, &programs);
        let kernels: Vec<_> = summary.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!((kernels, summary.failed), (vec!["gp_search"], 0));
        let run = summary.requested - summary.refused - summary.deduplicated;
        assert_eq!(summary.evaluations.executed, 6 * run);
        assert_eq!(summary.devices.len(), 2, "{:?}", summary.devices);
    }
}

#[test]
fn whether_programs_share_changes_no_verdict() {
    let pool = gpus(1, "").start();
    // Many pairs: a launch of few evaluations has no runs.
    let grids = random_grids(24, 128);
    let pairs = GridBatch::from_pairs(grids.iter().map(|grid| (grid, Some(grid)))).unwrap();
    let text =
        |at: usize| format!("x = replace(I, {}, 1)\nO = replace(x, 2, {})", at / 10, at % 10);
    let texts: Vec<_> = (0..100)
        .cycle()
        .take(300)
        .enumerate()
        .map(|(at, number)| {
            // Other steps of the same meaning: none equals another.
            let turns = "rot180(".repeat(2 * (at / 100));
            let closed = ")".repeat(2 * (at / 100));
            Candidate::new(at.to_string(), format!("{}\nP = {turns}O{closed}", text(number)))
        })
        .collect();
    let all = |sharing: bool| {
        let search = Search { sharing, pairs: pairs.clone(), ..search(Score::Cells) };
        searched(&pool.client(), search, texts.clone())
    };
    let ((together, shared), (alone, none)) = (all(true), all(false));
    assert_eq!(together, alone);
    assert_eq!(shared.evaluations.executed, none.evaluations.executed);
    assert_eq!(none.evaluations.shared, 0);
    assert!(shared.statuses.len() > 1 && shared.failed == 0, "{shared:?}");
}

#[test]
fn a_gpu_that_breaks_in_a_search_costs_attempts_and_no_verdict() {
    let script = "call=cuLaunchKernel while-file=DIR/now once-file=DIR/broken code=700 sticky";
    let pool = gpus(2, script).start();
    let programs = population(22, 300);
    let search = Search { job_programs_max: 2, ..search(Score::Exact) };
    let mut stream = pool.client().search(search, programs.clone()).unwrap();
    let mut results = Vec::new();
    for result in stream.by_ref() {
        results.push(result.unwrap());
        if results.len() == 20 {
            std::fs::write(pool.folder().join("now"), []).unwrap();
        }
    }
    are_right(&results, &programs);
    // The GPU may have held a second attempt when it broke.
    assert_eq!((stream.summary().failed, stream.summary().attempts_lost > 0), (0, true));
}

#[test]
fn a_search_that_is_stopped_in_the_midst_of_a_launch_costs_no_worker() {
    // The launch takes far longer than the grace, one evaluation far less.
    let pool = gpus(1, "").limits("cancel_grace_s = 2").start();
    let grid = random_grids(23, 1).remove(0);
    let pairs = GridBatch::from_pairs([(&grid, Some(&grid)); 2_000]).unwrap();
    let search = Search { pairs, steps: 10_000, ..search(Score::Exact) };
    let programs = vec![Candidate::new("endless", ENDLESS)];
    let mut stream = pool.client().search(search, programs).unwrap();
    let stopper = stream.stopper();
    thread::scope(|scope| {
        let ended = scope.spawn(|| stream.next().is_none());
        pool.until_busy("gpu0");
        stopper.stop();
        assert!(ended.join().unwrap(), "it has a result");
    });
    drop(stream);
    serves(&pool.client());
    assert_eq!(pool.slot("gpu0").generation, 1, "the worker was killed");
    assert!(pool.status().counters.cancelled > 0);
}
