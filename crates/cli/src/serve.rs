//! `libris serve`: serves sources over stdio or HTTP.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::auth::Authenticator;
use libris::rules::{RuleSet, RulesPolicy};
use libris::{AuthenticatedCallers, Catalog, FileVersionStamp, Policy, Serve, SubscriptionConfig, catalog};
use tokio::net::TcpListener;

use crate::audit_log::{AuditWriter, FlushOnDrop};
use crate::auth::AuthArguments;
#[cfg(feature = "picker")]
use crate::browse::Browsing;
#[cfg(feature = "picker")]
use crate::config::ListenConfig;
use crate::hosts::NewServer;
use crate::reload::{self, ServerAccess};
use crate::rule_config::LocalCallers;
use crate::sources::{self, OpenedConfig, SourceArguments};
use crate::summary;
use crate::terminal::{advice, note, report, warn};
#[cfg(feature = "picker")]
use crate::tools_config::ToolsTable;

/// The default address. If it cannot be bound, for example because it is in use, a free port is selected.
const DEFAULT_ADDRESS: &str = "127.0.0.1:4747";

/// Serve folders and data as MCP resources
///
/// Without --stdio, Libris serves over HTTP if --http or another option for HTTP is given (--sse, --allow-host,
/// --allow-origin, --allow-remote, --picker, --no-webdav, --keys, --tls-certificate). Otherwise it serves over stdio, or
/// over HTTP on 127.0.0.1 if standard input is a terminal or, on Unix, the null device.
#[derive(Debug, Args)]
#[command(after_help = examples())]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// Serve over stdio
    #[arg(long, conflicts_with = "http")]
    stdio: bool,
    /// Serve over HTTP on this address; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    http: Option<SocketAddr>,
    /// Also serve the HTTP+SSE transport of 2024-11-05, at `/sse`
    #[arg(long, conflicts_with = "stdio")]
    sse: bool,
    /// Accept this `Host` name, besides `localhost` and IP addresses
    #[arg(long, value_name = "NAME", conflicts_with = "stdio")]
    allow_host: Vec<String>,
    /// Accept requests from pages of this origin, such as `https://app.example`, besides local ones
    #[arg(long, value_name = "ORIGIN", conflicts_with = "stdio")]
    allow_origin: Vec<String>,
    /// Allow a non-loopback address, although there is no authentication
    #[arg(long, conflicts_with = "stdio")]
    allow_remote: bool,
    /// Serve the picker, a web page, at `/` on a non-loopback address too
    #[cfg(feature = "picker")]
    #[arg(long, conflicts_with = "stdio")]
    picker: bool,
    /// Do not serve the picker, neither as a page nor inside a chat
    #[cfg(feature = "picker")]
    #[arg(long, conflicts_with = "picker")]
    no_picker: bool,
    /// Do not serve the WebDAV share at `/dav` [default: served wherever the picker is]
    #[cfg(feature = "picker")]
    #[arg(long, conflicts_with = "stdio")]
    no_webdav: bool,
    #[command(flatten)]
    auth: AuthArguments,
    /// Set by `libris browse`.
    #[cfg(feature = "picker")]
    #[arg(skip)]
    browsing: Option<Browsing>,
}

fn examples() -> String {
    let more = [
        ("libris serve ./docs --stdio", "over stdio, for an MCP client that starts it"),
        ("libris serve ./docs --http 127.0.0.1:0", "over HTTP on a free port"),
        ("libris serve --config libris.toml", "the sources of a configuration file"),
        ("libris serve ./docs --keys keys.toml", "for callers with an API key"),
        #[cfg(feature = "mcp")]
        ("libris serve ./docs -- npx -y notes-server", "a folder and another MCP server"),
    ];
    let more: String = more.map(|(command, what)| sources::example(command, what)).concat();
    format!("Examples:\n{}{}", sources::examples(), more.trim_end())
}

