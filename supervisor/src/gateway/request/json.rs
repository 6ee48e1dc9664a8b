//! The JSON of an inference request. A short text can name many values, each of which takes far more memory than its
//! characters: so lists have limits while they are read, and parameters are read one by one.

use std::fmt;
use std::marker::PhantomData;

use gridpool_protocol::limits::{TENSOR_RANK_MAX, TENSORS_MAX};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Parameters;
use crate::gateway::failure::Failure;
use crate::gateway::limits::PARAMETERS_MAX;

/// What serde reads from an object. From a list it would read the fields in their order, which is no request.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de> + Noun> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields::<T>(PhantomData)).map(Self)
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Noun> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::IS)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// What an object is called where something else is found.
pub(super) trait Noun {
    const IS: &'static str;
}

impl Noun for RequestJson<'_> {
    const IS: &'static str = "a request, which is a JSON object with `inputs`";
}

impl Noun for InputJson<'_> {
    const IS: &'static str = "an object for each input, with `name`, `shape` and `datatype`";
}

impl Noun for WantedOutputJson<'_> {
    const IS: &'static str = "an object for each output, with `name`";
}

#[derive(Deserialize)]
pub(super) struct RequestJson<'a> {
    pub(super) id: Option<String>,
    #[serde(borrow)]
    pub(super) parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) inputs: Few<Object<InputJson<'a>>, TENSORS_MAX>,
    #[serde(borrow)]
    pub(super) outputs: Option<Few<Object<WantedOutputJson<'a>>, TENSORS_MAX>>,
}

#[derive(Deserialize)]
pub(super) struct InputJson<'a> {
    pub(super) name: String,
    pub(super) shape: Few<u64, TENSOR_RANK_MAX>,
    pub(super) datatype: String,
    #[serde(borrow)]
    pub(super) parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct WantedOutputJson<'a> {
    pub(super) name: String,
    #[serde(borrow)]
    pub(super) parameters: Option<&'a RawValue>,
}

/// A list of at most `MAX` elements.
pub(super) struct Few<T, const MAX: usize>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Few<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements::<T, MAX>(PhantomData)).map(Self)
    }
}

struct Elements<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Elements<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut elements = Vec::new();
        while elements.len() < MAX {
            let Some(element) = list.next_element()? else { return Ok(elements) };
            elements.push(element);
        }
        match list.next_element::<IgnoredAny>()? {
            None => Ok(elements),
            Some(_) => Err(A::Error::invalid_length(MAX + 1, &self)),
        }
    }
}

/// Reads parameters, of which a request may have [`PARAMETERS_MAX`] in all.
#[derive(Default)]
pub(super) struct ParameterReader {
    read: usize,
}

impl ParameterReader {
    pub(super) fn read(&mut self, json: Option<&RawValue>) -> Result<Parameters, Failure> {
        let Some(json) = json else { return Ok(Parameters::new()) };
        let mut json = serde_json::Deserializer::from_str(json.get());
        let read = self.deserialize(&mut json);
        read.map_err(|error| Failure::bad(format!("`parameters` of the request: {error}")))
    }
}

impl<'de> DeserializeSeed<'de> for &mut ParameterReader {
    type Value = Parameters;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parameters, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut ParameterReader {
    type Value = Parameters;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameters, A::Error> {
        let mut parameters = Parameters::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            self.read += 1;
            if self.read > PARAMETERS_MAX {
                let why = format!("a request has at most {PARAMETERS_MAX} parameters");
                return Err(A::Error::custom(why));
            }
            parameters.insert(name, plain(value).map_err(A::Error::custom)?);
        }
        Ok(parameters)
    }
}

/// A parameter's value. No parameter is a list or an object, so what such a one holds is left out.
fn plain(value: &RawValue) -> serde_json::Result<Value> {
    match value.get().as_bytes() {
        [b'[', ..] => Ok(Value::Array(Vec::new())),
        [b'{', ..] => Ok(Value::Object(serde_json::Map::new())),
        _ => serde_json::from_str(value.get()),
    }
}
