//! What a device shall be like, and what shall go wrong with it.
//!
//! ```text
//! devices=2                                       # settings: what there is
//! call=cuLaunchKernel nth=3 code=700 sticky       # rules: a call, when, and what happens
//! call=cuStreamSynchronize once-file=/tmp/x hang
//! ```
//!
//! Rules end at a line's end or a semicolon, words at a space; what follows `#` is a comment. A rule names
//! one call as messages of the worker do, without its version: `cuMemAlloc`, `nvmlInit`.
//!
//! | word | |
//! |---|---|
//! | `devices=N` | GPUs of this machine, 1 if it is not said |
//! | `uuid=GPU-…` | what libcuda says of the first visible one, whatever NVML says |
//! | `memory=N` | bytes of memory of each, 8 GiB if it is not said |
//! | `version=N` | what `cuDriverGetVersion` says, 12000 if it is not said |
//! | `events=PATH` | a FIFO from which NVML takes events: lines `GPU KIND DATA`, KIND as in nvml.h |
//! | `registry=PATH` | a folder in which processes that have a context are known to NVML |
//! | `nth=N` | the Nth such call of a process alone, from 1 |
//! | `from=N` | that one and all after it |
//! | `every=N` | every Nth |
//! | `once-file=PATH` | in that process alone that makes this file at its first such call |
//! | `after-file=PATH` | in processes that find this file at their first such call |
//! | `while-file=PATH` | as long as this file is there; other calls are not counted |
//! | `mark-file=PATH` | this file is there as soon as the rule has been applied |
//! | `code=N` | the call does nothing and gives this code |
//! | `sticky` | …and so does every call after it |
//! | `later=N` | …but only the Nth call after it says so; until then nothing is done |
//! | `delay=MS` | the call takes so long |
//! | `hang` | the call never returns |
//! | `flip` | one bit of what the call moves or computes is another |
//! | `garbage=N` | every byte that a copy brings is this one |
//! | `idle` | a launch computes nothing |
//! | `misplace=V:N` | value V of a packed result is said to lie at N |
//! | `value=N` | the number that the call gives |

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{cuda, nvml};

/// What a device shall be like and do.
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

/// What happens at some calls.
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

/// What else must be so.
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
    /// Counts a call of the name, and says whether the rule is about it.
    pub(crate) fn applies(&mut self, call: &str) -> bool {
        if self.call != call {
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
    /// Decides once what is to hold for as long as the process lives.
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
    /// [`ScriptError`] for the first rule that is none.
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
            "uuid" => self.uuid = Some(uuid(value).ok_or_else(|| format!("{word}: no UUID"))?),
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
            "sticky" | "later" => effect = Some(harder(word, effect)?),
            _ => put(&mut effect, word, Effect::read(word)?)?,
        }
    }
    Ok(Rule {
        call: call.ok_or("no call")?,
        turn: turn.unwrap_or(Turn::Always),
        conditions,
        mark,
        effect: effect.ok_or("nothing happens: add code=N, delay=MS, hang, flip or another")?,
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

/// What `sticky` or `later=N` makes of a code.
fn harder(word: &str, effect: Option<Effect>) -> Result<Effect, String> {
    let Some(Effect::Code(code)) = effect else {
        return Err(format!("{word} stands behind code=N"));
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
        Some(_) => Err(format!("{word}: this is said before")),
    }
}

fn known_call(name: &str) -> Result<String, String> {
    let mut calls = cuda::SYMBOLS.iter().chain(nvml::SYMBOLS).map(|symbol| without_version(symbol));
    match calls.find(|call| *call == name) {
        Some(call) => Ok(call.to_owned()),
        None => Err(format!("there is no call {name}")),
    }
}

/// The name of a call as messages give it: `cuMemAlloc` for `cuMemAlloc_v2`.
#[must_use]
pub fn without_version(symbol: &str) -> &str {
    let (name, version) = symbol.rsplit_once("_v").unwrap_or((symbol, ""));
    if version.chars().all(|c| c.is_ascii_digit()) { name } else { symbol }
}

fn unknown(word: &str) -> String {
    format!("{word} is no word of a script")
}

fn number<T: FromStr>(word: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{word}: no number that fits"))
}

fn positive(word: &str, value: &str) -> Result<u64, String> {
    number(word, value).and_then(|n| if n == 0 { Err(format!("{word}: from 1 on")) } else { Ok(n) })
}

fn path(word: &str, value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() { Ok(path) } else { Err(format!("{word}: no absolute path")) }
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
