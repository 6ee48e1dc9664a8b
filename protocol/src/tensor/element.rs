//! The Rust types of a tensor's elements. Only this file maps a [`DataType`] to a Rust type. Code that handles
//! every type implements [`Visitor`].

use std::fmt;

use bytemuck::{NoUninit, Pod};
use half::{bf16, f16};

use super::DataType;

/// One element of any type as a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// From a BOOL.
    Bool(bool),
    /// From an FP64.
    Double(f64),
    /// From a signed integer.
    Signed(i64),
    /// From an FP32, FP16 or BF16.
    Single(f32),
    /// From an unsigned integer.
    Unsigned(u64),
}

impl Scalar {
    /// The nearest double; `None` for a truth value.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the nearest number")]
    pub fn to_f64(self) -> Option<f64> {
        match self {
            Self::Bool(_) => None,
            Self::Double(number) => Some(number),
            Self::Signed(number) => Some(number as f64),
            Self::Single(number) => Some(number.into()),
            Self::Unsigned(number) => Some(number as f64),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Single(value) => write!(f, "{value:?}"),
            Self::Unsigned(value) => write!(f, "{value}"),
        }
    }
}

/// The Rust type of the elements of a [`DataType`].
pub trait Element: NoUninit + fmt::Debug + PartialEq + Send + Sync {
    /// Its type.
    const DATATYPE: DataType;

    /// Reads an element from its bytes, little-endian.
    ///
    /// # Panics
    /// If `bytes` does not have the length of an element.
    fn from_le(bytes: &[u8]) -> Self;

    /// Makes `count` elements. `copy` writes their bytes, little-endian.
    fn fill(count: usize, copy: impl FnOnce(&mut [u8])) -> Vec<Self>;

    /// The element as a number.
    fn to_scalar(self) -> Scalar;

    /// Converts a number to an element: to the nearest one for a floating-point type. `None` if the type does not
    /// have the number: it is out of range, has a fraction, or is a truth value.
    fn from_scalar(number: Scalar) -> Option<Self>;
}

/// An operation for every type of elements.
pub trait Visitor {
    /// Its result.
    type Output;

    /// Runs it for one type.
    fn visit<T: Element>(self) -> Self::Output;
}

macro_rules! elements {
    ($($datatype:ident $type:ty: $from_le:expr, $fill:expr, $to:expr, $from:expr;)*) => {
        impl DataType {
            /// Runs a visitor for the Rust type of its elements; `None` for BYTES, whose elements have no fixed size.
            pub fn visit<V: Visitor>(self, visitor: V) -> Option<V::Output> {
                match self {
                    $(Self::$datatype => Some(visitor.visit::<$type>()),)*
                    Self::Bytes => None,
                }
            }
        }
        $(impl Element for $type {
            const DATATYPE: DataType = DataType::$datatype;

            fn from_le(bytes: &[u8]) -> Self {
                $from_le(bytes.try_into().expect("as many bytes as the type has"))
            }

            fn fill(count: usize, copy: impl FnOnce(&mut [u8])) -> Vec<Self> {
                $fill(count, copy)
            }

            fn to_scalar(self) -> Scalar {
                $to(self)
            }

            fn from_scalar(number: Scalar) -> Option<Self> {
                $from(number)
            }
        })*
    };
}

elements! {
    Bool bool: |[byte]: [u8; 1]| byte != 0, fill_flags, Scalar::Bool, flag;
    Uint8 u8: u8::from_le_bytes, fill, |n: u8| Scalar::Unsigned(n.into()), integer;
    Uint16 u16: u16::from_le_bytes, fill, |n: u16| Scalar::Unsigned(n.into()), integer;
    Uint32 u32: u32::from_le_bytes, fill, |n: u32| Scalar::Unsigned(n.into()), integer;
    Uint64 u64: u64::from_le_bytes, fill, Scalar::Unsigned, integer;
    Int8 i8: i8::from_le_bytes, fill, |n: i8| Scalar::Signed(n.into()), integer;
    Int16 i16: i16::from_le_bytes, fill, |n: i16| Scalar::Signed(n.into()), integer;
    Int32 i32: i32::from_le_bytes, fill, |n: i32| Scalar::Signed(n.into()), integer;
    Int64 i64: i64::from_le_bytes, fill, Scalar::Signed, integer;
    Fp16 f16: f16::from_le_bytes, fill, |n: f16| Scalar::Single(n.to_f32()), half;
    Bf16 bf16: bf16::from_le_bytes, fill, |n: bf16| Scalar::Single(n.to_f32()), brain;
    Fp32 f32: f32::from_le_bytes, fill, Scalar::Single, single;
    Fp64 f64: f64::from_le_bytes, fill, Scalar::Double, Scalar::to_f64;
}

