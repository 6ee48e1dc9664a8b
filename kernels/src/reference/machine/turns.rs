//! The turns of a loop: which elements come next, what is kept, and what comes out.

use std::cmp::Ordering;

use gridpool_protocol::limits::VALUE_WEIGHT_MAX;
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::solver::Opcode;
use gridpool_protocol::solver::value::{NOTHING, Value};

use super::containers::alike;
use super::support::{Ends, is_true, number, to_set, to_tuple};

/// A list below this length is sorted by insertion in CPython, which matters for keys without a whole order.
const INSERTION_MAX: usize = 64;

/// A loop that is running.
#[derive(Debug)]
pub(super) struct Turns {
    op: Opcode,
    /// The containers; of `iterate` the start.
    first: Value,
    second: Value,
    /// The current turn.
    at: usize,
    turns: usize,
    element: Value,
    collected: Vec<Value>,
    keys: Vec<Value>,
    weight: u32,
    /// Whether what is collected becomes a set, and whether each of it is there once, in canonical order.
    gives_set: bool,
    is_set: bool,
    /// The best element and its key.
    best: Option<(Value, Value)>,
}

/// What comes after a turn.
pub(super) enum After {
    /// The next turn, with these elements.
    Turn(Value, Option<Value>),
    /// The result.
    Done(Value),
}

impl Turns {
    /// Begins a loop. `counts` says whether the elements are numbers.
    pub(super) fn begin(
        op: Opcode,
        first: &Value,
        second: &Value,
        counts: bool,
    ) -> Ends<(Self, After)> {
        let length = first.elements().len();
        let turns = match op {
            Opcode::Zip => length.min(second.elements().len()),
            Opcode::Pairs => length * second.elements().len(),
            Opcode::Iterate => match usize::try_from(number(second)?) {
                Ok(turns) if turns > 0 => turns,
                _ => return Err(ItemErrorCode::BadNumber),
            },
            Opcode::ValMax | Opcode::ValMin if counts => length.max(1),
            _ => length,
        };
        let mut this = Self {
            op,
            first: first.clone(),
            second: second.clone(),
            at: 0,
            turns,
            element: first.clone(),
            collected: Vec::new(),
            keys: Vec::new(),
            weight: 1,
            gives_set: op == Opcode::Pairs || op == Opcode::Map && matches!(first, Value::Set(_)),
            is_set: false,
            best: None,
        };
        let after = if turns == 0 { After::Done(this.result()?) } else { this.turn() };
        Ok((this, after))
    }

    /// The elements of the current turn.
    fn turn(&mut self) -> After {
        let (one, two) = (self.first.elements(), self.second.elements());
        let (element, second) = match self.op {
            Opcode::Zip => (one.get(self.at), two.get(self.at).cloned()),
            Opcode::Pairs => (one.get(self.at % one.len()), two.get(self.at / one.len()).cloned()),
            Opcode::Iterate => (Some(&self.element), None),
            _ => (one.get(self.at), None),
        };
        // Only `valmax` and `valmin` over no numbers have none.
        self.element = element.cloned().unwrap_or(Value::Number(0));
        After::Turn(self.element.clone(), second)
    }

    /// Takes the body's value.
    pub(super) fn next(&mut self, value: Value) -> Ends<After> {
        match self.op {
            Opcode::Map | Opcode::Zip | Opcode::Pairs => self.collect(value)?,
            Opcode::Filter if is_true(&value) => self.collected.push(self.element.clone()),
            Opcode::Extract if is_true(&value) => return Ok(After::Done(self.element.clone())),
            Opcode::Filter | Opcode::Extract => {}
            Opcode::ArgMax | Opcode::ValMax => self.keep(value, Ordering::Greater)?,
            Opcode::ArgMin | Opcode::ValMin => self.keep(value, Ordering::Less)?,
            Opcode::Order => {
                self.collected.push(self.element.clone());
                self.keys.push(value);
            }
            _ => self.element = value,
        }
        self.at += 1;
        if self.at < self.turns { Ok(self.turn()) } else { self.result().map(After::Done) }
    }

