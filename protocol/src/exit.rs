//! Exit codes. A worker's exit code is its last word: the supervisor decides by it whether a new
//! process could do better.

/// Exit codes of `gridpool-worker`.
pub mod worker {
    /// Told to stop, or the supervisor is gone.
    pub const OK: i32 = 0;
    /// A sticky CUDA error: the context is lost, a new process is the cure.
    pub const STICKY: i32 = 70;
    /// The device is gone or does not answer.
    pub const DEVICE_LOST: i32 = 71;
    /// Not enough device memory, or too few threads, to start.
    pub const DEVICE_MEMORY: i32 = 72;
    /// Wrong configuration: a restart would fail the same way, so none is made.
    pub const CONFIG: i32 = 73;
    /// The supervisor said something that the worker does not understand.
    pub const PROTOCOL: i32 = 74;
    /// The driver is too old for the kernels. Never restarted.
    pub const DRIVER: i32 = 75;
}

/// Exit codes of `gridpool`, after `sysexits.h` where it has one.
pub mod cli {
    /// Every job ended OK.
    pub const OK: u8 = 0;
    /// A job did not end OK.
    pub const JOB: u8 = 1;
    /// The command line or the program text is wrong.
    pub const USAGE: u8 = 2;
    /// The input data is wrong.
    pub const DATA: u8 = 65;
    /// No device, or no pool at the socket.
    pub const UNAVAILABLE: u8 = 69;
    /// A fault of gridpool itself.
    pub const INTERNAL: u8 = 70;
    /// A worker's configuration is wrong.
    pub const WORKER: u8 = 73;
    /// The config file is wrong.
    pub const CONFIG: u8 = 78;
}
