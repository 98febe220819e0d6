//! A Notion workspace in the configuration file.

use libris_core::Result;

use super::{Config, Notion};
use crate::registry::{ConfigFile, Definition, OpenedSource, SourceConfig};

impl SourceConfig for Config {
    fn definition(self, _file: &ConfigFile) -> Box<dyn Definition> {
        Box::new(self)
    }
}

impl Definition for Config {
    fn label(&self) -> String {
        "Notion".to_owned()
    }

    fn open(&self) -> Result<OpenedSource> {
        Ok(OpenedSource::new(Notion::new(self.clone())?))
    }

    fn uri_prefix(&self) -> String {
        "notion:".to_owned()
    }
}
