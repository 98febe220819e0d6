//! The pending notifications of one listener.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

use libris_wire::News;
use tokio::sync::Notify;

use super::sparse;
use crate::lock::lock;

/// The pending notifications of one listener: a set in insertion order, so that memory is bounded by the subscriptions.
#[derive(Default)]
pub(super) struct NotificationSet {
    news: Mutex<InsertionOrderedSet>,
    ready: Notify,
}

#[derive(Default)]
struct InsertionOrderedSet {
    order: VecDeque<News>,
    members: HashSet<News>,
}

impl InsertionOrderedSet {
    fn shrink(&mut self) {
        if sparse(self.members.len(), self.members.capacity()) {
            self.members.shrink_to(self.members.len() * 2);
            self.order.shrink_to(self.order.len() * 2);
        }
    }
}

impl NotificationSet {
    /// Adds a notification, unless it is in the set already.
    pub(super) fn put(&self, news: News) {
        let mut set = lock(&self.news);
        if set.members.insert(news.clone()) {
            set.order.push_back(news);
            drop(set);
            self.ready.notify_one();
        }
    }

    /// Waits for a notification and removes it from the set.
    pub(super) async fn next(&self) -> News {
        loop {
            // `Notify` stores a permit, so a notification added before the await is not missed.
            let ready = self.ready.notified();
            if let Some(news) = self.take() {
                return news;
            }
            ready.await;
        }
    }

    fn take(&self) -> Option<News> {
        let mut set = lock(&self.news);
        let news = set.order.pop_front()?;
        set.members.remove(&news);
        set.shrink();
        Some(news)
    }

    /// Removes the notification about this resource, if it is in the set.
    pub(super) fn forget(&self, uri: &str) {
        let mut set = lock(&self.news);
        let gone = News::Updated(uri.into());
        if set.members.remove(&gone) {
            set.order.retain(|news| *news != gone);
            set.shrink();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NotificationSet, lock};
    use libris_wire::News;

    #[test]
    fn notifications_that_are_taken_or_forgotten_give_their_memory_back() {
        for forget in [false, true] {
            let pending = NotificationSet::default();
            let name = |number: usize| format!("a:{number}");
            (0..1_000).for_each(|number| pending.put(News::Updated(name(number).into())));
            for number in 0..1_000 {
                match forget {
                    true => pending.forget(&name(number)),
                    false => assert_eq!(pending.take(), Some(News::Updated(name(number).into()))),
                }
            }
            assert_eq!(pending.take(), None);
            let set = lock(&pending.news);
            assert!(set.order.capacity() <= 64 && set.members.capacity() <= 64);
        }
    }
}
