//! One level of a JSON document, and the trace of an error through the levels.
//!
//! Owns the only serde visitor. May not know grids or tasks.
//!
//! serde's errors are text. A refusal therefore goes, typed, into the [`Trace`] that all levels share, and
//! each level that the error passes adds its coordinate there. A good document pays nothing for this.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::{Cause, Diagnostic, Location};

/// Longest text from a file that an error quotes, in characters.
const QUOTE_MAX: usize = 40;

/// The values that one level takes. It refuses all others.
pub(super) trait Level<'de>: Sized {
    /// The parsed value.
    type Value;
    /// The name of the expected value.
    const WANTED: &'static str;

    /// A whole number that is not negative.
    fn number(_number: u64) -> Option<Self::Value> {
        None
    }

    /// A single value of any other type.
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

    /// The error for another value.
    fn refuse(found: String) -> Cause {
        Cause::Type { wanted: Self::WANTED, found }
    }
}

/// An error, and the coordinates of the levels that it has passed so far.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) place: Location,
    pub(super) cause: Option<Cause>,
}

impl Trace {
    /// The diagnostic; `None` if no level refused anything, since then the text is not JSON.
    pub(super) fn into_diagnostic(self) -> Option<Box<Diagnostic>> {
        self.cause.map(|cause| Box::new(Diagnostic { place: self.place, cause }))
    }

    /// Whether another value was in the place of `wanted`.
    pub(super) fn wanted(&self, wanted: &str) -> bool {
        matches!(&self.cause, Some(Cause::Type { wanted: missed, .. }) if *missed == wanted)
    }

    /// Replaces a refusal by a better cause; an error in the JSON text stays.
    pub(super) fn replace_refusal(&mut self, cause: Cause) {
        if self.cause.is_some() {
            self.cause = Some(cause);
        }
    }
}

/// Stores `cause`, and gives an error for serde to pass on.
pub(super) fn fail<E: Error>(trace: &mut Trace, cause: Cause) -> E {
    trace.cause = Some(cause);
    E::custom("refused")
}

/// All elements of `list`; if one fails, `mark` notes its number.
pub(super) fn elements<'de, L: Level<'de>, A: SeqAccess<'de>>(
    trace: &mut Trace,
    mut list: A,
    mark: impl Fn(&mut Location, usize),
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

/// The visitor: passes each value to the method of `L`.
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
