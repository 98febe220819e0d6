//! The descriptive keys of resources and templates in a configuration file: `name`, `title`, `description`, `icons`,
//! `audience`, `priority` and `meta`.

/// Adds the descriptive keys to a configuration struct that has the fields `uri` and `mime`.
///
/// This is a macro instead of `#[serde(flatten)]`, with which errors would have no line, and unknown keys would
/// be ignored.
macro_rules! with_descriptive_keys {
    (
        $(#[$attribute:meta])*
        pub struct $config:ident $(<$uri:ident>)? { $($fields:tt)* }
    ) => {
        $(#[$attribute])*
        pub struct $config $(<$uri>)? {
            $($fields)*
            /// A short name. Default: the last segment of the URI; for a template, its literal segments and variables,
            /// such as `forecast by city and date`.
            pub name: Option<String>,
            /// A human-readable title.
            pub title: Option<String>,
            /// A description for people and models.
            pub description: Option<String>,
            /// Icons that a client may show.
            #[serde(default)]
            pub icons: Vec<libris_core::Icon>,
            /// The intended audience: `"user"`, `"assistant"` or both.
            #[serde(default)]
            pub audience: Vec<libris_core::Audience>,
            /// How important it is, from 0 to 1.
            pub priority: Option<f64>,
            /// Further metadata, sent to clients as `_meta`.
            pub meta: Option<libris_core::Meta>,
        }

        impl $(<$uri>)? $config $(<$uri>)? {
            /// The resource at a URI, as these keys describe it.
            pub(super) fn resource(&self, uri: &libris_core::Uri) -> libris_core::Resource {
                libris_core::Resource {
                    uri: uri.clone(),
                    name: self.name.clone().unwrap_or_else(|| crate::segment::last(uri)),
                    title: self.title.clone(),
                    description: self.description.clone(),
                    mime: self.mime.clone(),
                    size: None,
                    icons: self.icons.clone(),
                    annotations: self.annotations(),
                    meta: self.meta.clone(),
                }
            }

            /// A template, as these keys describe it.
            pub(super) fn template(&self, uri: &libris_core::UriTemplate) -> libris_core::Template {
                libris_core::Template {
                    uri: uri.clone(),
                    name: self.name.clone().unwrap_or_else(|| crate::segment::template_name(uri)),
                    title: self.title.clone(),
                    description: self.description.clone(),
                    mime: self.mime.clone(),
                    icons: self.icons.clone(),
                    annotations: self.annotations(),
                    meta: self.meta.clone(),
                }
            }

            fn annotations(&self) -> libris_core::Annotations {
                let (audience, priority) = (self.audience.clone(), self.priority);
                libris_core::Annotations { audience, priority, last_modified: None }
            }

            /// Checks what the types of the values do not ensure.
            pub(super) fn check_descriptive_keys(&self) -> Result<(), String> {
                match self.priority {
                    Some(priority) if !(0.0..=1.0).contains(&priority) => {
                        Err(format!("its `priority` must be from 0 to 1, not `{priority}`"))
                    }
                    _ => Ok(()),
                }
            }
        }
    };
}

pub(crate) use with_descriptive_keys;
