//! A folder of skills in the configuration file and on the command line.

use libris_core::Result;

use super::{Config, SCHEME, Skills};
use crate::registry::{CommandLine, ConfigFile, Definition, OpenedSource, SourceConfig};

/// The prefix of an argument that names a folder of skills.
const PREFIX: &str = "skills:";

impl SourceConfig for Config {
    const COMMAND_LINE: Option<CommandLine> = Some(CommandLine {
        prefixes: &[PREFIX],
        form: "a folder of skills as `skills:PATH`",
        example: ("skills:./skills", "Agent Skills: folders with a SKILL.md"),
        define: |argument| {
            let text = argument.to_string_lossy();
            Box::new(Self::new(text.strip_prefix(PREFIX).unwrap_or(&text)))
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
        // The source claims no root for itself, because several sources may have the same prefix.
        Ok(OpenedSource::new(Skills::open(self.clone())?))
    }

    fn uri_prefix(&self) -> String {
        format!("{SCHEME}{}", self.prefix.as_deref().unwrap_or_default().trim_matches('/'))
    }
}