/// Serves until the client disconnects or the process receives a signal to stop.
pub(crate) async fn run(options: ServeOptions) -> Result<()> {
    let stamp = options.sources.file().as_deref().and_then(FileVersionStamp::of);
    let OpenedConfig { config, sources: opened, errors } = options.sources.open(&[])?;
    if errors.len() == opened.len() {
        // The opened sources hold clones of these `Arc`s; drop them so that `none_opened` can take the error out.
        drop(opened);
        return Err(none_opened(errors));
    }
    errors.iter().for_each(|error| report(error));
    let served = opened.iter().map(|opened| opened.source.clone()).collect();
    let catalog_config =
        catalog::Config { source_timeout: config.server.source_timeout, strict: config.server.strict };
    let catalog = Arc::new(Catalog::with_config(served, catalog_config));
    // Joined before the index and the server are created, so that both receive the changes of other replicas.
    #[cfg(feature = "cluster")]
    let cluster = crate::cluster::join(config.cluster.as_ref(), &catalog)?;
    #[cfg(feature = "search")]
    match config.search.as_ref().map(|search| search.enabled) {
        Some(true) => catalog.start_search(crate::search::settings(&config, &options.sources))?,
        Some(false) => {}
        None if options.wants_search() => {
            catalog.start_search(crate::search::settings(&config, &options.sources))?;
        }
        // Indexing reads every resource, so it starts only with the first search.
        None => catalog.search_on_demand(crate::search::settings(&config, &options.sources)),
    }
    let callers = options.auth.open(&config, options.sources.file().as_deref())?;
    let name = config.server.name.clone();
    let serve = Serve::from(catalog.clone()).until(libris::interrupted()).config(libris::Config {
        name: name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        title: config.server.title,
        description: config.server.description,
        instructions: config.server.instructions,
        built_in_prompt: config.server.use_resources_prompt,
        notes: config.search.as_ref().map(|search| search.notes()).unwrap_or_default(),
        tools: config.tools.config(),
        #[cfg(feature = "picker")]
        app: picker_app(&options, &config.tools),
        #[cfg(not(feature = "picker"))]
        app: None,
        page: config.server.page_size,
        cache_bytes: config.server.cache_bytes,
        subscriptions: config.limits.subscriptions(SubscriptionConfig {
            window: config.live.window,
            subscriptions: config.live.subscriptions,
            subscription_bytes: config.live.subscription_bytes,
            client_subscription_bytes: config.live.client_subscription_bytes,
            ..SubscriptionConfig::default()
        }),
    });
    let wants_stdio = options.serves_stdio();
    let rules = RuleSet::new(config.rules);
    let serve = match policy(&rules, callers.authenticator.as_ref()) {
        Some(policy) => serve.shared_policy(policy),
        None => serve,
    };
    let folder = options.sources.file().and_then(|file| Some(file.parent()?.to_owned())).unwrap_or_default();
    let audit = config.audit.map(|audit| AuditWriter::open(&audit, &folder, wants_stdio)).transpose()?;
    let _flush = audit.clone().map(FlushOnDrop);
    let serve = match &audit {
        Some(audit) => serve.audit(Arc::new(audit.clone())),
        None => serve,
    };
    #[cfg(feature = "cluster")]
    let serve = match cluster {
        Some(cluster) => serve.session_store(cluster),
        None => serve,
    };
    let access = ServerAccess {
        rules,
        authenticator: callers.authenticator.clone(),
        arguments: options.auth.clone(),
        must_authenticate: options.http.is_some_and(|address| !address.ip().is_loopback())
            && !options.allow_remote,
        policy: serve.policy_handle(),
        audit,
    };
    #[cfg(feature = "picker")]
    let picker = PickerChoice::of(&options, &config.listen);
    let ServeOptions { sources, http, sse, mut allow_host, allow_origin, allow_remote, .. } = options;
    let program = std::env::current_exe().unwrap_or_else(|_| "libris".into());
    let command = sources.stdio_command(&program);
    tokio::spawn(reload::run(sources, opened.clone(), catalog, access, stamp));
    if wants_stdio {
        return Ok(serve.stdio().await?);
    }
    raise_open_file_limit();
    let listener = bind(http, allow_remote || callers.must_authenticate()).await?;
    let address = listener.local_addr().context("could not determine the address")?;
    if callers.must_authenticate() && callers.tls.is_none() && !address.ip().is_loopback() {
        warn(
            "credentials are sent unencrypted unless a proxy in front of Libris serves HTTPS; see `listen.tls`",
        );
    }
    allow_host.extend(callers.host());
    let scheme = if callers.tls.is_some() { "https" } else { "http" };
    let mut serve = serve.http_config(config.limits.http(config.listen.http(allow_host, allow_origin, sse)));
    if let Some(tls) = callers.tls {
        serve = serve.tls(tls);
    }
    note(format_args!("listening on {scheme}://{address}/mcp"));
    #[cfg(feature = "picker")]
    if picker.serves(&address) {
        serve = serve.route(Arc::new(libris_web::Picker));
        picker.announce(&format!("{scheme}://{address}/"));
    }
    #[cfg(feature = "picker")]
    if picker.serves_webdav(&address) {
        serve = serve.route(Arc::new(libris_web::WebDav));
    }
    if io::stderr().is_terminal() {
        let server = NewServer { name: entry_name(&name), url: format!("{scheme}://{address}/mcp"), command };
        tokio::spawn(async move { summary::print(&opened, &server).await });
    }
    Ok(serve.listen(listener).await?)
}

