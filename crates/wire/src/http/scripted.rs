//! A listener for tests.

use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;

use crate::lock::lock;
use crate::{Failure, Listener, News};

/// A listener whose only pending news are those passed to `owe`.
#[derive(Default)]
pub(super) struct Scripted(Mutex<VecDeque<News>>);

impl Scripted {
    /// Takes all pending news.
    pub(super) fn owed(&self) -> Vec<News> {
        lock(&self.0).drain(..).collect()
    }
}

#[async_trait]
impl Listener for Scripted {
    async fn follow_list(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn listed(&self) {}

    async fn subscribe(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn unsubscribe(&self, _: &str) {}

    async fn next(&self) -> News {
        let news = lock(&self.0).pop_front();
        match news {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }

    fn owe(&self, news: News) {
        lock(&self.0).push_back(news);
    }
}
