//! Searches on GPU workers over the stub driver: the same verdicts, and what the receipts say.

use gridpool_client::{Score, Search};

use super::{are_right, population, search, searched};
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
