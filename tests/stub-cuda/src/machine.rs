//! The device of a process, or of a thread of a test: its memory, the work in its streams, and the effects of
//! its script.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_kernels::solve::SearchArgument;

use crate::cuda::code;
use crate::kernel::search::{self, Progress};
use crate::kernel::{self, Launch};
use crate::memory::{Memory, copy_from, copy_to};
use crate::nvml::EventSet;
use crate::script::{Effect, Script, ScriptError, without_version};

/// Where a process finds its script.
const VARIABLE: &str = "STUB_CUDA_SCRIPT";
/// The exit code of a process whose script is not valid.
const BAD_SCRIPT: i32 = 64;
/// Device time of a kernel.
const KERNEL_MS: f32 = 0.5;
/// The call that still works after a sticky fault, as measured on an H200.
const NEVER_STICKY: &str = "cuDevicePrimaryCtxRetain";

/// A device with its script.
#[derive(Debug, Default)]
pub struct Machine {
    pub(crate) script: Script,
    pub(crate) memory: Memory,
    /// The GPUs that this process sees, by the machine's numbers.
    pub(crate) visible: Vec<u32>,
    pub(crate) is_initialised: bool,
    pub(crate) has_context: bool,
    /// The entry points of each module.
    pub(crate) modules: Vec<Arc<[String]>>,
    pub(crate) functions: Vec<String>,
    pub(crate) events: Vec<Moment>,
    pub(crate) streams: Vec<Stream>,
    /// What was captured, by the number of its graph.
    pub(crate) graphs: Vec<Vec<Job>>,
    pub(crate) watches: Vec<EventSet>,
    calls: Vec<&'static str>,
    /// The result of every call, once the device is lost.
    lost: Option<u32>,
    /// The device will be lost after this many calls, with this code; it does no work until then.
    losing: Option<(u32, u64)>,
    /// The next launch that writes anything flips a bit.
    flips: bool,
}

/// When a stream has passed an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Moment {
    Never,
    Waiting,
    At(f32),
}

/// Pending work in order, and the device time so far.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    jobs: VecDeque<Job>,
    clock_ms: f32,
    /// What was put into it since its capture began.
    pub(crate) captured: Option<Vec<Job>>,
}

/// Pending work in a stream.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// One of its ends lies on the device.
    Copy {
        from: usize,
        to: usize,
        on_device: usize,
        bytes: usize,
        defect: Defect,
    },
    /// Every byte becomes this one.
    Fill {
        to: usize,
        byte: u8,
        bytes: usize,
    },
    Launch(Launch, Defect),
    Record(usize),
    /// What is left of a search's launch, from this evaluation on.
    Rest(Box<SearchArgument>, usize),
}

/// The defect of a copy or a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defect {
    flips: bool,
    is_idle: bool,
    garbage: Option<u8>,
    misplaced: Option<(usize, u32)>,
}

/// The script's effects on one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effects {
    code: Option<u32>,
    hangs: bool,
    delay_ms: u64,
    pub(crate) value: Option<u32>,
    pub(crate) defect: Defect,
}

thread_local! {
    static INSTALLED: RefCell<Option<Arc<Mutex<Machine>>>> = const { RefCell::new(None) };
}

/// The device of this process, from its script.
static OF_PROCESS: LazyLock<Arc<Mutex<Machine>>> = LazyLock::new(|| {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    let script = Script::parse(&text).unwrap_or_else(|error| refuse_to_run(&error));
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    Arc::new(Mutex::new(Machine::new(script, visible.as_deref())))
});

#[expect(clippy::print_stderr, clippy::exit, reason = "its behaviour would be meaningless")]
fn refuse_to_run(error: &ScriptError) -> ! {
    eprintln!("{VARIABLE}: {error}");
    std::process::exit(BAD_SCRIPT)
}

/// Gives this thread a device of its own, which sees all GPUs of the script.
///
/// # Errors
/// [`ScriptError`] if the script is not valid.
pub fn install(script: &str) -> Result<(), ScriptError> {
    let machine = Machine::new(Script::parse(script)?, None);
    INSTALLED.set(Some(Arc::new(Mutex::new(machine))));
    Ok(())
}

/// Reads or changes the device of this thread.
pub fn with<T>(act: impl FnOnce(&mut Machine) -> T) -> T {
    let machine = current();
    let mut machine = lock(&machine);
    act(&mut machine)
}

/// Makes this thread use another thread's device.
#[cfg(test)]
pub(crate) fn share(machine: Arc<Mutex<Machine>>) {
    INSTALLED.set(Some(machine));
}

