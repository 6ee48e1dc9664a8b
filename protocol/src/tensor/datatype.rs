//! The element types of tensors: names of the Open Inference Protocol, sizes, NumPy's names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The type of a tensor's elements. There is no type for text: a model with strings is refused when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum DataType {
    /// A byte, 0 or 1.
    Bool,
    /// Unsigned, 8 bits.
    Uint8,
    /// Unsigned, 16 bits.
    Uint16,
    /// Unsigned, 32 bits.
    Uint32,
    /// Unsigned, 64 bits.
    Uint64,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// IEEE 754, 16 bits.
    Fp16,
    /// The upper half of an FP32.
    Bf16,
    /// IEEE 754, 32 bits.
    Fp32,
    /// IEEE 754, 64 bits.
    Fp64,
}

/// Type, its number on the wire, its name, bytes of an element, and NumPy's `descr`.
type Row = (DataType, u8, &'static str, usize, &'static str);

/// All types, in the order of their numbers.
const TABLE: [Row; 13] = [
    (DataType::Bool, 1, "BOOL", 1, "|b1"),
    (DataType::Uint8, 2, "UINT8", 1, "|u1"),
    (DataType::Uint16, 3, "UINT16", 2, "<u2"),
    (DataType::Uint32, 4, "UINT32", 4, "<u4"),
    (DataType::Uint64, 5, "UINT64", 8, "<u8"),
    (DataType::Int8, 6, "INT8", 1, "|i1"),
    (DataType::Int16, 7, "INT16", 2, "<i2"),
    (DataType::Int32, 8, "INT32", 4, "<i4"),
    (DataType::Int64, 9, "INT64", 8, "<i8"),
    (DataType::Fp16, 10, "FP16", 2, "<f2"),
    // NumPy has no such type. The package `ml_dtypes` writes it like this.
    (DataType::Bf16, 11, "BF16", 2, "<V2"),
    (DataType::Fp32, 12, "FP32", 4, "<f4"),
    (DataType::Fp64, 13, "FP64", 8, "<f8"),
];

impl DataType {
    /// Every type, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.0 == self).expect("every type has its row")
    }

    /// Its name in the Open Inference Protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Bytes of one element.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.row().3
    }

    /// Bits of the exponent and of the fraction of a floating-point type; `None` for other types.
    #[must_use]
    pub fn float_bits(self) -> Option<(u32, u32)> {
        match self {
            Self::Fp16 => Some((5, 10)),
            Self::Bf16 => Some((8, 7)),
            Self::Fp32 => Some((8, 23)),
            Self::Fp64 => Some((11, 52)),
            Self::Bool
            | Self::Uint8
            | Self::Uint16
            | Self::Uint32
            | Self::Uint64
            | Self::Int8
            | Self::Int16
            | Self::Int32
            | Self::Int64 => None,
        }
    }

    /// Its `descr` in the header of an `.npy` file.
    #[must_use]
    pub fn descr(self) -> &'static str {
        self.row().4
    }

    /// The type of a `descr`. Older programs write `|V2` for BF16.
    #[must_use]
    pub fn from_descr(descr: &str) -> Option<Self> {
        let descr = if descr == "|V2" { "<V2" } else { descr };
        TABLE.iter().find(|row| row.4 == descr).map(|row| row.0)
    }

    /// Its number in a packed set of tensors.
    #[must_use]
    pub fn number(self) -> u8 {
        self.row().1
    }

    /// The type of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == number).map(|row| row.0)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that does not name a type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a tensor type: write one of {}", names())]
pub struct ParseDataTypeError {
    text: String,
}

fn names() -> String {
    TABLE.map(|row| row.2).join(", ")
}

impl FromStr for DataType {
    type Err = ParseDataTypeError;

    fn from_str(text: &str) -> Result<Self, ParseDataTypeError> {
        let row = TABLE.iter().find(|row| row.2 == text);
        row.map(|row| row.0).ok_or_else(|| ParseDataTypeError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_type_leads_back_to_it() {
        assert_eq!(DataType::all().count(), TABLE.len());
        for (datatype, (number, row)) in DataType::all().zip((1_u8..).zip(TABLE)) {
            assert_eq!((datatype, number), (row.0, row.1));
            assert_eq!(datatype.name().parse(), Ok(datatype));
            assert_eq!(DataType::from_number(datatype.number()), Some(datatype));
            assert_eq!(DataType::from_descr(datatype.descr()), Some(datatype));
            let json = serde_json::to_string(&datatype).unwrap();
            assert_eq!(json, format!("\"{}\"", datatype.name()));
            let bits = datatype.name().trim_start_matches(char::is_alphabetic);
            let bits = if datatype == DataType::Bool { "8" } else { bits };
            assert_eq!(bits.parse::<usize>().unwrap(), 8 * datatype.bytes(), "{datatype}");
        }
        assert_eq!(DataType::from_number(0), None);
        assert_eq!(DataType::from_number(14), None);
        assert_eq!(DataType::from_descr(">f4"), None);
        let error = "BYTES".parse::<DataType>().unwrap_err();
        assert!(error.to_string().contains("`BYTES` is not a tensor type"), "{error}");
    }
}
