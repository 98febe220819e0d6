//! Media types by file name.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

/// The maximum number of extensions in the cache.
const MAX_CACHED_EXTENSIONS: usize = 1000;

/// The media type of a file by its name; `None` if the content must decide.
pub(crate) fn by_name(file_name: &str) -> Option<&'static str> {
    static BY_WHOLE_NAME: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| WHOLE.iter().copied().collect());
    let lower = file_name.to_ascii_lowercase();
    if let Some(mime) = BY_WHOLE_NAME.get(&*lower) {
        return Some(mime);
    }
    // In `.env.md` the extension is `md`, in `.env` there is none.
    let (_, extension) = lower.trim_start_matches('.').rsplit_once('.')?;
    by_extension(extension)
}

/// The media type of an extension in lower case. Results are cached, since the files of a folder have few different
/// extensions.
fn by_extension(extension: &str) -> Option<&'static str> {
    static BY_EXTENSION: LazyLock<RwLock<HashMap<Box<str>, Option<&'static str>>>> =
        LazyLock::new(RwLock::default);
    if let Some(found) = BY_EXTENSION.read().unwrap_or_else(PoisonError::into_inner).get(extension) {
        return *found;
    }
    let ambiguous = AMBIGUOUS.iter().any(|(known, _)| *known == extension);
    let mime = look_up(EXTENSIONS, extension)
        .or_else(|| mime_guess::from_ext(extension).first_raw())
        .filter(|mime| !ambiguous && *mime != "application/octet-stream");
    let mut found = BY_EXTENSION.write().unwrap_or_else(PoisonError::into_inner);
    if found.len() < MAX_CACHED_EXTENSIONS {
        found.insert(extension.into(), mime);
    }
    mime
}

/// The media type of a text file whose extension also stands for a binary format.
pub(super) fn by_name_of_text(file_name: &str) -> Option<&'static str> {
    let lower = file_name.to_ascii_lowercase();
    look_up(AMBIGUOUS, lower.rsplit_once('.')?.1)
}

