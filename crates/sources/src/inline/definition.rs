//! All inline resources of a configuration file as one source.

use libris_core::Result;

use super::{Config, Inline};
use crate::registry::{ConfigFile, Definition, Opened, Section};

#[derive(Clone, Debug, PartialEq)]
struct InlineDefinition {
    config: Config,
    file: ConfigFile,
}

impl Section for Config {
    fn definitions(self, file: &ConfigFile) -> Vec<Box<dyn Definition>> {
        match self.resources.is_empty() && self.templates.is_empty() {
            true => Vec::new(),
            false => vec![Box::new(InlineDefinition { config: self, file: file.clone() })],
        }
    }
}

impl Definition for InlineDefinition {
    fn label(&self) -> String {
        self.file.path.display().to_string()
    }

    fn open(&self) -> Result<Opened> {
        Ok(Opened::new(Inline::new(self.config.clone(), self.file.folder())?))
    }
}
