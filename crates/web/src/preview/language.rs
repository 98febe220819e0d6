//! The languages for highlighting: their comments, strings and keywords.

use super::kind;

/// How the source of a language is split into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grammar {
    /// Words, numbers, strings and comments.
    Code,
    /// Keys before `=` or `:` at the beginning of a line; the rest like [`Code`](Self::Code).
    Settings,
    /// Elements with attributes.
    Markup,
    /// Lines added and removed.
    Diff,
}

/// A language.
#[derive(Debug)]
pub(super) struct SourceLanguage {
    /// The file extensions, file names and names in code blocks of the language, in lower case.
    pub(super) names: &'static [&'static str],
    pub(super) grammar: Grammar,
    /// What begins a comment up to the end of the line.
    pub(super) line_comments: &'static [&'static str],
    /// What begins and ends a comment.
    pub(super) block_comment: Option<(&'static str, &'static str)>,
    /// The quotation marks of strings; the longest first. Those of one character end at the end of the line, except
    /// backticks.
    pub(super) quotes: &'static [&'static str],
    /// Keywords, separated by spaces.
    pub(super) keywords: &'static str,
    /// Whether keywords are case-insensitive.
    pub(super) any_case: bool,
}

const PLAIN: SourceLanguage = SourceLanguage {
    names: &["txt", "log"],
    grammar: Grammar::Code,
    line_comments: &[],
    block_comment: None,
    quotes: &[],
    keywords: "",
    any_case: false,
};

const C_LIKE: SourceLanguage = SourceLanguage {
    line_comments: &["//"],
    block_comment: Some(("/*", "*/")),
    quotes: &["\"", "'"],
    ..PLAIN
};

const HASH: SourceLanguage = SourceLanguage { line_comments: &["#"], quotes: &["\"", "'"], ..PLAIN };

static LANGUAGES: &[SourceLanguage] = &[
    SourceLanguage {
        names: &["rs", "rust"],
        quotes: &["\""],
        keywords: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop \
                   match mod move mut pub ref return self Self static struct super trait true type unsafe use where \
                   while",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["py", "pyi", "python", "python3"],
        quotes: &["\"\"\"", "'''", "\"", "'"],
        keywords: "and as assert async await break case class continue def del elif else except False finally for \
                   from global if import in is lambda match None nonlocal not or pass raise return self True try \
                   while with yield",
        ..HASH
    },
    SourceLanguage {
        names: &["js", "mjs", "cjs", "jsx", "ts", "mts", "tsx", "javascript", "typescript"],
        quotes: &["\"", "'", "`"],
        keywords: "abstract as async await break case catch class const continue debugger declare default delete do \
                   else enum export extends false finally for from function get if implements import in instanceof \
                   interface keyof let new null of private protected public readonly return set static super switch \
                   this throw true try type typeof undefined var void while with yield",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["go", "golang"],
        quotes: &["\"", "'", "`"],
        keywords: "break case chan const continue default defer else fallthrough false for func go goto if import \
                   interface map nil package range return select struct switch true type var",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["c", "h", "cc", "cpp", "cxx", "hh", "hpp", "ino", "m", "c++"],
        keywords: "alignas auto bool break case catch char class const constexpr continue default delete do double \
                   else enum explicit extern false final float for friend goto if inline int long mutable namespace \
                   new noexcept nullptr operator override private protected public register return short signed \
                   sizeof static struct switch template this throw true try typedef typename union unsigned using \
                   virtual void volatile while",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["java", "kt", "kts", "kotlin", "scala", "groovy", "gradle", "cs", "csharp", "swift", "dart"],
        quotes: &["\"\"\"", "\"", "'"],
        keywords: "abstract as async await base bool boolean break by byte case catch char class const continue data \
                   def default do double else enum extends extension final finally float for foreach fun func get \
                   guard if implements import in init inout int interface internal is lateinit let long namespace new \
                   nil null object open operator out override package private protocol protected public readonly \
                   return sealed self set short static string struct super switch this throw throws trait true false \
                   try type typealias using val var virtual void when where while with yield",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["php"],
        line_comments: &["//", "#"],
        keywords: "abstract and array as break case catch class clone const continue declare default do echo else \
                   elseif extends false final finally fn for foreach function global if implements include instanceof \
                   interface isset match namespace new null or print private protected public readonly require return \
                   static switch throw trait true try unset use var while yield",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["rb", "ruby", "gemspec", "rake", "gemfile", "rakefile"],
        keywords: "alias and begin break case class def defined do else elsif end ensure false for if in module next \
                   nil not or redo require rescue retry return self super then true undef unless until when while \
                   yield",
        ..HASH
    },
    SourceLanguage {
        names: &["sh", "bash", "zsh", "fish", "shell", "console", "ksh", "env"],
        keywords: "case do done elif else esac exit export fi for function if in local read readonly return select \
                   set shift source then trap unset until while",
        ..HASH
    },
    SourceLanguage {
        names: &["dockerfile", "containerfile", "docker"],
        keywords: "add arg as cmd copy entrypoint env expose from healthcheck label onbuild run shell stopsignal user \
                   volume workdir",
        any_case: true,
        ..HASH
    },
    SourceLanguage {
        names: &["makefile", "mk", "make", "cmake"],
        keywords: "define endef endif else ifdef ifeq ifndef include override export",
        ..HASH
    },
    SourceLanguage {
        names: &[
            "nix", "r", "jl", "tf", "hcl", "pl", "pm", "perl", "awk", "tcl", "ps1", "ex", "exs", "graphql",
            "gql",
        ],
        keywords: "and begin case cond def default defmodule defp do else elseif elsif end enum false fn for foreach \
                   function if import in inherit input interface let local module my nil none not null or our output \
                   package provider query mutation rec repeat require resource return sub then true type unless use \
                   using variable when where while with",
        ..HASH
    },
    SourceLanguage {
        names: &["lua"],
        line_comments: &["--"],
        block_comment: Some(("--[[", "]]")),
        keywords: "and break do else elseif end false for function goto if in local nil not or repeat return then \
                   true until while",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["hs", "elm", "purs", "haskell"],
        line_comments: &["--"],
        block_comment: Some(("{-", "-}")),
        quotes: &["\""],
        keywords: "as case class data deriving do else family forall foreign hiding if import in infix infixl infixr \
                   instance let module newtype of qualified then type where",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["sql", "psql", "sqlite", "mysql"],
        line_comments: &["--"],
        keywords: "add all alter and as asc autoincrement begin between by case cast check collate column commit \
                   conflict constraint create cross current_timestamp database default delete desc distinct drop else \
                   end escape exists explain false foreign from full function grant group having if in index inner \
                   insert integer intersect into is join key left like limit not null numeric offset on or order outer \
                   pragma primary real references replace returning revoke right rollback row select set table text \
                   then transaction trigger true union unique update using values varchar view when where with",
        any_case: true,
        ..C_LIKE
    },
    SourceLanguage {
        names: &["css", "scss", "less", "sass"],
        grammar: Grammar::Code,
        line_comments: &[],
        keywords: "and from important media import keyframes supports to not only layer container font-face root",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["json", "jsonc", "json5", "jsonl", "ndjson", "geojson", "ipynb"],
        keywords: "true false null",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["proto", "thrift"],
        keywords: "enum extend false import message oneof option optional package repeated required returns rpc service stream syntax true map",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["zig", "v", "odin"],
        keywords: "and break comptime const continue defer else enum errdefer error export false fn for if inline null or orelse pub return struct switch test true try undefined union unreachable var while",
        ..C_LIKE
    },
    SourceLanguage {
        names: &["clj", "cljs", "edn", "lisp", "el", "scm", "rkt"],
        line_comments: &[";"],
        quotes: &["\""],
        keywords: "cond def define defn defun do fn if let loop nil ns quote recur require true false",
        ..PLAIN
    },
    SourceLanguage {
        names: &["toml", "ini", "cfg", "conf", "properties", "service", "editorconfig", "gitconfig", "lock"],
        grammar: Grammar::Settings,
        line_comments: &["#", ";"],
        quotes: &["\"\"\"", "\"", "'"],
        keywords: "true false",
        ..HASH
    },
    SourceLanguage {
        names: &["yaml", "yml"],
        grammar: Grammar::Settings,
        keywords: "true false null yes no on off",
        ..HASH
    },
    SourceLanguage {
        names: &["html", "htm", "xml", "svg", "xhtml", "vue", "svelte", "rss", "atom", "xsd", "plist"],
        grammar: Grammar::Markup,
        block_comment: Some(("<!--", "-->")),
        quotes: &["\"", "'"],
        ..PLAIN
    },
    SourceLanguage { names: &["diff", "patch"], grammar: Grammar::Diff, ..PLAIN },
];

