//! All commands of a configuration file as one source.

use std::path::Path;

use libris_core::Result;

use super::{Commands, Config};
use crate::registry::{CombinedSection, ConfigFile, Definition, OpenedSource, Section};

impl Section for Vec<Config> {
    fn definitions(self, file: &ConfigFile) -> Vec<Box<dyn Definition>> {
        // A command that cannot be run, such as one whose program is not installed, must not stop the others.
        let opens = |config: &Config| Commands::new(vec![config.clone()], file.folder()).is_ok();
        let (valid, invalid): (Self, Self) = self.into_iter().partition(opens);
        let alone = invalid.into_iter().flat_map(|config| vec![config].combined_definition(file));
        valid.combined_definition(file).into_iter().chain(alone).collect()
    }
}

impl CombinedSection for Vec<Config> {
    fn has_no_entries(&self) -> bool {
        self.is_empty()
    }

    fn open(&self, folder: &Path) -> Result<OpenedSource> {
        Ok(OpenedSource::new(Commands::new(self.clone(), folder)?))
    }
}