fn fill<T: Pod>(count: usize, copy: impl FnOnce(&mut [u8])) -> Vec<T> {
    let mut elements = vec![T::zeroed(); count];
    copy(bytemuck::cast_slice_mut(&mut elements));
    elements
}

/// A Rust `bool` must be 0 or 1, so any other byte becomes 1.
fn fill_flags(count: usize, copy: impl FnOnce(&mut [u8])) -> Vec<bool> {
    fill::<u8>(count, copy).into_iter().map(|byte| byte != 0).collect()
}

fn flag(number: Scalar) -> Option<bool> {
    match number {
        Scalar::Bool(value) => Some(value),
        Scalar::Double(_) | Scalar::Signed(_) | Scalar::Single(_) | Scalar::Unsigned(_) => None,
    }
}

fn integer<T: TryFrom<i64> + TryFrom<u64>>(number: Scalar) -> Option<T> {
    match number {
        Scalar::Signed(number) => T::try_from(number).ok(),
        Scalar::Unsigned(number) => T::try_from(number).ok(),
        Scalar::Bool(_) | Scalar::Double(_) | Scalar::Single(_) => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the nearest number of the type asked for")]
fn single(number: Scalar) -> Option<f32> {
    match number {
        Scalar::Single(number) => Some(number),
        other @ (Scalar::Bool(_) | Scalar::Double(_) | Scalar::Signed(_) | Scalar::Unsigned(_)) => {
            let number = other.to_f64()?;
            Some(number as f32).filter(|single| single.is_finite() || !number.is_finite())
        }
    }
}

fn half(number: Scalar) -> Option<f16> {
    let number = number.to_f64()?;
    Some(f16::from_f64(number)).filter(|half| half.is_finite() || !number.is_finite())
}

fn brain(number: Scalar) -> Option<bf16> {
    let number = number.to_f64()?;
    Some(bf16::from_f64(number)).filter(|half| half.is_finite() || !number.is_finite())
}

impl DataType {
    /// Reads an element from its bytes; `None` for BYTES.
    ///
    /// # Panics
    /// If `bytes` does not have the length of an element.
    #[must_use]
    pub fn read(self, bytes: &[u8]) -> Option<Scalar> {
        struct Read<'a>(&'a [u8]);
        impl Visitor for Read<'_> {
            type Output = Scalar;

            fn visit<T: Element>(self) -> Scalar {
                T::from_le(self.0).to_scalar()
            }
        }
        self.visit(Read(bytes))
    }

    /// Appends a number as an element, little-endian. Returns `false`, and appends nothing, if the type does not
    /// have the number.
    #[must_use]
    pub fn write(self, number: Scalar, to: &mut Vec<u8>) -> bool {
        struct Write<'a>(Scalar, &'a mut Vec<u8>);
        impl Visitor for Write<'_> {
            type Output = bool;

            fn visit<T: Element>(self) -> bool {
                let Some(element) = T::from_scalar(self.0) else { return false };
                self.1.extend(bytemuck::bytes_of(&element));
                true
            }
        }
        self.visit(Write(number, to)).unwrap_or(false)
    }
}

/// The elements of a floating-point type; `None` for other types.
#[must_use]
pub fn numbers(datatype: DataType, bytes: &[u8]) -> Option<Vec<f64>> {
    struct Numbers<'a>(&'a [u8]);
    impl Visitor for Numbers<'_> {
        type Output = Option<Vec<f64>>;

        fn visit<T: Element>(self) -> Self::Output {
            T::DATATYPE.float_bits()?;
            let elements = self.0.chunks_exact(size_of::<T>());
            elements.map(|bytes| T::from_le(bytes).to_scalar().to_f64()).collect()
        }
    }
    datatype.visit(Numbers(bytes)).flatten()
}

