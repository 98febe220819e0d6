//! Images on terminals that can show them.

use std::fmt::Write as _;

use crate::target::base64;

/// The largest image that is shown.
const MAX_IMAGE: usize = 8 << 20;

/// The maximum number of base64 characters in one escape sequence of kitty's protocol.
const CHUNK: usize = 4096;

/// How a terminal shows images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageProtocol {
    /// The graphics protocol of kitty, which shows only PNG here.
    Kitty,
    /// The inline images protocol of iTerm2.
    Inline,
}

impl ImageProtocol {
    /// The protocol of a terminal with these environment variables.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let term = variable("TERM").unwrap_or_default();
        match variable("TERM_PROGRAM").unwrap_or_default().as_str() {
            "iTerm.app" | "WezTerm" | "mintty" => Some(Self::Inline),
            "ghostty" => Some(Self::Kitty),
            _ => ["kitty", "ghostty"].iter().any(|name| term.contains(name)).then_some(Self::Kitty),
        }
    }
}

/// The escape sequences that show an image on this terminal; `None` if it cannot show it.
pub(crate) fn sequences(mime: &str, image: &[u8]) -> Option<String> {
    encoded(ImageProtocol::of(|name| std::env::var(name).ok())?, mime, image)
}

fn encoded(protocol: ImageProtocol, mime: &str, image: &[u8]) -> Option<String> {
    if image.len() > MAX_IMAGE || !mime.starts_with("image/") {
        return None;
    }
    let data = base64(image);
    match protocol {
        ImageProtocol::Inline => {
            Some(format!("\u{1b}]1337;File=inline=1;size={}:{data}\u{7}\n", image.len()))
        }
        ImageProtocol::Kitty if mime == "image/png" => {
            let mut out = String::new();
            let chunks = data.len().div_ceil(CHUNK).max(1);
            for number in 0..chunks {
                let chunk = &data[number * CHUNK..data.len().min((number + 1) * CHUNK)];
                let first = if number == 0 { "a=T,f=100," } else { "" };
                let _ = write!(out, "\u{1b}_G{first}m={};{chunk}\u{1b}\\", u8::from(number + 1 < chunks));
            }
            Some(out + "\n")
        }
        ImageProtocol::Kitty => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, ImageProtocol, MAX_IMAGE, encoded};

    #[test]
    fn terminals_are_recognised() {
        let of = |program: &str, term: &str| {
            let value = |name: &str| Some(if name == "TERM" { term } else { program }.to_owned());
            ImageProtocol::of(value)
        };
        assert_eq!(of("iTerm.app", "xterm-256color"), Some(ImageProtocol::Inline));
        assert_eq!(of("", "xterm-kitty"), Some(ImageProtocol::Kitty));
        assert_eq!(of("vscode", "xterm-256color"), None);
    }

    #[test]
    fn images_are_encoded_in_pieces_and_others_are_not() {
        let image = vec![0; CHUNK];
        let text = encoded(ImageProtocol::Kitty, "image/png", &image).unwrap();
        assert!(text.starts_with("\u{1b}_Ga=T,f=100,m=1;AAAA"), "{}", &text[..40]);
        assert_eq!((text.matches("\u{1b}_G").count(), text.matches("m=0;").count()), (2, 1));
        let inline = encoded(ImageProtocol::Inline, "image/gif", b"GIF").unwrap();
        assert_eq!(inline, "\u{1b}]1337;File=inline=1;size=3:R0lG\u{7}\n");
        assert_eq!(encoded(ImageProtocol::Kitty, "image/gif", b"GIF"), None);
        assert_eq!(encoded(ImageProtocol::Inline, "application/pdf", b"%PDF"), None);
        assert_eq!(encoded(ImageProtocol::Inline, "image/png", &vec![0; MAX_IMAGE + 1]), None);
    }
}
