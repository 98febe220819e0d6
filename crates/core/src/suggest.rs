//! Suggests names that are similar to a misspelt one, for error messages.

/// The maximum number of suggestions.
const MAX_SUGGESTIONS: usize = 3;

/// The maximum number of names that are compared, which bounds the time of an error message.
const MAX_COMPARED: usize = 10_000;

/// The longest name that is compared, in bytes: the time of a comparison is quadratic in the length.
const MAX_LENGTH: usize = 128;

/// How similar a name must be, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.8;

/// Up to three names that are similar to `wrong`, the most similar one first. Very long names are not compared.
pub fn closest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if wrong.len() > MAX_LENGTH {
        return Vec::new();
    }
    let folded = wrong.to_lowercase();
    let is_comparable = |name: &&str| name.len() <= MAX_LENGTH;
    let mut similar: Vec<_> = names
        .into_iter()
        .take(MAX_COMPARED)
        .filter(is_comparable)
        .map(|name| (similarity(&folded, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    similar.sort_by(|(one, name), (other, other_name)| other.total_cmp(one).then(name.cmp(other_name)));
    similar.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

/// How similar two names are, from 0 to 1: 0.95 if one begins with the other, which must have at least three bytes;
/// otherwise the Jaro-Winkler similarity.
fn similarity(one: &str, other: &str) -> f64 {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    match short.len() >= 3 && long.starts_with(short) {
        true => 0.95,
        false => strsim::jaro_winkler(one, other),
    }
}

/// The end of an error message: `; did you mean `a` or `b`?`, or nothing if no name is similar.
pub fn did_you_mean<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    meant(&closest(wrong, names))
}

/// The end of an error message that suggests all of these names.
pub fn meant(names: &[&str]) -> String {
    match &names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>()[..] {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [others @ .., last] => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{closest, did_you_mean};

    #[test]
    fn suggests_similar_names_the_most_similar_first() {
        assert_eq!(closest("mian", ["feature", "main", "maintenance"]), ["main"]);
        assert_eq!(closest("READM.md", ["readme.md", "LICENSE", "README.txt"]), ["readme.md", "README.txt"]);
        assert_eq!(closest("main", ["mainline", "other"]), ["mainline"]);
        assert_eq!(closest("xyz", ["main"]), [""; 0]);
    }

    #[test]
    fn formats_suggestions_as_a_question() {
        assert_eq!(did_you_mean("mian", ["main"]), "; did you mean `main`?");
        assert_eq!(did_you_mean("tab", ["tab1", "tab2", "tab3"]), "; did you mean `tab1`, `tab2` or `tab3`?");
        assert_eq!(did_you_mean("mian", []), "");
    }

    #[test]
    fn long_names_are_not_compared() {
        let long = "a".repeat(129);
        assert_eq!(closest(&long, [&*long]), [""; 0]);
        assert_eq!(closest("aaa", [&*long]), [""; 0]);
    }
}