fn look_up(table: &[(&str, &'static str)], wanted: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == wanted).map(|(_, mime)| *mime)
}

/// Extensions that stand for both a text format and a binary one, with the media type of the text format.
const AMBIGUOUS: &[(&str, &str)] = &[
    ("ts", "text/typescript"),
    ("mts", "text/typescript"),
    ("org", "text/org"),
    ("key", "text/plain"),
    ("bas", "text/plain"),
    ("pages", "text/plain"),
];

/// Whole file names in lower case.
const WHOLE: &[(&str, &str)] = &[
    ("authors", "text/plain"),
    ("cargo.lock", "application/toml"),
    ("cmakelists.txt", "text/x-cmake"),
    ("containerfile", "text/x-dockerfile"),
    ("contributors", "text/plain"),
    ("copying", "text/plain"),
    ("dockerfile", "text/x-dockerfile"),
    ("gemfile", "text/x-ruby"),
    ("gnumakefile", "text/x-makefile"),
    ("go.mod", "text/plain"),
    ("go.sum", "text/plain"),
    ("justfile", "text/plain"),
    ("license", "text/plain"),
    ("makefile", "text/x-makefile"),
    ("notice", "text/plain"),
    ("rakefile", "text/x-ruby"),
    ("readme", "text/plain"),
];

/// Extensions that `mime_guess` does not know, or maps to a type that programmers do not expect.
const EXTENSIONS: &[(&str, &str)] = &[
    ("adoc", "text/asciidoc"),
    ("asciidoc", "text/asciidoc"),
    ("astro", "text/plain"),
    ("avif", "image/avif"),
    ("bash", "text/x-shellscript"),
    ("bat", "text/x-bat"),
    ("bib", "text/x-bibtex"),
    ("c", "text/x-c"),
    ("cc", "text/x-c++"),
    ("cfg", "text/plain"),
    ("cjs", "text/javascript"),
    ("clj", "text/x-clojure"),
    ("cmake", "text/x-cmake"),
    ("cmd", "text/x-bat"),
    ("cpp", "text/x-c++"),
    ("cs", "text/x-csharp"),
    ("cts", "text/typescript"),
    ("cxx", "text/x-c++"),
    ("dart", "text/x-dart"),
    ("diff", "text/x-diff"),
    ("dockerfile", "text/x-dockerfile"),
    ("env", "text/plain"),
    ("erl", "text/x-erlang"),
    ("ex", "text/x-elixir"),
    ("exs", "text/x-elixir"),
    ("fish", "text/x-shellscript"),
    ("fs", "text/x-fsharp"),
    ("go", "text/x-go"),
    ("gql", "application/graphql"),
    ("gradle", "text/x-groovy"),
    ("graphql", "application/graphql"),
    ("groovy", "text/x-groovy"),
    ("h", "text/x-c"),
    ("hcl", "text/plain"),
    ("hpp", "text/x-c++"),
    ("hs", "text/x-haskell"),
    ("ini", "text/plain"),
    ("ipynb", "application/x-ipynb+json"),
    ("java", "text/x-java"),
    ("jl", "text/x-julia"),
    ("json5", "application/json5"),
    ("jsonc", "application/json"),
    ("jsonl", "application/jsonl"),
    ("kt", "text/x-kotlin"),
    ("kts", "text/x-kotlin"),
    ("less", "text/x-less"),
    ("lua", "text/x-lua"),
    ("markdown", "text/markdown"),
    ("md", "text/markdown"),
    ("mdx", "text/mdx"),
    ("mjs", "text/javascript"),
    ("ml", "text/x-ocaml"),
    ("ndjson", "application/x-ndjson"),
    ("nim", "text/x-nim"),
    ("nix", "text/x-nix"),
    ("patch", "text/x-diff"),
    ("pem", "application/x-pem-file"),
    ("php", "text/x-php"),
    ("pl", "text/x-perl"),
    ("pm", "text/x-perl"),
    ("properties", "text/plain"),
    ("proto", "text/x-protobuf"),
    ("ps1", "text/x-powershell"),
    ("py", "text/x-python"),
    ("pyi", "text/x-python"),
    ("r", "text/x-r"),
    ("rb", "text/x-ruby"),
    ("rs", "text/x-rust"),
    ("rst", "text/x-rst"),
    ("sass", "text/x-sass"),
    ("scala", "text/x-scala"),
    ("scss", "text/x-scss"),
    ("sh", "text/x-shellscript"),
    ("sql", "application/sql"),
    ("srt", "text/plain"),
    ("svelte", "text/plain"),
    ("swift", "text/x-swift"),
    ("tex", "text/x-tex"),
    ("tf", "text/plain"),
    ("toml", "application/toml"),
    ("tsx", "text/tsx"),
    ("vb", "text/x-vb"),
    ("vim", "text/plain"),
    ("vue", "text/x-vue"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zig", "text/x-zig"),
    ("zsh", "text/x-shellscript"),
];

#[cfg(test)]
mod tests {
    use super::{EXTENSIONS, WHOLE, by_name};

    #[test]
    fn names_determine_media_types() {
        let cases = [
            ("main.rs", Some("text/x-rust")),
            ("README.MD", Some("text/markdown")),
            ("Dockerfile", Some("text/x-dockerfile")),
            ("a.json", Some("application/json")),
            ("a.png", Some("image/png")),
            ("a.tar.gz", Some("application/gzip")),
            (".env.md", Some("text/markdown")),
            (".env", None),
            ("main.ts", None),
            ("data.bin", None),
            ("no extension", None),
            ("odd.qqq", None),
            ("dot.", None),
        ];
        for (name, mime) in cases {
            assert_eq!(by_name(name), mime, "{name}");
        }
    }

    #[test]
    fn tables_are_sorted_and_in_lower_case() {
        for table in [EXTENSIONS, WHOLE] {
            assert!(table.is_sorted());
            assert!(table.iter().all(|(name, _)| *name == name.to_ascii_lowercase()));
        }
    }
}
