//! Batches that are loaded once and run many times, and results that are read in shared memory.

use gridpool_client::{Answer, Client, ClientError, Job, LoadedBatch};
use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::{BatchError, BatchLayout, Grid, GridBatch};
use gridpool_protocol::limits::CLIENT_ARENAS_MAX;
use gridpool_protocol::output::{Output, Outputs};
use gridpool_protocol::receipt::Verdict;
use gridpool_tests::oracle::samples::random_grids;

use crate::jobs::{PROGRAM, answer, is_right, job, large_job, program, serves, small_job, submit};
use crate::pool::{Pool, cpu};
use crate::wait::within;

/// Grids of more than an inline payload.
const MANY: usize = 300;

/// In place, packed, numbers, objects of the unchanged input and of a changed one.
const PROGRAMS: [&str; 6] =
    [PROGRAM, "upscale(2)", "numcolors", "o_g(5)", "rot90 | o_g(7)", "o_g(1) | argmax(size)"];

fn batch(grids: &[Grid]) -> GridBatch {
    GridBatch::from_grids(grids).expect("the batch is within the limits")
}

fn over(text: &str, loaded: &LoadedBatch) -> Job<Outputs> {
    Job::over(program(text), loaded).expect("the program takes grids")
}

/// Runs a job on a thread that may hang.
fn run(client: &Client, job: Job<Outputs>) -> Answer<Outputs> {
    let client = client.clone();
    within("a verdict", move || client.run(job)).expect("the job gets its verdict")
}

fn outputs(answer: Answer<Outputs>) -> Outputs {
    assert_eq!(answer.verdict(), Verdict::Ok, "{:?}", answer.receipt);
    answer.ok().expect("OK comes with results")
}

/// Shared memory that the pool holds for its clients.
fn arena_bytes(pool: &Pool) -> u64 {
    pool.status().supervisor.arena_bytes
}

#[test]
fn many_programs_over_one_loaded_batch_give_what_each_gives_alone() {
    let pool = cpu(2).start();
    let client = pool.client();
    let grids = random_grids(41, MANY);
    let loaded = client.load(&batch(&grids)).expect("the pool has memory");
    assert_eq!(loaded.len(), MANY);
    // All at a time, and all results are kept.
    let handles = PROGRAMS.map(|text| submit(&client, over(text, &loaded)));
    let answers = handles.map(answer);
    for (text, answer) in PROGRAMS.iter().zip(&answers) {
        is_right(answer, text, &grids);
        let reference = run_batch(&program(text), &batch(&grids)).expect("it has items");
        let ours = answer.outputs().expect("it is right");
        assert_eq!(ours.first_difference(&reference), Ok(None), "{text}");
        assert_eq!(reference.first_difference(ours), Ok(None), "{text}");
    }
    // Results of one program differ from another's where the oracle's do.
    let [turned, upscaled, ..] = answers.map(outputs);
    assert_eq!(turned.first_difference(&upscaled), Ok(Some(0)));
}

#[test]
fn a_batch_is_written_straight_into_shared_memory() {
    let pool = cpu(1).start();
    let client = pool.client();
    let grids = random_grids(42, MANY);
    let cells: usize = grids.iter().map(|grid| grid.cells().len()).sum();
    let number = |n: usize| u32::try_from(n).expect("a few");
    let capacity = BatchLayout::new(number(MANY), 1, number(cells)).expect("a small batch");
    let built = client.build(capacity, |writer| grids.iter().try_for_each(|g| writer.push_grid(g)));
    let built = built.expect("the pool has memory");
    is_right(&run(&client, over("o_g(5)", &built)), "o_g(5)", &grids);

    let short = client.build(capacity, |writer| writer.push_grid(&grids[0])).map(drop);
    let want = BatchError::Grids { got: 1, want: MANY };
    assert!(matches!(short, Err(ClientError::Batch(error)) if error == want));
    let other = cpu(1).start().client();
    let refused = other.submit(over(PROGRAM, &built)).map(drop).expect_err("not its own");
    assert!(refused.to_string().contains("loaded by another client"), "{refused}");
}

