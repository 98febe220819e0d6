//! The ignore rules hide the same files as git's.

use super::{IgnorePatterns, IgnoreRules, RulesSize};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

fn parse(text: &[u8]) -> IgnorePatterns {
    IgnorePatterns::parse(&text.into(), usize::MAX).unwrap()
}

/// A pseudo-random generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % end as u64).unwrap()
    }

    fn pick<'t, T: ?Sized>(&mut self, from: &[&'t T]) -> &'t T {
        from[self.below(from.len())]
    }
}

const NAME_PIECES: [&[u8]; 22] = [
    b"a",
    b"a",
    b"b",
    b"b",
    b"c",
    b"A",
    b"1",
    b".",
    b"-",
    b"]",
    b"[",
    b"!",
    b"^",
    b"\\",
    b" ",
    b"\t",
    b"\r",
    b"*",
    b"#",
    "é".as_bytes(),
    b"\xe9",
    b"?",
];

const PATTERN_PIECES: [&[u8]; 48] = [
    b"*",
    b"*",
    b"**",
    b"***",
    b"/",
    b"/",
    b"//",
    b"[",
    b"]",
    b"[!",
    b"[^",
    b"!",
    b"^",
    b"\\",
    b"-",
    b"a",
    b"a",
    b"b",
    b"c",
    b".",
    b" ",
    b"\t",
    b"\r",
    b"[:alpha:]",
    b"[[:alpha:]]",
    b"[[:space:]",
    b"[a-c]",
    b"[a\\]b]",
    b"[z-a]",
    b"[a-b-c]",
    b"#",
    "é".as_bytes(),
    b"\xe9",
    b"?",
    b"?",
    b"/**/",
    b"**/",
    b"/**",
    b"\\/",
    b"[]a]",
    b"[/]",
    b"[!a]",
    b"\\*",
    b"\\ ",
    b"[:",
    b":]",
    b"[[:x:]]",
    b"**\\/",
];

struct Repository {
    folder: tempfile::TempDir,
    /// All files and directories, and whether they are directories.
    paths: Vec<(PathBuf, bool)>,
}

impl Repository {
    fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let folder = tempfile::TempDir::new_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        assert!(git(&root).args(["init", "--quiet"]).status().unwrap().success());
        let mut made = std::collections::BTreeMap::new();
        for path in paths {
            // A directory may have the name of a file that exists, or the other way round.
            let above = path.parent().unwrap();
            if fs::create_dir_all(root.join(above)).is_ok() && fs::write(root.join(&path), "").is_ok() {
                made.extend(above.ancestors().map(|above| (above.to_owned(), true)));
                made.insert(path, false);
            }
        }
        made.remove(Path::new(""));
        let listed: Vec<u8> =
            made.keys().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
        fs::write(folder.path().join("paths"), listed).unwrap();
        Self { folder, paths: made.into_iter().collect() }
    }

    /// Whether git ignores each path, given the ignore files of the root and of the directory `a`.
    fn ignored_by_git(&self, files: &[Vec<u8>; 2]) -> Vec<bool> {
        let root = self.folder.path().join("root");
        fs::write(root.join(".gitignore"), &files[0]).unwrap();
        fs::write(root.join("a/.gitignore"), &files[1]).unwrap();
        let paths = fs::File::open(self.folder.path().join("paths")).unwrap();
        let output = git(&root)
            .args(["check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"])
            .stdin(Stdio::from(paths))
            .output()
            .unwrap();
        assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
        let fields: Vec<_> = output.stdout.split(|byte| *byte == 0).collect();
        let answers = fields.chunks_exact(4).map(|answer| (answer[3], answer[2]));
        let answers: Vec<_> = answers.collect();
        assert!(answers.iter().map(|(path, _)| *path).eq(self.paths.iter().map(|(path, _)| bytes(path))));
        answers.iter().map(|(_, pattern)| !(pattern.is_empty() || pattern.starts_with(b"!"))).collect()
    }

    /// Whether the rules of these ignore files hide each path, or a directory on it.
    fn ignored_by_rules(&self, files: &[Vec<u8>; 2]) -> Vec<bool> {
        let rules = |identity, base, file: &[u8], parent| {
            let files = Arc::new([None, Some(parse(file)), None]);
            Arc::new(IgnoreRules { identity, base, parent, files, size: RulesSize::default() })
        };
        let root = rules(1, 0, &files[0], None);
        let below = rules(2, 2, &files[1], Some(Arc::clone(&root)));
        let hides = |path: &Path, directory| {
            let rules = if path.starts_with("a") && path != "a" { &below } else { &root };
            rules.matches(bytes(path), directory)
        };
        let mut hidden = std::collections::HashSet::new();
        let mut ignored = Vec::new();
        // A directory comes before what is in it.
        for (path, directory) in &self.paths {
            let hides = path.parent().is_some_and(|above| hidden.contains(above)) || hides(path, *directory);
            if hides {
                hidden.insert(path.as_path());
            }
            ignored.push(hides);
        }
        ignored
    }

    fn compare(&self, files: &[Vec<u8>; 2]) -> usize {
        let (expected, found) = (self.ignored_by_git(files), self.ignored_by_rules(files));
        for (((path, _), expected), found) in self.paths.iter().zip(&expected).zip(&found) {
            let files = files.each_ref().map(|file| file.escape_ascii().to_string());
            assert_eq!(found, expected, "{:?} with {files:?}", bytes(path).escape_ascii().to_string());
        }
        expected.iter().filter(|ignored| **ignored).count()
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The command `git`, without the configuration of whoever runs the tests.
fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_")) {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").current_dir(folder);
    command
}

