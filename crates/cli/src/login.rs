//! `libris login` and `libris logout`: access tokens for other MCP servers, by OAuth.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use libris_sources::mcp::{Login, LoginOptions, TokenStore};

use crate::browser;
use crate::target::EXIT_CODES;
use crate::terminal::{advice, note, print, shown, warn};

/// How long to wait for the user to complete the login in the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Log in to an MCP server that requires authorization
///
/// Opens the login page of the server in the browser, and stores the access token in `libris/tokens` in `$XDG_DATA_HOME`,
/// or in `~/.local/share` if that is not set, in a file that only you can read. All commands, and `libris serve` with the
/// same URL, then use and renew the token. Without a URL, lists the servers with a stored token.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris login https://mcp.example/mcp       log in; then `libris ls https://mcp.example/mcp` works
  libris login                               the servers with a stored token
  libris logout https://mcp.example/mcp      remove the token

{EXIT_CODES}"))]
pub(crate) struct LoginCommand {
    /// The URL of the server
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Ask for this scope instead of those that the server names; may be given several times
    #[arg(long, value_name = "SCOPE", requires = "url")]
    scope: Vec<String>,
    /// The id of a client that you registered with the authorization server [default: registers one]
    #[arg(long, value_name = "ID", requires = "url")]
    client_id: Option<String>,
    /// The port on 127.0.0.1 that receives the OAuth redirect [default: a free one]
    #[arg(long, value_name = "PORT", requires = "url")]
    port: Option<u16>,
    /// Print the address of the login page, and open no browser
    #[arg(long, requires = "url")]
    no_open: bool,
}

/// Remove the stored access token for an MCP server
#[derive(Debug, Args)]
pub(crate) struct LogoutCommand {
    /// The URL of the server, as it was given to `libris login`
    #[arg(value_name = "URL")]
    url: String,
}

fn store() -> Result<TokenStore> {
    TokenStore::of_user().ok_or_else(|| {
        advice("there is no folder for the access token".to_owned(), "set HOME or XDG_DATA_HOME")
    })
}

/// Logs in, or lists the servers with a stored token.
pub(crate) async fn login(arguments: LoginCommand) -> Result<ExitCode> {
    let LoginCommand { url, scope, client_id, port, no_open } = arguments;
    let store = store()?;
    let Some(url) = url else {
        let urls = store.servers()?;
        if urls.is_empty() {
            note("no access tokens are stored");
        }
        print(&urls.iter().map(|url| format!("{}\n", shown(url))).collect::<String>())
            .context("could not print")?;
        return Ok(ExitCode::SUCCESS);
    };
    let options = LoginOptions { scopes: scope, client_id, port: port.unwrap_or(0) };
    let login = Login::begin(&url, &options, &store).await?;
    eprintln!("log in at {}", shown(login.url()));
    if !no_open {
        browser::open(login.url());
    }
    match tokio::time::timeout(LOGIN_TIMEOUT, login.finish()).await {
        Ok(outcome) => outcome?,
        Err(_) => {
            let message = format!("nobody logged in within {} minutes", LOGIN_TIMEOUT.as_secs() / 60);
            return Err(advice(message, "run the command again"));
        }
    }
    eprintln!("logged in; the access token is stored");
    Ok(ExitCode::SUCCESS)
}

/// Removes a stored token.
pub(crate) fn logout(arguments: &LogoutCommand) -> Result<ExitCode> {
    if store()?.remove(&arguments.url)? {
        eprintln!("the access token was removed");
        return Ok(ExitCode::SUCCESS);
    }
    warn("no access token is stored for this URL; `libris login` without a URL lists the stored ones");
    Ok(ExitCode::FAILURE)
}
