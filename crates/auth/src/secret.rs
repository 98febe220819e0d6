//! Text that must not appear in logs and output.

use std::fmt;

/// A secret text. It cannot reach a log by accident: `Debug` redacts the text, and the type implements neither
/// `Display` nor `Serialize`.
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    /// A secret with this text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself. Callers must not log it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(
            format!("{:?} {:#?}", Secret::new("hunter2"), Secret::new("hunter2")),
            "Secret(…) Secret(…)"
        );
    }
}
