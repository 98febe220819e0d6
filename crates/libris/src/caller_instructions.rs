//! Generates the instructions for a caller's model from the resources and templates that the caller may see. Clients
//! receive them when they connect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use libris_core::{Context, Freshness, Proof, Result};
use libris_wire::Call;
use tokio::time::timeout;

use crate::caller_view::CallerView;
use crate::library_index;
use crate::outline::{Outline, OutlineRequest, ViewListing, outline};
use crate::view::ViewSnapshot;

/// How long listing the resources and the templates may take together. If it takes longer, or fails, the instructions
/// contain no resources, no templates and no `notes`.
const LISTING_TIME: Duration = Duration::from_secs(3);

/// How long cached instructions are used if they have no [`Proof`] that they are current.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The largest number of roots that the instructions describe, and the largest number of resources examined per root.
const MAX_GROUPS: usize = 20;
const MAX_RESOURCES: usize = 100;

/// The cached instructions for a rights class, that is, for all callers with the same rights.
pub(crate) struct KnownInstructions {
    text: Arc<str>,
    proof: Option<Proof>,
    made: Instant,
}

impl KnownInstructions {
    fn is_valid(&self) -> bool {
        match &self.proof {
            Some(proof) => proof.holds(),
            None => self.made.elapsed() < MAX_AGE,
        }
    }
}

impl CallerView {
    /// The generated instructions; `None` if the configuration sets instructions.
    pub(crate) async fn generated_instructions(&self, call: &Call) -> Option<String> {
        if self.inner.config.instructions.is_some() {
            return None;
        }
        let view = self.view.snapshot();
        let class = view.rights().class();
        if let Some(known) = self.inner.instructions.get(&class).filter(|known| known.is_valid()) {
            return Some(known.text.as_ref().to_owned());
        }
        let context = self.context(call);
        let has_tools = self.has_own_tools();
        let notes = &self.inner.config.notes;
        let (text, freshness) = match timeout(LISTING_TIME, summary(&view, &context)).await {
            Ok(Ok((outline, templates, freshness))) => {
                (library_index::instructions(&outline, &templates, notes, has_tools), freshness)
            }
            // Not cached: the sources may be available when the next client connects.
            _ => return Some(library_index::instructions(&Outline::default(), &[], &[], has_tools)),
        };
        if !context.identity_was_used() {
            let known = KnownInstructions {
                text: text.as_str().into(),
                proof: freshness.proof,
                made: Instant::now(),
            };
            self.inner.instructions.insert(class, Arc::new(known));
        }
        Some(text)
    }
}

/// The roots and the templates of a view, and the freshness of both.
async fn summary(
    view: &ViewSnapshot<'_>,
    context: &Context,
) -> Result<(Outline, Vec<libris_core::Template>, Freshness)> {
    let listing = ViewListing { view, context };
    let request = OutlineRequest { below: None, after: None, groups: MAX_GROUPS, resources: MAX_RESOURCES };
    let outline = outline(&listing, request).await?;
    let templates = view.templates(context).await?;
    let freshness = outline.freshness.clone().and(templates.freshness);
    Ok((outline, templates.templates, freshness))
}
