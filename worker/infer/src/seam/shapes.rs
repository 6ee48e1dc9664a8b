//! Whether the model's file states a shape for an input or output. `ort` gives one without dimensions if it does not,
//! as it does for a single number.

use std::ptr::{self, NonNull};

use ort::sys;

use super::SharedSession;
use crate::error::RuntimeFault;

/// Inputs or outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Input,
    Output,
}

/// What a session says of an input or output. It is ours to release.
struct TypeInfo(NonNull<sys::OrtTypeInfo>);

impl Drop for TypeInfo {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "ort keeps its own from callers")]
        // SAFETY: the session gave it to us, and nothing else has it.
        unsafe {
            (ort::api().ReleaseTypeInfo)(self.0.as_ptr());
        }
    }
}

/// Whether the input or output of this index, which is a tensor, has a shape.
pub(crate) fn has_shape(
    session: &SharedSession,
    side: Side,
    index: usize,
) -> Result<bool, RuntimeFault> {
    let (call, info_of) = match side {
        Side::Input => ("SessionGetInputTypeInfo", ort::api().SessionGetInputTypeInfo),
        Side::Output => ("SessionGetOutputTypeInfo", ort::api().SessionGetOutputTypeInfo),
    };
    let mut info = ptr::null_mut();
    #[expect(unsafe_code, reason = "ort has no wrapper for it")]
    // SAFETY: it reads the session, which lives; `info` is written.
    let status = unsafe { info_of(session.address(), index, &raw mut info) };
    session.check(call, status)?;
    let Some(info) = NonNull::new(info).map(TypeInfo) else { return Ok(true) };
    let mut tensor = ptr::null();
    #[expect(unsafe_code, reason = "ort has no wrapper for it")]
    // SAFETY: `info` lives; `tensor` is written, and belongs to it.
    let status = unsafe { (ort::api().CastTypeInfoToTensorInfo)(info.0.as_ptr(), &raw mut tensor) };
    session.check("CastTypeInfoToTensorInfo", status)?;
    if tensor.is_null() {
        return Ok(true);
    }
    #[expect(unsafe_code, reason = "ort has no wrapper for it")]
    // SAFETY: `info`, to which it belongs, lives.
    Ok(unsafe { (ort::api().TensorTypeAndShape_HasShape)(tensor) })
}
