//! Errors of ONNX Runtime as the pool's fault codes.

use gridpool_device::fault::Fault;
use gridpool_protocol::fault::{FaultClass, FaultCode};

/// A call of ONNX Runtime that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {message} ({code})")]
pub struct RuntimeFault {
    call: &'static str,
    code: FaultCode,
    message: String,
}

/// Results of the CUDA runtime below a hundred with the same meaning in the driver. The other small ones mean
/// something else there, or nothing.
const SHARED_SMALL_CODES: [u32; 4] = [1, 2, 3, 4];
/// From here on, both use the same numbers.
const SHARED_CODES_FROM: u32 = 100;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;
/// How ONNX Runtime's provider names a result of CUDA.
const CUDA_FAILURE: &str = "CUDA failure ";
/// How its allocator says that the device, or the model's share of it, is full.
const ARENA_IS_FULL: [&str; 2] =
    ["Failed to allocate memory for requested buffer", "is smaller than requested bytes of"];
/// Longest message kept, in bytes.
const MESSAGE_BYTES_MAX: usize = 1_000;

impl RuntimeFault {
    /// The error of `call`: its code and its message. `on_gpu` if it concerns a GPU's memory.
    #[must_use]
    pub fn new(call: &'static str, onnx: u32, message: &str, on_gpu: bool) -> Self {
        let code = cuda_code(message, on_gpu).unwrap_or(FaultCode::Onnx(onnx));
        let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
        Self { call, code, message: message[..end].trim_end().to_owned() }
    }

    /// This fault, of a step of a pipeline.
    #[must_use]
    pub(crate) fn in_step(self, step: &str) -> Self {
        let message = format!("in the step `{step}`: {}", self.message);
        Self { message, ..self }
    }

    /// The code for the supervisor: CUDA's code if the message names one.
    #[must_use]
    pub fn code(&self) -> FaultCode {
        self.code
    }

    /// What kind it is.
    #[must_use]
    pub fn class(&self) -> FaultClass {
        self.code.class()
    }

    /// Whether other requests may still be run in this process.
    #[must_use]
    pub fn leaves_device_usable(&self) -> bool {
        // A wrong request, or a failure of one kernel, says nothing about the next.
        let is_light = matches!(
            self.class(),
            FaultClass::Program | FaultClass::Transient | FaultClass::Notice
        );
        matches!(self.code, FaultCode::Onnx(_))
            || is_light && matches!(self.code, FaultCode::Cuda(_))
    }

    /// As a fault of the worker.
    #[must_use]
    pub fn to_fault(&self) -> Fault {
        Fault::Runtime { code: self.code, message: self.to_string() }
    }

    /// ONNX Runtime's message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// A fault of the stream on which a pipeline computes.
impl From<Fault> for RuntimeFault {
    fn from(fault: Fault) -> Self {
        Self { call: "the stream", code: fault.code(), message: fault.to_string() }
    }
}

/// The end of what was put into a stream, which was then waited for: a fault that ends the device is the cause, even if
/// what was put there noticed it too.
pub(crate) fn settled<T, E: From<RuntimeFault>>(
    queued: Result<T, E>,
    waited: Result<(), Fault>,
) -> Result<T, E> {
    match (queued, waited.map_err(RuntimeFault::from)) {
        (_, Err(fault)) if !fault.leaves_device_usable() => Err(fault.into()),
        (Err(error), _) => Err(error),
        (Ok(made), waited) => Ok(waited.map(|()| made)?),
    }
}

/// The result of CUDA that a message names: `CUDA failure 700: an illegal memory access was …`.
fn cuda_code(message: &str, on_gpu: bool) -> Option<FaultCode> {
    if let Some((_, rest)) = message.split_once(CUDA_FAILURE) {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u32 = rest[..digits].parse().ok()?;
        let is_shared = number >= SHARED_CODES_FROM || SHARED_SMALL_CODES.contains(&number);
        return is_shared.then_some(FaultCode::Cuda(number));
    }
    let is_full = ARENA_IS_FULL.iter().any(|text| message.contains(text));
    (on_gpu && is_full).then_some(FaultCode::Cuda(OUT_OF_MEMORY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(message: &str, on_gpu: bool) -> FaultCode {
        RuntimeFault::new("RunWithBinding", 6, message, on_gpu).code()
    }

    #[test]
    fn a_result_of_cuda_in_the_text_is_the_fault() {
        let said = "Non-zero status code returned while running Conv node. CUDA failure 700: an \
                    illegal memory access was encountered ; GPU=0 ; expr=cudaMemcpy";
        let fault = RuntimeFault::new("RunWithBinding", 6, said, true);
        assert_eq!(fault.code(), FaultCode::Cuda(700));
        assert_eq!(fault.class(), FaultClass::Sticky);
        assert!(!fault.leaves_device_usable());
        assert!(fault.to_string().ends_with("expr=cudaMemcpy (cuda 700)"), "{fault}");
        assert_eq!(code("CUDA failure 2: out of memory ; GPU=0", true), FaultCode::Cuda(2));
        assert_eq!(
            code("BFCArena: Failed to allocate memory for requested buffer", true).class(),
            FaultClass::Transient
        );
    }

    #[test]
    fn other_text_leaves_the_code_of_onnx_runtime() {
        assert_eq!(
            code("CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED", true),
            FaultCode::Onnx(6)
        );
        // The CUDA runtime's 9 is an invalid configuration; the driver has no 9.
        assert_eq!(
            code("CUDA failure 9: invalid configuration argument", true),
            FaultCode::Onnx(6)
        );
        assert_eq!(code("CUDA failure", true), FaultCode::Onnx(6));
        assert_eq!(code("CUDA failure x", true), FaultCode::Onnx(6));
        let full = "Failed to allocate memory for requested buffer of size 8";
        assert_eq!(code(full, false), FaultCode::Onnx(6));
        assert!(RuntimeFault::new("Run", 2, "indices out of bounds", true).leaves_device_usable());
    }

    #[test]
    fn of_a_run_and_the_wait_for_it_a_fault_that_ends_the_device_is_the_cause() {
        let light = || RuntimeFault::new("Run", 2, "indices out of bounds", true);
        let wait = |code| Err(Fault::Cuda { call: "cuStreamSynchronize", code });
        let ends = RuntimeFault::from(Fault::Cuda { call: "cuStreamSynchronize", code: 700 });
        assert_eq!(settled(Ok::<_, RuntimeFault>(7), Ok(())), Ok(7));
        assert_eq!(settled(Err::<u8, _>(light()), Ok(())), Err(light()));
        assert_eq!(settled(Err::<u8, _>(light()), wait(700)), Err(ends.clone()));
        assert_eq!(settled(Ok::<_, RuntimeFault>(7), wait(700)), Err(ends));
        assert_eq!(settled(Err::<u8, _>(light()), wait(2)), Err(light()));
        assert!(settled(Ok::<_, RuntimeFault>(7), wait(2)).is_err());
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let fault = RuntimeFault::new("Run", 1, &"é".repeat(1_000), false);
        assert_eq!(fault.message().len(), MESSAGE_BYTES_MAX);
        assert_eq!(fault.to_string().matches("(onnx 1)").count(), 1);
    }
}
