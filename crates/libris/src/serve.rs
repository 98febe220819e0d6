//! Serving sources in one call.

use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use libris_core::{Context, Error, Result, Source, Template};
use libris_wire::http::{self, Endpoint};
use libris_wire::{Limits, stdio};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::rights::{OpenPolicy, Policy};
use crate::{Catalog, Config, Server};

/// Serves a source over MCP: over stdio when awaited, or as its methods say.
///
/// ```no_run
/// # async fn run() -> libris::Result<()> {
/// use libris::FunctionSource;
///
/// let functions = FunctionSource::new().resource("greeting://hello", || "Hello!");
/// libris::serve(functions).name("greetings").await
/// # }
/// ```
pub fn serve(source: impl Source) -> Serve {
    Serve::from(Arc::new(Catalog::new(vec![Arc::new(source)])))
}

/// A server being set up; see [`serve`].
#[must_use = "it serves once it is awaited"]
pub struct Serve {
    catalog: Arc<Catalog>,
    config: Config,
    http: http::Config,
    policy: Arc<dyn Policy>,
    allow_remote: bool,
    /// When to stop; nothing where a signal says so.
    stop: Option<CancellationToken>,
}

impl From<Arc<Catalog>> for Serve {
    fn from(catalog: Arc<Catalog>) -> Self {
        let http = http::Config { metrics_prefix: "libris".into(), ..http::Config::default() };
        let config = Config::default();
        Self { catalog, config, http, policy: Arc::new(OpenPolicy), allow_remote: false, stop: None }
    }
}

impl Serve {
    /// With another source beside those it has. Where several have a URI, the one that means it most closely is
    /// read, and of equals the earlier one.
    pub fn and(self, source: impl Source) -> Self {
        self.catalog.add(Arc::new(source));
        self
    }

