//! All inline resources of a configuration file as one source.

use std::path::Path;

use libris_core::Result;

use super::{Config, Inline};
use crate::registry::{CombinedSection, ConfigFile, Definition, OpenedSource, Section};

impl Section for Config {
    fn definitions(self, file: &ConfigFile) -> Vec<Box<dyn Definition>> {
        self.combined_definition(file)
    }
}

impl CombinedSection for Config {
    fn has_no_entries(&self) -> bool {
        self.resources.is_empty() && self.templates.is_empty()
    }

    fn open(&self, folder: &Path) -> Result<OpenedSource> {
        Ok(OpenedSource::new(Inline::new(self.clone(), folder)?))
    }
}
