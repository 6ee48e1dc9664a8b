//! Every code at every call that the device makes: at its start, in a job, in a job that needs more memory
//! than those before, when arenas come and go, in a step of a pipeline,
//! while one is captured and replayed, and while `gridpool diagnose` inspects it. This
//! file states the expected classes itself instead of asking the table under test.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::{ptr, slice};

use gridpool_kernels::argument::DeviceAddress;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::pipeline::GridStep;
use gridpool_stub_cuda::script::without_version;

use super::*;
use crate::attempts::{AttemptData, run_together};
use crate::chunk::ChunkLimits;
use crate::cuda::compute::{CaptureError, ComputeStream};
use crate::cuda::exercise::{MemoryFault, PlainMemory};
use crate::cuda::grids::tests::OnDevice;
use crate::cuda::inspect::Library;
use crate::device::Device;
use crate::fault::FaultClass::{self, Device as DeviceFault, Sticky, Transient};

/// The codes of today's headers, those between them, and some of no header.
fn codes() -> impl Iterator<Item = u32> {
    (1..=1_100).chain([4_096, 5_000, u32::MAX])
}

/// One code of each class, with its own exit code if it has one, and two that no header names.
const SOME_CODES: [u32; 10] = [1, 2, 36, 100, 600, 700, 701, 804, 919, 5_000];

const STICKY: [u32; 20] = [
    226, 700, 702, 714, 715, 716, 717, 718, 719, 721, 810, 911, 710, 214, 220, 999, 709, 201, 4,
    401,
];
const DEVICE: [u32; 19] =
    [46, 100, 101, 802, 803, 804, 805, 806, 807, 808, 809, 919, 3, 34, 36, 102, 303, 304, 916];
const TRANSIENT: [u32; 5] = [2, 47, 600, 701, 909];
/// First and last of runs.
const PROGRAM: [(u32, u32); 22] = [
    (1, 1),
    (5, 8),
    (200, 200),
    (202, 202),
    (205, 213),
    (215, 219),
    (221, 225),
    (227, 227),
    (300, 302),
    (400, 400),
    (402, 402),
    (500, 500),
    (703, 705),
    (708, 708),
    (711, 713),
    (720, 720),
    (800, 801),
    (811, 812),
    (900, 908),
    (910, 910),
    (912, 915),
    (917, 918),
];

fn class_of(code: u32) -> FaultClass {
    if DEVICE.contains(&code) {
        DeviceFault
    } else if TRANSIENT.contains(&code) {
        Transient
    } else if PROGRAM.iter().any(|&(first, last)| (first..=last).contains(&code)) {
        FaultClass::Program
    } else {
        // Codes that no header names end the process too.
        Sticky
    }
}

fn exit_code_of(code: u32) -> i32 {
    match (code, class_of(code)) {
        (2, _) => exit::DEVICE_MEMORY,
        (36 | 222 | 803, _) => exit::DRIVER,
        (34 | 102 | 804, _) | (_, FaultClass::Program) => exit::CONFIG,
        (_, DeviceFault) => exit::DEVICE_LOST,
        (_, FaultClass::Notice | FaultClass::Process | FaultClass::Setup) => {
            unreachable!("no code of the driver is one")
        }
        (_, Sticky | Transient) => exit::STICKY,
    }
}

/// What a worker does while a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    Start,
    /// Several chunks, to an arena, with a result of unknown size.
    Job,
    /// A job larger than any before it.
    Growth,
    Arena,
    /// A program over a tensor of grids.
    Step,
    /// A copy on the device, captured and replayed.
    Graph,
    /// Library, device and plain memory, as `gridpool diagnose` inspects them.
    Inspect,
}

struct Setup {
    program: Program,
    small: GridBatch,
    large: GridBatch,
}

impl Setup {
    fn new() -> Self {
        let program = Program::compile("trim", Ties::Cpython).unwrap();
        let grid = Grid::from_rows(&[[1, 2, 3, 4], [5, 6, 7, 8], [1, 1, 1, 1]]).unwrap();
        let small = GridBatch::from_grids(&vec![grid; 4]).unwrap();
        let grid = Grid::new(30, 30, vec![4; 900]).unwrap();
        Self { program, small, large: GridBatch::from_grids(&vec![grid; 80]).unwrap() }
    }

    /// Plays a scene on a new device. All calls after its prelude follow this script. Returns those calls.
    fn play(&self, scene: Scene, script: &str) -> (Result<(), Fault>, Vec<&'static str>) {
        let limits = ChunkLimits { items_max: 2, cells_max: 1 << 20 };
        let whole = |batch| [AttemptData::whole(&self.program, batch)];
        let ended = match scene {
            Scene::Start => open(script).map(drop),
            Scene::Job => {
                let mut device = open_computing().with_chunk_limits(limits);
                let mut source = whole(&self.small);
                device.adopt(SharedSlice::private(&mut source[0].output)).unwrap();
                set_script_from_here(script);
                run_together(&mut device, &mut source).map(drop)
            }
            Scene::Growth => {
                let mut device = open_computing();
                run_together(&mut device, &mut whole(&self.small)).unwrap();
                set_script_from_here(script);
                run_together(&mut device, &mut whole(&self.large)).map(drop)
            }
            Scene::Arena => {
                let mut device = open_computing();
                let mut arena = vec![0; 4_096];
                set_script_from_here(script);
                let adopted = device.adopt(SharedSlice::private(&mut arena));
                adopted.and_then(|()| device.release(SharedSlice::private(&mut arena)))
            }
            Scene::Step => {
                let step = Arc::new(GridStep::compile("hsplit(2) | hconcat").unwrap());
                let run = step.run([4, 3, 4]).unwrap();
                let mut own = OnDevice::new(&step, run, &[3; 48]);
                set_script_from_here(script);
                own.run()
            }
            Scene::Graph => {
                let driver = driver("").unwrap();
                let mut stream = ManuallyDrop::new(ComputeStream::over(driver).unwrap());
                let memory = driver.allocate(128).unwrap();
                set_script_from_here(script);
                replay(&mut stream, memory)
            }
            Scene::Inspect => {
                driver("").unwrap();
                set_script_from_here(script);
                look()
            }
        };
        (ended, take_calls())
    }

