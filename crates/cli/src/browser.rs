//! Starts the web browser of the user.

use std::process::{Command, Stdio};

use crate::terminal::warn;

/// Opens a URL in the browser of the user, or prints a warning if no browser can be started.
pub(crate) fn open(url: &str) {
    let chosen = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let mut command = match chosen {
        Some(browser) => Command::new(browser),
        None if cfg!(target_os = "macos") => Command::new("open"),
        None if cfg!(windows) => {
            // Not `cmd /C start`, for which the `&` in a URL separates commands.
            let mut command = Command::new("rundll32");
            command.arg("url.dll,FileProtocolHandler");
            command
        }
        None => Command::new("xdg-open"),
    };
    let started = command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match started {
        // Waits on a thread, so that no zombie process remains.
        Ok(mut browser) => drop(std::thread::spawn(move || browser.wait())),
        Err(_) => warn("no browser could be started; open the address yourself"),
    }
}
