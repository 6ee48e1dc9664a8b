//! `gridpool replay` of a death on a GPU, over the processor and a GPU: the GPU dies again, or computes something else.

use std::path::PathBuf;

use gridpool_stub_cuda::machine::uuid_text;
use gridpool_tests::oracle::samples::random_grids;
use serde_json::{Value, json};

use super::{SCRIPT, gpus, in_folder, make};
use crate::command::gridpool;
use crate::jobs::{answer, is_right, job, submit};
use crate::pool::Pool;

const TEXT: &str = "hmirror";
/// So many grids travel in shared memory.
const ITEMS: usize = 300;

/// A pool whose GPU has met a sticky fault in a job, and the capsule of that.
fn struck() -> (Pool, PathBuf) {
    let once = "call=cuLaunchKernel once-file=DIR/once while-file=DIR/go nth=1 code=700 sticky";
    let pool = gpus(1, once).start();
    make(pool.folder(), "go");
    let grids = random_grids(52, ITEMS);
    is_right(&answer(submit(&pool.client(), job(TEXT, &grids))), TEXT, &grids);
    let has_one = |status: &gridpool_protocol::status::Status| {
        status.capsules.as_ref().is_some_and(|own| own.written == 1)
    };
    let kept = pool.until_status("its capsule", has_one).capsules.expect("it keeps capsules");
    let path = format!("{}/{}.json", kept.folder, kept.latest[0].name);
    (pool, path.into())
}

/// Replays a capsule where each launch on the GPU has this effect once a job's memory is registered there, which is
/// after the worker's own tests. The exit code and the document.
fn replayed(pool: &Pool, capsule: &PathBuf, effect: &str) -> (Option<i32>, Value) {
    let folder = pool.folder().to_str().expect("a readable path");
    let script = format!(
        "call=cuMemHostRegister mark-file=DIR/at-work delay=0; call=cuLaunchKernel while-file=DIR/at-work {effect}"
    );
    let replay = gridpool(["replay", "--json"]).arg(capsule).env("XDG_CACHE_HOME", folder);
    let replay = replay.env("LD_LIBRARY_PATH", pool.folder().join("driver"));
    let replay = replay.env("GRIDPOOL_SANDBOX_WRITE", folder);
    let ended = replay.env(SCRIPT, in_folder(&script, pool.folder())).run();
    let document = serde_json::from_str(&ended.stdout);
    (ended.code, document.unwrap_or_else(|error| panic!("{error}: {ended:?}")))
}

#[test]
fn a_sticky_fault_dies_again_on_the_gpu_and_not_on_the_processor() {
    let (pool, capsule) = struck();
    let (code, told) = replayed(&pool, &capsule, "nth=1 code=700 sticky");
    assert_eq!((code, &told["count"]), (Some(1), &json!(ITEMS)), "{told}");
    let [on_cpu, on_gpu] = [&told["runs"][0], &told["runs"][1]];
    assert_eq!((&on_cpu["devices"], &on_cpu["verdict"]), (&json!("cpu:1"), &json!("OK")), "{told}");
    assert_eq!((&on_cpu["manner"], &on_cpu["same"]), (&Value::Null, &Value::Null), "{told}");
    assert_eq!(on_gpu["devices"], uuid_text(0), "{told}");
    assert_eq!(
        (&on_gpu["manner"]["fault"], &on_gpu["same"]),
        (&json!("cuda 700"), &json!(true)),
        "{told}"
    );
    assert_eq!((&told["lacks"], &told["difference"]), (&json!([]), &Value::Null), "{told}");
}

#[test]
fn a_gpu_that_lives_and_computes_something_else_is_said_to_and_where() {
    let (pool, capsule) = struck();
    let (code, told) = replayed(&pool, &capsule, "flip");
    let verdicts = [0, 1].map(|at| &told["runs"][at]["verdict"]);
    assert_eq!((code, verdicts), (Some(1), [&json!("OK"); 2]), "{told}");
    let first = &random_grids(52, ITEMS)[0];
    let right = first.cells()[(first.h() - 1) * first.w()];
    let what = format!("the cell (0, 0) is {right} and {}", right ^ 1);
    let parts = json!({"unit": 0, "cell": [0, 0], "tensor": null, "what": what});
    assert_eq!(told["difference"], parts, "{told}");
}
