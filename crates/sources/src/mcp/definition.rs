//! An MCP server in the configuration file, or on the command line as `https://…` or after `--`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use libris_core::{Error, Result, Uri};
use libris_process::SYSTEM_VARIABLES;
use libris_remote::{ChildEnvironment, Remote, RemoteConfig, RemoteTarget, TokenStore, UriMount};

use super::config::{Config, MountedUris};
use crate::registry::{CommandLine, ConfigFile, Definition, OpenedSource, SourceConfig, url_label};

/// The environment variable with the access token for a server on the command line.
const TOKEN_ENV: &str = "LIBRIS_TOKEN";

/// The environment variables that every program of the configuration file inherits. A program after `--` inherits
/// all.
#[cfg(not(windows))]
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];
#[cfg(windows)]
const INHERITED: &[&str] = &[
    "PATH",
    "USERNAME",
    "USERPROFILE",
    "HOMEDRIVE",
    "HOMEPATH",
    "APPDATA",
    "LOCALAPPDATA",
    "ProgramData",
    "ProgramFiles",
    "ProgramFiles(x86)",
];

/// An MCP server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerDefinition {
    config: Config,
    file: ConfigFile,
    /// The command line after `--`; empty for other servers.
    command: Vec<OsString>,
}

impl SourceConfig for Config {
    const COMMAND_LINE: Option<CommandLine> = Some(CommandLine {
        prefixes: &["https://", "http://"],
        form: "an MCP server as `https://HOST/mcp` or `-- COMMAND`",
        example: ("https://mcp.example/mcp", "another MCP server; `-- COMMAND` starts one"),
        define: |argument| {
            let token_env = match std::env::var_os(TOKEN_ENV) {
                Some(_) => TOKEN_ENV.to_owned(),
                None => String::new(),
            };
            let url = argument.to_string_lossy().into_owned();
            let config = Self { url, token_env, prompts: true, ..Self::default() };
            Box::new(ServerDefinition { config, file: ConfigFile::default(), command: Vec::new() })
        },
    });

    fn definition(self, file: &ConfigFile) -> Box<dyn Definition> {
        Box::new(ServerDefinition { config: self, file: file.clone(), command: Vec::new() })
    }
}

impl ServerDefinition {
    /// A server that is started by this command line.
    pub fn of_command(command: Vec<OsString>) -> Self {
        let config = Config { prompts: true, ..Config::default() };
        Self { config, file: ConfigFile::default(), command }
    }

    /// The name of the server.
    pub fn name(&self) -> String {
        let Config { name, url, run, .. } = &self.config;
        if !name.is_empty() {
            return name.clone();
        }
        let program = self.command.first().cloned().or_else(|| Some(run.first()?.into()));
        let name = match program {
            Some(program) => program_name(
                &program,
                self.command.iter().skip(1).cloned().chain(run.iter().skip(1).map(Into::into)),
            ),
            None => Uri::parse(url).ok().and_then(|url| host(&url)).unwrap_or_default(),
        };
        if name.is_empty() { "mcp".to_owned() } else { name }
    }

    /// Opens the source.
    pub fn remote(&self) -> Result<Remote> {
        Remote::new(self.remote_config()?)
    }

    fn remote_config(&self) -> Result<RemoteConfig> {
        let name = self.name();
        let config = &self.config;
        for (key, time) in [
            ("timeout", config.timeout),
            ("connect_timeout", config.connect_timeout),
            ("retry", config.retry),
        ] {
            if time.is_zero() {
                return Err(Error::invalid(format!("the `{key}` of an MCP server must be longer than 0")));
            }
        }
        let mount = match config.uris {
            MountedUris::Kept => UriMount::Kept,
            MountedUris::Prefixed => UriMount::prefixed(&name)?,
        };
        let target = self.target()?;
        let Config { prompts, tools, protocol, .. } = *config;
        let limits = config.limits();
        Ok(RemoteConfig { mount, protocol, prompts, tools, limits, ..RemoteConfig::new(name, target) })
    }

    /// How to reach the server: by the command line after `--`, by `url` or by `run`.
    fn target(&self) -> Result<RemoteTarget> {
        let Config { url, run, token_env, header_env, .. } = &self.config;
        if let Some((program, arguments)) = self.command.split_first() {
            let environment = ChildEnvironment::Inherited;
            let (program, arguments) = (program.clone(), arguments.to_vec());
            return Ok(RemoteTarget::Stdio { program, arguments, folder: PathBuf::new(), environment });
        }
        match (url.is_empty(), run.split_first()) {
            (false, None) => {
                let token = (!token_env.is_empty()).then(|| secret(token_env)).transpose()?;
                let headers = header_env.iter().map(|(header, name)| Ok((header.clone(), secret(name)?)));
                let headers = headers.collect::<Result<BTreeMap<_, _>>>()?;
                let is_authorized = headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
                let stored = TokenStore::of_user().filter(|_| !is_authorized);
                Ok(RemoteTarget::Http { url: url.clone(), token, headers, stored })
            }
            (true, Some((program, arguments))) => Ok(RemoteTarget::Stdio {
                program: self.program(program),
                arguments: arguments.iter().map(Into::into).collect(),
                folder: self.file.folder().join(&self.config.folder),
                environment: ChildEnvironment::Only(self.environment()),
            }),
            _ => Err(Error::invalid(
                "an MCP server needs either a `url` or a command line in `run`; hint: write `run = [\"npx\", \"-y\", \"…\"]`",
            )),
        }
    }

