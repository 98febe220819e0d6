//! Telling file systems apart that do not say what others change.

use std::os::fd::BorrowedFd;

/// File systems that change from elsewhere without a word: NFS, SMB of three kinds, FUSE, 9P, AFS, Ceph,
/// and shared folders of VirtualBox.
const REMOTE: [u32; 9] = [
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

/// Whether a directory may change without an event.
pub(crate) fn is_remote(directory: BorrowedFd<'_>) -> bool {
    // The kernel's numbers have 32 bits, and some systems extend their sign.
    // Nothing that cannot be asked is trusted to tell.
    rustix::fs::fstatfs(directory).map_or(true, |system| REMOTE.contains(&(system.f_type as u32)))
}
