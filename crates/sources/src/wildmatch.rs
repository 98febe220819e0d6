//! Matching one pattern of an ignore file against a path, byte by byte, as `wildmatch` of git does with
//! `WM_PATHNAME`.
//!
//! The time is at most proportional to the length of the pattern times the length of the path, whatever they
//! contain. There is neither recursion nor allocation. On a mismatch, only the last `*` or the last `**/` is
//! extended (backtracking):
//!
//! - An earlier `*` need not be extended after a slash of the pattern has matched: `*` matches no slash, so that slash
//!   would match at the same position again. The same holds after another `*`, which can match all that the earlier one
//!   could.
//! - An earlier `**/` need not be extended after another `**/`, which can match everything up to any later slash.
//!
//! So each element of the pattern is compared with each byte of the path at most once.

/// Whether `pattern` matches the whole of `path`, in which names are separated by slashes.
pub(crate) fn wildmatch(pattern: &[u8], path: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // For the last `*` and the last `**/`, two positions: the one after it in the pattern, and the one in the
    // path up to which it matches.
    let mut star: Option<(usize, usize)> = None;
    let mut double_star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            let stars = pattern[p..].iter().take_while(|byte| **byte == b'*').count();
            let after = p + stars;
            match DoubleStar::at(pattern, p, after) {
                Some(DoubleStar::Last) => return true,
                Some(DoubleStar::OptionalSlash) => {
                    (p, star) = (after + 1, None);
                    double_star = Some((p, t));
                }
                Some(DoubleStar::EscapedSlash) => {
                    let Some(slash) = find_slash(path, t) else { return false };
                    (p, t, star) = (after + 2, slash + 1, None);
                    double_star = Some((p, t));
                }
                None => {
                    p = after;
                    star = Some((p, t));
                }
            }
            continue;
        }
        match path.get(t) {
            Some(byte) => {
                if let Some(next) = match_element(pattern, p, *byte) {
                    if *byte == b'/' {
                        star = None;
                    }
                    (p, t) = (next, t + 1);
                    continue;
                }
            }
            None if p == pattern.len() => return true,
            // Extending a wildcard leaves even less of the path.
            None => return false,
        }
        match (star, double_star) {
            (Some((after, end)), _) if path.get(end).is_some_and(|byte| *byte != b'/') => {
                (p, t) = (after, end + 1);
                star = Some((p, t));
            }
            (_, Some((after, end))) => {
                let Some(slash) = find_slash(path, end) else { return false };
                (p, t, star) = (after, slash + 1, None);
                double_star = Some((p, t));
            }
            _ => return false,
        }
    }
}

/// Two or more stars that match slashes too: those that are a whole component of the pattern.
enum DoubleStar {
    /// `**` at the end: matches everything.
    Last,
    /// `**/`: matches nothing, or everything up to a slash.
    OptionalSlash,
    /// `**\/`: matches everything up to a slash.
    EscapedSlash,
}

impl DoubleStar {
    /// The kind of the stars between two positions of the pattern; `None` if they match no slashes.
    fn at(pattern: &[u8], start: usize, end: usize) -> Option<Self> {
        if end - start < 2 || start.checked_sub(1).is_some_and(|before| pattern[before] != b'/') {
            return None;
        }
        match &pattern[end..] {
            [] => Some(Self::Last),
            [b'/', ..] => Some(Self::OptionalSlash),
            [b'\\', b'/', ..] => Some(Self::EscapedSlash),
            _ => None,
        }
    }
}

fn find_slash(path: &[u8], from: usize) -> Option<usize> {
    memchr::memchr(b'/', path.get(from..)?).map(|at| from + at)
}

/// Matches a byte against one element of the pattern, the one at position `at`, which must not be a star. Returns the
/// position of the next element; `None` if they do not match, the element is incomplete, or the pattern has ended.
fn match_element(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => (byte != b'/').then_some(at + 1),
        b'[' => match_bracket(pattern, at, byte).filter(|_| byte != b'/'),
        b'\\' => (*pattern.get(at + 1)? == byte).then_some(at + 2),
        literal => (literal == byte).then_some(at + 1),
    }
}

/// Matches a byte against the bracket expression at a position. Returns the position after it; `None` if they do not
/// match or the expression is invalid.
fn match_bracket(pattern: &[u8], open: usize, byte: u8) -> Option<usize> {
    let mut at = open + 1;
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let mut matched = false;
    // The character before, which a hyphen can make the start of a range.
    let mut previous = None;
    // A `]` that comes first is an ordinary character.
    let mut first = true;
    // The position of the `]` that the last search after a `[:` found. No byte is searched twice.
    let mut close = 0;
    loop {
        let here = *pattern.get(at)?;
        match (here, previous, pattern.get(at + 1)) {
            (b']', ..) if !first => return (matched != negated).then_some(at + 1),
            (b'\\', _, escaped) => {
                let escaped = *escaped?;
                matched |= byte == escaped;
                previous = Some(escaped);
                at += 1;
            }
            (b'-', Some(start), Some(end)) if *end != b']' => {
                at += 1;
                let end = if *end == b'\\' {
                    at += 1;
                    *pattern.get(at)?
                } else {
                    *end
                };
                matched |= (start..=end).contains(&byte);
                previous = None;
            }
            (b'[', _, Some(b':')) => {
                let start = at + 2;
                if close < start {
                    close = start + memchr::memchr(b']', &pattern[start..])?;
                }
                match pattern[start..close].strip_suffix(b":") {
                    Some(name) => {
                        matched |= is_in_class(byte, name)?;
                        previous = None;
                        at = close;
                    }
                    None => {
                        matched |= byte == b'[';
                        previous = Some(b'[');
                    }
                }
            }
            _ => {
                matched |= byte == here;
                previous = Some(here);
            }
        }
        first = false;
        at += 1;
    }
}

/// Whether a byte is in a named class of characters; `None` if there is no such class.
fn is_in_class(byte: u8, name: &[u8]) -> Option<bool> {
    Some(match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte == b' ' || byte.is_ascii_graphic(),
        b"punct" => byte.is_ascii_punctuation(),
        // Neither a vertical tab nor a form feed, as in git.
        b"space" => matches!(byte, b' ' | b'\t' | b'\r' | b'\n'),
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}
