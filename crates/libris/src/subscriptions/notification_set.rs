//! The pending notifications of one listener.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

use libris_wire::Notification;
use tokio::sync::Notify;

use super::should_shrink;
use crate::lock::lock;

/// The pending notifications of one listener: a set in insertion order, so that memory is bounded by the subscriptions.
#[derive(Default)]
pub(super) struct NotificationSet {
    pending: Mutex<InsertionOrderedSet>,
    ready: Notify,
}

#[derive(Default)]
struct InsertionOrderedSet {
    order: VecDeque<Notification>,
    members: HashSet<Notification>,
}

impl InsertionOrderedSet {
    fn shrink(&mut self) {
        if should_shrink(self.members.len(), self.members.capacity()) {
            self.members.shrink_to(self.members.len() * 2);
            self.order.shrink_to(self.order.len() * 2);
        }
    }
}

impl NotificationSet {
    /// Adds a notification, unless it is in the set already.
    pub(super) fn put(&self, notification: Notification) {
        let mut set = lock(&self.pending);
        if set.members.insert(notification.clone()) {
            set.order.push_back(notification);
            drop(set);
            self.ready.notify_one();
        }
    }

    /// Waits for a notification and removes it from the set.
    pub(super) async fn next(&self) -> Notification {
        loop {
            // `Notify` stores a permit, so a notification added before the await is not missed.
            let ready = self.ready.notified();
            if let Some(notification) = self.take() {
                return notification;
            }
            ready.await;
        }
    }

    fn take(&self) -> Option<Notification> {
        let mut set = lock(&self.pending);
        let notification = set.order.pop_front()?;
        set.members.remove(&notification);
        set.shrink();
        Some(notification)
    }

    /// Removes the notification about this resource, if it is in the set.
    pub(super) fn forget(&self, uri: &str) {
        let mut set = lock(&self.pending);
        let gone = Notification::Updated(uri.into());
        if set.members.remove(&gone) {
            set.order.retain(|other| *other != gone);
            set.shrink();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NotificationSet, lock};
    use libris_wire::Notification;

    #[test]
    fn notifications_that_are_taken_or_forgotten_give_their_memory_back() {
        for forget in [false, true] {
            let pending = NotificationSet::default();
            let name = |number: usize| format!("a:{number}");
            (0..1_000).for_each(|number| pending.put(Notification::Updated(name(number).into())));
            for number in 0..1_000 {
                match forget {
                    true => pending.forget(&name(number)),
                    false => assert_eq!(pending.take(), Some(Notification::Updated(name(number).into()))),
                }
            }
            assert_eq!(pending.take(), None);
            let set = lock(&pending.pending);
            assert!(set.order.capacity() <= 64 && set.members.capacity() <= 64);
        }
    }
}
