//! One level of a JSON document, and the trace that an error leaves on its way out of it.
//!
//! Owns the one serde visitor. May not know what grids or tasks are.
//!
//! serde's errors are text. So a refusal is noted, typed, in the [`Trace`] that all levels share,
//! and each level that the error passes adds its own coordinate there: a good document pays nothing
//! for good errors.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::{Cause, Flaw, Place};

/// Longest text from a file that an error quotes, in characters.
const QUOTE_MAX: usize = 40;

/// What may stand at one level, and what it becomes. Whatever a level does not take is refused.
pub(super) trait Level<'de>: Sized {
    /// What it becomes.
    type Value;
    /// What should stand here, in words.
    const WANTED: &'static str;

    /// A whole number that is not negative.
    fn number(_number: u64) -> Option<Self::Value> {
        None
    }

    /// A single value of any type that says nothing about grids.
    fn remark() -> Option<Self::Value> {
        None
    }

    /// A list.
    fn list<A: SeqAccess<'de>>(trace: &mut Trace, _list: A) -> Result<Self::Value, A::Error> {
        Err(fail(trace, Self::refuse("a list".to_owned())))
    }

    /// An object.
    fn object<A: MapAccess<'de>>(trace: &mut Trace, _object: A) -> Result<Self::Value, A::Error> {
        Err(fail(trace, Self::refuse("an object".to_owned())))
    }

    /// The words for something else that was found here.
    fn refuse(found: String) -> Cause {
        Cause::Type { wanted: Self::WANTED, found }
    }
}

/// What went wrong, and the coordinates of the levels that the error has passed so far.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) place: Place,
    pub(super) cause: Option<Cause>,
}

impl Trace {
    /// The flaw, or `None` if no level refused anything: then the text was not JSON.
    pub(super) fn into_flaw(self) -> Option<Box<Flaw>> {
        self.cause.map(|cause| Box::new(Flaw { place: self.place, cause }))
    }

    /// Whether something else stood where `wanted` should be.
    pub(super) fn wanted(&self, wanted: &str) -> bool {
        matches!(&self.cause, Some(Cause::Type { wanted: missed, .. }) if *missed == wanted)
    }

    /// Puts a better cause in the place of a refusal; an error in the JSON text stays one.
    pub(super) fn replace_refusal(&mut self, cause: Cause) {
        if self.cause.is_some() {
            self.cause = Some(cause);
        }
    }
}

/// Notes `cause`, and gives an error for serde to carry out.
pub(super) fn fail<E: Error>(trace: &mut Trace, cause: Cause) -> E {
    trace.cause = Some(cause);
    E::custom("refused")
}

/// All elements of `list`; if one fails, `mark` notes its number.
pub(super) fn elements<'de, L: Level<'de>, A: SeqAccess<'de>>(
    trace: &mut Trace,
    mut list: A,
    mark: impl Fn(&mut Place, usize),
) -> Result<Vec<L::Value>, A::Error> {
    let mut values = Vec::new();
    loop {
        match list.next_element_seed(at::<L>(trace)) {
            Ok(Some(value)) => values.push(value),
            Ok(None) => return Ok(values),
            Err(error) => {
                mark(&mut trace.place, values.len());
                return Err(error);
            }
        }
    }
}

/// The reader of level `L`.
pub(super) fn at<L>(trace: &mut Trace) -> At<'_, L> {
    At { trace, level: PhantomData }
}

/// The one visitor: sorts what it meets to the methods of `L`.
pub(super) struct At<'t, L> {
    trace: &'t mut Trace,
    level: PhantomData<L>,
}

impl<'de, L: Level<'de>> At<'_, L> {
    fn single<E: Error>(self, found: impl FnOnce() -> String) -> Result<L::Value, E> {
        L::remark().ok_or_else(|| fail(self.trace, L::refuse(found())))
    }
}

impl<'de, L: Level<'de>> DeserializeSeed<'de> for At<'_, L> {
    type Value = L::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<L::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, L: Level<'de>> Visitor<'de> for At<'_, L> {
    type Value = L::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(L::WANTED)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<L::Value, E> {
        match L::number(number) {
            Some(value) => Ok(value),
            None => self.single(|| number.to_string()),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<L::Value, E> {
        self.single(|| number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<L::Value, E> {
        self.single(|| format!("{number:?}"))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<L::Value, E> {
        self.single(|| flag.to_string())
    }

    fn visit_unit<E: Error>(self) -> Result<L::Value, E> {
        self.single(|| "null".to_owned())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<L::Value, E> {
        self.single(|| quote(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<L::Value, A::Error> {
        L::list(self.trace, list)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<L::Value, A::Error> {
        L::object(self.trace, object)
    }
}

/// A text from a file, in quotes, cut short and without control characters.
fn quote(text: &str) -> String {
    let start: String = text.chars().take(QUOTE_MAX).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("{start:?}{more}")
}
