//! Every limit of the protocol, by name. They are part of the wire format and equal on both sides. Limits that
//! an operator may set are in the supervisor's config.

use std::time::Duration;

/// Version of the wire format. Both sides must name the same one.
pub const PROTOCOL_VERSION: u32 = 43;

/// Highest colour of a cell.
pub const COLOR_MAX: u8 = 9;
/// Longest side of a grid.
pub const SIDE_MAX: usize = 255;
/// Most cells of one grid, intermediate grids included.
pub const GRID_CELLS_MAX: usize = 4_096;

/// Most items of one job.
pub const JOB_ITEMS_MAX: u32 = 1 << 22;
/// Most values that the results of one job have: two for each item that gives a pair.
pub const JOB_VALUES_MAX: u32 = 2 * JOB_ITEMS_MAX;
/// Most cells of one job, all items together.
pub const JOB_CELLS_MAX: u32 = 1 << 30;

/// Most ops of one program.
pub const PROGRAM_OPS_MAX: usize = 64;
/// Largest factor of `upscale`, `hupscale` and `vupscale`.
pub const UPSCALE_MAX: u8 = 30;
/// Largest factor of `downscale`.
pub const DOWNSCALE_MAX: u8 = 255;
/// Most parts of `hsplit` and `vsplit`.
pub const SPLIT_MAX: u8 = 30;
/// Farthest that one `shift` or `move` goes, in rows or columns.
pub const SHIFT_MAX: i16 = 255;
/// Longest text of a program, in bytes.
pub const PROGRAM_BYTES_MAX: usize = 16 * 1_024;
/// Most instructions of a solver.
pub const SOLVER_INSTRUCTIONS_MAX: usize = 1_024;
/// Most registers of a solver, the grid and the constants included: a register is named by a byte.
pub const SOLVER_REGISTERS_MAX: usize = 256;
/// Most kinds of values in a solver.
pub const SOLVER_KINDS_MAX: usize = 128;
/// Deepest nesting of containers and pairs in a kind.
pub const KIND_DEPTH_MAX: usize = 8;
/// Most values that a solver computes, those of loops and branches included, before it is shortened.
pub const SOLVER_NODES_MAX: usize = 8_192;
/// Most calls that are followed while a solver is compiled.
pub const SOLVER_CALLS_MAX: usize = 65_536;
/// Deepest nesting of calls while a solver is compiled.
pub const SOLVER_CALL_DEPTH_MAX: usize = 128;
/// Deepest nesting of expressions in a solver.
pub const SOLVER_DEPTH_MAX: usize = 64;
/// Most loops and branches inside of each other.
pub const SOLVER_NESTING_MAX: usize = 32;
/// The most that a value weighs: numbers, vectors and cells 1 each, a grid its cells.
pub const VALUE_WEIGHT_MAX: u32 = 1 << 17;
/// Lowest colour of a cell while a solver runs; results show it as it is.
pub const MACHINE_COLOR_MIN: i32 = -2;
/// Highest colour of a cell while a solver runs: with the lowest, 16 colours.
pub const MACHINE_COLOR_MAX: i32 = 13;
/// Most pairs of places that `manhattan` and what is made of it compare.
pub const DISTANCES_MAX: usize = 1 << 24;
/// Most cells of an object times the side along which `hperiod` or `vperiod` moves it; more is Overflow.
pub const PERIODS_MAX: usize = 1 << 24;
/// Most bytes of a solver's result that is no grid; a longer one is an error of the item.
pub const RESULT_BYTES_MAX: usize = 64 * 1_024;
/// Instructions that an item may run, unless the job says otherwise.
pub const STEPS_DEFAULT: u32 = 1_000_000;
/// The largest number of instructions that a job may let an item run.
pub const STEPS_MAX: u32 = 100_000_000;

/// Most programs of one search job.
pub const SEARCH_PROGRAMS_MAX: u32 = 1 << 16;
/// Most bytes of the programs of one search job, padding included.
pub const SEARCH_PROGRAM_BYTES_MAX: u32 = 64 << 20;
/// Most pairs of one search job.
pub const SEARCH_PAIRS_MAX: u32 = 1 << 16;
/// Most programs that one template stands for.
pub const TEMPLATE_TEXTS_MAX: u64 = 1 << 32;
/// Most holes of a template that devices expand.
pub const TEMPLATE_HOLES_MAX: usize = 16;
/// Most words of all holes of a template that devices expand.
pub const TEMPLATE_CHOICES_MAX: usize = 4_096;
/// Most bytes of a template that devices expand, and of the programs together that they prepare for its opcodes.
pub const TEMPLATE_BYTES_MAX: u32 = 1 << 20;
/// Most evaluations of one search job: programs times pairs.
pub const SEARCH_EVALUATIONS_MAX: u64 = 1 << 26;

/// Deepest nesting of arguments in a program.
pub const PROGRAM_DEPTH_MAX: usize = 8;

