//! A Notion workspace in the configuration file.

use libris_core::Result;

use super::{Config, Notion};
use crate::registry::{ConfigFile, Declared, Definition, Opened};

impl Declared for Config {
    fn definition(self, _file: &ConfigFile) -> Box<dyn Definition> {
        Box::new(self)
    }
}

impl Definition for Config {
    fn label(&self) -> String {
        "Notion".to_owned()
    }

    fn open(&self) -> Result<Opened> {
        Ok(Opened::new(Notion::new(self.clone())?))
    }
}
