//! The protocol revisions and their features: the only place that distinguishes them.

/// A revision of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05, the first.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP, batches.
    V2025_03_26,
    /// 2025-06-18: titles, `_meta`, no batches.
    V2025_06_18,
    /// 2025-11-25: icons.
    V2025_11_25,
    /// 2026-07-28: stateless.
    V2026_07_28,
}

/// How a client and a server agree on a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// With an `initialize` handshake that opens a session.
    Legacy,
    /// With metadata in each request, without a session.
    Modern,
}

/// The features of a revision.
#[derive(Debug)]
pub struct Facts {
    /// The date that names the revision in messages.
    pub date: &'static str,
    /// How a client and a server agree on the revision.
    pub era: Era,
    /// `title` of resources, templates and implementations; `lastModified`; `_meta` of resources, templates and
    /// contents.
    pub titles: bool,
    /// `icons`, and `description` and `websiteUrl` of implementations.
    pub icons: bool,
    /// The `completions` capability.
    pub completions: bool,
    /// `annotations` of tools.
    pub tool_annotations: bool,
    /// `outputSchema` of tools, and `structuredContent` and `resource_link` blocks in their results.
    pub structured: bool,
    /// Batches: arrays of messages.
    pub batches: bool,
    /// The error code for an unknown resource.
    pub not_found: i32,
    /// Members that modern results have: `resultType` in all, `ttlMs` and `cacheScope` in cacheable ones, and the
    /// server's name and version in `_meta`.
    pub hints: bool,
    /// The `extensions` capability. It was specified after 2025-11-25, but hosts of that revision use it already.
    pub extensions: bool,
}

impl Revision {
    /// Every revision, newest first.
    pub const ALL: [Self; 5] =
        [Self::V2026_07_28, Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26, Self::V2024_11_05];

    /// The features of this revision.
    pub const fn facts(self) -> &'static Facts {
        const FIRST: Facts = Facts {
            date: "2024-11-05",
            era: Era::Legacy,
            titles: false,
            icons: false,
            completions: false,
            tool_annotations: false,
            structured: false,
            batches: false,
            not_found: -32002,
            hints: false,
            extensions: false,
        };
        const SECOND: Facts =
            Facts { date: "2025-03-26", completions: true, tool_annotations: true, batches: true, ..FIRST };
        const THIRD: Facts =
            Facts { date: "2025-06-18", titles: true, structured: true, batches: false, ..SECOND };
        const FOURTH: Facts = Facts { date: "2025-11-25", icons: true, extensions: true, ..THIRD };
        const FIFTH: Facts =
            Facts { date: "2026-07-28", era: Era::Modern, not_found: -32602, hints: true, ..FOURTH };
        match self {
            Self::V2024_11_05 => &FIRST,
            Self::V2025_03_26 => &SECOND,
            Self::V2025_06_18 => &THIRD,
            Self::V2025_11_25 => &FOURTH,
            Self::V2026_07_28 => &FIFTH,
        }
    }

    /// The revision with this name, if it is supported.
    pub fn named(date: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.facts().date == date)
    }

    /// The revision that `initialize` returns to a client that asks for `date`: that revision if it is supported and of
    /// the legacy era, otherwise the newest legacy revision.
    pub fn negotiate(date: &str) -> Self {
        let mut handshakes = Self::ALL.into_iter().filter(|revision| revision.facts().era == Era::Legacy);
        Self::named(date)
            .filter(|revision| revision.facts().era == Era::Legacy)
            .or_else(|| handshakes.next())
            .unwrap_or(Self::V2024_11_05)
    }
}

#[cfg(test)]
mod tests {
    use super::{Era, Revision};

    #[test]
    fn a_handshake_never_gives_a_modern_revision() {
        for asked in ["2026-07-28", "2099-01-01", "", "2025-11-25"] {
            assert_eq!(Revision::negotiate(asked), Revision::V2025_11_25);
        }
        assert_eq!(Revision::negotiate("2024-11-05"), Revision::V2024_11_05);
    }

    #[test]
    fn revisions_are_found_by_their_names() {
        for revision in Revision::ALL {
            assert_eq!(Revision::named(revision.facts().date), Some(revision));
        }
        assert_eq!(Revision::V2026_07_28.facts().era, Era::Modern);
    }
}