    /// With this name to programs.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// With this name to people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.config.title = Some(title.into());
        self
    }

    /// With this version of the server.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.config.version = version.into();
        self
    }

    /// With what a model should know about using it; a text about the templates where it is not said.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.config.instructions = Some(instructions.into());
        self
    }

    /// To callers that this policy admits, and as much as it shows to each; without one everybody sees everything.
    pub fn policy(self, policy: impl Policy) -> Self {
        Self { policy: Arc::new(policy), ..self }
    }

    /// With everything that can be said about how sources are served.
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Over HTTP, with everything that can be said about it.
    pub fn http_config(self, http: http::Config) -> Self {
        Self { http, ..self }
    }

    /// Over HTTP, under this host name too, beside `localhost` and IP addresses.
    pub fn allow_host(mut self, name: impl Into<String>) -> Self {
        self.http.hosts.push(name.into());
        self
    }

    /// Over HTTP, for pages of this origin too, beside local ones.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        self.http.origins.push(origin.into());
        self
    }

    /// Over HTTP, for other machines too, although there is no authentication.
    pub fn allow_remote(self) -> Self {
        Self { allow_remote: true, ..self }
    }

    /// Until this future ends, and not until the process is told to stop.
    pub fn until(self, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { stop: Some(cancelled(stop)), ..self }
    }

    /// Speaks over standard input and output until the client leaves or the process is told to stop.
    pub async fn stdio(self) -> Result<()> {
        let server = Arc::new(self.server().await?);
        let failed = |cause| Error::failed("use standard input and output", cause);
        let (input, output) = stdio::standard().map_err(failed)?;
        let stop = self.stop.unwrap_or_else(|| cancelled(interrupted()));
        stdio::serve(server, Limits::default(), input, output, stop).await.map_err(failed)
    }

    /// Speaks HTTP on this address, as in `127.0.0.1:8080`, until the process is told to stop. Port 0 takes
    /// a free one. The endpoint is `/mcp`; where it is, is written to standard error.
    pub async fn http(self, address: impl AsRef<str>) -> Result<()> {
        let address = address.as_ref();
        let local = address.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let address: SocketAddr = local.as_deref().unwrap_or(address).parse().map_err(|_| {
            Error::invalid(format!("`{address}` is not an IP address and a port, as in `127.0.0.1:8080`"))
        })?;
        if !address.ip().is_loopback() && !self.allow_remote {
            return Err(Error::invalid(format!(
                "`{address}` can be reached from other machines, and anybody could read what is served: serve \
                 127.0.0.1 instead, or say `allow_remote` if that is what you want"
            )));
        }
        let serve = match self.stop {
            Some(_) => self,
            None => self.until(interrupted()),
        };
        let failed = |cause: io::Error| Error::failed("listen", cause);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        eprintln!("listening on http://{}/mcp", listener.local_addr().map_err(failed)?);
        serve.listen(listener).await
    }

    /// Speaks HTTP to whoever comes to this listener, until the process is told to stop.
    pub async fn listen(self, listener: TcpListener) -> Result<()> {
        let endpoint = self.endpoint().await?;
        let failed = |cause| Error::failed("serve HTTP", cause);
        let stop = self.stop.unwrap_or_else(|| cancelled(interrupted()));
        http::serve(listener, endpoint, stop).await.map_err(failed)
    }

    /// Everything under `/mcp`, to be merged or nested into the router of an application of yours.
    ///
    /// Whatever layer stands before it may put an [`Identity`](crate::Identity) into the extensions of a
    /// request. Functions then see who asks.
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
        use axum::http::StatusCode;
        use axum::response::IntoResponse as _;
        let made = Arc::new((self, tokio::sync::OnceCell::<Arc<Endpoint>>::new()));
        let answer = async move |request: axum::extract::Request| {
            let (serve, endpoint) = &*made;
            match endpoint.get_or_try_init(|| serve.endpoint()).await {
                Ok(endpoint) => endpoint.clone().handle(request).await.into_response(),
                Err(error) => {
                    tracing::error!(%error, "could not serve");
                    StatusCode::SERVICE_UNAVAILABLE.into_response()
                }
            }
        };
        axum::Router::new().route("/mcp", axum::routing::any(answer))
    }

    async fn endpoint(&self) -> Result<Arc<Endpoint>> {
        Ok(Endpoint::new(Arc::new(self.server().await?), self.http.clone()))
    }

    async fn server(&self) -> Result<Server> {
        let mut config = self.config.clone();
        if config.instructions.is_none() {
            let templates = match self.catalog.templates(&Context::default()).await {
                // All callers are given the same instructions, which must not name what some may not see.
                Ok(_) if !self.policy.is_open() => Vec::new(),
                Ok(templates) => templates.templates,
                // The sources may be available by the time that somebody asks for something.
                Err(error) if !self.catalog.config().strict => {
                    tracing::warn!(%error, "the instructions do not name any templates");
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            config.instructions = Some(instructions(&templates));
        }
        self.catalog.add_status();
        Ok(Server::of_catalog(self.catalog.clone(), config, self.policy.clone()))
    }
}

impl IntoFuture for Serve {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.stdio())
    }
}

/// What a model should know: what is here, and how to get at it.
fn instructions(templates: &[Template]) -> String {
    // Hosts cut instructions at about 2 KB, so only so many templates are named.
    const NAMED: usize = 12;
    let mut text = String::from(
        "This server holds documents and data as resources. Before you answer a question about them, \
         read the ones that bear on it: list the resources, or fill in a template, then read the URI.",
    );
    for template in templates.iter().take(NAMED) {
        let about = template.description.as_deref().or(template.title.as_deref()).unwrap_or(&template.name);
        text.push_str(&format!("\n- {}: {about}", template.uri));
    }
    if templates.len() > NAMED {
        text.push_str(&format!("\n- and {} more templates", templates.len() - NAMED));
    }
    text
}

/// Ends once the process is told to stop: by Ctrl-C, or on Unix by SIGTERM. From the moment this returns, such a
/// signal does not end the process by itself any more.
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
    #[cfg(not(unix))]
    async {
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Cancelled once a future ends.
fn cancelled(stop: impl Future<Output = ()> + Send + 'static) -> CancellationToken {
    let token = CancellationToken::new();
    let stopped = token.clone();
    tokio::spawn(async move {
        stop.await;
        stopped.cancel();
    });
    token
}
