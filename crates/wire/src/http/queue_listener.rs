//! A listener for unit tests.

use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;

use crate::lock::lock;
use crate::{Failure, Identity, Listener, Notification};

/// A listener whose only pending notifications are those passed to `requeue`.
#[derive(Default)]
pub(super) struct QueueListener(Mutex<VecDeque<Notification>>);

impl QueueListener {
    /// Takes all pending notifications.
    pub(super) fn take_pending(&self) -> Vec<Notification> {
        lock(&self.0).drain(..).collect()
    }
}

#[async_trait]
impl Listener for QueueListener {
    async fn follow_list(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn follow_prompts(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn follow_tools(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn listed(&self) {}

    async fn reserve(&self, _: &[&str]) -> Result<(), Failure> {
        Ok(())
    }

    async fn subscribe(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn unsubscribe(&self, _: &str) {}

    async fn next(&self) -> Notification {
        let notification = lock(&self.0).pop_front();
        match notification {
            Some(notification) => notification,
            None => std::future::pending().await,
        }
    }

    fn renew(&self, _: Option<&Identity>) {}

    fn requeue(&self, notification: Notification) {
        lock(&self.0).push_back(notification);
    }
}