fn random_path(random: &mut Random) -> PathBuf {
    let mut path = PathBuf::new();
    for _ in 0..=random.below(4) {
        let pieces = 1 + random.below(3);
        let name: Vec<u8> = (0..pieces).flat_map(|_| random.pick(&NAME_PIECES).to_vec()).collect();
        if !matches!(&*name, b"." | b"..") {
            path.push(OsStr::from_bytes(&name));
        }
    }
    path.push(if random.below(2) == 0 { "a" } else { "b" });
    path
}

fn random_line(random: &mut Random, paths: &[(PathBuf, bool)]) -> Vec<u8> {
    let mut line = Vec::new();
    if random.below(4) == 0 {
        line.push(b'!');
    }
    if random.below(3) > 0 {
        for _ in 0..=random.below(6) {
            line.extend(random.pick(&PATTERN_PIECES));
        }
        return line;
    }
    // A path that exists, with some bytes replaced, so that long patterns match too.
    let path = bytes(&paths[random.below(paths.len())].0);
    let start = if random.below(3) == 0 { random.below(path.len()) } else { 0 };
    for byte in &path[start..] {
        match random.below(6) {
            0 => line.extend(random.pick(&PATTERN_PIECES)),
            1 => line.extend([b'\\', *byte]),
            2 => line.extend([b'[', *byte, b']']),
            _ => line.push(*byte),
        }
    }
    line
}

fn random_file(random: &mut Random, paths: &[(PathBuf, bool)]) -> Vec<u8> {
    let mut file = Vec::new();
    if random.below(10) == 0 {
        file.extend("\u{feff}".as_bytes());
    }
    for _ in 0..random.below(5) {
        file.extend(random_line(random, paths));
        file.extend(random.pick::<[u8]>(&[b"\n", b"\n", b"\n", b"/\n", b"\r\n", b" \n", b"\0x\n", b"\n\n"]));
    }
    file.extend(random_line(random, paths));
    file
}

#[test]
fn random_patterns_match_as_in_git() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let repository = Repository::new((0..150).map(|_| random_path(&mut random)).chain(["a/b".into()]));
    // As for property tests.
    let rounds = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300);
    let mut ignored = 0;
    for _ in 0..rounds {
        let files = [(); 2].map(|()| random_file(&mut random, &repository.paths));
        ignored += repository.compare(&files);
    }
    let compared = rounds * repository.paths.len();
    println!("{compared} paths compared, {ignored} of them ignored");
    assert!(ignored > compared / 20 && ignored < compared * 19 / 20, "{ignored} of {compared}");
}

#[test]
fn every_byte_is_in_the_same_classes_as_in_git() {
    let names = (1..=u8::MAX).filter(|byte| !b"/.".contains(byte));
    let paths = names.map(|byte| OsStr::from_bytes(&[b'x', byte]).into());
    let repository = Repository::new(paths.chain([PathBuf::from("a/b")]));
    for class in [
        "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
        "xdigit", "word", "",
    ] {
        let line = format!("x[[:{class}:]]\n");
        repository.compare(&[line.into_bytes(), Vec::new()]);
    }
}
