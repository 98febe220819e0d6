//! A database in the configuration file and on the command line.

use std::path::PathBuf;

use libris_core::Result;

use super::{Config, Sql};
use crate::registry::{CommandLine, ConfigFile, Definition, OpenedSource, SourceConfig};

/// A database, and the folder that a relative path of a SQLite file starts from.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseDefinition {
    config: Config,
    folder: PathBuf,
}

impl DatabaseDefinition {
    /// Validates the configuration. Libris connects to the database at the first request.
    pub fn open(&self) -> Result<Sql> {
        Sql::open(self.config.clone(), &self.folder)
    }
}

impl SourceConfig for Config {
    const COMMAND_LINE: Option<CommandLine> = Some(CommandLine {
        prefixes: &["sqlite:", "postgres:", "postgresql:", "mysql:", "mariadb:"],
        form: "a database as `sqlite:FILE`, `postgres://…` or `mysql://…`",
        example: ("sqlite:shop.db", "a database"),
        define: |argument| {
            let config = Self::new(argument.to_string_lossy());
            Box::new(DatabaseDefinition { config, folder: PathBuf::new() })
        },
    });

    fn definition(self, file: &ConfigFile) -> Box<dyn Definition> {
        Box::new(DatabaseDefinition { config: self, folder: file.folder().to_owned() })
    }
}

impl Definition for DatabaseDefinition {
    fn label(&self) -> String {
        self.config.label()
    }

    fn open(&self) -> Result<OpenedSource> {
        let sql = self.open()?;
        let root = sql.root().clone();
        Ok(OpenedSource::with_root(sql, root, "name"))
    }
}