/// Largest payload, in or out, that travels in a message, bytes. A larger one needs an arena. A worker's channel holds
/// many at a time.
pub const INLINE_BYTES_MAX: usize = 4 * 1024;
/// Largest body of one frame on a socket, and of one message between supervisor and worker.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;
/// File descriptors that one frame may carry.
pub const FRAME_FDS_MAX: usize = 1;

/// Most attempts that join one launch.
pub const JOIN_MAX: usize = 64;
/// Most small jobs that a client sends as one. Two such fit `client_jobs_max`, as it is by default: while one runs, the
/// next waits.
pub const BUNDLE_JOBS_MAX: u32 = 32;
/// Largest packed input of small jobs that go as one, bytes.
pub const BUNDLE_BYTES_MAX: usize = 1024 * 1024;
/// Largest inline payload, in and out, of all attempts of one dispatch, bytes. Two dispatches are outstanding at a
/// time. Both must fit the channel's buffer, else the supervisor would block on a worker.
pub const JOIN_INLINE_BYTES_MAX: usize = 48 * 1024;

/// Arenas that one connection may have at a time; each costs a descriptor.
pub const CLIENT_ARENAS_MAX: usize = 128;
/// Smallest arena, bytes. The supervisor rounds smaller requests up.
pub const ARENA_BYTES_MIN: u64 = 64 * 1024;
/// Largest single arena.
pub const ARENA_BYTES_MAX: u64 = 8 << 30;

/// Longest time in a report of an attempt, microseconds: the longest deadline on ten thousand threads.
pub const REPORT_US_MAX: f64 = 3.6e13;
/// Most bytes in such a report, each way.
pub const REPORT_BYTES_MAX: u64 = 1 << 50;

/// Longest deadline of a job.
pub const DEADLINE_MAX: Duration = Duration::from_secs(3_600);
/// Default deadline of a job.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// Longest time for the hello of a new connection.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for the rest of a frame after its first byte.
pub const FRAME_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of a worker's heartbeats.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(250);
/// How long a worker that was asked to stop an attempt may tell of no progress, while others that are wanted share the
/// attempt's run: three heartbeats. Without others, it has `cancel_grace` for the attempt.
pub const PROGRESS_EVERY_MAX: Duration = Duration::from_millis(750);

/// Most tensors of one set, in or out.
pub const TENSORS_MAX: usize = 256;
/// Longest name of a tensor, in bytes.
pub const TENSOR_NAME_BYTES_MAX: usize = 256;
/// Most dimensions of a tensor.
pub const TENSOR_RANK_MAX: usize = 16;
/// Largest dimension of a tensor.
pub const TENSOR_SIDE_MAX: u64 = 1 << 33;
/// Most bytes of one set of tensors, header included: it must fit an arena.
pub const TENSOR_BYTES_MAX: u64 = ARENA_BYTES_MAX;
/// Longest header of a set of tensors, bytes: the most tensors, each with the longest name and shape, and the size of
/// its data.
pub const TENSORS_HEADER_BYTES_MAX: usize =
    16 + TENSORS_MAX * (4 + TENSOR_NAME_BYTES_MAX + 8 * TENSOR_RANK_MAX + 8);
/// Most bytes of one element of a BYTES tensor.
pub const BYTES_ELEMENT_MAX: usize = 1 << 20;
/// Most bytes of a BYTES tensor, with 4 for the length of each element. ONNX Runtime takes 32 more for each.
pub const BYTES_TENSOR_MAX: usize = 64 << 20;
/// Longest name of a model, in bytes.
pub const MODEL_NAME_BYTES_MAX: usize = 128;
/// Most contexts of one model.
pub const MODEL_CONTEXTS_MAX: u32 = 64;
/// Most CUDA graphs of one context: one for each shape of its inputs. Runs of further shapes are not replays.
pub const CUDA_GRAPHS_MAX: usize = 16;
/// Most contexts that a worker tries for a model with `contexts = "auto"`: a power of 2.
pub const AUTO_CONTEXTS_MAX: u32 = 32;
/// How long it tries. A number that it has begun to try is measured to its end.
pub const AUTO_CONTEXTS_TIME: Duration = Duration::from_secs(10);
/// Largest plan of a model, bytes. Beside all that may be outstanding it must fit a worker's channel. As text, in which
/// one byte may become six, it is one argument of a worker's command line, for which Linux has 128 KiB.
pub const MODEL_PLAN_BYTES_MAX: usize = 20 * 1_024;
/// Most steps of one pipeline.
pub const PIPELINE_STEPS_MAX: usize = 16;
/// Most wires of one pipeline: inputs of all steps, and outputs.
pub const PIPELINE_WIRES_MAX: usize = 256;
/// Most rows of one run of a model.
pub const MODEL_BATCH_MAX: u32 = 4_096;
/// Longest batching delay of a model, microseconds.
pub const MODEL_QUEUE_DELAY_US_MAX: u64 = 1_000_000;