    /// Collects a value. Of a set, equal ones go once all together weigh too much: from then on each is there once.
    fn collect(&mut self, value: Value) -> Ends<()> {
        let mut place = self.collected.len();
        let is_heavy = self.weight.saturating_add(value.weight()) > VALUE_WEIGHT_MAX;
        if is_heavy && self.gives_set && !self.is_set {
            let set = to_set(std::mem::take(&mut self.collected))?;
            self.weight = set.weight();
            self.collected = set.elements().to_vec();
            self.is_set = true;
        }
        if self.is_set {
            match self.collected.binary_search_by(|known| known.canonical(&value)) {
                Ok(_) => return Ok(()),
                Err(free) => place = free,
            }
        }
        self.weight = self.weight.saturating_add(value.weight());
        if self.weight > VALUE_WEIGHT_MAX {
            return Err(ItemErrorCode::Overflow);
        }
        self.collected.insert(place, value);
        Ok(())
    }

    /// Keeps the element if its key is better.
    fn keep(&mut self, key: Value, which: Ordering) -> Ends<()> {
        if let Some((_, best)) = &self.best {
            let either = [&key, best].iter().any(|key| has_nothing(key));
            if either {
                return Err(ItemErrorCode::BadType);
            }
            if key.python(best) != Some(which) {
                return Ok(());
            }
        }
        self.best = Some((self.element.clone(), key));
        Ok(())
    }

    fn result(&mut self) -> Ends {
        let collected = std::mem::take(&mut self.collected);
        let best = self.best.take();
        match self.op {
            Opcode::Map | Opcode::Filter => alike(&self.first, collected),
            Opcode::Zip => to_tuple(collected),
            Opcode::Pairs => to_set(collected),
            Opcode::ArgMax | Opcode::ArgMin => {
                best.map(|(element, _)| element).ok_or(ItemErrorCode::EmptyArg)
            }
            Opcode::ValMax | Opcode::ValMin => {
                best.map(|(_, key)| key).ok_or(ItemErrorCode::EmptyArg)
            }
            Opcode::Order => to_tuple(sorted(collected, std::mem::take(&mut self.keys))?),
            Opcode::Iterate => Ok(self.element.clone()),
            _ => Err(ItemErrorCode::EmptyArg),
        }
    }
}

/// Whether a key is nothing and so cannot be compared.
fn has_nothing(key: &Value) -> bool {
    matches!(key, Value::Number(NOTHING))
}

/// The values, sorted by their keys as Python does.
fn sorted(values: Vec<Value>, keys: Vec<Value>) -> Ends<Vec<Value>> {
    if keys.len() > 1 && keys.iter().any(has_nothing) {
        return Err(ItemErrorCode::BadType);
    }
    let is_less = |one: usize, two: usize| keys[one].python(&keys[two]) == Some(Ordering::Less);
    let mut order: Vec<usize> = (0..keys.len()).collect();
    if matches!(keys.first(), Some(Value::Set(_))) && keys.len() < INSERTION_MAX {
        insertion_sort(&mut order, is_less);
    } else {
        order = merge_sort(order, is_less);
    }
    Ok(order.into_iter().map(|at| values[at].clone()).collect())
}

/// A stable sort that loses nothing and never panics, also without a whole order, which sets lack: pairs of runs of
/// doubling length are merged from the front.
fn merge_sort(mut order: Vec<usize>, is_less: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut run = 1;
    while run < order.len() {
        let mut merged = Vec::with_capacity(order.len());
        for pair in order.chunks(2 * run) {
            let (mut left, mut right) = pair.split_at(run.min(pair.len()));
            while let [least, rest @ ..] = right {
                match left {
                    [first, others @ ..] if !is_less(*least, *first) => {
                        merged.push(*first);
                        left = others;
                    }
                    _ => {
                        merged.push(*least);
                        right = rest;
                    }
                }
            }
            merged.extend(left);
        }
        order = merged;
        run *= 2;
    }
    order
}

/// CPython's sort of a short list: the first run, then each value by bisection.
fn insertion_sort(order: &mut [usize], is_less: impl Fn(usize, usize) -> bool) {
    let length = order.len();
    let mut run = length.min(1);
    if length > 1 {
        let descends = is_less(order[1], order[0]);
        run = 2;
        while run < length && is_less(order[run], order[run - 1]) == descends {
            run += 1;
        }
        if descends {
            order[..run].reverse();
        }
    }
    for at in run..length {
        let value = order[at];
        let (mut low, mut high) = (0, at);
        while low < high {
            let middle = low.midpoint(high);
            if is_less(value, order[middle]) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        order[low..=at].rotate_right(1);
    }
}
