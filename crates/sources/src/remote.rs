//! Detection of remote file systems, which do not report changes by other machines.

#[cfg(any(feature = "files", feature = "git", feature = "skills"))]
use std::os::fd::BorrowedFd;

/// The magic numbers of NFS, SMB (three variants), FUSE, 9P, AFS, Ceph and VirtualBox shared folders.
const REMOTE_FILE_SYSTEMS: [u32; 9] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x5346_414f,
    0x00c3_6400,
    0x786f_4256,
];

/// Whether a directory may change without an inotify event.
#[cfg(any(feature = "files", feature = "git", feature = "skills"))]
pub(crate) fn is_remote(directory: BorrowedFd<'_>) -> bool {
    is_remote_system(rustix::fs::fstatfs(directory))
}

/// Whether the `stat` result of a file may be outdated.
#[cfg(feature = "sqlite")]
pub(crate) fn is_remote_path(path: &std::path::Path) -> bool {
    is_remote_system(rustix::fs::statfs(path))
}

fn is_remote_system(system: rustix::io::Result<rustix::fs::StatFs>) -> bool {
    // The kernel's magic numbers have 32 bits, which some platforms sign-extend. A file system that cannot be
    // identified counts as remote.
    system.map_or(true, |system| REMOTE_FILE_SYSTEMS.contains(&(system.f_type as u32)))
}
