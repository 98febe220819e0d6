//! `libris://index`: an overview of the resources, short enough to stay in the context of a model.

mod instructions;
mod markdown;

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use libris_core::uri_template::Specificity;
use libris_core::{
    Content, Contents, Context, Error, Freshness, Page, Proof, Resource, Result, Source, Template, Templates,
    Uri, UriSpan, UriTemplate,
};

use self::markdown::IndexPage;
use crate::Catalog;
use crate::outline::{OutlineListing, OutlineRequest, outline};
use crate::path_note::PathNote;

pub(crate) use self::instructions::instructions;

/// The URI of the index.
pub(crate) const URI: &str = "libris://index";

/// The scheme of the resources of Libris itself.
pub(crate) const OWN_SCHEME: &str = "libris";

/// [`URI`], parsed.
pub(crate) fn uri() -> Uri {
    Uri::parse(URI).expect("the URI is well-formed")
}

/// The largest number of roots or folders in an index.
const MAX_GROUPS: usize = 60;

/// The largest number of resources of a root or folder that are examined.
const MAX_RESOURCES: usize = 400;

/// The largest number of further pages that are listed to fill a page with visible resources.
const MAX_SKIPPED: usize = 100;

/// The source of `libris://index`.
pub(crate) struct LibraryIndex {
    catalog: Weak<Catalog>,
    notes: Vec<PathNote>,
    uri: Uri,
    template: UriTemplate,
}

impl LibraryIndex {
    pub(crate) fn new(catalog: Weak<Catalog>, notes: Vec<PathNote>) -> Self {
        let template = UriTemplate::parse(&format!("{URI}{{?below}}")).expect("the template is well-formed");
        Self { catalog, notes, uri: uri(), template }
    }

    /// The folder in the parameter `below` of a URI; `None` for the index of the whole catalog.
    fn below(&self, uri: &Uri) -> Result<Option<String>> {
        let variables = self.template.matches(uri).ok_or_else(|| Error::NotFound(uri.clone()))?;
        match variables.text("below").filter(|below| !below.is_empty()) {
            None => Ok(None),
            Some(below) => {
                let below = Uri::parse(below).map_err(|_| {
                    Error::invalid("`below` must be the URI of a folder, such as `file:///handbook/guide/`")
                })?;
                let text = below.as_str();
                Ok(Some(if text.ends_with(['/', ':']) { text.to_owned() } else { format!("{text}/") }))
            }
        }
    }
}

#[async_trait]
impl Source for LibraryIndex {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        if !uri.as_str().starts_with(URI) {
            return None;
        }
        if *uri == self.uri {
            return Some(Specificity::EXACT);
        }
        self.template.matches(uri).map(|_| self.template.specificity())
    }

    fn name(&self) -> Cow<'_, str> {
        "index".into()
    }

    fn span(&self) -> Option<UriSpan> {
        Some(UriSpan::of(&self.uri))
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _: &Context) -> Result<Page> {
        let is_listed = limit > 0 && after.is_none_or(|after| *after < self.uri);
        let resource = is_listed.then(|| Resource {
            title: Some("Index".to_owned()),
            description: Some("What this server has: its folders and most important resources.".to_owned()),
            mime: Some("text/markdown".to_owned()),
            ..Resource::new(self.uri.clone(), "index")
        });
        let resources = resource.into_iter().collect();
        Ok(Page { resources, freshness: Freshness::proven(Proof::always()), ..Page::default() })
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let below = self.below(uri)?;
        let catalog = self.catalog.upgrade().ok_or_else(|| Error::NotFound(uri.clone()))?;
        let listing = VisibleListing { catalog: &catalog, context };
        let request = OutlineRequest {
            below: below.as_deref(),
            after: None,
            groups: MAX_GROUPS,
            resources: MAX_RESOURCES,
        };
        let outline = outline(&listing, request).await?;
        if below.is_some() && outline.groups.is_empty() {
            return Err(Error::NotFound(uri.clone()));
        }
        let Templates { mut templates, freshness, .. } = catalog.templates(context).await?;
        templates.retain(|template| {
            let literal = template.uri.as_str().split('{').next().unwrap_or_default();
            context.sees_below(literal)
        });
        let freshness = outline.freshness.clone().and(freshness);
        let page = IndexPage { below: below.as_deref(), outline, templates, notes: &self.notes };
        let content = Content::text(uri.clone(), "text/markdown", page.markdown());
        Ok(Contents { freshness, ..Contents::from(content) })
    }

    async fn templates(&self, _: &Context) -> Result<Templates> {
        let template = Template {
            title: Some("Index of a folder".to_owned()),
            description: Some("`below` is the URI of a folder.".to_owned()),
            mime: Some("text/markdown".to_owned()),
            ..Template::new(self.template.clone(), "index")
        };
        Ok(Templates { freshness: Freshness::proven(Proof::always()), ..Templates::from(vec![template]) })
    }

    fn subject(&self, uri: &Uri) -> Uri {
        uri.without_query()
    }
}

/// The list of a catalog, without Libris' own resources and without resources that are hidden from the caller.
struct VisibleListing<'a> {
    catalog: &'a Arc<Catalog>,
    context: &'a Context,
}

#[async_trait]
impl OutlineListing for VisibleListing<'_> {
    async fn page(&self, after: Option<&Uri>, limit: usize) -> Result<Page> {
        let is_visible = |resource: &Resource| {
            resource.uri.scheme() != OWN_SCHEME
                && self.context.lists(&resource.uri)
                && self.context.sees(&resource.uri)
        };
        let mut page = self.catalog.list(after, limit, self.context).await?;
        let mut last = page.resources.last().map(|last| last.uri.clone());
        page.resources.retain(is_visible);
        for _ in 0..MAX_SKIPPED {
            if !page.more || page.resources.len() >= limit || last.is_none() {
                break;
            }
            let next = self.catalog.list(last.as_ref(), limit, self.context).await?;
            last = next.resources.last().map(|last| last.uri.clone());
            page.more = next.more;
            page.freshness = page.freshness.and(next.freshness);
            page.resources.extend(next.resources.into_iter().filter(is_visible));
        }
        Ok(page)
    }
}