    /// A program without `/` is searched in `PATH`; one with `/`, on Windows also with `\`, is relative to the
    /// configuration file.
    fn program(&self, program: &str) -> OsString {
        match program.contains(std::path::is_separator) {
            true => {
                let path = self.file.folder().join(program);
                std::path::absolute(&path).unwrap_or(path).into_os_string()
            }
            false => program.into(),
        }
    }

    fn environment(&self) -> BTreeMap<OsString, OsString> {
        let inherited = INHERITED.iter().chain(SYSTEM_VARIABLES).copied();
        let inherited = inherited.chain(self.config.inherit.iter().map(String::as_str));
        let inherited = inherited.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
        inherited.chain(self.config.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
    }
}

/// The value of an environment variable that must be set.
fn secret(name: &str) -> Result<String> {
    let value = std::env::var(name).unwrap_or_default();
    match value.trim() {
        "" => Err(Error::invalid(format!(
            "the environment variable `{name}` is not set; hint: it must have the credentials for the MCP server"
        ))),
        value => Ok(value.to_owned()),
    }
}

fn host(url: &Uri) -> Option<String> {
    let authority = url.authority()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(host.trim_matches(['[', ']']).to_owned())
}

/// The name of a program without its folder; for a package runner such as `npx`, the name of the package.
fn program_name(program: &OsString, arguments: impl Iterator<Item = OsString>) -> String {
    let file_name = |text: &OsString| {
        let text = Path::new(text).file_name().unwrap_or(text).to_string_lossy().into_owned();
        text.split('@').find(|part| !part.is_empty()).unwrap_or_default().to_owned()
    };
    let runners = ["npx", "uvx", "bunx", "node", "python", "python3", "deno", "docker", "uv", "npm"];
    let name = file_name(program);
    let package = || {
        let mut words = arguments.filter(|word| !word.to_string_lossy().starts_with('-'));
        words.find(|word| !matches!(&*word.to_string_lossy(), "run" | "exec"))
    };
    match runners.contains(&&*name).then(package).flatten() {
        Some(package) => file_name(&package),
        None => name,
    }
}

impl Definition for ServerDefinition {
    fn label(&self) -> String {
        let Config { url, .. } = &self.config;
        match url.is_empty() || !self.config.name.is_empty() {
            true => self.name(),
            false => url_label(url),
        }
    }

    fn open(&self) -> Result<OpenedSource> {
        let config = self.remote_config()?;
        let root = match &config.mount {
            UriMount::Kept => None,
            // Two servers with the same prefix could not be distinguished. So the prefix is the root, which must be
            // unique.
            UriMount::Prefixed(name) => Some(Uri::parse(&format!("{name}+mcp:"))?),
        };
        let remote = Remote::new(config)?;
        Ok(match root {
            Some(root) => OpenedSource::with_root(remote, root, "name"),
            None => OpenedSource::new(remote),
        })
    }

    fn uri_prefix(&self) -> String {
        match self.config.uris {
            MountedUris::Kept => String::new(),
            MountedUris::Prefixed => format!("{}+", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Config, ServerDefinition};
    use crate::registry::{ConfigFile, Definition as _};

    fn name(config: Config) -> String {
        ServerDefinition { config, file: ConfigFile::default(), command: Vec::new() }.name()
    }

    #[test]
    fn a_server_is_named_by_what_it_is() {
        let run = |words: &[&str]| Config {
            run: words.iter().map(ToString::to_string).collect(),
            ..Config::default()
        };
        for (words, expected) in [
            (&["npx", "-y", "@modelcontextprotocol/server-everything", "stdio"][..], "server-everything"),
            (&["npx", "-y", "notes-server@1.2.3"], "notes-server"),
            (&["uvx", "mcp-server-git"], "mcp-server-git"),
            (&["/opt/bin/server", "--stdio"], "server"),
            (&["python3", "server.py"], "server.py"),
            (&["npx"], "npx"),
        ] {
            assert_eq!(name(run(words)), expected);
        }
        let url = |url: &str| name(Config { url: url.to_owned(), ..Config::default() });
        assert_eq!(url("https://user:pw@mcp.example:8443/mcp?key=s3cret"), "mcp.example:8443");
        let command = ServerDefinition::of_command(["libris", "serve"].map(OsString::from).into());
        assert_eq!((command.name(), command.label()), ("libris".to_owned(), "libris".to_owned()));
    }

    #[test]
    fn wrong_configurations_are_refused() {
        let open = |config: Config| {
            let definition = ServerDefinition { config, file: ConfigFile::default(), command: Vec::new() };
            definition.remote_config().map(|_| ()).unwrap_err().to_string()
        };
        let both = Config { url: "https://a.example/mcp".into(), run: vec!["a".into()], ..Config::default() };
        assert!(open(both).starts_with("an MCP server needs either a `url` or a command line"));
        assert!(open(Config::default()).starts_with("an MCP server needs either"));
        let unset = Config {
            url: "https://a.example/mcp".into(),
            token_env: "LIBRIS_TEST_UNSET".into(),
            ..Config::default()
        };
        assert!(open(unset).starts_with("the environment variable `LIBRIS_TEST_UNSET` is not set"));
    }
}
