//! The system calls that a process may make, by seccomp. A call that is refused fails with EPERM.

use std::collections::BTreeMap;
use std::io;

use gridpool_protocol::sandbox::SandboxMode;
use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter_all_threads,
};

/// Which system calls are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// All but those that a CPU worker needs.
    Listed,
    /// The same, but it may connect to sockets of this machine: for the gateway.
    Local,
    /// The same, but it may connect to other machines: for the bridge.
    Network,
    /// Only those that would reach other processes or the system. For the NVIDIA driver, whose calls differ
    /// from version to version.
    Unlisted,
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Marks a call of the x32 ABI, which has the numbers of x86-64.
const X32: i64 = 0x4000_0000;
/// Calls that have a number of their own there: execve, ptrace, `process_vm_readv`, `process_vm_writev`,
/// `kexec_load`, `vmsplice`, execveat.
const X32_OWN: [i64; 7] = [520, 521, 539, 540, 528, 532, 545];

/// The bits of a socket's type; the others of that argument are flags.
const SOCKET_TYPE: u64 = 0xf;
const DATAGRAMS: u64 = 2;

/// Refused to every process.
const DENIED: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_tkill,
    // New processes and programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_open_by_handle_at,
    // The kernel's own parts that were attacked most.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_vmsplice,
    libc::SYS_fanotify_init,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_vhangup,
    libc::SYS_ioprio_set,
];

/// Allowed to a process that may make listed calls. Landlock restricts their paths.
const ALLOWED: &[i64] = &[
    // Descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd2,
    libc::SYS_fcntl,
    libc::SYS_memfd_create,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_select,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_write,
    libc::SYS_writev,
    // Files.
    libc::SYS_access,
    libc::SYS_chdir,
    libc::SYS_chmod,
    libc::SYS_copy_file_range,
    libc::SYS_creat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents,
    libc::SYS_getdents64,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_readahead,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    // Sockets that exist; `socket` and `connect` have rules of their own.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // Memory.
    libc::SYS_brk,
    libc::SYS_get_mempolicy,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_set_mempolicy,
    // Threads, signals and time.
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getitimer,
    libc::SYS_getpriority,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_pause,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setitimer,
    libc::SYS_sigaltstack,
    libc::SYS_time,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_settime,
    // What a process may know of itself and of the machine.
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getpgrp,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_setrlimit,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_wait4,
];

/// What is compared with an argument of a call.
#[derive(Clone, Copy)]
enum Is {
    Equal(u64),
    Other(u64),
    /// Of the first bits, the second are set.
    Bits(u64, u64),
}

/// Calls that are refused when all these arguments, by their number from 0, are so. `own` is this process.
fn denied_if(own: u64, calls: Calls) -> Vec<(i64, Vec<(u8, Is)>)> {
    let family = |family: libc::c_int| Is::Other(u64::from(family.cast_unsigned()));
    let other = || vec![(0, Is::Other(0)), (0, Is::Other(own))];
    // Signal 0 only asks whether a process is there.
    let signal = |number| vec![(0, Is::Other(own)), (number, Is::Other(0))];
    let mut families = vec![(0, family(libc::AF_UNIX)), (0, family(libc::AF_NETLINK))];
    if calls == Calls::Network {
        families.extend([(0, family(libc::AF_INET)), (0, family(libc::AF_INET6))]);
    }
    // A message may have an address that no filter sees: it would need no `connect`.
    let datagrams = |number| (number, vec![(1, Is::Bits(SOCKET_TYPE, DATAGRAMS))]);
    let addressed = [libc::SYS_socket, libc::SYS_socketpair].map(datagrams);
    let addressed = addressed.into_iter().filter(|_| calls == Calls::Listed);
    let option = |option: libc::c_int| vec![(0, Is::Equal(u64::from(option.cast_unsigned())))];
    let others = vec![
        (libc::SYS_socket, families),
        (libc::SYS_socketpair, vec![(0, family(libc::AF_UNIX))]),
        // A new process. That `clone3` makes a thread cannot be seen: its flags lie in memory.
        (libc::SYS_clone, vec![(0, Is::Bits(libc::CLONE_THREAD.cast_unsigned().into(), 0))]),
        // Text that the terminal takes for typed.
        (libc::SYS_ioctl, vec![(1, Is::Equal(libc::TIOCSTI))]),
        (libc::SYS_ioctl, vec![(1, Is::Equal(libc::TIOCLINUX))]),
        (libc::SYS_kill, signal(1)),
        (libc::SYS_tgkill, signal(2)),
        (libc::SYS_rt_sigqueueinfo, signal(1)),
        (libc::SYS_rt_tgsigqueueinfo, signal(2)),
        (libc::SYS_prlimit64, other()),
        (libc::SYS_migrate_pages, other()),
        (libc::SYS_move_pages, other()),
        (libc::SYS_prctl, option(libc::PR_SET_DUMPABLE)),
        (libc::SYS_prctl, option(libc::PR_SET_PDEATHSIG)),
        (libc::SYS_prctl, option(libc::PR_SET_PTRACER)),
        (libc::SYS_prctl, option(libc::PR_SET_MM)),
        // This value only asks.
        (libc::SYS_personality, vec![(0, Is::Other(u32::MAX.into()))]),
    ];
    others.into_iter().chain(addressed).collect()
}

