//! One line on standard error that says what goes on.

use std::io::{IsTerminal, Write, stderr};
use std::time::Instant;

/// Overwrites its line on a terminal, and writes lines elsewhere.
pub struct Progress {
    start: Instant,
    is_terminal: bool,
}

impl Progress {
    /// Begins to count seconds.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            start: Instant::now(),
            is_terminal: stderr().is_terminal(),
        }
    }

    /// Says what goes on now.
    pub fn say(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs();
        let mut out = stderr().lock();
        // Nobody reads it when it cannot be written.
        let _ = if self.is_terminal {
            write!(out, "\r\x1b[K{seconds:>4} s  {what}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{seconds:>4} s  {what}")
        };
    }

    /// Ends the line.
    pub fn end(&self) {
        if self.is_terminal {
            let _ = writeln!(stderr().lock());
        }
    }
}
