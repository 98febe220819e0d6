//! Serving sources in one call.

use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use libris_core::{Error, Result, Source};
use libris_wire::http::{self, Endpoint};
use libris_wire::{Limits, stdio};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Catalog, Config, Server};

/// Serves a source over MCP: over stdio when awaited, or as its methods say.
///
/// ```no_run
/// # async fn run() -> libris::Result<()> {
/// use libris::Libris;
///
/// let library = Libris::new().resource("greeting://hello", || "Hello!");
/// libris::serve(library).name("greetings").await
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
    allow_remote: bool,
}

impl From<Arc<Catalog>> for Serve {
    fn from(catalog: Arc<Catalog>) -> Self {
        let (config, http) = (Config::default(), http::Config::default());
        Self { catalog, config, http, allow_remote: false }
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

    /// Speaks over standard input and output until the client leaves or the process is told to stop.
    pub async fn stdio(self) -> Result<()> {
        let server = Arc::new(self.server().await?);
        let failed = |cause| Error::failed("use standard input and output", cause);
        let (input, output) = stdio::standard().map_err(failed)?;
        stdio::serve(server, Limits::default(), input, output, interrupted()).await.map_err(failed)
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
        let failed = |cause: io::Error| Error::failed("listen", cause);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        eprintln!("listening on http://{}/mcp", listener.local_addr().map_err(failed)?);
        self.listen(listener).await
    }

    /// Speaks HTTP to whoever comes to this listener, until the process is told to stop.
    pub async fn listen(self, listener: TcpListener) -> Result<()> {
        let endpoint = self.endpoint().await?;
        let failed = |cause| Error::failed("serve HTTP", cause);
        http::serve(listener, endpoint, interrupted()).await.map_err(failed)
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
    /// let library = libris::Libris::new().resource("greeting://hello", || "Hello!");
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "my application" }))
    ///     .merge(libris::serve(library).router());
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
            config.instructions = Some(instructions(&*self.catalog).await?);
        }
        Ok(Server::new(self.catalog.clone(), config))
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
async fn instructions(source: &dyn Source) -> Result<String> {
    // Hosts cut instructions at about 2 KB, so only so many templates are named.
    const NAMED: usize = 12;
    let templates = source.templates().await?.templates;
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
    Ok(text)
}

/// Cancelled once the process is told to stop.
fn interrupted() -> CancellationToken {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        signal().await;
        stopped.cancel();
    });
    stop
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    let _ = tokio::signal::ctrl_c().await;
}