    /// Plays a scene in which the `nth` call of this name fails, and checks the outcome.
    fn fail_one(&self, scene: Scene, call: &'static str, nth: usize, code: u32) {
        let place = format!("{scene:?}: {call} number {nth} gives {code}");
        let (ended, calls) = self.play(scene, &format!("call={call} nth={nth} code={code}"));
        let is_lesser = matches!(class_of(code), FaultClass::Program | Transient);
        let is_no_failure = call == "cuStreamQuery" && code == 600
            // Arenas that cannot be registered are copied through staging.
            || call == "cuMemHostRegister" && is_lesser
            // Who drops a graph gets no error.
            || call == "cuGraphExecDestroy"
            // Memory that CUDA does not know is the host's.
            || call == "cuPointerGetAttribute" && code == 1;
        if is_no_failure {
            return assert_eq!(ended, Ok(()), "{place}");
        }
        let fault = ended.expect_err(&place);
        assert_eq!(fault, Fault::Cuda { call, code }, "{place}");
        assert_eq!(fault.class(), class_of(code), "{place}");
        assert_eq!(fault.exit_code(), exit_code_of(code), "{place}");
        assert_eq!(fault.ends_worker(), !is_lesser, "{place}");
        let words = fault.to_string();
        assert!(words.starts_with(call) && words.ends_with(&format!("({code})")), "{words}");
        if scene == Scene::Graph {
            // A capture is ended whatever has failed in it.
            assert_eq!(waiting(), 0, "{place}");
        } else if fault.ends_worker() || scene == Scene::Start {
            assert_eq!(calls.last(), Some(&call), "{place}: no call after the last");
            assert_eq!(count(&calls, call), nth, "{place}");
        } else {
            assert_eq!(waiting(), 0, "{place}: a device that goes on has settled");
        }
    }
}

/// Captures a copy from one half of this memory to the other, and replays it.
fn replay(stream: &mut ComputeStream, memory: DeviceAddress) -> Result<(), Fault> {
    let halves = [memory, memory.plus(64)].map(|half| {
        let number = usize::try_from(half.number()).unwrap();
        ptr::with_exposed_provenance_mut::<u8>(number)
    });
    let captured = stream.capture(|stream| {
        stream.mark(0)?;
        // SAFETY: the stub's memory is this process's, and has 128 bytes.
        let from = unsafe { slice::from_raw_parts(halves[1], 64) };
        // SAFETY: as above.
        Ok(unsafe { stream.upload(halves[0], from) }?)
    });
    let graph = match captured {
        Ok((graph, ())) => graph,
        Err(CaptureError::Fault(fault)) => return Err(fault),
        Err(CaptureError::Host { .. }) => return Ok(()),
        Err(other @ CaptureError::Node { .. }) => panic!("{other}"),
    };
    // SAFETY: as above.
    unsafe { stream.replay(&graph) }?;
    stream.wait().inspect_err(|_| drop(stream.wait()))
}

fn look() -> Result<(), Fault> {
    // SAFETY: the stub has the driver's functions under the driver's names.
    Library::over(unsafe { Api::over(cuda::symbol)? })?.only_device()?;
    let memory = PlainMemory::over(again()?, &machine::uuid_text(0))?;
    memory.free_and_total()?;
    match memory.exercise(10) {
        Ok(()) => Ok(()),
        Err(MemoryFault::Fault(fault)) => Err(fault),
        Err(wrong @ MemoryFault::Byte { .. }) => panic!("{wrong}"),
    }
}

/// A script for the calls from now on.
fn set_script_from_here(script: &str) {
    take_calls();
    set_script(script);
}

#[test]
fn every_code_at_every_call_is_a_fault_of_its_class_and_ends_nothing_by_a_signal() {
    let setup = Setup::new();
    let mut swept: BTreeMap<&str, usize> = BTreeMap::new();
    use Scene::{Arena, Graph, Growth, Inspect, Job, Start, Step};
    for scene in [Start, Job, Arena, Growth, Step, Graph, Inspect] {
        let (ended, calls) = setup.play(scene, "");
        assert_eq!(ended, Ok(()), "{scene:?} goes well");
        for (at, call) in calls.iter().enumerate() {
            let nth = count(&calls[..=at], call);
            let times = swept.entry(call).or_default();
            *times += 1;
            // All codes at the first call of a name in any scene; some at all others.
            let codes: Vec<_> = if *times == 1 { codes().collect() } else { SOME_CODES.into() };
            for code in codes {
                setup.fail_one(scene, call, nth, code);
            }
        }
    }
    // A call that no scene makes is untested: it needs a scene.
    let known = cuda::SYMBOLS.iter().map(|symbol| without_version(symbol));
    let never: Vec<_> = known.filter(|call| !swept.contains_key(call)).collect();
    assert_eq!(never, [""; 0], "calls that no scene makes");
}

#[test]
fn the_table_of_this_test_has_every_code_of_the_headers_once() {
    let program = PROGRAM.iter().map(|(first, last)| last - first + 1);
    let all = program.sum::<u32>() as usize + STICKY.len() + DEVICE.len() + TRANSIENT.len();
    assert_eq!(all, 106 - 1, "all but success");
    assert!(STICKY.iter().all(|&code| class_of(code) == Sticky));
}