#[test]
fn jobs_of_one_size_use_the_same_two_arenas() {
    let pool = cpu(1).start();
    let client = pool.client();
    run(&client, large_job(0));
    let before = arena_bytes(&pool);
    for seed in 1..20 {
        let grids = random_grids(seed, MANY);
        is_right(&run(&client, job(PROGRAM, &grids)), PROGRAM, &grids);
    }
    assert_eq!((client.arenas_made(), arena_bytes(&pool)), (2, before));
    // A loaded batch keeps one, and each of its results that lives another.
    let loaded = client.load(&batch(&random_grids(20, MANY))).expect("the pool has memory");
    for _ in 0..20 {
        outputs(run(&client, over(PROGRAM, &loaded)));
    }
    assert_eq!((client.arenas_made(), arena_bytes(&pool)), (2, before));
    let [one, two] = [(), ()].map(|()| outputs(run(&client, over(PROGRAM, &loaded))));
    assert_eq!(client.arenas_made(), 3);
    drop((one, two));
    outputs(run(&client, large_job(21)));
    assert_eq!(client.arenas_made(), 3);
    // Small jobs take none.
    run(&client, small_job(1));
    outputs(run(&client, over("numcolors", &loaded)));
    assert_eq!(client.arenas_made(), 3);
}

/// More than a client has arenas for.
const RESULTS: u64 = CLIENT_ARENAS_MAX as u64 + 20;
/// Grids of a little more than an inline payload.
const SOME: usize = 200;

#[test]
fn any_number_of_large_results_may_be_held() {
    let pool = cpu(1).start();
    let client = pool.client();
    let grids = |seed| random_grids(seed, SOME);
    let held: Vec<_> = (0..RESULTS)
        .map(|seed| match seed % 2 {
            0 => run(&client, job(PROGRAM, &grids(seed))),
            // Only its result keeps its batch, of whose cells it is made.
            _ => run(&client, over("o_g(5)", &client.load(&batch(&grids(seed))).expect("memory"))),
        })
        .collect();
    assert!((64..128).contains(&client.arenas_made()), "{}", client.arenas_made());
    for (seed, answer) in (0..).zip(&held) {
        is_right(answer, if seed % 2 == 0 { PROGRAM } else { "o_g(5)" }, &grids(seed));
    }
    // Those that lie in arenas give them back, and others may lie there.
    let made = client.arenas_made();
    drop(held);
    let again: Vec<_> = (0..20).map(|seed| run(&client, job(PROGRAM, &grids(seed)))).collect();
    assert_eq!(client.arenas_made(), made);
    drop(again);
}

#[test]
fn any_number_of_large_jobs_may_be_submitted_before_the_first_is_waited_for() {
    let pool = cpu(1).start();
    let client = pool.client();
    let grids = |seed| random_grids(seed, SOME);
    let handles: Vec<_> =
        (0..RESULTS).map(|seed| submit(&client, job(PROGRAM, &grids(seed)))).collect();
    for (seed, handle) in (0..).zip(handles) {
        is_right(&answer(handle), PROGRAM, &grids(seed));
    }
    let together = client.clone();
    let jobs = (0..RESULTS).map(move |seed| job(PROGRAM, &grids(seed)));
    let handles = within("all to be sent", move || together.send_many(jobs)).expect("they are");
    for (seed, handle) in (0..).zip(handles) {
        is_right(&answer(handle), PROGRAM, &grids(seed));
    }
}

#[test]
fn any_number_of_small_batches_may_be_loaded() {
    let pool = cpu(1).start();
    let client = pool.client();
    let grids = |seed| random_grids(seed, 4);
    let loaded: Vec<_> = (0..RESULTS)
        .map(|seed| client.load(&batch(&grids(seed))).expect("it takes no shared memory"))
        .collect();
    for (seed, loaded) in (0..).zip(&loaded) {
        is_right(&run(&client, over(PROGRAM, loaded)), PROGRAM, &grids(seed));
    }
    assert_eq!(client.arenas_made(), 0);
}

/// Bytes of the arenas of the batch and of the results below.
const HELD: u64 = 1 << 17;

#[test]
fn results_outlive_their_client_and_their_clones() {
    let pool = cpu(1).start();
    let client = pool.client();
    let grids = random_grids(43, MANY);
    let loaded = client.load(&batch(&grids)).expect("the pool has memory");
    let results = outputs(run(&client, over("o_g(5)", &loaded)));
    let private = results.clone().into_private();
    let reader = results.clone();
    drop((client, loaded, results));
    // They count as long as they are read; results keep their batch.
    pool.until_status("the client to be gone", |status| status.supervisor.clients == 1);
    assert_eq!(pool.status().supervisor.arena_bytes, HELD);
    let read = std::thread::spawn(move || {
        (0..MANY).map(|item| reader.item(item).expect("well formed")).collect::<Vec<_>>()
    });
    let want: Vec<_> = (0..MANY).map(|item| private.item(item).expect("well formed")).collect();
    assert_eq!(within("the reader", move || read.join().expect("no panic")), want);
    assert_eq!(private.packed().len(), private.clone().into_private().packed().len());
    drop(private);
    pool.until_status("no arena to be left", |status| status.supervisor.arena_bytes == 0);
}

