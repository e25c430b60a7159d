//! Whether a thread that waits for us is to die.
//!
//! The kernel tells of any signal (FUSE_INTERRUPT), also of those that a program takes note of and goes on waiting: EINTR for these would
//! be an error that no other file system gives. So the thread's pending signals are looked at.

use std::fs;

/// SIGHUP, SIGINT, SIGQUIT, SIGKILL and SIGTERM: how people and systems end programs. Others may mean nothing to a program that waits for a file.
const ENDING: u64 = bit(1) | bit(2) | bit(3) | bit(9) | bit(15);

/// Whether a signal that ends programs is pending for a thread, or the thread is gone.
pub(crate) fn is_interrupted(thread: u32) -> bool {
    // 0: a process of another namespace, or of none.
    if thread == 0 {
        return false;
    }
    match fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => is_pending(&status),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Whether /proc/PID/status speaks of such a signal (proc_pid_status(5)).
fn is_pending(status: &str) -> bool {
    let mask = |name: &str| mask(status, name);
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") & !mask("SigIgn") & ENDING != 0
}

fn mask(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(own: u64, shared: u64, blocked: u64, ignored: u64) -> String {
        format!(
            "Name:\tcat\nSigQ:\t0/95\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t0\n"
        )
    }

    #[test]
    fn signals_that_end_programs_count_unless_they_are_blocked_or_ignored() {
        assert!(!is_pending(&status(0, 0, 0, 0)));
        assert!(is_pending(&status(bit(9), 0, 0, 0)));
        assert!(is_pending(&status(0, bit(2), 0, 0)));
        assert!(!is_pending(&status(0, bit(2), bit(2), 0)));
        assert!(!is_pending(&status(0, bit(1), 0, bit(1))));
        assert!(!is_pending(&status(bit(23), bit(17), 0, 0)), "SIGURG and SIGCHLD");
    }

    #[test]
    fn this_thread_is_not_to_die_and_one_that_is_gone_is() {
        assert!(!is_interrupted(std::process::id()));
        assert!(is_interrupted(u32::MAX - 1));
    }
}
