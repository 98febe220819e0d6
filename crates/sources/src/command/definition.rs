//! All commands of a configuration file as one source.

use libris_core::Result;

use super::{Commands, Config};
use crate::registry::{ConfigFile, Definition, Opened, Section};

#[derive(Clone, Debug, PartialEq)]
struct CommandsDefinition {
    configs: Vec<Config>,
    file: ConfigFile,
}

impl Section for Vec<Config> {
    fn definitions(self, file: &ConfigFile) -> Vec<Box<dyn Definition>> {
        match self.is_empty() {
            true => Vec::new(),
            false => vec![Box::new(CommandsDefinition { configs: self, file: file.clone() })],
        }
    }
}

impl Definition for CommandsDefinition {
    fn label(&self) -> String {
        self.file.path.display().to_string()
    }

    fn open(&self) -> Result<Opened> {
        Ok(Opened::new(Commands::new(self.configs.clone(), self.file.folder())?))
    }
}
