//! The entries of a folder, page by page: what the list has, and what templates offer.

use std::collections::VecDeque;

use libris_wire::{Call, Failure, PrefixEntry, PrefixPage};

use super::names::FolderNames;
use super::offered::OfferedTemplates;

/// An entry of a folder with its name.
pub(super) struct ShareEntry {
    pub(super) name: String,
    pub(super) entry: PrefixEntry,
}

/// Lists a folder that exists. Memory is bounded by one page, however many entries the folder has.
pub(super) struct ShareListing {
    call: Call,
    prefix: String,
    /// The entries of templates that were not listed yet, in URI order.
    offered: VecDeque<PrefixEntry>,
    names: FolderNames,
    /// The URI after which the next page begins.
    after: Option<String>,
    is_first: bool,
    pub(super) is_last: bool,
    /// Whether some sources did not respond, so that entries may be missing.
    pub(super) is_incomplete: bool,
}

impl ShareListing {
    pub(super) async fn open(call: &Call, prefix: String) -> Result<Self, Failure> {
        let offered = OfferedTemplates::load(call).await?.below(call, &prefix).await.into();
        Ok(Self {
            call: call.clone(),
            prefix,
            offered,
            names: FolderNames::default(),
            after: None,
            is_first: true,
            is_last: false,
            is_incomplete: false,
        })
    }

    /// The next page.
    pub(super) async fn next_page(&mut self) -> Result<Vec<ShareEntry>, Failure> {
        let call = self.call.for_part();
        let listed = call.view().below(&call, &self.prefix, self.after.as_deref()).await;
        let page = match listed {
            // No list has this folder, only a template, whose variables may have no values.
            Err(Failure::NotFound { .. }) if self.is_first => PrefixPage::default(),
            listed => listed?,
        };
        self.is_first = false;
        self.is_last = page.next.is_none();
        self.is_incomplete |= page.is_incomplete;
        self.after = page.next;
        let mut named = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            while self.offered.front().is_some_and(|offered| offered.uri <= entry.uri) {
                let Some(offered) = self.offered.pop_front() else { break };
                if offered.uri != entry.uri {
                    self.push(&mut named, offered);
                }
            }
            self.push(&mut named, entry);
        }
        if self.is_last {
            for offered in std::mem::take(&mut self.offered) {
                self.push(&mut named, offered);
            }
        }
        Ok(named)
    }

    fn push(&mut self, named: &mut Vec<ShareEntry>, entry: PrefixEntry) {
        let name = self.names.name(&self.prefix, &entry.uri, entry.mime.as_deref(), entry.is_folder);
        named.extend(name.map(|name| ShareEntry { name, entry }));
    }
}
