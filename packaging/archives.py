"""Archives with checksums, the Homebrew formula that downloads them, and the folder a container is built from."""

import shutil

from package import ROOT, SUMMARY, digest, tar_gz, zip_file


def name(release, target):
    return f"libris-{release.version}-{target.name}"


def pack(release, target):
    """The binary with its licences, man pages and completion scripts."""
    top = name(release, target)
    files = [(target.program, release.binaries[target], 0o755)]
    files += [(path.name, path, 0o644) for path in [*release.licences(), ROOT / "README.md", ROOT / "CHANGELOG.md"]]
    files += [(name, path, 0o644) for name, path in release.pages()]
    entries = [(f"{top}/{name}", path.read_bytes(), mode) for name, path, mode in files]
    if target.os == "win32":
        zip_file(release.out / f"{top}.zip", entries, release.time)
    else:
        tar_gz(release.out / f"{top}.tar.gz", entries, release.time)


def formula(release):
    """The Homebrew formula, for the archives of this release."""
    kinds = {"darwin": "on_macos", "linux": "on_linux"}
    # A static binary serves any Linux.
    preferred = sorted(release.binaries, key=lambda target: target.libc == "musl", reverse=True)
    chosen = {}
    for target in preferred:
        chosen.setdefault((target.os, target.cpu), target)
    base = release.url or release.out.as_uri()
    blocks = ""
    for system, block in kinds.items():
        parts = ""
        for cpu, condition in {"arm64": "on_arm", "x64": "on_intel"}.items():
            if target := chosen.get((system, cpu)):
                archive = f"{name(release, target)}.tar.gz"
                parts += f'    {condition} do\n      url "{base}/{archive}"\n'
                parts += f'      sha256 "{digest(release.out / archive)}"\n    end\n'
        if parts:
            blocks += f"\n  {block} do\n{parts}  end\n"
    (release.out / "libris.rb").write_text(f'''class Libris < Formula
  desc "{SUMMARY}"
  version "{release.version}"
  license any_of: ["MIT", "Apache-2.0"]
{blocks}
  def install
    bin.install "libris"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/libris.bash" => "libris"
    zsh_completion.install "completions/_libris"
    fish_completion.install "completions/libris.fish"
  end

  test do
    (testpath/"docs/start.md").write "# Start"
    assert_match "file:///docs/start.md", shell_output("#{{bin}}/libris ls docs")
  end
end
''')


def container_context(release, target):
    """What `docker build` needs: the container file, the binary of each Linux by the name of its architecture, the pages."""
    if target.os != "linux":
        return
    folder = release.out / "container"
    folder.mkdir(exist_ok=True)
    container = (ROOT / "packaging/Containerfile").read_text().replace("SERVER_NAME", release.server_name)
    (folder / "Containerfile").write_text(container)
    for path, file in release.shared_pages():
        copy = folder / "share" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    architecture = {"x64": "amd64", "arm64": "arm64"}[target.cpu]
    copy = folder / f"libris-{architecture}"
    # Of two binaries for an architecture, the static one runs on any base image.
    if not copy.exists() or target.libc == "musl":
        shutil.copy(release.binaries[target], copy)
