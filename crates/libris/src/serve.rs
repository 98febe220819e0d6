//! `serve`: sets up and runs a server for sources in one call.

use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use libris_core::{Error, Package, Result, Source};
use libris_wire::http::{self, Endpoint, Route, SessionStore};
use libris_wire::{Limits, stdio};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::rights::{OpenPolicy, Policy};
use crate::{AuditLog, Catalog, Config, PolicyHandle, Server, ToolsConfig};

/// Serves a source over MCP. Awaiting the result serves stdio; [`Serve::http`] serves HTTP.
///
/// ```no_run
/// # async fn run() -> libris::Result<()> {
/// use libris::FunctionSource;
///
/// let functions = FunctionSource::new().resource("greeting://hello", || "Hello!");
/// libris::serve(functions).name("greetings").await
/// # }
/// ```
///
/// The server introduces itself by the name and version of the package in which `#[resources]` is used, or else by the
/// file name of the program and the version `0.0.0`. [`Serve::name`] and [`Serve::version`] set others.
pub fn serve(source: impl Source) -> Serve {
    let catalog = Arc::new(Catalog::new(Vec::new()));
    #[cfg(feature = "search")]
    catalog.search_on_demand(crate::SearchConfig::default());
    Serve::from(catalog).and(source)
}

/// The builder of a server; see [`serve`].
#[must_use = "a server runs when it is awaited"]
pub struct Serve {
    catalog: Arc<Catalog>,
    config: Config,
    http: http::Config,
    policy: Arc<dyn Policy>,
    policy_handle: PolicyHandle,
    audit: Option<Arc<dyn AuditLog>>,
    /// HTTP routes beside `/mcp`.
    routes: Vec<Arc<dyn Route>>,
    /// The sessions that replicas share.
    session_store: Option<Arc<dyn SessionStore>>,
    allow_remote: bool,
    /// The package of the first source that has one.
    package: Option<Package>,
    /// The name and the version that the program set.
    name: Option<String>,
    version: Option<String>,
    /// When to stop; `None` for the signals of [`interrupted`].
    stop: Option<CancellationToken>,
    #[cfg(feature = "tls")]
    tls: Option<Arc<http::TlsServer>>,
}

impl From<Arc<Catalog>> for Serve {
    fn from(catalog: Arc<Catalog>) -> Self {
        let http = http::Config { metrics_prefix: "libris".into(), ..http::Config::default() };
        let config = Config::default();
        let policy = Arc::new(OpenPolicy);
        let (package, name, version) = (None, None, None);
        Self {
            catalog,
            config,
            http,
            policy,
            policy_handle: PolicyHandle::default(),
            audit: None,
            routes: Vec::new(),
            session_store: None,
            allow_remote: false,
            package,
            name,
            version,
            stop: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl Serve {
    /// Adds a source. If several sources cover a URI, the most specific is read; among equals, the first added.
    pub fn and(mut self, source: impl Source) -> Self {
        self.package = self.package.or_else(|| source.package());
        self.catalog.add(Arc::new(source));
        self
    }

    /// Sets the name by which programs identify the server; people see the [title](Self::title). Default: see
    /// [`serve`].
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Sets the display name.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.config.title = Some(title.into());
        self
    }

    /// Sets the version of the server. Default: see [`serve`].
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// Sets the instructions for models. Default: generated for each caller from the resources that it may see.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.config.instructions = Some(instructions.into());
        self
    }

    /// Sets which tools models have. Default: search, read and list.
    pub fn tools(mut self, tools: ToolsConfig) -> Self {
        self.config.tools = tools;
        self
    }

    /// Sets the policy that authenticates callers and grants them rights. Default: no authentication, all rights.
    pub fn policy(self, policy: impl Policy) -> Self {
        Self { policy: Arc::new(policy), ..self }
    }

    /// Sets a policy that is shared with other servers.
    pub fn shared_policy(self, policy: Arc<dyn Policy>) -> Self {
        Self { policy, ..self }
    }

    /// A handle that replaces the policy while the server runs.
    pub fn policy_handle(&self) -> PolicyHandle {
        self.policy_handle.clone()
    }

    /// Writes the decisions about requests to this audit log.
    pub fn audit(self, log: Arc<dyn AuditLog>) -> Self {
        Self { audit: Some(log), ..self }
    }

    /// Replaces the whole configuration of the server.
    pub fn config(self, config: Config) -> Self {
        Self { name: Some(config.name.clone()), version: Some(config.version.clone()), config, ..self }
    }

    /// Replaces the whole configuration of the HTTP endpoint.
    pub fn http_config(self, http: http::Config) -> Self {
        Self { http, ..self }
    }

    /// Adds a route beside `/mcp` for HTTP, such as a web page. The first route that covers a path answers.
    pub fn route(mut self, route: Arc<dyn Route>) -> Self {
        self.routes.push(route);
        self
    }

    /// Shares the sessions of legacy clients with other replicas. [`Catalog::join_cluster`] shares the changes.
    pub fn session_store(self, store: Arc<dyn SessionStore>) -> Self {
        Self { session_store: Some(store), ..self }
    }

    /// Allows this host name in HTTP requests, in addition to `localhost` and IP addresses.
    pub fn allow_host(mut self, name: impl Into<String>) -> Self {
        self.http.hosts.push(name.into());
        self
    }

    /// Allows this origin in HTTP requests, in addition to local origins.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        self.http.origins.push(origin.into());
        self
    }

