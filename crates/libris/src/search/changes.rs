//! The next work of the feeder: the changes of the sources, debounced, and the resources that it could not list or read
//! before.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use libris_core::{Change, Context, Error, Resource, Result, Source as _, Uri};
use tokio::time::{Instant, sleep_until, timeout};

use crate::Catalog;

/// How long changes are gathered before they are indexed together.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The maximum number of resources that are indexed one by one. If more changed, or could not be read, the feeder
/// compares the whole list.
const MAX_CHANGED: usize = 1000;

/// The pause before the first attempt to list or read again what failed. It doubles up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(120);

/// The resources to index.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// Perhaps all: the whole list must be compared.
    Everything,
    /// These changed.
    Resources(BTreeSet<Uri>),
    /// These could not be read before.
    Unread(BTreeSet<Uri>),
    /// None.
    Nothing,
}

/// What could not be listed or read, with the time of the next attempt.
pub(super) struct Unfinished {
    is_unlisted: bool,
    unread: BTreeSet<Uri>,
    pause: Duration,
    due: Option<Instant>,
}

impl Default for Unfinished {
    fn default() -> Self {
        Self { is_unlisted: false, unread: BTreeSet::new(), pause: FIRST_RETRY, due: None }
    }
}

impl Unfinished {
    /// Records that the whole list must be compared again, which includes the resources that could not be read.
    pub(super) fn add_unlisted(&mut self) {
        self.is_unlisted = true;
        self.unread.clear();
    }

    /// Records that a resource could not be read.
    pub(super) fn add_unread(&mut self, uri: &Uri) {
        if self.is_unlisted {
            return;
        }
        self.unread.insert(uri.clone());
        if self.unread.len() > MAX_CHANGED {
            self.add_unlisted();
        }
    }

    /// Whether nothing is left to do.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_unlisted && self.unread.is_empty()
    }

    /// The number of resources that could not be read.
    pub(super) fn unread(&self) -> usize {
        self.unread.len()
    }

    /// Sets the time of the next attempt, if something is left to do. The pause doubles with each attempt.
    pub(super) fn schedule(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        } else if self.due.is_none() {
            self.due = Some(Instant::now() + self.pause);
            self.pause = (self.pause * 2).min(LONGEST_RETRY);
        }
    }

    /// Removes and returns the work that failed before.
    pub(super) fn take(&mut self) -> Changed {
        self.due = None;
        let unread = std::mem::take(&mut self.unread);
        match std::mem::take(&mut self.is_unlisted) {
            true => Changed::Everything,
            false => Changed::Unread(unread),
        }
    }

    /// The changes of the next debounce window, or the work that failed before, once it is due; `None` if the stream
    /// ended. Returns [`Changed::Nothing`] if `interrupt` completes before.
    pub(super) async fn next(
        &mut self,
        changes: &mut BoxStream<'static, Change>,
        interrupt: impl Future<Output = ()>,
    ) -> Option<Changed> {
        let due = self.due;
        let first = tokio::select! {
            biased;
            () = interrupt => return Some(Changed::Nothing),
            first = changes.next() => first?,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => return Some(self.take()),
        };
        gather(first, changes).await
    }
}

/// A change and those that follow in its debounce window; `None` if the stream ended.
async fn gather(first: Change, changes: &mut BoxStream<'static, Change>) -> Option<Changed> {
    let mut uris = BTreeSet::new();
    let mut is_lost = insert(&mut uris, first);
    let end = Instant::now() + DEBOUNCE;
    while let Ok(change) = timeout(end.saturating_duration_since(Instant::now()), changes.next()).await {
        is_lost |= insert(&mut uris, change?);
        if uris.len() > MAX_CHANGED {
            is_lost = true;
            uris.clear();
        }
    }
    Some(if is_lost { Changed::Everything } else { Changed::Resources(uris) })
}

/// Records a change; returns whether changes were lost.
fn insert(uris: &mut BTreeSet<Uri>, change: Change) -> bool {
    match change {
        Change::Updated(uri) | Change::Described(uri) | Change::Added(uri) | Change::Removed(uri) => {
            uris.insert(uri);
            false
        }
        Change::Features => false,
        _ => true,
    }
}

