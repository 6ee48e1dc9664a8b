//! How many contexts a model has: a number, or as many as serve most. In a config file and in JSON that is `4` or
//! `"auto"`.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

/// What the config file writes for [`Contexts::Auto`].
const AUTO: &str = "auto";

/// The number of contexts of a model: runs that may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contexts {
    /// As many as serve most. The first worker that loads the model measures it, and the others take its number.
    Auto,
    /// So many.
    Fixed(u32),
}

impl Contexts {
    /// The number; `None` while no worker has found it.
    #[must_use]
    pub fn fixed(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Fixed(count) => Some(count),
        }
    }
}

impl From<u32> for Contexts {
    fn from(count: u32) -> Self {
        Self::Fixed(count)
    }
}

impl fmt::Display for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str(AUTO),
            Self::Fixed(count) => write!(f, "{count}"),
        }
    }
}

impl Serialize for Contexts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match *self {
            contexts if !to.is_human_readable() => contexts.fixed().serialize(to),
            Self::Auto => to.serialize_str(AUTO),
            Self::Fixed(count) => to.serialize_u32(count),
        }
    }
}

impl<'de> Deserialize<'de> for Contexts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return from.deserialize_any(Written);
        }
        Ok(Option::deserialize(from)?.map_or(Self::Auto, Self::Fixed))
    }
}

/// Reads what a person wrote.
struct Written;

impl Visitor<'_> for Written {
    type Value = Contexts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number or \"auto\"")
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<Contexts, E> {
        let wrong = |_| E::invalid_value(Unexpected::Unsigned(count), &self);
        u32::try_from(count).map(Contexts::Fixed).map_err(wrong)
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<Contexts, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(count), &self);
        u32::try_from(count).map(Contexts::Fixed).map_err(wrong)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Contexts, E> {
        match text == AUTO {
            true => Ok(Contexts::Auto),
            false => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn a_number_or_auto_is_read_as_it_is_written() {
        let zero = Contexts::Fixed(0);
        let all = [(Contexts::Auto, "\"auto\""), (Contexts::Fixed(4), "4"), (zero, "0")];
        for (contexts, json) in all {
            assert_eq!(serde_json::to_string(&contexts).unwrap(), json);
            assert_eq!(serde_json::from_str::<Contexts>(json).unwrap(), contexts);
            let bytes = codec::encode(&contexts).unwrap();
            assert_eq!(codec::decode::<Contexts>(&bytes).unwrap(), contexts);
        }
        for wrong in ["-1", "1.5", "\"4\"", "\"Auto\"", "null", "4294967296"] {
            assert!(serde_json::from_str::<Contexts>(wrong).is_err(), "{wrong}");
        }
        assert_eq!((Contexts::Auto.fixed(), Contexts::from(3).fixed()), (None, Some(3)));
        assert_eq!(format!("{} {}", Contexts::Auto, Contexts::Fixed(2)), "auto 2");
    }
}
