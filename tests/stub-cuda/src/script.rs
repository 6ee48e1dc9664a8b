//! Describes a device, and its faults.
//!
//! ```text
//! devices=2                                       # settings: the machine
//! call=cuLaunchKernel nth=3 code=700 sticky       # rules: a call, when, and what happens
//! call=cuStreamSynchronize once-file=/tmp/x hang
//! ```
//!
//! A line's end or a semicolon ends a rule, a space ends a word; `#` starts a comment. A rule names one call as
//! the worker's messages do, without its version: `cuMemAlloc`, `nvmlInit`.
//!
//! | word | |
//! |---|---|
//! | `devices=N` | GPUs of this machine; default 1 |
//! | `uuid=GPU-…` | libcuda's UUID of the first visible GPU; NVML's does not change |
//! | `memory=N` | bytes of memory of each GPU; default 8 GiB |
//! | `version=N` | result of `cuDriverGetVersion`; default 12000 |
//! | `events=PATH` | a FIFO from which NVML reads events: lines `GPU KIND DATA`, KIND as in nvml.h |
//! | `registry=PATH` | a folder that lists processes with a context for NVML |
//! | `nth=N` | only the Nth such call of a process, from 1 |
//! | `from=N` | the Nth call and all after it |
//! | `every=N` | every Nth call |
//! | `once-file=PATH` | only in the process that creates this file at its first such call |
//! | `after-file=PATH` | only in processes that find this file at their first such call |
//! | `while-file=PATH` | only while this file exists; other calls are not counted |
//! | `mark-file=PATH` | creates this file when the rule is applied |
//! | `code=N` | the call does nothing and returns this code |
//! | `sticky` | …and so does every later call |
//! | `later=N` | …but only the Nth later call returns it; no work is done until then |
//! | `delay=MS` | the call takes this long |
//! | `hang` | the call never returns |
//! | `flip` | one bit of the call's result is flipped |
//! | `garbage=N` | every byte that a copy writes is this one |
//! | `idle` | a launch computes nothing |
//! | `misplace=V:N` | a packed result claims that value V lies at N |
//! | `value=N` | the number that the call returns |

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{cuda, nvml};

/// A description of a device and its faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub(crate) devices: u32,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) version: i32,
    pub(crate) memory: Option<usize>,
    pub(crate) events: Option<PathBuf>,
    pub(crate) registry: Option<PathBuf>,
    pub(crate) rules: Vec<Rule>,
}

impl Default for Script {
    /// One device without a fault.
    fn default() -> Self {
        let rules = Vec::new();
        let (uuid, memory, events, registry) = (None, None, None, None);
        Self { devices: 1, uuid, version: 12_000, memory, events, registry, rules }
    }
}

/// An effect on some calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) call: String,
    turn: Turn,
    conditions: Vec<Condition>,
    mark: Option<PathBuf>,
    pub(crate) effect: Effect,
    /// Such calls so far.
    seen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Always,
    Nth(u64),
    From(u64),
    Every(u64),
}

/// Another condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    Never,
    OnceFile(PathBuf),
    AfterFile(PathBuf),
    WhileFile(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Code(u32),
    Sticky(u32),
    Later(u32, u64),
    Delay(u64),
    Hang,
    Flip,
    Garbage(u8),
    Idle,
    Misplace(usize, u32),
    Value(u32),
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    rule: usize,
    words: String,
    why: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}, `{}`: {}", self.rule, self.words, self.why)
    }
}

impl std::error::Error for ScriptError {}

impl Rule {
    /// Counts a call of this name; returns whether the rule applies to it.
    pub(crate) fn applies(&mut self, call: &str) -> bool {
        if self.call != call {
            return false;
        }
        let is_off = |own: &Condition| matches!(own, Condition::WhileFile(_)) && !own.holds();
        if self.conditions.iter().any(is_off) {
            return false;
        }
        self.conditions.iter_mut().for_each(Condition::settle);
        if !self.conditions.iter().all(Condition::holds) {
            return false;
        }
        self.seen += 1;
        let applies = match self.turn {
            Turn::Always => true,
            Turn::Nth(n) => self.seen == n,
            Turn::From(n) => self.seen >= n,
            Turn::Every(n) => self.seen.is_multiple_of(n),
        };
        if applies && let Some(mark) = &self.mark {
            File::create(mark).expect("a mark can be made");
        }
        applies
    }
}

impl Condition {
    /// Decides once, for the life of the process, whether the rule's files select it.
    fn settle(&mut self) {
        let holds = match self {
            Self::Always | Self::Never | Self::WhileFile(_) => return,
            Self::OnceFile(path) => File::create_new(path).is_ok(),
            Self::AfterFile(path) => path.exists(),
        };
        *self = if holds { Self::Always } else { Self::Never };
    }

