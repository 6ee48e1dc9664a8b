//! NVML as a monitor uses it: events that a test sends, fields that a script sets, processes.

use std::fs;
use std::io::Write;
use std::mem::zeroed;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;
use crate::machine::install;

/// Long enough for every event that comes at once.
const TIMEOUT_MS: c_uint = 30_000;

fn ok(code: u32) {
    assert_eq!(code, 0);
}

/// The value that a call writes to the place it is given.
fn given<T>(call: impl FnOnce(*mut T) -> u32) -> T {
    // SAFETY: all of these are numbers and addresses, for which zero will do.
    let mut value = unsafe { zeroed() };
    ok(call(&raw mut value));
    value
}

fn init(script: &str) {
    install(script).unwrap();
    // SAFETY: nothing is asked of the caller.
    ok(unsafe { nvmlInit_v2() });
}

fn gpu(index: c_uint) -> Device {
    // SAFETY: the place is valid.
    given(|to| unsafe { nvmlDeviceGetHandleByIndex_v2(index, to) })
}

fn set() -> Set {
    // SAFETY: the place is valid.
    given(|to| unsafe { nvmlEventSetCreate(to) })
}

fn wait(set: Set, timeout_ms: c_uint) -> Result<EventData, u32> {
    let mut event = EventData { device: ptr::null_mut(), kind: 0, data: 0, instances: [0; 2] };
    // SAFETY: the place is valid.
    match unsafe { nvmlEventSetWait_v2(set, &raw mut event, timeout_ms) } {
        0 => Ok(event),
        code => Err(code),
    }
}

#[test]
fn events_that_a_test_sends_reach_the_sets_that_registered_for_them() {
    const XID: u64 = 8;
    const CLOCK: u64 = 16;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    init(&format!("devices=2 events={}", path.display()));
    let set = set();
    // SAFETY: the handles are those that were given.
    ok(unsafe { nvmlDeviceRegisterEvents(gpu(1), XID, set) });
    assert_eq!(wait(set, 1).unwrap_err(), code::TIMEOUT);
    let mut fifo = File::options().write(true).open(&path).unwrap();
    // One of the other GPU, one of another kind, and the registered one, in two writes.
    write!(fifo, "0 {XID} 48\n1 {CLOCK} 5\n1 {XID} 9").unwrap();
    writeln!(fifo, "4").unwrap();
    let event = wait(set, TIMEOUT_MS).unwrap();
    assert_eq!((event.device, event.kind, event.data), (gpu(1), XID, 94));
    assert_eq!(wait(set, 1).unwrap_err(), code::TIMEOUT);
    // SAFETY: the handle is the one that was given.
    ok(unsafe { nvmlEventSetFree(set) });
}

#[test]
fn a_wait_for_events_does_not_block_other_calls() {
    init("");
    let (number, machine) = (set().addr(), crate::machine::current());
    thread::scope(|threads| {
        let waiting = threads.spawn(|| {
            crate::machine::share(Arc::clone(&machine));
            wait(handle(number), 200).map(|event| event.data)
        });
        let mut asked = 0;
        while !waiting.is_finished() {
            // SAFETY: the place is valid.
            assert_eq!(given(|to| unsafe { nvmlDeviceGetCount_v2(to) }), 1);
            asked += 1;
        }
        assert_eq!(waiting.join().unwrap().unwrap_err(), code::TIMEOUT);
        assert!(asked > 1);
    });
}

#[test]
fn the_recovery_action_comes_from_the_script() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken");
    let rule = format!("call=nvmlDeviceGetFieldValues while-file={} value=2", file.display());
    init(&rule);
    let ask = || {
        let asked = |field| FieldValue {
            field,
            scope: 0,
            timestamp: 0,
            latency_us: 0,
            kind: 0,
            code: 0,
            value: 7,
        };
        let mut values = [asked(RECOVERY_ACTION), asked(1)];
        // SAFETY: there are two.
        ok(unsafe { nvmlDeviceGetFieldValues(gpu(0), 2, values.as_mut_ptr()) });
        assert_eq!((values[0].code, values[1].code), (0, code::NOT_SUPPORTED));
        values[0].value
    };
    assert_eq!(ask(), 0);
    fs::write(&file, "").unwrap();
    assert_eq!(ask(), 2);
}

#[test]
fn processes_with_a_context_are_listed_with_their_memory_while_they_live() {
    let folder = tempfile::tempdir().unwrap();
    init(&format!("registry={}", folder.path().display()));
    let own = std::process::id();
    // This process, a process that is gone, and this process on another GPU.
    for name in [format!("0.{own}"), "0.4194305".to_owned(), format!("1.{own}")] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let none = ProcessInfo { pid: 0, used_bytes: 0, instances: [0; 2] };
    let (mut count, mut infos) = (0, [none; 4]);
    let mut list = |capacity: c_uint| {
        count = capacity;
        let (count_at, to) = (&raw mut count, infos.as_mut_ptr());
        // SAFETY: there is capacity for four.
        let code = unsafe { nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), count_at, to) };
        (code, count, infos[0].pid)
    };
    assert_eq!(list(0), (code::INSUFFICIENT_SIZE, 1, 0));
    assert_eq!(list(4), (0, 1, own));
    // SAFETY: the place is valid.
    let memory: MemoryInfo = given(|to| unsafe { nvmlDeviceGetMemoryInfo_v2(gpu(0), to) });
    assert_eq!((memory.used, memory.free), (CONTEXT_BYTES, MEMORY_BYTES - CONTEXT_BYTES));
}

#[test]
fn a_gpu_is_found_by_its_place_and_its_uuid_and_nothing_before_the_start() {
    install("devices=2").unwrap();
    let (mut count, mut device) = (0, ptr::null_mut());
    // SAFETY: the place is valid.
    let early = unsafe { nvmlDeviceGetCount_v2(&raw mut count) };
    assert_eq!(early, code::UNINITIALIZED);
    init("devices=2");
    for index in 0..2 {
        let uuid = CString::new(uuid_text(index)).unwrap();
        // SAFETY: the text ends with a zero, the place is valid.
        let by_uuid = given(|to| unsafe { nvmlDeviceGetHandleByUUID(uuid.as_ptr(), to) });
        assert_eq!(by_uuid, gpu(index));
        // SAFETY: the place is valid.
        assert_eq!(given(|to| unsafe { nvmlDeviceGetIndex(by_uuid, to) }), index);
    }
    // SAFETY: the place is valid.
    let third = unsafe { nvmlDeviceGetHandleByIndex_v2(2, &raw mut device) };
    assert_eq!(third, code::INVALID_ARGUMENT);
}
