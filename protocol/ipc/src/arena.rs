//! Sealed shared memory. The supervisor makes it; one client and the workers that run its jobs map it. It has
//! no name, so a killed process leaves nothing in `/dev/shm`.

use std::fs::OpenOptions;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use gridpool_protocol::limits::{ARENA_BYTES_MAX, ARENA_BYTES_MIN};
use gridpool_protocol::shared::SharedSlice;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::ftruncate;

/// Why shared memory could not be made or was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The arena would be too large.
    #[error("an arena of {bytes} bytes; at most {ARENA_BYTES_MAX} are allowed")]
    TooLarge {
        /// The requested size.
        bytes: u64,
    },
    /// The descriptor is not sealed memory of the announced size.
    #[error("the descriptor is not a sealed arena of {bytes} bytes")]
    NotSealed {
        /// The announced size.
        bytes: u64,
    },
    /// A system call failed.
    #[error("{call}")]
    System {
        /// The call.
        call: &'static str,
        /// Its error.
        #[source]
        source: io::Error,
    },
}

fn system(call: &'static str) -> impl FnOnce(nix::Error) -> ArenaError {
    move |errno| ArenaError::System { call, source: errno.into() }
}

/// The seals of every arena: neither its size nor its seals can change. A peer can still write and punch
/// holes, so trust only bytes that you have copied.
const SEALS: SealFlag =
    SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

/// The unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// Sets the signal that announces the end of a lease; the libc crate does not have it.
const F_SETSIG: libc::c_int = 10;

/// Opens a file again by its descriptor.
fn reopen(fd: &OwnedFd) -> Result<OwnedFd, ArenaError> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let file = OpenOptions::new().read(true).write(true).open(path);
    let source = |source| ArenaError::System { call: "open /proc/self/fd", source };
    Ok(file.map_err(source)?.into())
}

/// One of the calls about leases, which nix does not have.
fn lease(fd: &OwnedFd, call: libc::c_int, argument: libc::c_int) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "fcntl with an integer")]
    // SAFETY: the descriptor is open, and these calls take an integer, not a pointer.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), call, argument) };
    Errno::result(result).map(drop)
}

/// Shared memory of a fixed size, by descriptor.
#[derive(Debug)]
pub struct Arena {
    fd: OwnedFd,
    bytes: u64,
}

impl Arena {
    /// Makes an arena of at least `bytes` bytes. It commits the memory at once, so that no later access can
    /// fail.
    ///
    /// # Errors
    /// [`ArenaError`], for instance if memory is short.
    pub fn create(bytes: u64) -> Result<Self, ArenaError> {
        Self::named("gridpool-arena", bytes)
    }