pub(crate) fn current() -> Arc<Mutex<Machine>> {
    let installed = INSTALLED.with_borrow(Clone::clone);
    installed.unwrap_or_else(|| Arc::clone(&OF_PROCESS))
}

fn lock(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call of `symbol`: applies the script, and runs `act` unless the script replaces it. Returns the code.
pub(crate) fn answer(
    symbol: &'static str,
    act: impl FnOnce(MutexGuard<'_, Machine>, Effects) -> Result<(), u32>,
) -> u32 {
    let machine = current();
    let effects = lock(&machine).consult(without_version(symbol));
    if effects.hangs {
        hang();
    }
    let until = clock::now() + Duration::from_millis(effects.delay_ms);
    while !clock::until(until).is_zero() {
        thread::park_timeout(clock::until(until));
    }
    match effects.code {
        Some(code) => code,
        None => act(lock(&machine), effects).err().unwrap_or(0),
    }
}

/// Never returns, even if it is woken.
fn hang() -> ! {
    loop {
        thread::park();
    }
}

impl Machine {
    fn new(script: Script, visible: Option<&str>) -> Self {
        let visible = match visible {
            None => (0..script.devices).collect(),
            // As CUDA does: all devices before the first unknown one.
            Some(names) => names.split(',').map_while(|name| script.find(name)).collect(),
        };
        let memory = Memory::with_limit(script.memory);
        Self { script, memory, visible, ..Self::default() }
    }

    /// Replaces the rules for the calls to come.
    ///
    /// # Errors
    /// [`ScriptError`] if the script is not valid.
    pub fn set_script(&mut self, script: &str) -> Result<(), ScriptError> {
        self.script.rules = Script::parse(script)?.rules;
        (self.lost, self.losing, self.flips) = (None, None, false);
        Ok(())
    }

    /// The calls since the last `take_calls`, by the names in the worker's messages.
    pub fn take_calls(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls)
    }

    /// Copies, launches and events that are pending in all streams.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.streams.iter().map(|stream| stream.jobs.len()).sum()
    }

    /// Records a call and computes the script's effects on it.
    fn consult(&mut self, call: &'static str) -> Effects {
        self.calls.push(call);
        let mut effects = Effects::default();
        if let Some((code, 0)) = self.losing {
            self.lost = Some(code);
        }
        if let Some(code) = self.lost.filter(|_| call != NEVER_STICKY) {
            return Effects { code: Some(code), ..effects };
        }
        self.losing = self.losing.map(|(code, calls)| (code, calls.saturating_sub(1)));
        let applied = self.script.rules.iter_mut().filter_map(|rule| {
            let applies = rule.applies(call);
            applies.then_some(rule.effect)
        });
        for effect in applied {
            let (defect, known) = (&mut effects.defect, effects.code);
            match effect {
                Effect::Code(code) => effects.code = known.or(Some(code)),
                Effect::Sticky(code) => {
                    self.lost = Some(code);
                    effects.code = known.or(Some(code));
                }
                Effect::Later(code, calls) => self.losing = Some((code, calls - 1)),
                Effect::Delay(ms) => effects.delay_ms += ms,
                Effect::Hang => effects.hangs = true,
                Effect::Flip => defect.flips = true,
                Effect::Garbage(byte) => defect.garbage = Some(byte),
                Effect::Idle => defect.is_idle = true,
                Effect::Misplace(value, place) => defect.misplaced = Some((value, place)),
                Effect::Value(value) => effects.value = Some(value),
            }
        }
        effects
    }

    /// The stream of a handle; handles are numbered from 1.
    pub(crate) fn stream(&mut self, number: usize) -> Result<&mut Stream, u32> {
        let at = number.checked_sub(1).ok_or(code::INVALID_HANDLE)?;
        self.streams.get_mut(at).ok_or(code::INVALID_HANDLE)
    }

    pub(crate) fn put_into(&mut self, stream: usize, job: Job) -> Result<(), u32> {
        let stream = self.stream(stream)?;
        match &mut stream.captured {
            Some(captured) => captured.push(job),
            None => stream.jobs.push_back(job),
        }
        Ok(())
    }

    /// Runs the first work in a stream; `false` if there is none. Errors are sticky.
    pub(crate) fn do_one(&mut self, stream: usize) -> Result<bool, u32> {
        if self.stream(stream)?.captured.is_some() {
            return Err(code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let Some(job) = self.stream(stream)?.jobs.pop_front() else { return Ok(false) };
        // The device is lost, but no call has reported it yet.
        if self.losing.is_some() {
            return Ok(true);
        }
        self.perform(stream, job).inspect_err(|&code| self.lost = Some(code))?;
        Ok(true)
    }

    fn perform(&mut self, stream: usize, job: Job) -> Result<(), u32> {
        match job {
            Job::Copy { from, to, on_device, bytes, defect } => {
                self.memory.check(on_device, bytes)?;
                let mut came = copy_from(from, bytes);
                if let Some(byte) = defect.garbage {
                    came.fill(byte);
                }
                let middle = bytes / 2;
                if let Some(byte) = came.get_mut(middle).filter(|_| defect.flips) {
                    *byte ^= 1;
                }
                copy_to(to, &came);
            }
            Job::Fill { to, byte, bytes } => self.memory.write(to, &vec![byte; bytes])?,
            Job::Launch(launch, defect) => {
                self.stream(stream)?.clock_ms += KERNEL_MS;
                self.flips |= defect.flips;
                if !defect.is_idle {
                    self.launch(stream, launch, defect)?;
                }
            }
            Job::Record(event) => {
                let now = self.stream(stream)?.clock_ms;
                *self.events.get_mut(event).ok_or(code::INVALID_HANDLE)? = Moment::At(now);
            }
            Job::Rest(argument, from) => self.search(stream, argument, from)?,
        }
        Ok(())
    }

    fn launch(&mut self, stream: usize, launch: Launch, defect: Defect) -> Result<(), u32> {
        match launch {
            Launch::Echo { .. } | Launch::Solve(..) | Launch::Step(..) => {}
            Launch::Endless => hang(),
            Launch::Fault(code) => return Err(code),
            Launch::Search(argument) => return self.search(stream, argument, 0),
        }
        let written = kernel::run(&launch, &self.memory)?;
        if let Some((value, place)) = defect.misplaced {
            kernel::misplace(&launch, &self.memory, value, place)?;
        }
        self.finish(written)
    }

    /// Goes on with a search. While it is under way, copies in other streams are made.
    fn search(
        &mut self,
        stream: usize,
        argument: Box<SearchArgument>,
        from: usize,
    ) -> Result<(), u32> {
        match search::go_on(&argument, from, &self.memory)? {
            Progress::Ended(written) => self.finish(written),
            Progress::UnderWay(next) => {
                self.stream(stream)?.jobs.push_front(Job::Rest(argument, next));
                for other in (1..=self.streams.len()).filter(|other| *other != stream) {
                    let waiting = &mut self.stream(other)?.jobs;
                    if let Some(copy) = waiting.pop_front_if(|job| matches!(job, Job::Copy { .. }))
                    {
                        self.perform(other, copy)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Ends a launch that has written content from this address on.
    fn finish(&mut self, written: Option<usize>) -> Result<(), u32> {
        if let Some(first) = written.filter(|_| self.flips) {
            let byte = self.memory.read(first, 1)?[0];
            self.memory.write(first, &[byte ^ 1])?;
            self.flips = false;
        }
        Ok(())
    }

    /// Records that this process has a context on a GPU, so that NVML can list it.
    pub(crate) fn register_process(&self, device: u32) {
        if let Some(folder) = &self.script.registry {
            let entry = folder.join(format!("{device}.{}", std::process::id()));
            File::create(&entry).expect("the script names a folder that can be written");
        }
    }

    /// The processes that have a context on a GPU.
    pub(crate) fn processes(&self, device: u32) -> Vec<u32> {
        let Some(folder) = &self.script.registry else { return Vec::new() };
        let entries = fs::read_dir(folder).expect("the script names a folder that can be read");
        let pids = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let (of, pid) = name.to_str()?.split_once('.')?;
            (of == device.to_string()).then(|| pid.parse().ok())?
        });
        pids.filter(|pid| Path::new("/proc").join(u32::to_string(pid)).exists()).collect()
    }
}

impl Script {
    /// A device by its UUID or its number.
    fn find(&self, name: &str) -> Option<u32> {
        let names = |&device: &u32| name == device.to_string() || name == uuid_text(device);
        (0..self.devices).find(names)
    }
}

/// The UUID of a GPU, by its number.
pub(crate) fn uuid(device: u32) -> [u8; 16] {
    let mut uuid = [1; 16];
    uuid[12..].copy_from_slice(&(0x0101_0101 + device).to_be_bytes());
    uuid
}

/// The UUID as NVML writes it.
#[must_use]
pub fn uuid_text(device: u32) -> String {
    let uuid = uuid(device);
    let groups = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]];
    format!("GPU-{}", groups.map(gridpool_protocol::program::hex).join("-"))
}

#[cfg(test)]
mod tests;
