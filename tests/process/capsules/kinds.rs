//! Capsules of other work than grids, and replays under a tool: requests for models, searches, the sanitizer.

use gridpool_client::{Candidate, GridBatch, Job, ModelInput, Search, SearchOutcome};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::Ties;
use gridpool_protocol::search::compile;

use super::*;
use crate::infer;
use crate::jobs::program;

/// The capsule of a worker that another process killed while it had a request for the model `mlp`.
fn death_of_a_request(pool: &Pool) -> PathBuf {
    let row = || pool.status().workers.into_iter().find(|row| row.role == "infer").expect("a row");
    let pid = row().pid;
    crate::processes::stop(pid);
    let input = ModelInput::new("x", vec![3, 16], vec![1_f32; 48]).expect("three rows");
    let job = Job::model("mlp", [input]).expect("one input");
    let handle = pool.client().submit(job).expect("it is accepted");
    eventually_so("the request to run", || row().run.is_some());
    signal(pid, Signal::SIGSEGV);
    crate::processes::go_on(pid);
    assert_eq!(handle.wait().expect("a verdict").verdict(), Verdict::Ok);
    the_only(pool)
}

/// A request for a model, whose worker another process kills; then the same with another file.
#[test]
fn a_request_for_a_model_is_replayed_through_the_same_file() {
    if !infer::has_runtime() {
        return;
    }
    let files = tempfile::tempdir().expect("a folder for temporary files");
    let file = files.path().join("m.onnx");
    fs::copy(infer::model("mlp"), &file).expect("a file can be copied");
    let model = format!("[[model]]\nname = 'mlp'\npath = '{}'\ncontexts = 2\n", file.display());
    let pool = cpu(1).limits(&model).start();
    eventually_so("the model to serve", || pool.client().models().is_ok_and(|all| !all.is_empty()));
    let capsule = death_of_a_request(&pool);
    let saved = read(&capsule);
    assert_eq!(saved["jobs"][0]["work"], json!({"kind": "model", "name": "mlp"}));
    assert_eq!(saved["models"][0]["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(saved["models"][0]["plan"]["options"]["contexts"], 2, "{saved}");
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

/// A program of searches that kills, if a worker is told so with the beginning of its hash.
const DEADLY: &str = "O = replace(rot90(I), 7, 3)";
const STEPS: u32 = 1_000;

fn deadly() -> String {
    let hash = compile(DEADLY, Ties::Cpython, STEPS).expect("it compiles").hash();
    hash[..32].to_owned()
}

/// Runs these programs and the deadly one, which alone must fail. The largest capsule of that.
fn search(pool: &Pool, others: impl Iterator<Item = String>) -> PathBuf {
    let texts = others.chain([DEADLY.to_owned()]);
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
    eventually("a capsule", || {
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |meta| meta.len());
        capsules(pool.setup()).into_iter().max_by_key(size).ok_or("none")
    })
}

#[test]
fn shapes_have_no_program_of_a_search_and_no_element_of_a_tensor() {
    let setup = || cpu(1).args(&["--allow-chaos", "--capsules", "shapes"]);
    let pool = setup().env("GRIDPOOL_TEST_DEADLY", &deadly()).start();
    let capsule = search(&pool, std::iter::empty());
    let text = fs::read_to_string(&capsule).expect("a capsule can be read");
    assert!(!text.contains("replace") && !text.contains("rot90"), "{text}");
    let input = &read(&capsule)["jobs"][0]["input"];
    let size = [&input["size"]["programs"], &input["size"]["pairs"]];
    assert_eq!((size, &input["packed"]), ([&json!(1); 2], &Value::Null), "{text}");
    replay(&capsule, &[]).complains(65, &["only shapes were kept"]);
    let Some(pool) = infer::pool_on(setup(), &["mlp"]) else { return };
    pool.all_ready();
    let saved = read(&death_of_a_request(&pool));
    let tensor = json!({"name": "x", "datatype": "FP32", "shape": [3, 16], "data": null});
    assert_eq!(saved["jobs"][0]["input"]["tensors"], json!([tensor]), "{saved}");
    assert_eq!(saved["models"][0]["plan"]["name"], "mlp", "{saved}");
}

/// A search whose deaths are real ones of a program, not of a fault that every run meets.
#[test]
fn a_search_is_bisected_to_the_program_that_kills() {
    let hash = deadly();
    let pool = cpu(1).args(&["--allow-chaos"]).env("GRIDPOOL_TEST_DEADLY", &hash).start();
    let others = (1..10).flat_map(|a| (1..4).map(move |b| format!("O = replace(I, {a}, {b})")));
    let largest = search(&pool, others.filter(|text| !text.contains("1, 1")));
    let config = pool.folder().join("chaos.toml");
    fs::write(&config, "allow_chaos = true\n").expect("a file can be written");
    let replayed = gridpool(["replay", "--json", "--bisect"]).arg(&largest).arg("--config");
    let told = document(&replayed.arg(&config).env("GRIDPOOL_TEST_DEADLY", &hash).run());
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

/// A program whose deaths are those of one item.
#[test]
fn a_program_is_bisected_to_the_item_that_kills() {
    const COLOR: u8 = 7;
    let deadly = format!("{}:{COLOR}", &program(PROGRAM).hash()[..32]);
    let pool = cpu(1).args(&["--allow-chaos"]).env("GRIDPOOL_TEST_DEADLY", &deadly).start();
    let grid = |item: u8| Grid::from_rows(&[[item % COLOR, 0], [0, item % COLOR]]);
    let mut grids: Vec<_> = (0..20).map(|item| grid(item).expect("a grid")).collect();
    grids[13] = Grid::from_rows(&[[0, COLOR], [0, 0]]).expect("a grid");
    let ended = answer(submit(&pool.client(), job(PROGRAM, &grids)));
    assert_eq!(ended.verdict(), Verdict::Poison, "{:?}", ended.receipt);
    let name = &ended.receipt.attempts[0].capsule;
    let capsule = folder(pool.setup()).join(format!("{name}.json"));
    eventually_so("the capsule", || capsule.exists());
    let config = pool.folder().join("chaos.toml");
    fs::write(&config, "allow_chaos = true\n").expect("a file can be written");
    let replayed = gridpool(["replay", "--json", "--bisect"]).arg(&capsule).arg("--config");
    let told = document(&replayed.arg(&config).env("GRIDPOOL_TEST_DEADLY", &deadly).run());
    assert_eq!(told["runs"][0]["same"], true, "{told}");
    let (bisected, culprit) = (&told["bisected"], format!("{} item 13", ended.receipt.job));
    assert_eq!((&bisected["of"], &bisected["is_done"]), (&json!(20), &json!(true)), "{told}");
    assert_eq!(bisected["names"], json!([culprit]), "{told}");
}

/// A worker whose runs of `mlp` kill it by what is in their rows: how many of three requests that share a run are
/// poison, and the rows that a bisection names, each by its request and its end.
fn joined_requests(deadly: &str, poisoned: usize, killers: &[(usize, &str)]) {
    if !infer::has_runtime() {
        return;
    }
    let model = format!(
        "[[model]]\nname = 'mlp'\npath = '{}'\nmax_queue_delay_us = 1000000\npreferred_batch = [6]\n",
        infer::model("mlp").display()
    );
    let setup = cpu(1).args(&["--allow-chaos"]).limits(&model);
    let pool = setup.env("GRIDPOOL_TEST_DEADLY", deadly).start();
    let client = pool.client();
    eventually_so("the model to serve", || client.models().is_ok_and(|all| !all.is_empty()));
    // Each bisected run is a pool: the marked rows are near each other, so that a few are enough.
    let marks = [vec![0.0, 7.0], vec![8.0], vec![0.0; 3]];
    let submit = |marks: &Vec<f32>| {
        let rows = marks.iter().flat_map(|mark| [vec![*mark], vec![0.0; 15]].concat());
        let input = ModelInput::new("x", vec![marks.len() as u64, 16], rows.collect::<Vec<_>>());
        let job = Job::model("mlp", [input.expect("rows of 16")]).expect("one input");
        client.submit(job).expect("it is accepted")
    };
    let handles: Vec<_> = marks.iter().map(submit).collect();
    let answers = handles.into_iter().map(|handle| handle.wait().expect("a verdict"));
    let answers: Vec<_> = answers.collect();
    let poison = answers.iter().filter(|answer| answer.verdict() == Verdict::Poison).count();
    assert_eq!(poison, poisoned);
    let is_whole = |path: &PathBuf| read(path)["jobs"].as_array().is_some_and(|all| all.len() == 3);
    let joined = eventually("the capsule of all three", || {
        capsules(pool.setup()).into_iter().find(is_whole).ok_or("none")
    });
    let config = pool.folder().join("chaos.toml");
    fs::write(&config, "allow_chaos = true\n").expect("a file can be written");
    let replayed = gridpool(["replay", "--json", "--bisect"]).arg(&joined).arg("--config");
    let told = document(&replayed.arg(&config).env("GRIDPOOL_TEST_DEADLY", deadly).run());
    let of = |at: &str| told["bisected"][at].clone();
    assert_eq!((&told["units"], &told["count"]), (&json!("requests"), &json!(3)), "{told}");
    assert_eq!(told["runs"][0]["same"], true, "{told}");
    assert_eq!((of("units"), of("of")), (json!("rows"), json!(6)), "{told}");
    let name = |(at, end): &(usize, &str)| format!("{}{end}", answers[*at].receipt.job);
    let names: Vec<_> = killers.iter().map(name).collect();
    assert_eq!((of("names"), of("is_done")), (json!(names), json!(true)), "{told}");
    // Without what kills, all run to their end.
    let replayed = replay(&joined, &["--bisect"]);
    let told = document(&replayed);
    assert_eq!((replayed.code, &told["bisected"]), (Some(0), &Value::Null), "{told}");
}

#[test]
fn of_joined_requests_the_row_that_kills_is_named() {
    joined_requests("mlp:7", 1, &[(0, " row 1")]);
}

#[test]
fn rows_of_two_requests_that_kill_only_in_one_run_are_both_named() {
    joined_requests("mlp:7,8", 0, &[(0, " row 1"), (1, "")]);
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
