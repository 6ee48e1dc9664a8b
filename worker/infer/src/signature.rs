//! A model's inputs and outputs, and whether rows of several requests may share a run.

use std::ffi::CString;

use gridpool_protocol::limits::TENSORS_MAX;
use gridpool_protocol::tensor::{ANY_SIZE, ShapeError, Tensor, TensorLayout, TensorSpec};
use ort::value::{TensorElementType, ValueType};

use super::types;

/// Why a model's inputs or outputs cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// It is not a tensor.
    #[error("its {side} `{name}` is {what}; only tensors are served")]
    NoTensor {
        /// `input` or `output`.
        side: &'static str,
        /// Which one.
        name: String,
        /// What it is.
        what: &'static str,
    },
    /// Its elements have 4 bits.
    #[error(
        "its {side} `{name}` holds numbers of 4 bits, which are served as weights only: requests have no tensors of \
         them, so add a Cast to or from INT8 to the model"
    )]
    FourBits {
        /// `input` or `output`.
        side: &'static str,
        /// Which one.
        name: String,
    },
    /// Its elements have a type that is not served.
    #[error("its {side} `{name}` holds {datatype}, which is not served")]
    DataType {
        /// `input` or `output`.
        side: &'static str,
        /// Which one.
        name: String,
        /// ONNX Runtime's name of the type.
        datatype: String,
    },
    /// An input may have any number of dimensions.
    #[error(
        "its input `{name}` states no shape, not even a number of dimensions: give it one in the model's file, with \
         free dimensions where they vary"
    )]
    NoShape {
        /// Which one.
        name: String,
    },
    /// A name, a shape or the number of tensors exceeds a limit.
    #[error("its {side} `{name}` exceeds a limit: {reason}")]
    Limit {
        /// `input` or `output`.
        side: &'static str,
        /// Which one.
        name: String,
        /// Which limit.
        reason: String,
    },
}

/// Why a request does not match its model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The request lacks an input.
    #[error("the input `{name}` is missing")]
    Missing {
        /// Its name.
        name: String,
    },
    /// Inputs that share rows differ in their number.
    #[error("`{name}` has {got} rows and `{first}` has {want}: rows of all inputs belong together")]
    Rows {
        /// The input that differs.
        name: String,
        /// Its rows.
        got: u64,
        /// The first input.
        first: String,
        /// Its rows.
        want: u64,
    },
    /// An input has another type or shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The model has no such input.
    #[error("the model has no input `{name}`; it takes {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The model's inputs.
        known: Vec<String>,
    },
}

/// A model's inputs and outputs.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    pub(super) inputs: Vec<TensorSpec>,
    pub(super) outputs: Vec<TensorSpec>,
    /// Whether the first dimension of every input and output is free and has one name, and none is BYTES: perhaps rows.
    pub(super) may_have_rows: bool,
    /// Whether the model names that dimension, or leaves all of them unnamed.
    pub(super) rows_share_a_name: bool,
}

/// An input or output of a session: its name and type.
pub(super) type Outlet<'a> = (&'a str, &'a ValueType);

/// Which of a request's tensors is which input, and its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrangement {
    /// For each input of the model, the index of its tensor.
    pub(super) order: Vec<usize>,
    /// Rows of every input, if the model has rows.
    pub(super) rows: Option<u64>,
}