/// The language with a name or extension; plain text if it is unknown.
pub(super) fn named(name: &str) -> &'static SourceLanguage {
    let name = name.to_ascii_lowercase();
    LANGUAGES.iter().find(|language| language.names.contains(&&*name)).unwrap_or(&PLAIN)
}

/// The language of a resource, from the first of these that names a known one: the signs of a diff, the extension, the
/// media type, the file name, and the interpreter in a `#!` line. Plain text if none does.
pub(super) fn of(mime: Option<&str>, uri: &str, text: &str) -> &'static SourceLanguage {
    let subtype = mime.and_then(|mime| mime.split([';', '+']).next()?.rsplit('/').next()).unwrap_or_default();
    let subtype = subtype.trim_start_matches("x-").trim_end_matches("script").trim_end_matches("-diff");
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    let interpreter = text.strip_prefix("#!").and_then(|rest| rest.lines().next()).unwrap_or_default();
    let interpreter = interpreter.rsplit(['/', ' ']).next().unwrap_or_default();
    let patch = if uri.contains("/diff/") || text.starts_with("diff --git ") { "diff" } else { "" };
    // The trimming above reduces `javascript` to `java`.
    let javascript = if mime.is_some_and(|mime| mime.contains("javascript")) { "js" } else { "" };
    let names = [patch, &*kind::extension(uri), javascript, subtype, file, interpreter];
    names.into_iter().map(named).find(|language| language.names != PLAIN.names).unwrap_or(&PLAIN)
}

impl SourceLanguage {
    /// Whether a word is a keyword.
    pub(super) fn has_keyword(&self, word: &str) -> bool {
        let is = |keyword: &str| match self.any_case {
            true => keyword.eq_ignore_ascii_case(word),
            false => keyword == word,
        };
        self.keywords.split_ascii_whitespace().any(is)
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_language_is_found_by_what_is_known() {
        for (mime, uri, text, name) in [
            (None, "file:///a/b.rs?lines=1-2", "", "rs"),
            (Some("text/x-python"), "git://a/blob", "", "py"),
            (Some("text/javascript"), "a:b", "", "js"),
            (None, "file:///a/Dockerfile", "", "dockerfile"),
            (None, "file:///a/run", "#!/usr/bin/env python3\n", "py"),
            (None, "file:///a/run", "#!/bin/sh\n", "sh"),
            (Some("text/x-diff"), "git://a/commit/1", "", "diff"),
            (None, "git://a/diff/1/2", "", "diff"),
            (Some("application/xml"), "a:b", "", "html"),
            (None, "file:///a/b", "", "txt"),
        ] {
            assert_eq!(of(mime, uri, text).names[0], name, "{mime:?} {uri}");
        }
    }
}