// Elements are sent as they are in memory.
const _: () =
    assert!(cfg!(target_endian = "little"), "the wire is little-endian, and so is the host");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read_as_the_number_it_is_and_written_back() {
        let cases: [(DataType, &[u8], &str); 15] = [
            (DataType::Bool, &[1], "true"),
            (DataType::Uint8, &[200], "200"),
            (DataType::Uint16, &[0xff, 0xff], "65535"),
            (DataType::Uint32, &[0xff; 4], "4294967295"),
            (DataType::Uint64, &[0xff; 8], "18446744073709551615"),
            (DataType::Int8, &[0xff], "-1"),
            (DataType::Int16, &[0, 0x80], "-32768"),
            (DataType::Int32, &[0xfe, 0xff, 0xff, 0xff], "-2"),
            (DataType::Int64, &[0xff; 8], "-1"),
            (DataType::Fp16, &[0, 0xc1], "-2.5"),
            (DataType::Bf16, &[0x20, 0xc0], "-2.5"),
            (DataType::Fp32, &0.1_f32.to_le_bytes(), "0.1"),
            (DataType::Fp64, &1e-9_f64.to_le_bytes(), "1e-9"),
            (DataType::Fp32, &f32::NEG_INFINITY.to_le_bytes(), "-inf"),
            (DataType::Fp64, &f64::NAN.to_le_bytes(), "NaN"),
        ];
        for (datatype, bytes, text) in cases {
            let number = datatype.read(bytes).unwrap();
            assert_eq!(number.to_string(), text, "{datatype}");
            let mut written = Vec::new();
            assert!(datatype.write(number, &mut written));
            assert_eq!(written, bytes, "{datatype}");
        }
    }

    #[test]
    fn a_type_takes_the_numbers_it_has_and_no_other() {
        struct Size;
        impl Visitor for Size {
            type Output = (DataType, usize);

            fn visit<T: Element>(self) -> Self::Output {
                (T::DATATYPE, size_of::<T>())
            }
        }
        let takes = |datatype: DataType, number| datatype.write(number, &mut Vec::new());
        assert_eq!(DataType::Bytes.visit(Size), None);
        assert!(!takes(DataType::Bytes, Scalar::Unsigned(1)));
        for datatype in DataType::ALL.into_iter().filter(|&datatype| datatype != DataType::Bytes) {
            assert_eq!(datatype.visit(Size), Some((datatype, datatype.bytes())));
            assert_eq!(takes(datatype, Scalar::Bool(true)), datatype == DataType::Bool);
            assert_eq!(takes(datatype, Scalar::Double(0.5)), datatype.float_bits().is_some());
            assert_eq!(takes(datatype, Scalar::Unsigned(1)), datatype != DataType::Bool);
        }
        assert!(!takes(DataType::Uint8, Scalar::Signed(-1)));
        assert!(!takes(DataType::Int64, Scalar::Unsigned(u64::MAX)));
        assert!(!takes(DataType::Fp32, Scalar::Double(1e300)));
        assert!(!takes(DataType::Fp16, Scalar::Double(65_536.0)));
        assert!(takes(DataType::Fp16, Scalar::Double(f64::INFINITY)));
    }

    #[test]
    fn halves_are_exact_from_the_least_to_infinity() {
        let cases = [
            (0x0000, 0.0),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x3555, 0.333_251_95),
            (0x3c00, 1.0),
            (0x7bff, 65_504.0),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ];
        let number = |bits: u16| DataType::Fp16.read(&bits.to_le_bytes()).unwrap();
        for (bits, want) in cases {
            assert_eq!(number(bits), Scalar::Single(want), "{bits:#x}");
        }
        assert!(number(0x7e00).to_f64().is_some_and(f64::is_nan));
        assert!(number(0x8000).to_f64().is_some_and(f64::is_sign_negative));
    }

    #[test]
    fn numbers_are_those_of_types_with_fractions() {
        let bytes: Vec<u8> = [1.5_f32, -2.0].into_iter().flat_map(f32::to_le_bytes).collect();
        assert_eq!(numbers(DataType::Fp32, &bytes), Some(vec![1.5, -2.0]));
        assert_eq!(numbers(DataType::Int32, &bytes), None);
    }
}
