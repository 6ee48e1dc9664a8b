//! The element types of tensors: names of the Open Inference Protocol, sizes, NumPy's names.

use std::str::FromStr;

use crate::named::named;

named! {
    /// The type of a tensor's elements.
    pub enum DataType {
        /// A byte, 0 or 1.
        Bool = "BOOL",
        /// Unsigned, 8 bits.
        Uint8 = "UINT8",
        /// Unsigned, 16 bits.
        Uint16 = "UINT16",
        /// Unsigned, 32 bits.
        Uint32 = "UINT32",
        /// Unsigned, 64 bits.
        Uint64 = "UINT64",
        /// Signed, 8 bits.
        Int8 = "INT8",
        /// Signed, 16 bits.
        Int16 = "INT16",
        /// Signed, 32 bits.
        Int32 = "INT32",
        /// Signed, 64 bits.
        Int64 = "INT64",
        /// IEEE 754, 16 bits.
        Fp16 = "FP16",
        /// The upper half of an FP32.
        Bf16 = "BF16",
        /// IEEE 754, 32 bits.
        Fp32 = "FP32",
        /// IEEE 754, 64 bits.
        Fp64 = "FP64",
        /// Text, or any other bytes: each element has a length of its own ([`Texts`](super::Texts)).
        Bytes = "BYTES",
    }
}

impl DataType {
    /// Bytes of one element, and NumPy's `descr`.
    fn row(self) -> (usize, &'static str) {
        match self {
            Self::Bool => (1, "|b1"),
            Self::Uint8 => (1, "|u1"),
            Self::Uint16 => (2, "<u2"),
            Self::Uint32 => (4, "<u4"),
            Self::Uint64 => (8, "<u8"),
            Self::Int8 => (1, "|i1"),
            Self::Int16 => (2, "<i2"),
            Self::Int32 => (4, "<i4"),
            Self::Int64 => (8, "<i8"),
            Self::Fp16 => (2, "<f2"),
            // NumPy has no such type. The package `ml_dtypes` writes it like this.
            Self::Bf16 => (2, "<V2"),
            Self::Fp32 => (4, "<f4"),
            Self::Fp64 => (8, "<f8"),
            // The length of an element; NumPy's arrays of objects.
            Self::Bytes => (4, "|O"),
        }
    }

    /// Bytes of one element; of BYTES, the fewest.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.row().0
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
            | Self::Int64
            | Self::Bytes => None,
        }
    }

    /// Its `descr` in the header of an `.npy` file.
    #[must_use]
    pub fn descr(self) -> &'static str {
        self.row().1
    }

    /// The type of a `descr`. Older programs write `|V2` for BF16.
    #[must_use]
    pub fn from_descr(descr: &str) -> Option<Self> {
        let descr = if descr == "|V2" { "<V2" } else { descr };
        Self::ALL.into_iter().find(|datatype| datatype.descr() == descr)
    }

    /// Its number in a packed set of tensors.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The type of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|datatype| datatype.number() == number)
    }
}

/// A text that does not name a type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a tensor type: write one of {}", DataType::ALL.map(DataType::name).join(", "))]
pub struct ParseDataTypeError {
    text: String,
}

impl FromStr for DataType {
    type Err = ParseDataTypeError;

    fn from_str(text: &str) -> Result<Self, ParseDataTypeError> {
        Self::from_name(text).ok_or_else(|| ParseDataTypeError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_type_leads_back_to_it() {
        for (number, datatype) in (1_u8..).zip(DataType::ALL) {
            assert_eq!(datatype.number(), number);
            assert_eq!(datatype.name().parse(), Ok(datatype));
            assert_eq!(DataType::from_number(datatype.number()), Some(datatype));
            assert_eq!(DataType::from_descr(datatype.descr()), Some(datatype));
            let json = serde_json::to_string(&datatype).unwrap();
            assert_eq!(json, format!("\"{}\"", datatype.name()));
            if datatype == DataType::Bytes {
                continue;
            }
            let bits = datatype.name().trim_start_matches(char::is_alphabetic);
            let bits = if datatype == DataType::Bool { "8" } else { bits };
            assert_eq!(bits.parse::<usize>().unwrap(), 8 * datatype.bytes(), "{datatype}");
        }
        assert_eq!(DataType::from_number(0), None);
        assert_eq!(DataType::from_number(15), None);
        assert_eq!(DataType::from_descr(">f4"), None);
        let error = "INT4".parse::<DataType>().unwrap_err();
        assert!(error.to_string().contains("`INT4` is not a tensor type"), "{error}");
    }
}
