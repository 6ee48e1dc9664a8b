//! Exit codes. From a worker's exit code the supervisor decides whether to start another process.
//!
//! | `gridpool-worker` | meaning | unless the policy says otherwise |
//! |---|---|---|
//! | 0 | told to stop, or the supervisor is gone | if not told: another process |
//! | 70 | a sticky CUDA error: the context is lost | another process; the job is suspect |
//! | 71 | the device is gone, does not answer, or fails its tests | another process |
//! | 72 | too little device memory, or too few threads, to start | another process |
//! | 73 | wrong set-up | no other process |
//! | 74 | it did not understand the supervisor | another process |
//! | 75 | the driver is too old for the kernels | no other process |
//! | 76 | it has grown too far since it was READY | another process; no job is suspect |
//!
//! | `gridpool` | meaning |
//! |---|---|
//! | 0 | every job ended OK |
//! | 1 | a job did not end OK |
//! | 2 | the command line is wrong, or a program that is typed there |
//! | 65 | inputs or programs, from a file or standard input, are missing or wrong |
//! | 69 | no device, no pool at the socket, no NATS server, or another program has the socket or the port |
//! | 70 | a fault of gridpool itself |
//! | 71 | the system refuses what gridpool needs, such as open files or threads |
//! | 73 | a worker's set-up is wrong |
//! | 74 | an output file or standard output could not be written |
//! | 77 | this user may not use the pool, or not give that order |
//! | 78 | the config file, a model's file, a socket or address to listen at or the state folder is wrong |
//! | 130 | Ctrl-C or SIGTERM stopped what was under way; what is known was printed |

/// One exit code: number, name, meaning.
pub type Row = (i32, &'static str, &'static str);

/// Exit codes of `gridpool-worker`.
pub mod worker {
    use super::Row;

    /// Told to stop, or the supervisor is gone.
    pub const OK: i32 = 0;
    /// A sticky CUDA error: the context is lost, and a new process cures it.
    pub const STICKY: i32 = 70;
    /// The device is gone or does not answer.
    pub const DEVICE_LOST: i32 = 71;
    /// Not enough device memory, or too few threads, to start.
    pub const DEVICE_MEMORY: i32 = 72;
    /// Wrong configuration. The supervisor starts no other process, since it would fail the same way.
    pub const CONFIG: i32 = 73;
    /// The worker did not understand a message of the supervisor.
    pub const PROTOCOL: i32 = 74;
    /// The driver is too old for the kernels. The supervisor starts no other process.
    pub const DRIVER: i32 = 75;
    /// Its memory or descriptors have grown beyond the limit since it was READY.
    pub const WORN: i32 = 76;

    /// All codes.
    pub const TABLE: [Row; 8] = [
        (OK, "OK", "the worker ended although nothing had told it to"),
        (STICKY, "STICKY", "a sticky CUDA error: the context is lost"),
        (DEVICE_LOST, "DEVICE_LOST", "the device is gone, does not answer, or fails its tests"),
        (DEVICE_MEMORY, "DEVICE_MEMORY", "too little device memory, or too few threads, to start"),
        (CONFIG, "CONFIG", "wrong set-up: the next process would end the same way"),
        (PROTOCOL, "PROTOCOL", "the worker did not understand the supervisor"),
        (DRIVER, "DRIVER", "the driver is too old for the kernels"),
        (WORN, "WORN", "the worker has grown too far since it was READY"),
    ];
}

/// Exit codes of `gridpool`, after `sysexits.h` where it has one.
pub mod cli {
    /// Every job ended OK.
    pub const OK: u8 = 0;
    /// A job did not end OK.
    pub const JOB: u8 = 1;
    /// The command line is wrong, or a program that is typed there.
    pub const USAGE: u8 = 2;
    /// Inputs or programs, from a file or standard input, are missing or wrong.
    pub const DATA: u8 = 65;
    /// No device, no pool at the socket, no NATS server, or another program has the socket or the port.
    pub const UNAVAILABLE: u8 = 69;
    /// A fault of gridpool itself.
    pub const INTERNAL: u8 = 70;
    /// The system refuses what gridpool needs.
    pub const SYSTEM: u8 = 71;
    /// A worker's configuration is wrong.
    pub const WORKER: u8 = 73;
    /// An output file or standard output could not be written.
    pub const OUTPUT: u8 = 74;
    /// This user may not use the pool.
    pub const NOT_ALLOWED: u8 = 77;
    /// The config file, a socket, an address in it, or the state folder is wrong.
    pub const CONFIG: u8 = 78;

    /// Ctrl-C or SIGTERM stopped the work.
    pub const INTERRUPTED: u8 = 130;

    /// All codes with their meanings.
    pub const TABLE: [(u8, &str); 12] = [
        (OK, "every job ended OK"),
        (JOB, "a job did not end OK"),
        (USAGE, "the command line is wrong, or a program that is typed there"),
        (DATA, "inputs or programs, from a file or standard input, are missing or wrong"),
        (
            UNAVAILABLE,
            "no device, no pool at the socket, no NATS server, or another program has the socket or the port",
        ),
        (INTERNAL, "a fault of gridpool itself"),
        (SYSTEM, "the system refuses what gridpool needs, such as open files or threads"),
        (WORKER, "a worker's set-up is wrong"),
        (OUTPUT, "an output file or standard output could not be written"),
        (NOT_ALLOWED, "this user may not use the pool, or not give that order"),
        (
            CONFIG,
            "the config file, a model's file, a socket or address to listen at or the state folder is wrong",
        ),
        (INTERRUPTED, "Ctrl-C or SIGTERM stopped what was under way; what is known was printed"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_above_say_what_the_constants_say() {
        let text = include_str!("exit.rs");
        let documented = |code: i32| text.contains(&format!("//! | {code} | "));
        worker::TABLE.iter().for_each(|&(code, ..)| assert!(documented(code), "worker {code}"));
        for (code, meaning) in cli::TABLE {
            assert!(text.contains(&format!("//! | {code} | {meaning} |")), "gridpool {code}");
        }
        let rows = text.lines().filter(|line| line.starts_with("//! | ") && !line.contains('`'));
        assert_eq!(rows.count(), worker::TABLE.len() + cli::TABLE.len());
    }
}
