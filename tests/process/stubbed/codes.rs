//! CUDA codes at every call of a real worker process: its last words and its end. The worker's own tests try
//! all codes at every call within one process.

use std::os::unix::process::ExitStatusExt;
use std::thread;

use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::message::AttemptError;

use super::lone::{Story, live};

/// What a code does to a worker.
#[derive(Clone, Copy, Debug)]
struct Code {
    number: u32,
    /// How a worker ends that ends over it.
    exit: i32,
    /// It ends a worker that serves.
    ends: bool,
}

const fn ends(number: u32, exit: i32) -> Code {
    Code { number, exit, ends: true }
}

const fn lesser(number: u32, exit: i32) -> Code {
    Code { number, exit, ends: false }
}

/// Of each class, and each way to end, one; and one that no header names.
const CODES: [Code; 8] = [
    ends(700, exit::STICKY),
    ends(5_000, exit::STICKY),
    ends(919, exit::DEVICE_LOST),
    ends(803, exit::DRIVER),
    ends(804, exit::CONFIG),
    lesser(2, exit::DEVICE_MEMORY),
    lesser(701, exit::STICKY),
    lesser(1, exit::CONFIG),
];

const AT_START: [&str; 21] = [
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuStreamCreate",
    "cuStreamSynchronize",
];

const IN_A_JOB: [&str; 6] = [
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuLaunchKernel",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuStreamSynchronize",
];

const OF_AN_ARENA: [&str; 3] =
    ["cuMemHostGetDevicePointer", "cuMemHostRegister", "cuMemHostUnregister"];

/// Plays every code at every call, some at a time.
fn each(calls: &[&'static str], while_file: &str, look: impl Fn(&str, Code, &Story) + Sync) {
    const AT_A_TIME: usize = 4;
    let cases = calls.iter().flat_map(|&call| CODES.map(|code| (call, code)));
    let cases: Vec<_> = cases.collect();
    let condition =
        if while_file.is_empty() { String::new() } else { format!("while-file=DIR/{while_file}") };
    let play = |&(call, code): &(&str, Code)| {
        let story = live(&format!("call={call} {condition} nth=1 code={}", code.number));
        let signal = story.exit.signal();
        assert_eq!(signal, None, "{call} gives {}: {story:?}", code.number);
        look(call, code, &story);
    };
    thread::scope(|threads| {
        for cases in cases.chunks(cases.len().div_ceil(AT_A_TIME)) {
            threads.spawn(|| cases.iter().for_each(play));
        }
    });
}

/// Whether the worker has ended over the code with this exit code, and said so.
#[track_caller]
fn died_of(call: &str, code: Code, exit: i32, story: &Story) {
    let (said, message) = story.last_words.as_ref().expect("it says why it ends");
    assert!(message.starts_with(&format!("{call}: ")), "{message}");
    assert!(message.ends_with(&format!("({})", code.number)), "{message}");
    assert_eq!((*said, story.exit.code()), (exit, Some(exit)), "{message}");
}

/// Whether the worker went on to its end, and all jobs went well but for those of these numbers, whose
/// attempts failed for that reason.
#[track_caller]
fn lived(call: &str, code: Code, story: &Story, failed: &[usize]) {
    assert_eq!((&story.last_words, story.exit.code()), (&None, Some(exit::OK)), "{call} {code:?}");
    assert_eq!(story.answers.len(), 3);
    for (at, answer) in story.answers.iter().enumerate() {
        match answer {
            Err(AttemptError::Device(why)) if failed.contains(&at) => {
                assert!(why.starts_with(call) && why.contains(&code.number.to_string()), "{why}");
            }
            other => assert!(other.is_ok() && !failed.contains(&at), "{call} {code:?}: {story:?}"),
        }
    }
}

#[test]
fn a_worker_without_a_fault_answers_and_ends_when_it_is_told_to() {
    let story = live("");
    assert!(story.is_ready);
    lived("", CODES[0], &story, &[]);
}

#[test]
fn a_code_at_any_call_of_the_start_ends_the_worker_with_its_exit_code_and_a_sentence() {
    each(&AT_START, "", |call, code, story| {
        assert!(!story.is_ready && story.answers.is_empty(), "{call} {code:?}: {story:?}");
        died_of(call, code, code.exit, story);
    });
}

#[test]
fn a_code_at_any_call_of_a_job_ends_the_worker_or_that_attempt_alone() {
    each(&IN_A_JOB, "job", |call, code, story| {
        if code.ends {
            assert!(story.is_ready && story.answers.is_empty(), "{call} {code:?}: {story:?}");
            died_of(call, code, code.exit, story);
        } else {
            lived(call, code, story, &[0]);
        }
    });
}

#[test]
fn a_code_at_any_call_of_an_arena_ends_the_worker_or_costs_at_most_that_attempt() {
    each(&OF_AN_ARENA, "arena", |call, code, story| {
        if code.ends {
            assert!(story.answers.iter().all(Result::is_ok), "{call} {code:?}: {story:?}");
            // No job is there when an arena is given back: none is to blame, whatever the code.
            let between = call == "cuMemHostUnregister";
            died_of(call, code, if between { exit::DEVICE_LOST } else { code.exit }, story);
        } else {
            // What cannot be registered goes through staging; what cannot be released is logged.
            let failed: &[usize] = if call == "cuMemHostGetDevicePointer" { &[1] } else { &[] };
            lived(call, code, story, failed);
        }
    });
}