    /// The same under another name, which the system shows.
    ///
    /// # Errors
    /// [`ArenaError`], for instance if memory is short.
    pub fn named(name: &str, bytes: u64) -> Result<Self, ArenaError> {
        let bytes = Self::rounded(bytes)?;
        let length = i64::try_from(bytes).expect("ARENA_BYTES_MAX fits i64");
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create(name, flags).map_err(system("memfd_create"))?;
        ftruncate(&fd, length).map_err(system("ftruncate"))?;
        fallocate(&fd, FallocateFlags::empty(), 0, length).map_err(system("fallocate"))?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SEALS)).map_err(system("F_ADD_SEALS"))?;
        // The kernel does not count the file that `memfd_create` opens as a writer.
        Ok(Self { fd: reopen(&fd)?, bytes })
    }

    /// A descriptor for another process, of an open file of its own: [`Arena::has_other_writers`] sees it
    /// until it and all mappings through it are gone.
    ///
    /// # Errors
    /// [`ArenaError::System`], for instance if the process may open no more files.
    pub fn share(&self) -> Result<OwnedFd, ArenaError> {
        reopen(&self.fd)
    }

    /// Whether a process still has a writable descriptor or mapping from [`Arena::share`]. Only the process
    /// that made the arena can tell.
    ///
    /// # Errors
    /// The system's, where the kernel has no leases for shared memory.
    pub fn has_other_writers(&self) -> Result<bool, Errno> {
        // A lease to write is granted to the only writer. A process that opens the file while we have the lease
        // waits, and the kernel tells us with a signal: SIGURG, which does nothing.
        lease(&self.fd, F_SETSIG, libc::SIGURG)?;
        match lease(&self.fd, libc::F_SETLEASE, libc::F_WRLCK) {
            Ok(()) => lease(&self.fd, libc::F_SETLEASE, libc::F_UNLCK).map(|()| false),
            Err(Errno::EAGAIN) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Gives its memory back to the system. Whoever has it mapped reads zeros from now on.
    ///
    /// # Errors
    /// [`ArenaError::System`].
    pub fn punch(&self) -> Result<(), ArenaError> {
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let length = i64::try_from(self.bytes).expect("ARENA_BYTES_MAX fits i64");
        fallocate(&self.fd, hole, 0, length).map_err(system("fallocate"))
    }

    /// The bytes of memory that it takes now.
    ///
    /// # Errors
    /// [`ArenaError::System`].
    pub fn resident_bytes(&self) -> Result<u64, ArenaError> {
        let stat = fstat(&self.fd).map_err(system("fstat"))?;
        Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * STAT_BLOCK_BYTES)
    }

    /// The size of an arena that [`Arena::create`] makes for `bytes`: the next power of two from
    /// [`ARENA_BYTES_MIN`] up to 1 MiB, then the next multiple of 1 MiB.
    ///
    /// # Errors
    /// [`ArenaError::TooLarge`] above [`ARENA_BYTES_MAX`].
    pub fn rounded(bytes: u64) -> Result<u64, ArenaError> {
        const STEP: u64 = 1 << 20;
        if bytes > ARENA_BYTES_MAX {
            return Err(ArenaError::TooLarge { bytes });
        }
        let bytes = bytes.max(ARENA_BYTES_MIN);
        Ok(if bytes <= STEP { bytes.next_power_of_two() } else { bytes.next_multiple_of(STEP) })
    }

    /// Accepts a descriptor from a peer. It must be a regular file with the seals of an arena and the announced
    /// size.
    ///
    /// # Errors
    /// [`ArenaError::NotSealed`] for anything else.
    pub fn accept(fd: OwnedFd, bytes: u64) -> Result<Self, ArenaError> {
        let not = || ArenaError::NotSealed { bytes };
        let seals = fcntl(&fd, FcntlArg::F_GET_SEALS).map_err(|_| not())?;
        let sealed = SealFlag::from_bits_truncate(seals).contains(SEALS);
        let stat = fstat(&fd).map_err(system("fstat"))?;
        let regular = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        let fits = u64::try_from(stat.st_size).is_ok_and(|size| size == bytes);
        if !(sealed && regular && fits && bytes <= ARENA_BYTES_MAX && bytes > 0) {
            return Err(not());
        }
        Ok(Self { fd, bytes })
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maps it, readable and writable.
    ///
    /// # Errors
    /// [`ArenaError::System`] if the process has no address space or too many mappings.
    pub fn map(&self) -> Result<ArenaMap, ArenaError> {
        let length = usize::try_from(self.bytes).ok().and_then(NonZeroUsize::new);
        let length = length.ok_or(ArenaError::TooLarge { bytes: self.bytes })?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        #[expect(unsafe_code, reason = "mapping shared memory")]
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let start =
            unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, self.fd.as_fd(), 0) };
        Ok(ArenaMap { start: start.map_err(system("mmap"))?.cast(), bytes: length.get() })
    }
}

impl AsFd for Arena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A mapped arena. Dropping it unmaps the memory.
#[derive(Debug)]
pub struct ArenaMap {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only reached by copies.
#[expect(unsafe_code, reason = "a mapping is usable from every thread")]
unsafe impl Send for ArenaMap {}
// SAFETY: as for `Send`: `SharedSlice` never makes a reference to the memory.
#[expect(unsafe_code, reason = "a mapping is usable from every thread")]
unsafe impl Sync for ArenaMap {}

impl ArenaMap {
    /// All of it.
    #[must_use]
    pub fn all(&self) -> SharedSlice<'_> {
        #[expect(unsafe_code, reason = "the mapping lives as long as self")]
        // SAFETY: `map` mapped exactly this range, and only `drop` unmaps it.
        unsafe {
            SharedSlice::mapped(self.start, self.bytes)
        }
    }
}

