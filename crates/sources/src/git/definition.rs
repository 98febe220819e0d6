//! A git repository in the configuration file and on the command line.

use libris_core::Result;

use super::{Config, Git};
use crate::registry::{CommandLine, ConfigFile, Declared, Definition, Opened};

const PREFIX: &str = "git:";

impl Declared for Config {
    const COMMAND_LINE: Option<CommandLine> = Some(CommandLine {
        prefixes: &[PREFIX],
        form: "a git repository as `git:PATH`",
        example: ("git:./project", "a git repository: its files, history and diffs"),
        define: |argument| {
            let text = argument.to_string_lossy();
            Box::new(Self::new(text.strip_prefix(PREFIX).unwrap_or(&text)))
        },
    });

    fn definition(mut self, file: &ConfigFile) -> Box<dyn Definition> {
        self.path = file.resolve(self.path);
        Box::new(self)
    }
}

impl Definition for Config {
    fn label(&self) -> String {
        format!("{PREFIX}{}", self.path.display())
    }

    fn open(&self) -> Result<Opened> {
        let git = Git::open(self.clone())?;
        let root = git.root().clone();
        Ok(Opened::with_root(git, root, "name"))
    }
}