/// The picker inside a chat, unless it is disabled.
#[cfg(feature = "picker")]
fn picker_app(options: &ServeOptions, tools: &ToolsTable) -> Option<Arc<dyn libris::wire::AppPage>> {
    let is_wanted = tools.has_picker() && !options.no_picker;
    is_wanted.then(|| Arc::new(libris_web::PickerApp) as Arc<dyn libris::wire::AppPage>)
}

/// The settings of the picker and the WebDAV share, and what `libris browse` does when the page is ready.
#[cfg(feature = "picker")]
struct PickerChoice {
    /// Whether the command line or the configuration enables the picker; `None` for the default.
    is_wanted: Option<bool>,
    /// The same for the WebDAV share.
    wants_webdav: Option<bool>,
    browsing: Option<Browsing>,
}

#[cfg(feature = "picker")]
impl PickerChoice {
    fn of(options: &ServeOptions, configured: &ListenConfig) -> Self {
        let is_wanted = match (options.browsing.is_some() || options.picker, options.no_picker) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => configured.picker,
        };
        let wants_webdav = if options.no_webdav { Some(false) } else { configured.webdav };
        Self { is_wanted, wants_webdav, browsing: options.browsing }
    }

    /// Whether the picker is served on this address: by default on loopback only.
    fn serves(&self, address: &SocketAddr) -> bool {
        self.is_wanted.unwrap_or_else(|| address.ip().is_loopback())
    }

    /// Whether the WebDAV share is served on this address: by default where the picker is.
    fn serves_webdav(&self, address: &SocketAddr) -> bool {
        self.wants_webdav.unwrap_or_else(|| self.serves(address))
    }

    /// Prints the address of the page if standard error is a terminal or the command is `libris browse`.
    /// `libris browse` also opens the page in the browser, unless `--no-open` is given.
    fn announce(&self, page: &str) {
        if self.browsing.is_some() || io::stderr().is_terminal() {
            note(format_args!("browse at {page}"));
        }
        if self.browsing == Some(Browsing::Open) {
            crate::browser::open(page);
        }
    }
}

impl ServeOptions {
    /// The options of `libris browse`.
    #[cfg(feature = "picker")]
    pub(crate) fn browsing(sources: SourceArguments, http: SocketAddr, browsing: Browsing) -> Self {
        Self {
            sources,
            stdio: false,
            http: Some(http),
            sse: false,
            allow_host: Vec::new(),
            allow_origin: Vec::new(),
            allow_remote: false,
            picker: true,
            no_picker: false,
            no_webdav: false,
            auth: AuthArguments::default(),
            browsing: Some(browsing),
        }
    }

    /// Whether the sources are indexed at start if the configuration does not decide it: for `libris browse`, whose page
    /// has a search field.
    #[cfg(all(feature = "picker", feature = "search"))]
    fn wants_search(&self) -> bool {
        self.browsing.is_some()
    }

    #[cfg(all(not(feature = "picker"), feature = "search"))]
    fn wants_search(&self) -> bool {
        false
    }

    /// Whether to serve over stdio rather than over HTTP.
    fn serves_stdio(&self) -> bool {
        let wants_http = self.http.is_some()
            || self.sse
            || self.allow_remote
            || self.has_picker_option()
            || self.auth.want_http()
            || !self.allow_host.is_empty()
            || !self.allow_origin.is_empty();
        self.stdio || (!wants_http && !io::stdin().is_terminal() && !stdin_is_null())
    }
}

impl ServeOptions {
    /// Whether an option is given that implies HTTP: `--picker` or `--no-webdav`. `--no-picker` also applies to stdio.
    #[cfg(feature = "picker")]
    fn has_picker_option(&self) -> bool {
        self.picker || self.no_webdav
    }

