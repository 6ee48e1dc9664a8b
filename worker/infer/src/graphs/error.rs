//! Why a model has no CUDA graphs.

use gridpool_device::cuda::CaptureError;
use gridpool_protocol::limits::CUDA_GRAPHS_MAX;

use crate::context::RunError;

/// Why a model has no CUDA graphs although it asks for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphsError {
    /// The CPU would take part in a replay.
    #[error(
        "its {tensor} lies in the host's memory, because the CPU reads or writes it, and a replay has no CPU"
    )]
    Host {
        /// The input or output, or a step's.
        tensor: String,
    },
    /// It counts.
    #[error(
        "the shape of what its node {node} gives depends on its data, and a replay would give that of the captured run"
    )]
    Counting {
        /// The node.
        node: String,
    },
    /// It is random.
    #[error("its node {node} draws random numbers, and a replay would draw the same again")]
    Random {
        /// The node.
        node: String,
    },
    /// Something in it depends on more than its inputs' shapes.
    #[error(
        "a replay gives other results than a run: its output `{output}` differs, with inputs {shapes}"
    )]
    Differs {
        /// The output.
        output: String,
        /// The shapes of the inputs.
        shapes: String,
    },
    /// A run failed in a session of graphs, before it was to be captured.
    #[error("its run with inputs {shapes} fails in a session for CUDA graphs")]
    Run {
        /// The shapes of the inputs.
        shapes: String,
        /// Why.
        #[source]
        source: RunError,
    },
    /// It asks for too many.
    #[error(
        "its warm-ups and preferred batch sizes are {shapes} shapes, and a context has at most {CUDA_GRAPHS_MAX} \
         graphs: name fewer"
    )]
    TooMany {
        /// How many shapes there are.
        shapes: usize,
    },
    /// A graph was captured, and a run of its shapes was no replay.
    #[error("its run with inputs {shapes} was captured and is not replayed")]
    Unused {
        /// The shapes of the inputs.
        shapes: String,
    },
    /// ONNX Runtime has not captured the run, or cannot.
    #[error("its run with inputs {shapes} cannot be captured")]
    Capture {
        /// The shapes of the inputs.
        shapes: String,
        /// Why.
        #[source]
        source: RunError,
    },
    /// What was captured cannot be replayed.
    #[error("its run with inputs {shapes} cannot be replayed")]
    Replay {
        /// The shapes of the inputs.
        shapes: String,
        /// Why.
        #[source]
        source: CaptureError,
    },
}
