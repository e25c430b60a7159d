//! What the kernel is told of failures.

use nfs_cache::Failure;
use rustix::io::Errno;

/// Returns the error number of a failure.
pub(super) fn errno(failure: &Failure) -> Errno {
    match failure {
        Failure::Status(status) => of_status(status.code()),
        Failure::Stale => Errno::STALE,
        Failure::WrongKind => Errno::INVAL,
        // `Unreachable` and others that say nothing of the file.
        _ => Errno::IO,
    }
}

/// Returns the error number of an NFSv3 status: most have the number of 4.2BSD, which is Linux' for the oldest ones only (RFC 1813 §2.6).
fn of_status(code: u32) -> Errno {
    match code {
        1 => Errno::PERM,
        2 => Errno::NOENT,
        6 => Errno::NXIO,
        13 => Errno::ACCESS,
        19 => Errno::NODEV,
        20 => Errno::NOTDIR,
        21 => Errno::ISDIR,
        22 => Errno::INVAL,
        27 => Errno::FBIG,
        30 => Errno::ROFS,
        63 => Errno::NAMETOOLONG,
        70 => Errno::STALE,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use nfs_wireless_client::NfsStatus;

    use super::*;

    #[test]
    fn failures_have_the_numbers_that_programs_know() {
        assert_eq!(errno(&Failure::Status(NfsStatus::NOENT)), Errno::NOENT);
        assert_eq!(errno(&Failure::Status(NfsStatus::NAMETOOLONG)), Errno::NAMETOOLONG);
        assert_eq!(errno(&Failure::Unreachable), Errno::IO);
        assert_eq!(errno(&Failure::Stale), Errno::STALE);
    }
}
