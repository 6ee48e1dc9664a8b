//! Capsules of other work than grids, and replays under a tool: requests for models, searches, the sanitizer.

use gridpool_client::{Candidate, GridBatch, Job, ModelInput, Search, SearchOutcome};
use gridpool_protocol::program::Ties;
use gridpool_protocol::search::compile;

use super::*;
use crate::infer;

/// A request for a model, whose worker another process kills; then the same with another file.
#[test]
fn a_request_for_a_model_is_replayed_through_the_same_file() {
    if !infer::has_runtime() {
        return;
    }
    let files = tempfile::tempdir().expect("a folder for temporary files");
    let file = files.path().join("m.onnx");
    fs::copy(infer::model("mlp"), &file).expect("a file can be copied");
    let named = format!("mlp={}", file.display());
    let pool = cpu(1).args(&["--model", &named]).start();
    let row = || pool.status().workers.into_iter().find(|row| row.role == "infer").expect("a row");
    eventually_so("the model to serve", || pool.client().models().is_ok_and(|all| !all.is_empty()));
    let pid = row().pid;
    crate::processes::stop(pid);
    let input = ModelInput::new("x", vec![3, 16], vec![1_f32; 48]).expect("three rows");
    let job = Job::model("mlp", [input]).expect("one input");
    let handle = pool.client().submit(job).expect("it is accepted");
    eventually_so("the request to run", || row().run.is_some());
    signal(pid, Signal::SIGSEGV);
    crate::processes::go_on(pid);
    assert_eq!(handle.wait().expect("a verdict").verdict(), Verdict::Ok);
    let capsule = the_only(&pool);
    let saved = read(&capsule);
    assert_eq!(saved["jobs"][0]["work"], json!({"kind": "model", "name": "mlp"}));
    assert_eq!(saved["models"][0]["sha256"].as_str().map(str::len), Some(64));
    let models = pool.client().models().expect("a worker has it again");
    assert_eq!(saved["onnxruntime"], models[0].model.onnxruntime);
    let tensor = &saved["jobs"][0]["input"]["tensors"][0];
    assert_eq!((&tensor["name"], &tensor["shape"]), (&json!("x"), &json!([3, 16])));
    let replayed = replay(&capsule, &[]);
    assert_eq!(replayed.code, Some(0), "{}{}", replayed.stdout, replayed.stderr);
    assert_eq!(document(&replayed)["units"], "requests");
    fs::copy(infer::model("fixed"), &file).expect("a file can be copied");
    replay(&capsule, &[]).complains(65, &["the model `mlp`", "has changed since: its SHA-256 was"]);
    fs::remove_file(&file).expect("it is there");
    replay(&capsule, &[]).complains(65, &["the model `mlp`", "cannot be read"]);
}

/// A search whose deaths are real ones of a program, not of a fault that every run meets.
#[test]
fn a_search_is_bisected_to_the_program_that_kills() {
    const STEPS: u32 = 1_000;
    let deadly = "O = replace(rot90(I), 7, 3)";
    let hash = compile(deadly, Ties::Cpython, STEPS).expect("it compiles").hash();
    let hash = &hash[..32];
    let pool = cpu(1).args(&["--allow-chaos"]).env("GRIDPOOL_TEST_DEADLY", hash).start();
    let others = (1..10).flat_map(|a| (1..4).map(move |b| format!("O = replace(I, {a}, {b})")));
    let texts = others.filter(|text| !text.contains("1, 1")).chain([deadly.to_owned()]);
    let programs: Vec<_> =
        texts.enumerate().map(|(at, text)| Candidate::new(at.to_string(), text)).collect();
    let grids = random_grids(6, 2);
    let pairs = GridBatch::from_pairs([(&grids[0], Some(&grids[1]))]).expect("one pair");
    let search = Search { steps: STEPS, ..Search::new(pairs) };
    let stream = pool.client().search(search, programs).expect("it is a search");
    let failed = stream.filter(|result| {
        matches!(result.as_ref().expect("a result").outcome, SearchOutcome::Failed { .. })
    });
    assert_eq!(failed.count(), 1);
    let largest = eventually("a capsule", || {
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |meta| meta.len());
        capsules(pool.setup()).into_iter().max_by_key(size).ok_or("none")
    });
    let config = pool.folder().join("chaos.toml");
    fs::write(&config, "allow_chaos = true\n").expect("a file can be written");
    let replayed = gridpool(["replay", "--json", "--bisect"]).arg(&largest).arg("--config");
    let told = document(&replayed.arg(&config).env("GRIDPOOL_TEST_DEADLY", hash).run());
    assert_eq!(
        (&told["units"], &told["runs"][0]["same"]),
        (&json!("programs"), &json!(true)),
        "{told}"
    );
    let bisected = &told["bisected"];
    assert!(bisected["of"].as_u64() > Some(10), "{told}");
    assert_eq!(
        (&bisected["is_done"], bisected["names"].as_array().map(Vec::len)),
        (&json!(true), Some(1))
    );
    // Without the fault in the programs, all run to their end.
    let replayed = replay(&largest, &[]);
    assert_eq!(replayed.code, Some(0), "{}{}", replayed.stdout, replayed.stderr);
}

#[test]
fn compute_sanitizer_is_run_where_it_is_and_missed_where_it_is_not() {
    let pool = chaotic().start();
    strike(&pool, fault("abort"), 5, 1);
    let capsule = the_only(&pool);
    let tools = tempfile::tempdir().expect("a folder for temporary files");
    let under = |path: &Path| {
        let flags = ["replay", "--json", "--under", "compute-sanitizer"];
        gridpool(flags).arg(&capsule).env("PATH", path.as_os_str()).run()
    };
    if !Path::new("/usr/local/cuda/bin/compute-sanitizer").exists() {
        under(tools.path()).complains(69, &["compute-sanitizer is not in PATH"]);
    }
    let tool = tools.path().join("compute-sanitizer");
    let script = "#!/bin/sh\nshift 4\n\"$@\"\ncode=$?\necho '========= ERROR SUMMARY: 3 errors'\nexit $code\n";
    fs::write(&tool, script).expect("a file can be written");
    fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let told = document(&under(tools.path()));
    let said = &told["sanitized"];
    assert_eq!((&said["errors"], &said["ended"]), (&json!(3), &json!("exit code 134")), "{told}");
}
