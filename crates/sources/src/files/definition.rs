//! A folder or file in the configuration file and on the command line.

use libris_core::Result;

use super::{Config, Files};
use crate::registry::{CommandLine, ConfigFile, Definition, OpenedSource, SourceConfig};

impl SourceConfig for Config {
    const COMMAND_LINE: Option<CommandLine> = Some(CommandLine {
        prefixes: &[],
        form: "a folder by its path",
        example: ("./docs", "a folder"),
        define: |argument| Box::new(Self::new(argument)),
    });

    fn definition(mut self, file: &ConfigFile) -> Box<dyn Definition> {
        self.path = file.resolve(self.path);
        Box::new(self)
    }
}

impl Definition for Config {
    fn label(&self) -> String {
        self.path.display().to_string()
    }

    fn open(&self) -> Result<OpenedSource> {
        let files = Files::open(self.clone())?;
        let root = files.root().clone();
        Ok(OpenedSource::with_root(files, root, "mount"))
    }
}
