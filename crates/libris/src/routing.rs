//! Routing: the sources of a catalog that cover a URI, and collisions of URIs that two sources claim.

use std::collections::BTreeSet;
use std::sync::Mutex;

use libris_core::uri_template::Specificity;
use libris_core::{Error, Resource, Uri};

use crate::gate::{GatedSource, SourceRole};
use crate::lock::lock;

/// The largest number of pairs of sources whose collisions are logged.
const MAX_LOGGED: usize = 100;

/// A URI that two sources claim, at least one of which is [exclusive](libris_core::Source::is_exclusive).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UriCollision {
    /// The names of the sources.
    sources: [String; 2],
}

impl UriCollision {
    /// The error for a read of `uri`, which both sources claim.
    pub(crate) fn error(&self, uri: &Uri) -> Error {
        let [one, other] = &self.sources;
        Error::Unavailable(format!(
            "`{uri}` is served neither from `{one}` nor from `{other}`, because both have it; hint: set `uris = \
             \"prefixed\"` for one of them"
        ))
    }
}

/// The sources that cover a URI, the most specific first. It is an error if the most specific source is exclusive and a
/// non-exclusive source covers the URI too, or if another exclusive source is as specific as the first one. Sources
/// that match every URI cause no error.
pub(crate) fn route(sources: &[GatedSource], uri: &Uri) -> Result<Vec<GatedSource>, UriCollision> {
    let mut found: Vec<(Specificity, &GatedSource)> =
        sources.iter().filter_map(|gated| Some((gated.source().covers(uri)?, gated))).collect();
    // Another MCP server may have a `libris://status` too; the one of this server takes precedence.
    if found.iter().any(|(specificity, gated)| is_status(gated) && *specificity == Specificity::EXACT) {
        found.retain(|(_, gated)| is_status(gated));
    }
    // The sort is stable, so equally specific sources stay in the order in which they were added.
    found.sort_by_key(|(specificity, _)| std::cmp::Reverse(*specificity));
    if let Some(((best, first), others)) = found.split_first()
        && let Some((_, other)) = others.iter().find(|(specificity, other)| {
            let both = (first.source().is_exclusive(), other.source().is_exclusive());
            // A pattern that matches every URI does not claim this one.
            !specificity.is_catch_all()
                && match both {
                    (true, false) => true,
                    (true, true) | (false, true) => specificity == best,
                    (false, false) => false,
                }
        })
    {
        let sources = [first, other].map(|gated| gated.health().name().to_owned());
        return Err(UriCollision { sources });
    }
    Ok(found.into_iter().map(|(_, gated)| gated.clone()).collect())
}

/// Whether a template that both sources have is served from neither of them, because at least one is exclusive. A
/// template of the status source never counts as claimed twice.
pub(crate) fn is_claimed_twice(one: &GatedSource, other: &GatedSource) -> bool {
    !is_status(one) && !is_status(other) && (one.source().is_exclusive() || other.source().is_exclusive())
}

fn is_status(gated: &GatedSource) -> bool {
    gated.role() == SourceRole::Status
}

/// The pairs of sources whose collisions were logged.
#[derive(Default)]
pub(crate) struct CollisionLog(Mutex<BTreeSet<[String; 2]>>);

impl CollisionLog {
    /// Removes resources that two sources claim, and logs the first collision of each pair of sources.
    pub(crate) fn without_collisions(&self, sources: &[GatedSource], resources: &mut Vec<Resource>) {
        if !sources.iter().any(|gated| gated.source().is_exclusive()) {
            return;
        }
        resources.retain(|resource| match route(sources, &resource.uri) {
            Ok(_) => true,
            Err(collision) => {
                self.log(collision, &resource.uri);
                false
            }
        });
    }

    fn log(&self, collision: UriCollision, uri: &Uri) {
        let mut logged = lock(&self.0);
        if logged.len() < MAX_LOGGED && logged.insert(collision.sources.clone()) {
            let [one, other] = &collision.sources;
            tracing::warn!(
                %uri, one, other,
                "two sources have the same URI, so neither resource is served; hint: set `uris = \"prefixed\"` for one of \
                 them"
            );
        }
    }
}
