//! Finds the row of a name, and suggestions for a wrong name.

use std::ops::Range;

use super::error::ProgramError;
use super::ops::OPS;
use super::parse::Call;
use super::table::OpSpec;
use crate::near;

/// Names that look like ops but are not, each with what to write instead.
const REFUSED: &[(&str, &str)] = &[
    (
        "flip",
        "`flip` is a boolean not in the DSL, not a mirror: write hmirror (top and bottom) or vmirror (left and right)",
    ),
    (
        "mirror",
        "say which mirror: hmirror (top and bottom), vmirror (left and right), dmirror (transpose) or cmirror",
    ),
    ("flip_h", "the reports' flip_h is vmirror (left and right change places)"),
    ("flip_v", "the reports' flip_v is hmirror (top and bottom change places)"),
    ("rot", "say how far: rot90, rot180 or rot270"),
];

/// Whether it is the name of an op.
pub(super) fn is_op(name: &str) -> bool {
    OPS.iter().any(|spec| spec.name == name)
}

/// The signature of an op.
pub(super) fn signature(name: &str) -> Option<String> {
    OPS.iter().find(|spec| spec.name == name).map(OpSpec::signature)
}

/// The row of the op of that name.
///
/// # Errors
/// A sentence on what to write instead.
pub fn find_op(name: &str) -> Result<&'static OpSpec, ProgramError> {
    row_of(name, name, 0..name.len())
}

/// The row of a called op, or an error with what to write instead.
pub(super) fn lookup(text: &str, call: &Call) -> Result<&'static OpSpec, ProgramError> {
    row_of(&call.name, text, call.span.clone())
}

/// The row of an op named in a text, or an error at that place.
fn row_of(name: &str, text: &str, span: Range<usize>) -> Result<&'static OpSpec, ProgramError> {
    if let Some(spec) = OPS.iter().find(|spec| spec.name == name) {
        return Ok(spec);
    }
    if let Some((_, sentence)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err(ProgramError::new(text, span, (*sentence).to_owned()));
    }
    let message = format!("there is no op `{name}`");
    let close = near::names(name, OPS.iter().map(|spec| spec.name));
    let help = if close.is_empty() {
        "`gridpool ops` lists the ops".to_owned()
    } else {
        format!("close to it: {}", close.join(", "))
    };
    Err(ProgramError::new(text, span, message).with_help(help))
}
