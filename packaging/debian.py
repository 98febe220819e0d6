"""A Debian package, made with dpkg-deb."""

import email.utils
import gzip
import hashlib
import os
import re
import shutil
import subprocess

from package import ROOT, SUMMARY, Failure, glibc_version

DESCRIPTION = """ Libris turns folders, git repositories, SQL databases, HTTP APIs, Notion,
 commands and other servers of the Model Context Protocol (MCP) into MCP
 resources, which AI hosts can list, search, complete, read and subscribe to.
 .
 It speaks stdio and Streamable HTTP in every revision of the protocol.
"""


def maintainer():
    """Who makes the package, as for other Debian tools: DEBFULLNAME and DEBEMAIL, or the settings of git."""
    def setting(variable, key):
        if value := os.environ.get(variable):
            return value
        git = subprocess.run(["git", "config", key], cwd=ROOT, stdout=subprocess.PIPE)
        if git.returncode != 0:
            raise Failure(f"the Debian package needs a maintainer, and {variable} is not set", f"set it, or `git config {key}`")
        return git.stdout.decode().strip()

    return f"{setting('DEBFULLNAME', 'user.name')} <{setting('DEBEMAIL', 'user.email')}>"


def depends(binary):
    """The packages whose libraries the binary is linked with."""
    needed = re.findall(rb"\0(lib(?:gcc_s|c|m)\.so\.\d)\0", binary.read_bytes())
    major, minor = glibc_version(binary)
    packages = [f"libc6 (>= {major}.{minor})"]
    if b"libgcc_s.so.1" in needed:
        packages.append("libgcc-s1 (>= 4.2)")
    return ", ".join(packages)


def pack(release, target):
    if target.debian is None:
        return
    root = release.scratch / f"debian-{target.debian}"
    binary = release.binaries[target]

    def put(path, content, mode=0o644):
        path = root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)

    def compressed(content):
        return gzip.compress(content, 9, mtime=release.time)

    owner = maintainer()
    put("usr/bin/libris", binary.read_bytes(), 0o755)
    for path, file in release.shared_pages():
        if path.startswith("man/"):
            put(f"usr/share/{path}.gz", compressed(file.read_bytes()))
        else:
            # Debian's zsh has another folder for the scripts of packages.
            put(f"usr/share/{path.replace('zsh/site-functions', 'zsh/vendor-completions')}", file.read_bytes())
    put("usr/share/doc/libris/copyright", (ROOT / "packaging/debian/copyright").read_bytes())
    put("usr/share/doc/libris/NEWS.md.gz", compressed((ROOT / "CHANGELOG.md").read_bytes()))
    date = email.utils.formatdate(release.time)
    changes = f"libris ({release.version}) stable; urgency=medium\n\n  * Version {release.version}.\n\n -- {owner}  {date}\n"
    put("usr/share/doc/libris/changelog.gz", compressed(changes.encode()))
    put("usr/share/lintian/overrides/libris", (ROOT / "packaging/debian/lintian-overrides").read_bytes())
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    put("DEBIAN/control", f"""Package: libris
Version: {release.version}
Architecture: {target.debian}
Maintainer: {owner}
Installed-Size: {size}
Depends: {depends(binary)}
Recommends: ca-certificates
Section: net
Priority: optional
Description: {SUMMARY[0].lower()}{SUMMARY[1:]}
{DESCRIPTION}""")
    sums = sorted(path for path in root.rglob("usr/**/*") if path.is_file())
    put("DEBIAN/md5sums", "".join(f"{md5(path)}  {path.relative_to(root)}\n" for path in sums))
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)
    if shutil.which("dpkg-deb") is None:
        raise Failure("`dpkg-deb` was not found, which makes the Debian package", "install the package `dpkg`")
    path = release.out / f"libris_{release.version}_{target.debian}.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(release.time)}
    command = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", str(root), str(path)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()
