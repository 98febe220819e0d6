//! Skills: directories with a `SKILL.md`, published with the Skills extension of MCP.

use std::fmt;
use std::str::FromStr;

use crate::{Freshness, Meta, UnavailableSource, Uri};

/// A skill, with the digests of its files.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    /// The URI of its `SKILL.md`.
    pub uri: Uri,
    /// The YAML front matter of its `SKILL.md` as JSON, complete and unchanged.
    pub frontmatter: Meta,
    /// Its files.
    pub resources: SkillResources,
}

/// The files of a [`Skill`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillResources {
    /// Every file in the directory of the skill, its `SKILL.md` and the files of nested skills included.
    Files(Vec<SkillFile>),
    /// The files have no digests, because they are generated on request or change too often.
    Dynamic,
}

/// A file of a [`Skill`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    /// The URI of the file.
    pub uri: Uri,
    /// The digest of its bytes.
    pub digest: Sha256Digest,
    /// The number of its bytes.
    pub size: u64,
}

/// A SHA-256 digest, displayed as `sha256:` and lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sha256Digest(pub [u8; 32]);

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Sha256Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not `sha256:` and 64 lower-case hexadecimal digits");
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64).ok_or_else(wrong)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = hexadecimal(pair[0])
                .zip(hexadecimal(pair[1]))
                .map(|(high, low)| high << 4 | low)
                .ok_or_else(wrong)?;
        }
        Ok(Self(bytes))
    }
}

fn hexadecimal(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// One page of skills.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillPage {
    /// The skills, in the order of their URIs.
    pub skills: Vec<Skill>,
    /// Whether there may be more skills after the last one.
    pub more: bool,
    /// How the page may be cached.
    pub freshness: Freshness,
    /// The unavailable sources, whose skills are missing. Only a catalog sets this.
    pub unavailable: Vec<UnavailableSource>,
}

impl Default for SkillPage {
    /// The page of a source that never has skills. Merging it into a catalog's page does not restrict how that page may be
    /// cached.
    fn default() -> Self {
        Self { skills: Vec::new(), more: false, freshness: Freshness::unlimited(), unavailable: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::Sha256Digest;

    #[test]
    fn digests_have_the_form_of_the_extension() {
        let mut bytes = [0; 32];
        bytes[0] = 0xab;
        bytes[31] = 0x0f;
        let text = format!("sha256:ab{}0f", "0".repeat(60));
        assert_eq!(Sha256Digest(bytes).to_string(), text);
        assert_eq!(text.parse(), Ok(Sha256Digest(bytes)));
        for wrong in [&text[1..], &text[..70], &text.replace("ab", "AB"), &text.replace("ab", "+b")] {
            assert!(wrong.parse::<Sha256Digest>().is_err(), "{wrong}");
        }
    }
}
