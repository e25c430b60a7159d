//! A timer that is exact to some tens of microseconds: tokio's own has a grain of a millisecond.

use std::{io, time::Instant};

#[cfg(any(not(target_os = "linux"), portable_only))]
pub(crate) use self::sleep::Alarm;
#[cfg(all(target_os = "linux", not(portable_only)))]
pub(crate) use self::timerfd::Alarm;

#[cfg(all(target_os = "linux", not(portable_only)))]
mod timerfd {
    use std::{os::fd::OwnedFd, time::Duration};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::{Instant, io};

    /// One deadline on a `timerfd`.
    #[derive(Debug)]
    pub(crate) struct Alarm {
        timer: AsyncFd<OwnedFd>,
        armed: Option<Instant>,
    }

    impl Alarm {
        pub(crate) fn new() -> io::Result<Self> {
            let timer =
                timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            #[allow(deprecated, reason = "the safe constructor: an `OwnedFd` keeps its descriptor")]
            let timer = AsyncFd::new(timer)?;
            Ok(Self { timer, armed: None })
        }

        /// Waits until `deadline`, or for ever.
        pub(crate) async fn wait(&mut self, deadline: Option<Instant>) {
            let Some(deadline) = deadline else {
                return std::future::pending().await;
            };
            let now = super::super::clock();
            if deadline <= now {
                return;
            }
            if self.armed != Some(deadline) {
                if self.arm(deadline - now).is_err() {
                    return tokio::time::sleep_until(deadline.into()).await;
                }
                self.armed = Some(deadline);
            }
            match self.timer.readable().await {
                Ok(mut guard) => {
                    // The count of expirations; a timer that was set again in the meantime has none, which is an error
                    // and means that this was too early. The caller looks at the clock anyway.
                    let _ = rustix::io::read(self.timer.get_ref(), &mut [0_u8; 8]);
                    guard.clear_ready();
                    self.armed = None;
                }
                Err(_) => tokio::time::sleep_until(deadline.into()).await,
            }
        }

        fn arm(&self, delay: Duration) -> io::Result<()> {
            let spec = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec {
                    tv_sec: delay.as_secs() as i64,
                    tv_nsec: i64::from(delay.subsec_nanos()),
                },
            };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
            Ok(())
        }
    }
}

#[cfg(any(not(target_os = "linux"), portable_only))]
mod sleep {
    use super::{Instant, io};

    /// One deadline on tokio's timer.
    #[derive(Debug)]
    pub(crate) struct Alarm;

    impl Alarm {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) async fn wait(&mut self, deadline: Option<Instant>) {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        }
    }
}
