//! Signals that end a process. Data only.

use super::FaultClass::{self, Notice, Process};

/// `(number, name, class, sentence)` in ascending order, as numbered by Linux on x86-64.
pub(super) const SIGNALS: &[(u32, &str, FaultClass, &str)] = &[
    (1, "SIGHUP", Process, "a signal from outside ended the worker"),
    (2, "SIGINT", Process, "a signal from outside ended the worker"),
    (3, "SIGQUIT", Process, "a signal from outside ended the worker"),
    (4, "SIGILL", Process, "the worker met an instruction that is none"),
    (5, "SIGTRAP", Process, "the worker met a breakpoint"),
    (6, "SIGABRT", Process, "the worker ended itself: a panic, or a library's abort"),
    (7, "SIGBUS", Process, "the worker touched memory that is not there any more"),
    (8, "SIGFPE", Process, "the worker divided by zero"),
    (9, "SIGKILL", Notice, "somebody outside killed the worker, or the machine ran out of memory"),
    (10, "SIGUSR1", Process, "a signal from outside ended the worker"),
    (11, "SIGSEGV", Process, "the worker touched memory that is not its own"),
    (12, "SIGUSR2", Process, "a signal from outside ended the worker"),
    (13, "SIGPIPE", Process, "the worker wrote where nobody reads"),
    (14, "SIGALRM", Process, "an alarm ended the worker"),
    (15, "SIGTERM", Process, "a signal from outside ended the worker"),
    (16, "SIGSTKFLT", Process, "a signal from outside ended the worker"),
    (24, "SIGXCPU", Process, "the worker used up its processor time"),
    (25, "SIGXFSZ", Process, "the worker wrote a file beyond its limit"),
    (26, "SIGVTALRM", Process, "an alarm ended the worker"),
    (27, "SIGPROF", Process, "an alarm ended the worker"),
    (29, "SIGIO", Process, "a signal from outside ended the worker"),
    (30, "SIGPWR", Process, "power is failing"),
    (31, "SIGSYS", Process, "the worker made a system call that is forbidden"),
];