    fn holds(&self) -> bool {
        match self {
            Self::Always => true,
            Self::Never | Self::OnceFile(_) | Self::AfterFile(_) => false,
            Self::WhileFile(path) => path.exists(),
        }
    }
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// [`ScriptError`] for the first invalid rule.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let rules = lines.flat_map(|line| line.split(';')).map(str::trim);
        for (at, words) in rules.filter(|words| !words.is_empty()).enumerate() {
            let read = if words.starts_with("call=") {
                rule(words).map(|rule| script.rules.push(rule))
            } else {
                words.split_whitespace().try_for_each(|word| script.set(word))
            };
            let error = |why| ScriptError { rule: at + 1, words: words.to_owned(), why };
            read.map_err(error)?;
        }
        Ok(script)
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').ok_or_else(|| unknown(word))?;
        match name {
            "devices" => self.devices = number(word, value)?,
            "memory" => self.memory = Some(number(word, value)?),
            "version" => self.version = number(word, value)?,
            "uuid" => self.uuid = Some(uuid(value).ok_or_else(|| format!("{word}: not a UUID"))?),
            "events" => self.events = Some(path(word, value)?),
            "registry" => self.registry = Some(path(word, value)?),
            _ => return Err(unknown(word)),
        }
        Ok(())
    }
}

fn rule(words: &str) -> Result<Rule, String> {
    let (mut call, mut turn, mut mark, mut effect) = (None, None, None, None);
    let mut conditions = Vec::new();
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "call" => put(&mut call, word, known_call(value)?)?,
            "nth" => put(&mut turn, word, Turn::Nth(positive(word, value)?))?,
            "from" => put(&mut turn, word, Turn::From(positive(word, value)?))?,
            "every" => put(&mut turn, word, Turn::Every(positive(word, value)?))?,
            "once-file" => conditions.push(Condition::OnceFile(path(word, value)?)),
            "after-file" => conditions.push(Condition::AfterFile(path(word, value)?)),
            "while-file" => conditions.push(Condition::WhileFile(path(word, value)?)),
            "mark-file" => put(&mut mark, word, path(word, value)?)?,
            "sticky" | "later" => effect = Some(with_later_effect(word, effect)?),
            _ => put(&mut effect, word, Effect::read(word)?)?,
        }
    }
    Ok(Rule {
        call: call.ok_or("no call")?,
        turn: turn.unwrap_or(Turn::Always),
        conditions,
        mark,
        effect: effect.ok_or("no effect: add code=N, delay=MS, hang, flip or another")?,
        seen: 0,
    })
}

impl Effect {
    fn read(word: &str) -> Result<Self, String> {
        Ok(match word.split_once('=') {
            Some(("code", value)) => Self::Code(number(word, value)?),
            Some(("delay", value)) => Self::Delay(number(word, value)?),
            Some(("garbage", value)) => Self::Garbage(number(word, value)?),
            Some(("value", value)) => Self::Value(number(word, value)?),
            Some(("misplace", value)) => {
                let (index, place) = value.split_once(':').ok_or_else(|| unknown(word))?;
                Self::Misplace(number(word, index)?, number(word, place)?)
            }
            Some(_) => return Err(unknown(word)),
            None => match word {
                "hang" => Self::Hang,
                "flip" => Self::Flip,
                "idle" => Self::Idle,
                _ => return Err(unknown(word)),
            },
        })
    }
}

/// Applies `sticky` or `later=N` to a code.
fn with_later_effect(word: &str, effect: Option<Effect>) -> Result<Effect, String> {
    let Some(Effect::Code(code)) = effect else {
        return Err(format!("{word} must follow code=N"));
    };
    match word.split_once('=') {
        None if word == "sticky" => Ok(Effect::Sticky(code)),
        Some(("later", value)) => Ok(Effect::Later(code, positive(word, value)?)),
        Some(_) | None => Err(unknown(word)),
    }
}

fn put<T>(place: &mut Option<T>, word: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{word}: repeated")),
    }
}

fn known_call(name: &str) -> Result<String, String> {
    let mut calls = cuda::SYMBOLS.iter().chain(nvml::SYMBOLS).map(|symbol| without_version(symbol));
    match calls.find(|call| *call == name) {
        Some(call) => Ok(call.to_owned()),
        None => Err(format!("there is no call {name}")),
    }
}

/// The name of a call in messages: `cuMemAlloc` for `cuMemAlloc_v2`.
#[must_use]
pub fn without_version(symbol: &str) -> &str {
    let (name, version) = symbol.rsplit_once("_v").unwrap_or((symbol, ""));
    if version.chars().all(|c| c.is_ascii_digit()) { name } else { symbol }
}

fn unknown(word: &str) -> String {
    format!("{word} is not a word of a script")
}

fn number<T: FromStr>(word: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{word}: not a number in range"))
}

fn positive(word: &str, value: &str) -> Result<u64, String> {
    number(word, value)
        .and_then(|n| if n == 0 { Err(format!("{word}: must be at least 1")) } else { Ok(n) })
}

fn path(word: &str, value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() { Ok(path) } else { Err(format!("{word}: not an absolute path")) }
}

/// `GPU-` and 32 hexadecimal digits in groups.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.strip_prefix("GPU-")?.split('-').collect();
    let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(&digits, 16).ok())??;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests;
