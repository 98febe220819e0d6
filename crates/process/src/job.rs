//! A child process with a job object of its own, on Windows.
//!
//! The system ends the processes of a job when the last handle to it is closed. Only the server has a handle, so they
//! end with the server, however it ends.

use std::io;
use std::process::ExitStatus;

use process_wrap::tokio::{ChildWrapper, CommandWrap, CreationFlags, JobObject, KillOnDrop};
use tokio::process::Command;
use windows::Win32::System::Threading::CREATE_NO_WINDOW;

use crate::ChildPipes;

/// A child process and its descendants, which are killed on drop, also after a panic or when the runtime shuts down.
#[derive(Debug)]
pub struct GroupedChild(Box<dyn ChildWrapper>);

impl GroupedChild {
    /// Starts the command in a new job object, before it can start processes itself, and without a console window.
    pub fn spawn(command: Command) -> io::Result<Self> {
        CommandWrap::from(command)
            // A host without a console, such as a desktop program, would show a window for each command.
            .wrap(CreationFlags(CREATE_NO_WINDOW))
            .wrap(KillOnDrop)
            .wrap(JobObject)
            .spawn()
            .map(Self)
    }

    /// Takes the pipes.
    pub fn pipes(&mut self) -> ChildPipes {
        ChildPipes {
            stdin: self.0.stdin().take(),
            stdout: self.0.stdout().take(),
            stderr: self.0.stderr().take(),
        }
    }

    /// Waits for the end of the child. Its descendants may still run. Cancel-safe.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        // The wrapper itself would wait for the descendants too.
        self.0.inner_mut().wait().await
    }

    /// Kills the child and its descendants: Windows has no signal that asks a program without a console to end.
    pub fn terminate(&mut self) {
        self.kill();
    }

    /// Kills the child and its descendants.
    pub fn kill(&mut self) {
        // The processes may have ended.
        let _ = self.0.start_kill();
    }
}