impl Signature {
    /// The signature that a session describes.
    pub(super) fn of(
        inputs: &[Outlet<'_>],
        outputs: &[Outlet<'_>],
    ) -> Result<Self, SignatureError> {
        let (mut symbols, mut all_free) = (Vec::new(), true);
        let mut specs = |side: &'static str, outlets: &[Outlet<'_>]| {
            if let Some(beyond) = outlets.get(TENSORS_MAX) {
                let (name, count) = (beyond.0.to_owned(), outlets.len());
                let reason = format!("there are {count}; at most {TENSORS_MAX} are served");
                return Err(SignatureError::Limit { side, name, reason });
            }
            let mut specs = Vec::with_capacity(outlets.len());
            for &outlet in outlets {
                let (spec, symbol) = spec(side, outlet)?;
                match symbol {
                    Some(symbol) => symbols.push(symbol),
                    None => all_free = false,
                }
                specs.push(spec);
            }
            Ok(specs)
        };
        let inputs = specs("input", inputs)?;
        let outputs = specs("output", outputs)?;
        let rows_share_a_name = symbols.windows(2).all(|pair| pair[0] == pair[1]);
        // Rows of texts have no common size.
        let has_texts = [&inputs, &outputs].into_iter().flatten().any(TensorSpec::is_text);
        let is_empty = inputs.is_empty() || outputs.is_empty();
        let may_have_rows = all_free && !is_empty && !has_texts;
        Ok(Self { inputs, outputs, may_have_rows, rows_share_a_name })
    }

    /// Names for the C API. They have no zero byte: the limits of tensors exclude it.
    pub(super) fn names(specs: &[TensorSpec]) -> Vec<CString> {
        let name = |spec: &TensorSpec| CString::new(spec.name.as_str());
        specs.iter().map(|spec| name(spec).expect("checked when the model was loaded")).collect()
    }

    /// Matches a request's tensors with the model's inputs.
    pub(super) fn arrange(
        &self,
        layout: &TensorLayout,
        has_rows: bool,
    ) -> Result<Arrangement, InputError> {
        let mut order = Vec::with_capacity(self.inputs.len());
        let mut rows: Option<u64> = None;
        for spec in &self.inputs {
            let missing = || InputError::Missing { name: spec.name.clone() };
            let at = layout.find(&spec.name).ok_or_else(missing)?;
            let tensor = &layout.tensors()[at];
            spec.accepts(tensor)?;
            if has_rows {
                let got = tensor.shape()[0];
                let want = *rows.get_or_insert(got);
                if got != want {
                    let (name, first) = (spec.name.clone(), self.inputs[0].name.clone());
                    return Err(InputError::Rows { name, got, first, want });
                }
            }
            order.push(at);
        }
        let is_known = |tensor: &&Tensor| !self.inputs.iter().any(|s| s.name == tensor.name());
        if let Some(tensor) = layout.tensors().iter().find(is_known) {
            let known = self.inputs.iter().map(|spec| spec.name.clone()).collect();
            return Err(InputError::Unknown { name: tensor.name().to_owned(), known });
        }
        Ok(Arrangement { order, rows })
    }
}

/// The description of an input or output, and the name of its first dimension if that is free.
fn spec(
    side: &'static str,
    (name, value): Outlet<'_>,
) -> Result<(TensorSpec, Option<String>), SignatureError> {
    let name = || name.to_owned();
    let no_tensor = |what| SignatureError::NoTensor { side, name: name(), what };
    let (element, shape, symbols) = match value {
        ValueType::Tensor { ty, shape, dimension_symbols } => (*ty, shape, dimension_symbols),
        ValueType::Sequence(_) => return Err(no_tensor("a sequence")),
        ValueType::Map { .. } => return Err(no_tensor("a map")),
        ValueType::Optional(_) => return Err(no_tensor("optional")),
    };
    if matches!(element, TensorElementType::Int4 | TensorElementType::Uint4) {
        return Err(SignatureError::FourBits { side, name: name() });
    }
    let datatype = types::from_runtime(element).ok_or_else(|| SignatureError::DataType {
        side,
        name: name(),
        datatype: element.to_string(),
    })?;
    let shape: Vec<i64> = shape.iter().map(|&side| side.max(ANY_SIZE)).collect();
    // With every free dimension at its smallest, the tensor must be within the limits.
    let smallest = shape.iter().map(|&side| u64::try_from(side).unwrap_or(0)).collect();
    let limit = |error: gridpool_protocol::tensor::TensorError| SignatureError::Limit {
        side,
        name: name(),
        reason: error.to_string(),
    };
    Tensor::new(name(), datatype, smallest).map_err(limit)?;
    let is_free = shape.first() == Some(&ANY_SIZE);
    let symbol = is_free.then(|| symbols.first().cloned().unwrap_or_default());
    Ok((TensorSpec::new(name(), datatype, shape), symbol))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::DataType;
    use ort::value::{Shape, SymbolicDimensions};

    use super::*;

    fn outlet(
        name: &'static str,
        ty: TensorElementType,
        shape: &[(i64, &str)],
    ) -> (&'static str, ValueType) {
        let sides = Shape::new(shape.iter().map(|side| side.0));
        let dimension_symbols = SymbolicDimensions::new(shape.iter().map(|s| s.1.to_owned()));
        (name, ValueType::Tensor { ty, shape: sides, dimension_symbols })
    }

    fn of(
        inputs: &[(&'static str, ValueType)],
        outputs: &[(&'static str, ValueType)],
    ) -> Result<Signature, SignatureError> {
        let inputs: Vec<_> = inputs.iter().map(|outlet| (outlet.0, &outlet.1)).collect();
        let outputs: Vec<_> = outputs.iter().map(|outlet| (outlet.0, &outlet.1)).collect();
        Signature::of(&inputs, &outputs)
    }

    const F: TensorElementType = TensorElementType::Float32;

    fn layout(tensors: &[(&str, DataType, &[u64])]) -> TensorLayout {
        let new = |&(name, datatype, shape): &(&str, DataType, &[u64])| {
            Tensor::new(name, datatype, shape.to_vec()).unwrap()
        };
        TensorLayout::new(tensors.iter().map(new).collect()).unwrap()
    }

    #[test]
    fn a_model_may_have_rows_if_the_first_dimension_is_free_everywhere() {
        let n = |name| outlet(name, F, &[(-1, "N"), (3, "")]);
        let rows = |inputs: &[(&'static str, ValueType)], outputs: &[(&'static str, ValueType)]| {
            let signature = of(inputs, outputs).unwrap();
            (signature.may_have_rows, signature.rows_share_a_name)
        };
        assert_eq!(rows(&[n("x")], &[n("y"), outlet("z", F, &[(-1, "N")])]), (true, true));
        assert_eq!(rows(&[n("x")], &[outlet("y", F, &[(-1, "M")])]), (true, false));
        assert!(!rows(&[n("x")], &[outlet("y", F, &[(1, "")])]).0);
        assert!(!rows(&[n("x"), outlet("s", F, &[])], &[n("y")]).0);
        assert!(!rows(&[], &[n("y")]).0);
        let text = || outlet("t", TensorElementType::String, &[(-1, "N")]);
        assert!(!rows(&[n("x"), text()], &[n("y")]).0, "rows of texts have no common size");
        assert!(!rows(&[n("x")], &[text()]).0);
    }

    #[test]
    fn unserved_types_are_refused_by_name() {
        for small in [TensorElementType::Int4, TensorElementType::Uint4] {
            let error = of(&[outlet("t", small, &[(-1, "")])], &[]).unwrap_err().to_string();
            assert!(error.starts_with("its input `t` holds numbers of 4 bits"), "{error}");
            assert!(error.ends_with("add a Cast to or from INT8 to the model"), "{error}");
        }
        let list = ("l", ValueType::Sequence(Box::new(outlet("", F, &[]).1)));
        let error = of(&[], &[list]).unwrap_err();
        assert_eq!(error.to_string(), "its output `l` is a sequence; only tensors are served");
        let (key, value) = (TensorElementType::Int64, F);
        let map = ("m", ValueType::Map { key, value });
        assert!(of(&[map], &[]).unwrap_err().to_string().contains("is a map"));
        let complex = outlet("c", TensorElementType::Complex64, &[]);
        let error = of(&[complex], &[]).unwrap_err().to_string();
        assert_eq!(error, "its input `c` holds c64, which is not served");
        let ranks = outlet("r", F, &[(1, ""); 17]);
        assert!(of(&[ranks], &[]).unwrap_err().to_string().contains("17 dimensions"));
    }

    #[test]
    fn a_request_is_arranged_by_name_and_what_is_wrong_with_it_is_named() {
        let inputs = [outlet("a", F, &[(-1, "N"), (3, "")]), outlet("b", F, &[(-1, "N")])];
        let signature = of(&inputs, &[outlet("y", F, &[(-1, "N")])]).unwrap();
        let arrange = |tensors: &[(&str, DataType, &[u64])]| {
            signature.arrange(&layout(tensors), true).map_err(|error| error.to_string())
        };
        let fp32 = DataType::Fp32;
        let right = arrange(&[("b", fp32, &[5]), ("a", fp32, &[5, 3])]).unwrap();
        assert_eq!(right, Arrangement { order: vec![1, 0], rows: Some(5) });
        assert_eq!(arrange(&[("a", fp32, &[5, 3])]).unwrap_err(), "the input `b` is missing");
        let rows = arrange(&[("a", fp32, &[5, 3]), ("b", fp32, &[4])]).unwrap_err();
        assert!(rows.starts_with("`b` has 4 rows and `a` has 5"), "{rows}");
        let third = [("a", fp32, &[5, 3][..]), ("b", fp32, &[5]), ("c", fp32, &[])];
        assert_eq!(arrange(&third).unwrap_err(), "the model has no input `c`; it takes a, b");
        let shape = arrange(&[("a", fp32, &[5, 4]), ("b", fp32, &[5])]).unwrap_err();
        assert_eq!(shape, "`a` has the shape [5, 4]; the model takes [?, 3]");
    }
}
