//! What NVML's error codes and health fields mean, for every caller of NVML.

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;

/// `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`.
const RECOVERY_ACTION: FieldId = FieldId(230);

const INVALID_ARGUMENT: u32 = 2;
/// `NVML_ERROR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: u32 = 3;
const LIBRARY_NOT_FOUND: u32 = 12;
/// `NVML_ERROR_FUNCTION_NOT_FOUND`.
pub const FUNCTION_NOT_FOUND: u32 = 13;

/// A call of NVML that gave an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The call.
    pub call: &'static str,
    /// What it returned.
    pub code: u32,
}

/// NVML's number for an error, including errors that the wrapper makes itself.
#[must_use]
pub fn code_of(error: NvmlError) -> u32 {
    if matches!(error, NvmlError::LibloadingError(_)) {
        LIBRARY_NOT_FOUND
    } else if matches!(error, NvmlError::FailedToLoadSymbol(_)) {
        FUNCTION_NOT_FOUND
    } else {
        error.into()
    }
}

/// The recovery action that the device needs, if the driver knows that field.
///
/// # Errors
/// NVML's.
pub fn recovery_action(device: &Device<'_>) -> Result<Option<u32>, Refused> {
    let value = device.field_values_for(&[RECOVERY_ACTION]).and_then(|values| {
        let sample = values.into_iter().next().unwrap_or(Err(NvmlError::NotSupported))?;
        sample.value
    });
    match value {
        Ok(SampleValue::U32(action)) => Ok(Some(action)),
        Ok(SampleValue::U64(action)) => Ok(Some(u32::try_from(action).unwrap_or(u32::MAX))),
        Ok(SampleValue::F64(_) | SampleValue::I64(_)) => Ok(None),
        Err(error) => match code_of(error) {
            INVALID_ARGUMENT | NOT_SUPPORTED | FUNCTION_NOT_FOUND => Ok(None),
            code => Err(Refused { call: "nvmlDeviceGetFieldValues", code }),
        },
    }
}
