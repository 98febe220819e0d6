"""What all packages share: targets, metadata, generated pages, and archives that do not depend on the clock."""

import gzip
import hashlib
import io
import os
import platform
import re
import stat
import subprocess
import tarfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = "Serve folders, git, databases and APIs as MCP resources"
SHELLS = {"bash": "libris.bash", "zsh": "_libris", "fish": "libris.fish", "powershell": "_libris.ps1"}
# Where shells look for the completion scripts, below a folder `share`.
COMPLETION_PATHS = {
    "libris.bash": "bash-completion/completions/libris",
    "_libris": "zsh/site-functions/_libris",
    "libris.fish": "fish/vendor_completions.d/libris.fish",
}


class Failure(Exception):
    """An error of the person who makes the release."""

    def __init__(self, message, hint):
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Target:
    """A platform, by the names that each packager has for it."""

    name: str
    os: str  # as Node.js says: linux, darwin, win32
    cpu: str  # likewise: x64, arm64
    libc: str | None = None
    debian: str | None = None

    @staticmethod
    def named(name):
        for target in TARGETS:
            if target.name == name:
                return target
        known = ", ".join(target.name for target in TARGETS)
        raise Failure(f"`{name}` is not a target", f"the targets are {known}")

    @property
    def program(self):
        return "libris.exe" if self.os == "win32" else "libris"

    @property
    def machine(self):
        return self.name.split("-")[0]

    def strip_tools(self):
        own = ["strip"] if self.machine == platform.machine() else []
        return [*own, f"{self.machine}-linux-gnu-strip", "llvm-strip"]


TARGETS = [
    Target("x86_64-unknown-linux-gnu", "linux", "x64", "glibc", "amd64"),
    Target("aarch64-unknown-linux-gnu", "linux", "arm64", "glibc", "arm64"),
    Target("x86_64-unknown-linux-musl", "linux", "x64", "musl"),
    Target("aarch64-unknown-linux-musl", "linux", "arm64", "musl"),
    Target("x86_64-apple-darwin", "darwin", "x64"),
    Target("aarch64-apple-darwin", "darwin", "arm64"),
    Target("x86_64-pc-windows-msvc", "win32", "x64"),
    Target("x86_64-pc-windows-gnu", "win32", "x64"),
    Target("aarch64-pc-windows-msvc", "win32", "arm64"),
]


def host_target():
    system = {"Linux": "unknown-linux-gnu", "Darwin": "apple-darwin", "Windows": "pc-windows-msvc"}[platform.system()]
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    return f"{machine}-{system}"


class Release:
    """A version with its binaries, and the folder that its packages are written to."""

    def __init__(self, version, out, url, binaries, scratch):
        self.version = version
        self.out = out
        self.url = url.rstrip("/") if url else None
        self.binaries = binaries
        self.scratch = scratch
        self.readme = (ROOT / "crates/cli/README.md").read_text()
        marks = re.findall(r"mcp-name: (\S+)", self.readme)
        if len(marks) != 1:
            raise Failure("crates/cli/README.md needs one line `mcp-name: NAME`", "it proves whose the packages are")
        self.server_name = marks[0]
        self.time = commit_time()

    def generate_pages(self):
        """Lets a binary that runs here write its man pages and completion scripts."""
        program = next((path for path in self.binaries.values() if self._runs(path)), None)
        if program is None:
            raise Failure("no binary runs on this machine", f"add `--bin {host_target()}=PATH`, which writes the man pages")
        self.man = self.scratch / "man"
        subprocess.run([program, "man", self.man], check=True)
        self.completions = self.scratch / "completions"
        self.completions.mkdir()
        for shell, name in SHELLS.items():
            script = subprocess.run([program, "completions", shell], check=True, stdout=subprocess.PIPE).stdout
            (self.completions / name).write_bytes(script)

    def _runs(self, path):
        try:
            said = subprocess.run([path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
        except OSError:
            return False
        if said.returncode != 0:
            return False
        if said.stdout.decode().strip() != f"libris {self.version}":
            raise Failure(f"`{path.name}` says `{said.stdout.decode().strip()}`, not `libris {self.version}`", "build it again")
        return True

    def pages(self):
        """The man pages and completion scripts as (path, file), in the folders `man` and `completions`."""
        folders = {"man": self.man, "completions": self.completions}
        return [(f"{name}/{path.name}", path) for name, folder in folders.items() for path in sorted(folder.iterdir())]

    def shared_pages(self):
        """The man pages and completion scripts as (path, file), where programs look for them below a folder `share`."""
        pages = [(f"man/man1/{path.name}", path) for path in sorted(self.man.iterdir())]
        return pages + [(path, self.completions / name) for name, path in COMPLETION_PATHS.items()]

    def licences(self):
        return [ROOT / "LICENSE-APACHE", ROOT / "LICENSE-MIT"]

    def write_checksums(self):
        files = sorted(path for path in self.out.iterdir() if path.is_file())
        lines = "".join(f"{digest(path)}  {path.name}\n" for path in files)
        (self.out / "SHA256SUMS").write_text(lines)


def commit_time():
    """The time of the files in packages: SOURCE_DATE_EPOCH, or that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        git = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        given = git.stdout.decode()
    return int(given)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tar_gz(path, entries, epoch):
    """Writes an archive of (name, content, mode) with the same bytes whenever it is made."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content, mode in entries:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, epoch
            archive.addfile(member, io.BytesIO(content))
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 6, file, epoch) as compressed:
        compressed.write(packed.getvalue())


def zip_file(path, entries, epoch):
    """Writes a ZIP file of (name, content, mode) with the same bytes whenever it is made."""
    # ZIP has no time before 1980.
    date = time.gmtime(max(epoch, 315532800))[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, content, mode in entries:
            member = zipfile.ZipInfo(name, date)
            member.create_system = 3
            member.external_attr = (stat.S_IFREG | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, content)


def glibc_version(binary):
    """The newest glibc whose symbols the binary needs, such as (2, 34); `None` if it needs none."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", binary.read_bytes())
    return max(((int(major), int(minor)) for major, minor in found), default=None)