/// Installs the filters in this process for good.
pub(super) fn restrict(calls: Calls, mode: SandboxMode) -> io::Result<()> {
    let refuse = match mode {
        SandboxMode::On => SeccompAction::Errno(libc::EPERM.cast_unsigned()),
        SandboxMode::Log => SeccompAction::Log,
        SandboxMode::Off => return Ok(()),
    };
    let own = u64::from(std::process::id());
    if mode == SandboxMode::On {
        // The C library then makes its threads with `clone`, whose flags can be seen.
        let unknown = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
        let clone3 = Rules::from([(libc::SYS_clone3, Vec::new())]);
        install(clone3, SeccompAction::Allow, unknown)?;
    }
    install(denied(own, calls)?, SeccompAction::Allow, refuse.clone())?;
    // The last: `seccomp` itself is not listed.
    match calls {
        Calls::Listed | Calls::Local | Calls::Network => {
            install(listed(own, calls), refuse, SeccompAction::Allow)
        }
        Calls::Unlisted => Ok(()),
    }
}

fn denied(own: u64, calls: Calls) -> io::Result<Rules> {
    let mut rules: Rules = DENIED.iter().map(|&number| (number, Vec::new())).collect();
    for (number, conditions) in denied_if(own, calls) {
        let rule = SeccompRule::new(
            conditions.into_iter().map(condition).collect::<Result<_, _>>().map_err(broken)?,
        );
        rules.entry(number).or_default().push(rule.map_err(broken)?);
    }
    let x32: Vec<_> = rules.keys().map(|number| number | X32).collect();
    rules.extend(x32.into_iter().chain(X32_OWN.map(|own| own | X32)).map(|n| (n, Vec::new())));
    Ok(rules)
}

/// The listed calls, and those that depend on their arguments, which the other filter looks at.
fn listed(own: u64, calls: Calls) -> Rules {
    let conditional = denied_if(own, calls).into_iter().map(|(number, _)| number);
    let connect = (calls != Calls::Listed).then_some(libc::SYS_connect);
    let numbers = ALLOWED.iter().copied().chain(conditional).chain([libc::SYS_clone3]);
    let numbers = numbers.chain(connect);
    numbers.map(|number| (number, Vec::new())).collect()
}

fn condition((argument, is): (u8, Is)) -> Result<SeccompCondition, BackendError> {
    let (operator, value) = match is {
        Is::Equal(value) => (SeccompCmpOp::Eq, value),
        Is::Other(value) => (SeccompCmpOp::Ne, value),
        Is::Bits(bits, set) => (SeccompCmpOp::MaskedEq(bits), set),
    };
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

/// Installs a filter in all threads: `hit` for the calls in `rules`, `miss` for others.
fn install(rules: Rules, miss: SeccompAction, hit: SeccompAction) -> io::Result<()> {
    let target = std::env::consts::ARCH.try_into().map_err(broken)?;
    let filter = SeccompFilter::new(rules, miss, hit, target).map_err(broken)?;
    let program: BpfProgram = filter.try_into().map_err(broken)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}

fn broken(error: BackendError) -> io::Error {
    io::Error::other(error)
}
