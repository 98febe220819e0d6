//! An API with an OpenAPI document in the configuration file and on the command line.

use std::path::PathBuf;

use async_trait::async_trait;
use libris_core::Result;

use super::{Config, derive, read};
use crate::http::Http;
use crate::registry::{CommandLine, ConfigFile, Definition, OpenedSource, SourceConfig, url_label};

const PREFIX: &str = "openapi:";

/// An API with its loaded OpenAPI document.
#[derive(Clone, Debug, PartialEq)]
struct OpenApiDefinition {
    config: Config,
    folder: PathBuf,
    document: String,
}

impl SourceConfig for Config {
    const COMMAND_LINE: Option<CommandLine> = Some(CommandLine {
        prefixes: &[PREFIX],
        form: "an API as `openapi:FILE` or `openapi:URL`",
        example: ("openapi:api.yaml", "an HTTP API, by its OpenAPI document"),
        define: |argument| {
            let text = argument.to_string_lossy();
            Self::new(text.strip_prefix(PREFIX).unwrap_or(&text)).definition(&ConfigFile::default())
        },
    });

    fn definition(self, file: &ConfigFile) -> Box<dyn Definition> {
        Box::new(OpenApiDefinition {
            config: self,
            folder: file.folder().to_owned(),
            document: String::new(),
        })
    }
}

#[async_trait]
impl Definition for OpenApiDefinition {
    fn label(&self) -> String {
        format!("{PREFIX}{}", url_label(&self.config.document))
    }

    async fn load(&mut self) -> Result<()> {
        self.document = read(&self.config, &self.folder).await?;
        Ok(())
    }

    fn open(&self) -> Result<OpenedSource> {
        Ok(OpenedSource::new(Http::new(derive(&self.config, &self.document)?)?))
    }
}
