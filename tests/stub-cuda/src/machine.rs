//! The device of a process, or of a thread of a test: what is allocated and what waits in its streams,
//! and how it obeys its script.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gridpool_protocol::clock;

use crate::cuda::code;
use crate::kernel::{self, Launch};
use crate::memory::{Memory, copy_from, copy_to};
use crate::nvml::Watch;
use crate::script::{Effect, Script, ScriptError, without_version};

/// Where a process finds its script.
const VARIABLE: &str = "GRIDPOOL_STUB_SCRIPT";
/// The exit code of a process whose script is none.
const BAD_SCRIPT: i32 = 64;
/// Device time of a kernel.
const KERNEL_MS: f32 = 0.5;
/// What stays as it is after a sticky fault, measured on an H200.
const NEVER_STICKY: &str = "cuDevicePrimaryCtxRetain";

/// A device with its script.
#[derive(Debug, Default)]
pub struct Machine {
    pub(crate) script: Script,
    pub(crate) memory: Memory,
    /// The GPUs that this process sees, by their place in the machine.
    pub(crate) visible: Vec<u32>,
    pub(crate) is_initialised: bool,
    pub(crate) has_context: bool,
    /// The entry points of each module.
    pub(crate) modules: Vec<Arc<[String]>>,
    pub(crate) functions: Vec<String>,
    pub(crate) events: Vec<Moment>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) watches: Vec<Watch>,
    calls: Vec<&'static str>,
    /// Every call gives this.
    lost: Option<u32>,
    /// Every call gives this after so many more; nothing is done until then.
    losing: Option<(u32, u64)>,
    /// The next launch that writes anything writes a bit of it wrong.
    flips: bool,
}

/// When a stream has passed an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Moment {
    Never,
    Waiting,
    At(f32),
}

/// Work in order, and the time that it has taken so far.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    jobs: VecDeque<Job>,
    clock_ms: f32,
}

/// What waits in a stream.
#[derive(Debug)]
pub(crate) enum Job {
    /// One of its ends lies on the device.
    Copy {
        from: usize,
        to: usize,
        on_device: usize,
        bytes: usize,
        marred: Marred,
    },
    Launch(Launch, Marred),
    Record(usize),
}

/// What is wrong with a copy or a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marred {
    flips: bool,
    is_idle: bool,
    garbage: Option<u8>,
    misplaced: Option<(usize, u32)>,
}

/// What the script says of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Orders {
    code: Option<u32>,
    hangs: bool,
    delay_ms: u64,
    pub(crate) value: Option<u32>,
    pub(crate) marred: Marred,
}

thread_local! {
    static INSTALLED: RefCell<Option<Arc<Mutex<Machine>>>> = const { RefCell::new(None) };
}

/// The device of this process, by its script.
static OF_PROCESS: LazyLock<Arc<Mutex<Machine>>> = LazyLock::new(|| {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    let script = Script::parse(&text).unwrap_or_else(|error| refuse_to_run(&error));
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    Arc::new(Mutex::new(Machine::new(script, visible.as_deref())))
});

#[expect(clippy::print_stderr, clippy::exit, reason = "nothing that it did would mean anything")]
fn refuse_to_run(error: &ScriptError) -> ! {
    eprintln!("{VARIABLE}: {error}");
    std::process::exit(BAD_SCRIPT)
}

/// Gives this thread a device of its own, which sees all GPUs of the script.
///
/// # Errors
/// [`ScriptError`] if the script is none.
pub fn install(script: &str) -> Result<(), ScriptError> {
    let machine = Machine::new(Script::parse(script)?, None);
    INSTALLED.set(Some(Arc::new(Mutex::new(machine))));
    Ok(())
}

/// Looks at, or changes, the device of this thread.
pub fn with<T>(act: impl FnOnce(&mut Machine) -> T) -> T {
    let machine = current();
    let mut machine = lock(&machine);
    act(&mut machine)
}

/// Lets this thread use a device that another has.
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

