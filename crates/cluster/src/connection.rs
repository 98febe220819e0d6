//! Connections to Redis: one server, the master that Sentinels name, or a cluster.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult,
    ScriptInvocation,
};
use tokio::time::timeout;

use crate::ClusterConfigError;
use crate::address::{RedisAddress, RedisUrl};

/// The time limit for opening one TCP or TLS connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens connections to Redis.
pub(crate) struct Connector {
    address: RedisAddress,
}

impl Connector {
    pub(crate) fn new(url: &RedisUrl, password: Option<&str>) -> Result<Self, ClusterConfigError> {
        // Fails if the program has already installed a crypto provider, which then stays in use.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self { address: RedisAddress::parse(url, password)? })
    }

    /// Opens a connection. A command on it fails if Redis does not respond within `response_timeout`.
    pub(crate) async fn connect(&self, response_timeout: Duration) -> RedisResult<RedisConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(response_timeout));
        // Cannot happen: `RedisAddress::parse` has checked the address.
        let invalid =
            |why: String| RedisError::from((ErrorKind::InvalidClientConfig, "invalid address", why));
        let opening = async {
            Ok(match &self.address {
                RedisAddress::Single(info) => {
                    let client = Client::open((**info).clone())?;
                    RedisConnection::Single(
                        client.get_multiplexed_async_connection_with_config(&config).await?,
                    )
                }
                RedisAddress::Sentinel(hosts) => {
                    let mut client = hosts.sentinel().map_err(invalid)?;
                    RedisConnection::Single(client.get_async_connection_with_config(&config).await?)
                }
                RedisAddress::Cluster(hosts) => {
                    let builder = hosts.cluster().map_err(invalid)?;
                    // Without retries: after a failover, a retry would read the stream of the promoted node, and its
                    // caller would not notice that the node may lack the last writes. Callers connect again instead.
                    let builder = builder.connection_timeout(CONNECT_TIMEOUT).retries(0);
                    let client = builder.response_timeout(response_timeout).build()?;
                    RedisConnection::Cluster(Box::new(client.get_async_connection().await?))
                }
            })
        };
        // Longer than one connection attempt: Sentinels are queried one after the other, and a cluster needs several
        // connections.
        match timeout(CONNECT_TIMEOUT * 3, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(RedisError::from((ErrorKind::Io, "connecting took too long"))),
        }
    }
}

/// A connection to Redis. Clones use the same connection.
#[derive(Clone)]
pub(crate) enum RedisConnection {
    Single(MultiplexedConnection),
    Cluster(Box<ClusterConnection>),
}

impl RedisConnection {
    pub(crate) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Single(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(&mut **connection).await,
        }
    }

    pub(crate) async fn pipeline<T: FromRedisValue>(&mut self, commands: &Pipeline) -> RedisResult<T> {
        match self {
            Self::Single(connection) => commands.query_async(connection).await,
            Self::Cluster(connection) => commands.query_async(&mut **connection).await,
        }
    }

    /// Runs a script by its digest. Sends its text only if Redis does not know it yet.
    pub(crate) async fn invoke<T: FromRedisValue>(
        &mut self,
        script: &ScriptInvocation<'_>,
    ) -> RedisResult<T> {
        match self {
            Self::Single(connection) => script.invoke_async(connection).await,
            Self::Cluster(connection) => script.invoke_async(&mut **connection).await,
        }
    }
}

/// Exponential backoff between attempts to connect.
pub(crate) struct ReconnectPause(Duration);

impl ReconnectPause {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(2);

    pub(crate) fn new() -> Self {
        Self(Self::SHORTEST)
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Self::LONGEST);
        pause
    }
}

/// The reason for a failure, for messages. Contains no secrets, because the errors of Redis contain no credentials.
pub(crate) fn reason(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::AuthenticationFailed => "Redis refused the user or the password".to_owned(),
        _ => format!("Redis: {error}"),
    }
}