/// The metadata of a resource; `None` if it is not listed any more. No method of a catalog returns the metadata of one
/// resource, so this lists a few resources, starting shortly before the URI. Fails if the resource is not found and a
/// source does not answer, because the resource may belong to that source.
pub(super) async fn listed(catalog: &Catalog, uri: &Uri) -> Result<Option<Resource>> {
    const NEIGHBOURS: usize = 64;
    let after = predecessor(uri);
    let page = catalog.list(after.as_ref(), NEIGHBOURS, &Context::default()).await?;
    let found = page.resources.into_iter().find(|resource| resource.uri == *uri);
    match (found, page.unavailable.is_empty()) {
        (None, false) => Err(Error::Unavailable("a source cannot be listed; try again later".to_owned())),
        (found, _) => Ok(found),
    }
}

/// A URI shortly before `uri` in URI order: `uri` with its last character replaced by a smaller one and several `~`,
/// the greatest character. If that is impossible, `uri` without some characters at its end; `None` if no such text is a
/// URI before `uri`.
fn predecessor(uri: &Uri) -> Option<Uri> {
    let text = uri.as_str();
    let last = text.chars().next_back()?;
    let start = &text[..text.len() - last.len_utf8()];
    // Another digit in a percent escape would be another character, which normalisation may decode.
    let is_encoded = text.as_bytes().iter().rev().take(3).any(|byte| *byte == b'%');
    let before = ('-'..last).rev().find(|letter| letter.is_ascii_alphanumeric() || "-.".contains(*letter));
    let close = before.filter(|_| !is_encoded).map(|before| format!("{start}{before}~~~~"));
    let shorter = text.char_indices().rev().map(|(at, _)| text[..at].to_owned());
    let candidates = close.into_iter().chain(shorter).filter_map(|text| Uri::parse(&text).ok());
    candidates.take(8).find(|before| before < uri)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use libris_core::{Change, Uri};

    use super::{Changed, MAX_CHANGED, Unfinished, predecessor};

    fn uri(number: usize) -> Uri {
        Uri::parse(&format!("note:{number}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_tried_again_with_growing_pauses() {
        let mut quiet = futures_util::stream::pending().boxed();
        let mut unfinished = Unfinished::default();
        for expected in [2, 4, 8] {
            unfinished.add_unread(&uri(1));
            unfinished.schedule();
            let begun = tokio::time::Instant::now();
            let next = unfinished.next(&mut quiet, std::future::pending()).await;
            assert_eq!(next, Some(Changed::Unread([uri(1)].into())));
            assert_eq!(begun.elapsed().as_secs(), expected);
        }
        // Nothing is left to do: changes alone are awaited.
        unfinished.schedule();
        let mut changes = futures_util::stream::iter([Change::Updated(uri(2))])
            .chain(futures_util::stream::pending())
            .boxed();
        let next = unfinished.next(&mut changes, std::future::pending()).await;
        assert_eq!(next, Some(Changed::Resources([uri(2)].into())));
        assert_eq!(unfinished.due, None);
    }

    #[test]
    fn what_failed_is_bounded() {
        let mut unfinished = Unfinished::default();
        (0..=MAX_CHANGED + 5).for_each(|number| unfinished.add_unread(&uri(number)));
        assert!(unfinished.unread.is_empty());
        assert_eq!(unfinished.take(), Changed::Everything);
    }

    #[test]
    fn a_predecessor_is_just_in_front() {
        let uris = [
            "file:///docs/a.md",
            "file:///docs/A",
            "db://shop/rows/10",
            "file:///a%20b",
            "x://a/b/",
            "x://a/-",
        ];
        for text in uris.into_iter().chain(["file:///a/%20", "x://a/%C3%A4"]) {
            let uri = Uri::parse(text).unwrap();
            let before = predecessor(&uri).unwrap_or_else(|| panic!("nothing is in front of {uri}"));
            assert!(before < uri, "{before} is not before {uri}");
        }
    }
}