/// A call of `symbol`: what the script says of it, and if that lets it, `act`. Gives the call's code.
pub(crate) fn answer(
    symbol: &'static str,
    act: impl FnOnce(MutexGuard<'_, Machine>, Orders) -> Result<(), u32>,
) -> u32 {
    let machine = current();
    let orders = lock(&machine).consult(without_version(symbol));
    if orders.hangs {
        hang();
    }
    let until = clock::now() + Duration::from_millis(orders.delay_ms);
    while !clock::until(until).is_zero() {
        thread::park_timeout(clock::until(until));
    }
    match orders.code {
        Some(code) => code,
        None => act(lock(&machine), orders).err().unwrap_or(0),
    }
}

/// For good, whoever wakes it.
fn hang() -> ! {
    loop {
        thread::park();
    }
}

impl Machine {
    fn new(script: Script, visible: Option<&str>) -> Self {
        let visible = match visible {
            None => (0..script.devices).collect(),
            // As CUDA does: all before the first that is not there.
            Some(names) => names.split(',').map_while(|name| script.find(name)).collect(),
        };
        let memory = Memory::with_limit(script.memory);
        Self { script, memory, visible, ..Self::default() }
    }

    /// Other rules than before, for the calls to come.
    ///
    /// # Errors
    /// [`ScriptError`] if the script is none.
    pub fn obey(&mut self, script: &str) -> Result<(), ScriptError> {
        self.script.rules = Script::parse(script)?.rules;
        (self.lost, self.losing, self.flips) = (None, None, false);
        Ok(())
    }

    /// The calls since the last look, by the names of the worker's messages.
    pub fn take_calls(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls)
    }

    /// Copies, launches and events that wait in all streams.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.streams.iter().map(|stream| stream.jobs.len()).sum()
    }

    /// Notes a call and works out what the script says of it.
    fn consult(&mut self, call: &'static str) -> Orders {
        self.calls.push(call);
        let mut orders = Orders::default();
        if let Some((code, 0)) = self.losing {
            self.lost = Some(code);
        }
        if let Some(code) = self.lost.filter(|_| call != NEVER_STICKY) {
            return Orders { code: Some(code), ..orders };
        }
        self.losing = self.losing.map(|(code, calls)| (code, calls.saturating_sub(1)));
        let effects = self.script.rules.iter_mut().filter_map(|rule| {
            let applies = rule.applies(call);
            applies.then_some(rule.effect)
        });
        for effect in effects {
            let (marred, known) = (&mut orders.marred, orders.code);
            match effect {
                Effect::Code(code) => orders.code = known.or(Some(code)),
                Effect::Sticky(code) => {
                    self.lost = Some(code);
                    orders.code = known.or(Some(code));
                }
                Effect::Later(code, calls) => self.losing = Some((code, calls - 1)),
                Effect::Delay(ms) => orders.delay_ms += ms,
                Effect::Hang => orders.hangs = true,
                Effect::Flip => marred.flips = true,
                Effect::Garbage(byte) => marred.garbage = Some(byte),
                Effect::Idle => marred.is_idle = true,
                Effect::Misplace(value, place) => marred.misplaced = Some((value, place)),
                Effect::Value(value) => orders.value = Some(value),
            }
        }
        orders
    }

    /// The stream of a handle, which are numbered from 1.
    pub(crate) fn stream(&mut self, number: usize) -> Result<&mut Stream, u32> {
        let at = number.checked_sub(1).ok_or(code::INVALID_HANDLE)?;
        self.streams.get_mut(at).ok_or(code::INVALID_HANDLE)
    }

    pub(crate) fn put_into(&mut self, stream: usize, job: Job) -> Result<(), u32> {
        self.stream(stream)?.jobs.push_back(job);
        Ok(())
    }

    /// Does what is first in a stream; `false` if there is nothing. What goes wrong is sticky.
    pub(crate) fn do_one(&mut self, stream: usize) -> Result<bool, u32> {
        let Some(job) = self.stream(stream)?.jobs.pop_front() else { return Ok(false) };
        // The device is lost, and nobody knows yet.
        if self.losing.is_some() {
            return Ok(true);
        }
        self.perform(stream, job).inspect_err(|&code| self.lost = Some(code))?;
        Ok(true)
    }

    fn perform(&mut self, stream: usize, job: Job) -> Result<(), u32> {
        match job {
            Job::Copy { from, to, on_device, bytes, marred } => {
                self.memory.check(on_device, bytes)?;
                let mut came = copy_from(from, bytes);
                if let Some(byte) = marred.garbage {
                    came.fill(byte);
                }
                let middle = bytes / 2;
                if let Some(byte) = came.get_mut(middle).filter(|_| marred.flips) {
                    *byte ^= 1;
                }
                copy_to(to, &came);
            }
            Job::Launch(launch, marred) => {
                self.stream(stream)?.clock_ms += KERNEL_MS;
                self.flips |= marred.flips;
                if !marred.is_idle {
                    self.launch(&launch, marred)?;
                }
            }
            Job::Record(event) => {
                let now = self.stream(stream)?.clock_ms;
                *self.events.get_mut(event).ok_or(code::INVALID_HANDLE)? = Moment::At(now);
            }
        }
        Ok(())
    }

    fn launch(&mut self, launch: &Launch, marred: Marred) -> Result<(), u32> {
        match launch {
            Launch::Echo { .. } | Launch::Step(..) => {}
            Launch::Endless => hang(),
            Launch::Fault(code) => return Err(*code),
        }
        let written = kernel::run(launch, &self.memory)?;
        if let Some((value, place)) = marred.misplaced {
            kernel::misplace(launch, &self.memory, value, place)?;
        }
        if let Some(first) = written.filter(|_| self.flips) {
            let byte = self.memory.read(first, 1)?[0];
            self.memory.write(first, &[byte ^ 1])?;
            self.flips = false;
        }
        Ok(())
    }

    /// This process has a context on a GPU from now on, and NVML may know.
    pub(crate) fn enlist(&self, device: u32) {
        if let Some(folder) = &self.script.registry {
            let entry = folder.join(format!("{device}.{}", std::process::id()));
            File::create(&entry).expect("the script names a folder that can be written");
        }
    }

    /// The processes that have a context on a GPU.
    pub(crate) fn enlisted(&self, device: u32) -> Vec<u32> {
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
    /// A device by its UUID or its place.
    fn find(&self, name: &str) -> Option<u32> {
        let names = |&device: &u32| name == device.to_string() || name == uuid_text(device);
        (0..self.devices).find(names)
    }
}

/// The identity of a GPU, by its place.
pub(crate) fn uuid(device: u32) -> [u8; 16] {
    let mut uuid = [1; 16];
    uuid[12..].copy_from_slice(&(0x0101_0101 + device).to_be_bytes());
    uuid
}

/// The same as NVML writes it.
#[must_use]
pub fn uuid_text(device: u32) -> String {
    let uuid = uuid(device);
    let groups = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]];
    format!("GPU-{}", groups.map(gridpool_protocol::program::hex).join("-"))
}

#[cfg(test)]
mod tests;
