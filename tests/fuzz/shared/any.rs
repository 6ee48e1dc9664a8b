//! Values of any type that serde reads, made from a number. The type itself says what it is made of, so
//! that new messages, variants and fields need nothing here.

use std::collections::BTreeSet;

use serde::de::value::Error;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer,
    MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// Texts that mean something somewhere, and some that mean nothing.
const TEXTS: [&str; 10] =
    ["", "rot90", "gpu0", "gpu0#4", "GPU-1", "größe", "cpu:2", "x", "no\n\"one\"\0", "model"];
/// Values to try for each type.
const TRIES: u64 = 3_000;
/// Lists are no longer than this.
const LENGTH_MAX: u64 = 3;

/// An enum, its variants, and one of them.
type Seen = (&'static str, &'static [&'static str], u32);

/// The value of the number; `None` if the type refuses what it is made of.
pub(crate) fn any<T: DeserializeOwned>(seed: u64) -> Option<T> {
    T::deserialize(&mut Maker::new(seed)).ok()
}

/// A few values that together have every variant of every enum in them.
pub(crate) fn every_variant<T: DeserializeOwned>() -> Vec<T> {
    let (mut seen, mut values) = (BTreeSet::new(), Vec::new());
    for seed in 0..TRIES {
        let mut maker = Maker::new(seed);
        maker.variants.clone_from(&seen);
        let Ok(value) = T::deserialize(&mut maker) else { continue };
        if values.is_empty() || maker.variants.len() > seen.len() {
            values.push(value);
            seen = maker.variants;
        }
    }
    for &(name, variants, _) in &seen {
        let there = seen.iter().filter(|other| (other.0, other.1) == (name, variants)).count();
        assert_eq!(there, variants.len(), "{name}: too few values were tried");
    }
    values
}

/// Makes a value as its type asks for the parts.
struct Maker {
    state: u64,
    /// Every enum that was met, and which of its variants.
    variants: BTreeSet<Seen>,
}

impl Maker {
    fn new(seed: u64) -> Self {
        Self { state: seed, variants: BTreeSet::new() }
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A small number, a random one, or an end of the type.
    fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(10),
            1 => u64::MAX,
            2 => self.next() >> self.below(64),
            _ => self.below(70_000),
        }
    }

    /// One that was not met yet, half of the time: random ones alone leave the rare out.
    fn variant(&mut self, name: &'static str, variants: &'static [&'static str]) -> Seen {
        let all = (0..variants.len()).map(|at| (name, variants, u32::try_from(at).expect("few")));
        let unmet: Vec<Seen> = all.clone().filter(|one| !self.variants.contains(one)).collect();
        let from = if unmet.is_empty() || self.below(2) == 0 { all.collect() } else { unmet };
        from[usize::try_from(self.below(from.len() as u64)).expect("there are few")]
    }

    fn text(&mut self) -> &'static str {
        TEXTS[usize::try_from(self.below(TEXTS.len() as u64)).expect("there are few")]
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.number();
            visitor.$visit(<$type>::try_from(number).unwrap_or(<$type>::MAX))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Maker {
    type Error = Error;

    numbers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_i128 visit_i128 i128,
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64, deserialize_u128 visit_u128 u128,
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("a type says what it is made of"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.below(2) == 1)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let halves = u32::try_from(self.below(1 << 20)).expect("20 bits");
        visitor.visit_f64(f64::from(halves) / 2.0)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_char(self.text().chars().next().unwrap_or('ß'))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    /// Messages read bytes in place only to decode a part.
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_byte_buf(self.text().as_bytes().to_vec())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.below(3) == 0 { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.below(LENGTH_MAX + 1);
        visitor.visit_seq(Parts { maker: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Parts { maker: self, left: len as u64 })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.below(LENGTH_MAX + 1);
        visitor.visit_map(Parts { maker: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let seen @ (_, _, variant) = self.variant(name, variants);
        self.variants.insert(seen);
        visitor.visit_enum(Variant { maker: self, variant })
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// So many more parts.
struct Parts<'a> {
    maker: &'a mut Maker,
    left: u64,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.maker).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(&mut *self.maker)
    }
}

struct Variant<'a> {
    maker: &'a mut Maker,
    variant: u32,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let which = seed.deserialize(self.variant.into_deserializer())?;
        Ok((which, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.maker)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.maker.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.maker.deserialize_tuple(fields.len(), visitor)
    }
}
