//! The `[cluster]` table of the configuration file: replicas that share changes and sessions through Redis.

use std::sync::Arc;

use anyhow::Result;
use libris::Catalog;
use libris_cluster::{ClusterConfigError, Config, RedisCluster};

use crate::terminal::advice;

/// Joins the cluster of the configuration, if it has one. Connects in the background, so it succeeds even if Redis is
/// unreachable at start.
pub(crate) fn join(config: Option<&Config>, catalog: &Arc<Catalog>) -> Result<Option<Arc<RedisCluster>>> {
    let Some(config) = config else { return Ok(None) };
    let cluster = RedisCluster::start(config).map_err(with_advice)?;
    catalog.join_cluster(cluster.clone());
    Ok(Some(cluster))
}

/// Checks the table without connecting.
pub(crate) fn check(config: Option<&Config>) -> Result<()> {
    config.map_or(Ok(()), Config::check).map_err(with_advice)
}

fn with_advice(error: ClusterConfigError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => advice(error.to_string(), hint),
        None => error.into(),
    }
}
