//! A pseudo-terminal, and a program in it.

#![allow(dead_code, reason = "every test program uses its own part")]

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

/// A terminal of some width, with a program that takes it for that of its user.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Arc<(Mutex<Vec<u8>>, Condvar)>,
    /// Reads until nothing has the terminal open any more.
    reader: JoinHandle<()>,
    child: Child,
}

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long what a program has written may take to arrive after its end.
const LINGER: Duration = Duration::from_secs(5);

impl Terminal {
    /// Starts a program in a terminal of so many columns.
    pub(crate) fn start(columns: u16, program: impl AsRef<Path>, adjust: impl FnOnce(&mut Command)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let slave = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
        // setsid(1) makes it the terminal of the program, which a shell needs.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(program.as_ref()).env("TERM", "xterm");
        adjust(&mut command);
        let child = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        let keyboard = File::from(master.try_clone().unwrap());
        let screen = Arc::<(Mutex<Vec<u8>>, Condvar)>::default();
        let reader = thread::spawn({
            let screen = Arc::clone(&screen);
            move || watch(master, &screen)
        });
        Self { keyboard, screen, reader, child }
    }

    /// Types something.
    pub(crate) fn write(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until something is on the screen, and returns all that was written there.
    pub(crate) fn wait_for(&self, wanted: &str) -> String {
        let (screen, changed) = &*self.screen;
        let end = Instant::now() + PATIENCE;
        let mut bytes = screen.lock().unwrap();
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if text.contains(wanted) {
                return text;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{wanted:?} is not on the screen: {text:?}");
            bytes = changed.wait_timeout(bytes, left).unwrap().0;
        }
    }

    /// Returns all that was written on the screen so far.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.0.lock().unwrap()).into_owned()
    }

    /// Forgets what is on the screen.
    pub(crate) fn clear(&self) {
        self.screen.0.lock().unwrap().clear();
    }

    /// Waits for the end of the program; returns its status and all that was written.
    pub(crate) fn finish(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        // What was written before is read at last, unless something that the program has started keeps the terminal.
        let end = Instant::now() + LINGER;
        while !self.reader.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        (status.code(), String::from_utf8_lossy(&self.screen.0.lock().unwrap()).into_owned())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watch(master: OwnedFd, (screen, changed): &(Mutex<Vec<u8>>, Condvar)) {
    let mut master = File::from(master);
    let mut buffer = [0; 4096];
    // When the program is gone, reading fails.
    while let Ok(count) = master.read(&mut buffer) {
        if count == 0 {
            return;
        }
        screen.lock().unwrap().extend_from_slice(&buffer[..count]);
        changed.notify_all();
    }
}