#[test]
fn results_are_read_as_plain_numbers() {
    let pool = cpu(1).start();
    let client = pool.client();
    let grids = random_grids(44, MANY);
    let loaded = client.load(&batch(&grids)).expect("the pool has memory");
    let turned = outputs(run(&client, over("rot90", &loaded)));
    let objects = outputs(run(&client, over("o_g(5)", &loaded)));
    let mut cells = Vec::new();
    for (item, input) in grids.iter().enumerate() {
        let shape = turned.grid_into(item, &mut cells).expect("well formed").expect("a grid");
        let grid = Grid::new(shape[0], shape[1], cells.clone()).expect("a grid");
        assert_eq!(turned.item(item).expect("well formed"), Ok(Output::Grid(grid)));
        let labels = objects.label_map(item).expect("well formed").expect("objects");
        let Ok(Output::Objects(list)) = objects.item(item).expect("well formed") else {
            panic!("item {item} has objects")
        };
        let count = objects.count_objects(item).expect("well formed").expect("objects");
        assert_eq!((labels.count, count), (list.len(), list.len()));
        assert_eq!([labels.h, labels.w], [input.h(), input.w()]);
        let labelled = labels.labels.iter().filter(|&&label| label > 0).count();
        assert_eq!(labelled, list.iter().map(Vec::len).sum::<usize>());
    }
    let wrong = turned.label_map(0).expect_err("a grid is no list of objects");
    assert!(wrong.to_string().contains("does not give a list of objects"), "{wrong}");
    assert!(objects.grid_into(0, &mut cells).is_err());
}

#[test]
fn a_loaded_batch_survives_its_supervisor() {
    let pool = cpu(1).start();
    let client = pool.client();
    let grids = random_grids(45, MANY);
    let loaded = client.load(&batch(&grids)).expect("the pool has memory");
    let kept = outputs(run(&client, over("o_g(5)", &loaded)));
    pool.stop("cpu0");
    // Three wait for their verdict when the supervisor dies.
    let texts = ["o_g(5)", PROGRAM, "upscale(2)"];
    let handles = texts.map(|text| submit(&client, over(text, &loaded)));
    pool.until_busy("cpu0");
    let waiting = handles.map(|handle| std::thread::spawn(move || handle.wait()));
    let pool = pool.killed().start();
    for (waiting, text) in waiting.into_iter().zip(texts) {
        let waited = within("a verdict", move || waiting.join().expect("no panic"));
        let answer = waited.expect("the next supervisor gives the verdict");
        is_right(&answer, text, &grids);
        if text == "o_g(5)" {
            assert_eq!(outputs(answer).first_difference(&kept), Ok(None));
        }
    }
    // And once more where nothing waits.
    let pool = pool.killed().start();
    is_right(&run(&client, over("o_g(5)", &loaded)), "o_g(5)", &grids);
    assert_eq!(kept.item(0).expect("still mapped"), {
        let reference = run_batch(&program("o_g(5)"), &batch(&grids)).expect("it has items");
        reference.item(0).expect("well formed")
    });
    serves(&pool.client());
}

#[test]
fn an_arena_of_a_job_without_ok_is_not_used_again() {
    let pool = cpu(1).start();
    let client = pool.client();
    let loaded = client.load(&batch(&random_grids(46, MANY))).expect("the pool has memory");
    let one = outputs(run(&client, over(PROGRAM, &loaded)));
    drop(one);
    assert_eq!(client.arenas_made(), 2);
    pool.stop("cpu0");
    let handle = submit(&client, over(PROGRAM, &loaded));
    pool.until_busy("cpu0");
    drop(handle);
    pool.go_on("cpu0");
    // The batch is where it was; the place for the result is a new one.
    let grids = random_grids(46, MANY);
    is_right(&run(&client, over(PROGRAM, &loaded)), PROGRAM, &grids);
    assert_eq!(client.arenas_made(), 3);
}