impl ArenaMap {
    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps every page in one call. A page fault for each page would cost more than copying into it. Kernels
    /// before 5.14 do not support this; there, the pages fault in later.
    pub fn populate(&self) {
        #[expect(unsafe_code, reason = "madvise on the mapping that `map` made")]
        // SAFETY: the range is this mapping's own, and the advice changes none of its bytes.
        let advised =
            unsafe { madvise(self.start.cast(), self.bytes, MmapAdvise::MADV_POPULATE_WRITE) };
        // If it fails, filling the arena is only slower.
        advised.unwrap_or_default();
    }
}

impl Drop for ArenaMap {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "the end of the mapping that `map` made")]
        // SAFETY: the range is the one that was mapped, and no slice of it outlives self.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        unmapped.expect("a range that mmap returned can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_share_bytes_and_the_size_is_fixed() {
        let arena = Arena::create(100).unwrap();
        assert_eq!(arena.bytes(), ARENA_BYTES_MIN);
        let (one, two) = (arena.map().unwrap(), arena.map().unwrap());
        one.all().write(99, &[42]);
        let mut back = [0];
        two.all().read(99, &mut back);
        assert_eq!(back, [42]);
        assert_eq!(ftruncate(&arena, 0), Err(nix::Error::EPERM));
        assert_eq!(ftruncate(&arena, 1 << 20), Err(nix::Error::EPERM));
    }

    #[test]
    fn only_sealed_memory_of_the_announced_size_is_accepted() {
        let arena = Arena::create(1).unwrap();
        let copy = || arena.fd.try_clone().unwrap();
        assert!(Arena::accept(copy(), arena.bytes()).is_ok());
        assert!(Arena::accept(copy(), arena.bytes() * 2).is_err());
        assert!(Arena::accept(copy(), arena.bytes() / 2).is_err());
        let unsealed = memfd_create("x", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, 65_536).unwrap();
        assert!(Arena::accept(unsealed, 65_536).is_err());
        for path in ["/dev/null", "/proc/self/exe", "/"] {
            let file = std::fs::File::open(path).unwrap();
            assert!(Arena::accept(file.into(), 65_536).is_err(), "{path} was accepted");
        }
    }

    #[test]
    fn it_has_other_writers_as_long_as_what_was_shared_is_open_or_mapped() {
        let arena = Arena::create(1 << 20).unwrap();
        assert_eq!(arena.has_other_writers(), Ok(false));
        let shared = Arena::accept(arena.share().unwrap(), arena.bytes()).unwrap();
        assert_eq!(arena.has_other_writers(), Ok(true));
        let map = shared.map().unwrap();
        drop(shared);
        assert_eq!(arena.has_other_writers(), Ok(true));
        drop(map);
        assert_eq!(arena.has_other_writers(), Ok(false));
    }

    #[test]
    fn a_punched_arena_takes_no_memory_until_it_is_written() {
        let arena = Arena::create(1 << 20).unwrap();
        let map = arena.map().unwrap();
        map.all().write(0, &[42]);
        assert_eq!(arena.resident_bytes().unwrap(), 1 << 20);
        arena.punch().unwrap();
        assert_eq!(arena.resident_bytes().unwrap(), 0);
        let mut back = [1];
        map.all().read(0, &mut back);
        assert_eq!(back, [0]);
    }

    #[test]
    fn sizes_are_rounded_and_bounded() {
        assert_eq!(Arena::rounded(0).unwrap(), ARENA_BYTES_MIN);
        assert_eq!(Arena::rounded(70_000).unwrap(), 131_072);
        assert_eq!(Arena::rounded((1 << 20) + 1).unwrap(), 2 << 20);
        assert!(Arena::rounded(u64::MAX).is_err());
    }
}
