//! Converts the values in messages of a server to the types of `libris-core`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libris_core::{
    Annotations, Audience, CacheScope, Content, ContentBody, Icon, Meta, Resource, Result, Template, Theme,
    Uri,
};
use rmcp::model::{self, IconTheme, MetaObject, ResourceContents, Role};

use crate::fault::RemoteFault;
use crate::listing::CacheHints;
use crate::mount::UriMount;

/// A longer TTL of a server is reduced to this one.
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The estimated memory of a resource or an icon besides its texts, in bytes.
const RESOURCE_OVERHEAD: usize = 256;

/// Estimates the memory of a resource, in bytes.
pub(crate) fn resource_weight(resource: &model::Resource) -> usize {
    let texts = [&resource.title, &resource.description, &resource.mime_type];
    RESOURCE_OVERHEAD
        + 2 * resource.uri.len()
        + resource.name.len()
        + texts.into_iter().flatten().map(String::len).sum::<usize>()
        + extras_weight(resource.meta.as_ref(), resource.icons.as_deref())
}

/// Estimates the memory of a template, in bytes. It is stored several times: parsed, as an index, and as the upstream
/// wrote it.
pub(crate) fn template_weight(template: &model::ResourceTemplate) -> usize {
    let texts = [&template.title, &template.description, &template.mime_type];
    RESOURCE_OVERHEAD
        + 8 * template.uri_template.len()
        + template.name.len()
        + texts.into_iter().flatten().map(String::len).sum::<usize>()
        + extras_weight(template.meta.as_ref(), template.icons.as_deref())
}

/// Estimates the memory of `_meta` and icons, in bytes. Parsed JSON takes about eight times its text.
pub(crate) fn extras_weight(meta: Option<&model::MetaObject>, icons: Option<&[model::Icon]>) -> usize {
    let meta = meta.and_then(|meta| serde_json::to_string(meta).ok()).map_or(0, |text| 8 * text.len());
    let icons = icons.unwrap_or_default().iter().map(|icon| icon.src.len() + RESOURCE_OVERHEAD);
    meta + icons.sum::<usize>()
}

/// Converts a resource; an error if its URI is malformed.
pub(crate) fn resource(resource: model::Resource, mount: &UriMount) -> Result<Resource> {
    Ok(Resource {
        uri: mount.outer(&resource.uri)?,
        name: resource.name,
        title: resource.title,
        description: resource.description,
        mime: resource.mime_type,
        size: resource.size,
        icons: icons(resource.icons),
        annotations: annotations(resource.annotations),
        meta: meta(resource.meta, mount),
    })
}

/// Converts a template; an error if it is malformed.
pub(crate) fn template(template: model::ResourceTemplate, mount: &UriMount) -> Result<Template> {
    Ok(Template {
        uri: mount.outer_template(&template.uri_template)?,
        name: template.name,
        title: template.title,
        description: template.description,
        mime: template.mime_type,
        icons: icons(template.icons),
        annotations: annotations(template.annotations),
        meta: meta(template.meta, mount),
    })
}

/// Converts one part of the contents of a read. `asked` is the upstream URI that was read, and the served URI for it: a
/// part with this upstream URI gets the served URI as the client wrote it.
pub(crate) fn content(
    contents: ResourceContents,
    asked: (&str, &Uri),
    mount: &UriMount,
) -> std::result::Result<Content, RemoteFault> {
    let (asked_original, asked_uri) = asked;
    content_at(contents, mount, |original| (original == asked_original).then(|| asked_uri.clone()))
}

/// Converts a resource that is embedded in a prompt message.
pub(crate) fn embedded(
    contents: ResourceContents,
    mount: &UriMount,
) -> std::result::Result<Content, RemoteFault> {
    content_at(contents, mount, |_| None)
}

/// Converts one part. `known` returns the served URI for an upstream URI; if it returns `None`, the mount maps the URI.
fn content_at(
    contents: ResourceContents,
    mount: &UriMount,
    known: impl Fn(&str) -> Option<Uri>,
) -> std::result::Result<Content, RemoteFault> {
    let (original, mime, body, metadata) = match contents {
        ResourceContents::TextResourceContents { uri, mime_type, text, meta } => {
            (uri, mime_type, ContentBody::Text(text), meta)
        }
        ResourceContents::BlobResourceContents { uri, mime_type, blob, meta } => {
            let bytes = STANDARD.decode(blob.as_bytes()).map_err(|_| RemoteFault::Base64)?;
            (uri, mime_type, ContentBody::Bytes(bytes.into()), meta)
        }
        _ => return Err(RemoteFault::NoContents),
    };
    let uri = match known(&original) {
        Some(uri) => uri,
        None => mount.outer(&original).map_err(|_| RemoteFault::ContentUri)?,
    };
    Ok(Content { uri, mime, body, meta: meta(metadata, mount) })
}

/// The cache hints of a response. If the server gave none, the TTL is zero and the scope is private.
pub(crate) fn hints(ttl_ms: Option<u64>, scope: Option<model::CacheScope>) -> CacheHints {
    let ttl = Duration::from_millis(ttl_ms.unwrap_or(0)).min(MAX_TTL);
    let scope = match scope {
        Some(model::CacheScope::Public) => CacheScope::Public,
        _ => CacheScope::Private,
    };
    CacheHints { ttl, scope }
}

pub(crate) fn meta(meta: Option<MetaObject>, mount: &UriMount) -> Option<Meta> {
    let mut meta = meta?.0;
    mount.rewrite_meta(&mut meta);
    Some(meta)
}

fn annotations(annotations: Option<model::Annotations>) -> Annotations {
    let Some(annotations) = annotations else { return Annotations::default() };
    let audience = annotations.audience.unwrap_or_default();
    Annotations {
        audience: audience
            .into_iter()
            .map(|role| match role {
                Role::User => Audience::User,
                Role::Assistant => Audience::Assistant,
            })
            .collect(),
        priority: annotations.priority.map(rounded).filter(|priority| (0.0..=1.0).contains(priority)),
        last_modified: annotations.last_modified.and_then(|time| time.parse().ok()),
    }
}

/// Converts the `f32` of rmcp to the decimal number that the server wrote: 0.8, not 0.800000011920929.
fn rounded(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}

pub(crate) fn icons(icons: Option<Vec<model::Icon>>) -> Vec<Icon> {
    let icon = |icon: model::Icon| Icon {
        src: icon.src,
        mime: icon.mime_type,
        sizes: icon.sizes.unwrap_or_default(),
        theme: icon.theme.and_then(|theme| match theme {
            IconTheme::Light => Some(Theme::Light),
            IconTheme::Dark => Some(Theme::Dark),
            #[allow(unreachable_patterns, reason = "the enum may get more variants")]
            _ => None,
        }),
    };
    icons.into_iter().flatten().map(icon).collect()
}