    /// Allows HTTP on addresses that other machines can reach. Without a [policy](Self::policy) that authenticates
    /// callers, everybody who can reach the address may read everything.
    pub fn allow_remote(self) -> Self {
        Self { allow_remote: true, ..self }
    }

    /// Serves HTTPS instead of HTTP.
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: Arc<http::TlsServer>) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Stops the server when this future completes, instead of on Ctrl-C or SIGTERM.
    pub fn until(self, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { stop: Some(cancelled(stop)), ..self }
    }

    /// Serves stdio until the client closes standard input or the process is interrupted.
    pub async fn stdio(self) -> Result<()> {
        let server = Arc::new(self.server());
        let failed = |cause| Error::failed("use standard input and output", cause);
        let (input, output) = stdio::standard().map_err(failed)?;
        let stop = self.stop.unwrap_or_else(|| cancelled(interrupted()));
        stdio::serve(server, Limits::default(), input, output, stop).await.map_err(failed)
    }

    /// Serves HTTP on an address such as `127.0.0.1:8080` until the process is interrupted. Port 0 selects a free port.
    /// The endpoint is `/mcp`; its URL is printed to standard error.
    pub async fn http(self, address: impl AsRef<str>) -> Result<()> {
        let address = address.as_ref();
        let local = address.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let address: SocketAddr = local.as_deref().unwrap_or(address).parse().map_err(|_| {
            Error::invalid(format!("`{address}` is not an IP address and a port, as in `127.0.0.1:8080`"))
        })?;
        if !address.ip().is_loopback() && !self.allow_remote {
            return Err(Error::invalid(format!(
                "`{address}` can be reached from other machines, and a server without a policy has no authentication: \
                 serve 127.0.0.1 instead, or call `allow_remote` to allow this address"
            )));
        }
        let serve = match self.stop {
            Some(_) => self,
            None => self.until(interrupted()),
        };
        let failed = |cause: io::Error| Error::failed("listen", cause);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let scheme = serve.scheme();
        eprintln!("listening on {scheme}://{}/mcp", listener.local_addr().map_err(failed)?);
        serve.listen(listener).await
    }

    /// The scheme of the server's URL.
    fn scheme(&self) -> &'static str {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return "https";
        }
        "http"
    }

    /// Serves HTTP on this listener until the process is interrupted.
    pub async fn listen(self, listener: TcpListener) -> Result<()> {
        let endpoint = self.endpoint();
        let failed = |cause| Error::failed("serve HTTP", cause);
        let stop = self.stop.unwrap_or_else(|| cancelled(interrupted()));
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls {
            return http::serve_tls(listener, endpoint, tls, stop).await.map_err(failed);
        }
        http::serve(listener, endpoint, stop).await.map_err(failed)
    }

    /// A router for `/mcp` and for the metadata that tells clients how to authenticate, to merge or nest into the
    /// router of an axum application.
    ///
    /// A layer in front of the router may authenticate the caller and put an [`Identity`](crate::Identity) into the
    /// extensions of the request, for functions that take one.
    ///
    /// ```
    /// use axum::Router;
    /// use axum::routing::get;
    ///
    /// let functions = libris::FunctionSource::new().resource("greeting://hello", || "Hello!");
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "my application" }))
    ///     .merge(libris::serve(functions).router());
    /// ```
    #[cfg(feature = "axum")]
    pub fn router(self) -> axum::Router {
        use axum::response::IntoResponse as _;
        // Created at the first request: the endpoint requires a tokio runtime, and perhaps there is none before.
        let made = Arc::new((self, std::sync::OnceLock::<Arc<Endpoint>>::new()));
        let answer = async move |request: axum::extract::Request| {
            let (serve, endpoint) = &*made;
            let endpoint = endpoint.get_or_init(|| serve.endpoint()).clone();
            endpoint.handle(request).await.into_response()
        };
        let answer = axum::routing::any(answer);
        // The metadata of a protected resource, by which clients learn how to authenticate.
        let metadata = "/.well-known/oauth-protected-resource";
        axum::Router::new()
            .route("/mcp", answer.clone())
            .route(metadata, answer.clone())
            .route(&format!("{metadata}/{{*path}}"), answer)
    }

    fn endpoint(&self) -> Arc<Endpoint> {
        let (server, config, routes) = (Arc::new(self.server()), self.http.clone(), self.routes.clone());
        match self.session_store.clone() {
            Some(store) => Endpoint::with_session_store(server, config, routes, store),
            None => Endpoint::with_routes(server, config, routes),
        }
    }

    fn server(&self) -> Server {
        let mut config = self.config.clone();
        let package = self.package.map(|Package { name, version }| (name.to_owned(), version.to_owned()));
        let (package_name, package_version) = package.unzip();
        config.name = self.name.clone().or(package_name).unwrap_or(config.name);
        config.version = self.version.clone().or(package_version).unwrap_or(config.version);
        self.catalog.add_index(config.notes.clone());
        self.catalog.add_status();
        let (catalog, policy) = (self.catalog.clone(), self.policy.clone());
        let server = Server::of_catalog(catalog, config, policy, self.audit.clone());
        self.policy_handle.attach(&server);
        tokio::spawn(server.maintain());
        server
    }
}

