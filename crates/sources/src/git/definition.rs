//! A git repository in the configuration file and on the command line.

use std::path::Path;

use libris_core::Result;

use super::address::UriSpace;
use super::discover::working_tree_of;
use super::{Config, Git};
use crate::registry::{CommandLine, ConfigFile, Definition, OpenedSource, SourceConfig};

const PREFIX: &str = "git:";

impl SourceConfig for Config {
    const COMMAND_LINE: Option<CommandLine> = Some(CommandLine {
        prefixes: &[PREFIX],
        form: "a git repository as `git:PATH`",
        example: ("git:./project", "a git repository: its files, history and diffs"),
        define: |argument| {
            let text = argument.to_string_lossy();
            let path = Path::new(text.strip_prefix(PREFIX).unwrap_or(&text));
            Box::new(Self::new(working_tree_of(path).unwrap_or_else(|| path.to_owned())))
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

    fn open(&self) -> Result<OpenedSource> {
        let git = Git::open(self.clone())?;
        let root = git.root().clone();
        Ok(OpenedSource::with_root(git, root, "name"))
    }

    fn uri_prefix(&self) -> String {
        let space = self.name.as_deref().and_then(UriSpace::new);
        space.map_or_else(|| "git:".to_owned(), |space| space.root.as_str().to_owned())
    }
}
