//! An HTTP API in the configuration file.

use libris_core::Result;

use super::{Config, Http};
use crate::registry::{ConfigFile, Definition, OpenedSource, SourceConfig, url_label};

impl SourceConfig for Config {
    fn definition(self, _file: &ConfigFile) -> Box<dyn Definition> {
        Box::new(self)
    }
}

impl Definition for Config {
    fn label(&self) -> String {
        let base = || self.base.as_deref().map(url_label);
        self.name.clone().or_else(base).unwrap_or_else(|| "[[http]]".to_owned())
    }

    fn open(&self) -> Result<OpenedSource> {
        Ok(OpenedSource::new(Http::new(self.clone())?))
    }
}