    #[cfg(not(feature = "picker"))]
    fn has_picker_option(&self) -> bool {
        false
    }
}

/// The access policy: applies the configured rules to the callers that the authenticator has identified, or, if there
/// is no authenticator, to [`LocalCallers`]. `None` if there are neither rules nor an authenticator.
pub(crate) fn policy(rules: &RuleSet, authenticator: Option<&Arc<Authenticator>>) -> Option<Arc<dyn Policy>> {
    let callers = authenticator
        .map(|authenticator| Arc::new(AuthenticatedCallers::new(authenticator.clone())) as Arc<dyn Policy>);
    if rules.rules().is_empty() {
        return callers;
    }
    Some(Arc::new(RulesPolicy::new(rules, callers.unwrap_or_else(|| Arc::new(LocalCallers)))))
}

/// Whether standard input is the null device, as for a service of systemd or with `</dev/null`, so that no client can
/// speak over it. A closed standard input counts too: the standard library opens the null device in its place. Always
/// `false` on systems other than Unix.
fn stdin_is_null() -> bool {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd as _;
        use std::os::unix::fs::MetadataExt as _;
        let stdin = io::stdin().as_fd().try_clone_to_owned();
        let stdin = stdin.and_then(|stdin| std::fs::File::from(stdin).metadata());
        match (stdin, std::fs::metadata("/dev/null")) {
            (Ok(stdin), Ok(null)) => stdin.file_type() == null.file_type() && stdin.rdev() == null.rdev(),
            _ => false,
        }
    }
    #[cfg(not(unix))]
    false
}

/// The name of the server's entry in the configuration of a host, without characters that a shell interprets.
fn entry_name(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).collect()
}

/// The error if no source could be opened. With one source, it is that source's error; otherwise prints every error and
/// returns a summary.
fn none_opened(mut errors: Vec<Arc<anyhow::Error>>) -> anyhow::Error {
    if let [_] = &errors[..]
        && let Some(only) = errors.pop().and_then(Arc::into_inner)
    {
        return only;
    }
    errors.iter().for_each(|error| report(error));
    advice("none of the sources can be served", "correct them, and see what `libris check` reports")
}

/// Parses an address in one of the usual forms: `127.0.0.1:8080`, `localhost:8080`, `:8080` or `8080`, also as a URL.
/// If the text has no IP address, the address is 127.0.0.1: unlike in other programs, `:8080` does not mean all
/// interfaces.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    if let Ok(port) = port.parse() {
        return Ok((std::net::Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| "expected an IP address and a port, such as `127.0.0.1:8080`".to_owned())
}

async fn bind(address: Option<SocketAddr>, allow_remote: bool) -> Result<TcpListener> {
    let Some(address) = address else {
        let cause = match TcpListener::bind(DEFAULT_ADDRESS).await {
            Ok(listener) => return Ok(listener),
            Err(cause) => cause,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.context("could not listen on 127.0.0.1")?;
        if cause.kind() == io::ErrorKind::AddrInUse {
            warn(
                "the default port 4747 is in use, so a free one was selected; use --http to choose the port",
            );
        }
        return Ok(listener);
    };
    if !address.ip().is_loopback() && !allow_remote {
        return Err(advice(
            format!("`{address}` is reachable from other machines, and there is no authentication"),
            "use 127.0.0.1, require API keys with --keys, or add --allow-remote to let anyone on the network read \
             the sources",
        ));
    }
    TcpListener::bind(address).await.map_err(|cause| {
        let message = format!("could not listen on {address}: {cause}");
        let ip = address.ip();
        match cause.kind() {
            io::ErrorKind::AddrInUse => advice(
                format!("the port {} is in use by another program", address.port()),
                format!("stop that program, or use another port; `--http {ip}:0` selects a free one"),
            ),
            io::ErrorKind::PermissionDenied => {
                advice(message, "use a port from 1024 on, such as 8080; lower ones need privileges")
            }
            io::ErrorKind::AddrNotAvailable => {
                advice(message, "use an address of this machine, such as 127.0.0.1")
            }
            _ => anyhow::Error::new(cause).context(format!("could not listen on {address}")),
        }
    })
}

/// Raises the limit of open files to its maximum: each connection needs a file descriptor, and the default limit is
/// often 1,024.
fn raise_open_file_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        if let Err(cause) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%cause, "could not raise the limit of open files");
        }
    }
}