impl IntoFuture for Serve {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.stdio())
    }
}

/// Completes on Ctrl-C and on SIGTERM; on Windows on Ctrl-C, on Ctrl-Break, and when the console is closed or the system
/// shuts down. These signals no longer terminate the process once this function has returned, even before the future is
/// polled.
pub fn interrupted() -> impl Future<Output = ()> + Send + 'static {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok());
        async move {
            let waits = signals.into_iter().flatten().map(async |mut signal| signal.recv().await);
            let waits: Vec<_> = waits.map(Box::pin).collect();
            if waits.is_empty() {
                return std::future::pending().await;
            }
            futures_util::future::select_all(waits).await;
        }
    }
    #[cfg(windows)]
    {
        use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};
        let (mut c, mut break_key) = (ctrl_c().ok(), ctrl_break().ok());
        let (mut close, mut shutdown) = (ctrl_close().ok(), ctrl_shutdown().ok());
        async move {
            tokio::select! {
                Some(_) = async { c.as_mut()?.recv().await } => {}
                Some(_) = async { break_key.as_mut()?.recv().await } => {}
                Some(_) = async { close.as_mut()?.recv().await } => {}
                Some(_) = async { shutdown.as_mut()?.recv().await } => {}
                // No signal can be received.
                else => std::future::pending().await,
            }
        }
    }
}

/// A token that is cancelled when `stop` completes.
fn cancelled(stop: impl Future<Output = ()> + Send + 'static) -> CancellationToken {
    let token = CancellationToken::new();
    let stopped = token.clone();
    tokio::spawn(async move {
        stop.await;
        stopped.cancel();
    });
    token
}
