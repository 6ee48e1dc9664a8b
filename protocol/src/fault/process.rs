//! Signals that end a process. Data only.

use super::FaultClass::{self, Notice, Process};

/// `(number, name, class, sentence)` in ascending order, as numbered by Linux on x86-64.
pub(super) const SIGNALS: &[(u32, &str, FaultClass, &str)] = &[
    (1, "SIGHUP", Process, "a signal from another process ended the worker"),
    (2, "SIGINT", Process, "a signal from another process ended the worker"),
    (3, "SIGQUIT", Process, "a signal from another process ended the worker"),
    (4, "SIGILL", Process, "the worker ran an illegal instruction"),
    (5, "SIGTRAP", Process, "the worker hit a breakpoint"),
    (6, "SIGABRT", Process, "the worker aborted: a panic, or an abort in a library"),
    (7, "SIGBUS", Process, "the worker accessed memory that is no longer mapped"),
    (8, "SIGFPE", Process, "the worker made an arithmetic error, such as a division by zero"),
    (9, "SIGKILL", Notice, "another process killed the worker, or the machine ran out of memory"),
    (10, "SIGUSR1", Process, "a signal from another process ended the worker"),
    (11, "SIGSEGV", Process, "the worker accessed an invalid memory address"),
    (12, "SIGUSR2", Process, "a signal from another process ended the worker"),
    (13, "SIGPIPE", Process, "the worker wrote to a closed pipe or socket"),
    (14, "SIGALRM", Process, "a timer ended the worker"),
    (15, "SIGTERM", Process, "a signal from another process ended the worker"),
    (16, "SIGSTKFLT", Process, "a signal from another process ended the worker"),
    (24, "SIGXCPU", Process, "the worker used up its CPU time"),
    (25, "SIGXFSZ", Process, "the worker wrote a file beyond the size limit"),
    (26, "SIGVTALRM", Process, "a timer ended the worker"),
    (27, "SIGPROF", Process, "a timer ended the worker"),
    (29, "SIGIO", Process, "a signal from another process ended the worker"),
    (30, "SIGPWR", Process, "the power is failing"),
    (31, "SIGSYS", Process, "the worker made a forbidden system call"),
];
