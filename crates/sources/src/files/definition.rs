//! A folder or file in the configuration file and on the command line.

use std::ffi::OsStr;

use libris_core::Result;

use super::{Config, Files, mount_segment};
use crate::registry::{CommandLine, ConfigFile, Definition, OpenedSource, SourceConfig};

impl SourceConfig for Config {
    const COMMAND_LINE: Option<CommandLine> = Some(CommandLine {
        prefixes: &[],
        form: "a folder by its path",
        example: ("./docs", "a folder"),
        define: |argument| Box::new(Self::new(argument)),
    });

    fn definition(mut self, file: &ConfigFile) -> Box<dyn Definition> {
        self.path = file.resolve(self.path);
        Box::new(self)
    }
}

impl Definition for Config {
    fn label(&self) -> String {
        self.path.display().to_string()
    }

    fn open(&self) -> Result<OpenedSource> {
        let files = Files::open(self.clone())?;
        let root = files.root().clone();
        Ok(OpenedSource::with_root(files, root, "mount"))
    }

    fn uri_prefix(&self) -> String {
        let name = self.mount.as_ref().map(OsStr::new).or_else(|| self.path.file_name());
        match (self.scheme.as_deref(), name.and_then(mount_segment)) {
            (None | Some("file"), Some(segment)) => format!("file:///{segment}"),
            (scheme, _) => format!("{}:", scheme.unwrap_or("file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, Definition as _};

    #[test]
    fn the_prefix_of_uris_is_known_before_the_folder_is_open() {
        let prefix = |path: &str, mount: Option<&str>, scheme: Option<&str>| {
            let (mount, scheme) = (mount.map(Into::into), scheme.map(Into::into));
            Config { mount, scheme, ..Config::new(path) }.uri_prefix()
        };
        assert_eq!(prefix("/no/such/my docs", None, None), "file:///my%20docs");
        assert_eq!(prefix("/no/such/docs", Some("handbook"), Some("file")), "file:///handbook");
        assert_eq!(prefix(".", None, None), "file:");
        assert_eq!(prefix("/no/such/docs", None, Some("docs")), "docs:");
        // The URIs of the open folder begin with it.
        let folder = tempfile::tempdir().unwrap();
        let config = Config { mount: Some("a b".into()), ..Config::new(folder.path()) };
        let root = config.open().unwrap().root.unwrap().uri;
        assert!(root.as_str().starts_with(&config.uri_prefix()), "{root}");
    }
}
