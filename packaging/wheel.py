"""PyPI: a wheel that installs the binary as a script, and a module that starts it."""

import base64
import hashlib

from package import ROOT, SUMMARY, Failure, glibc_version, zip_file

# The name `libris` belongs to another project there.
PROJECT = "libris-mcp"
MODULE = "libris_mcp"
# The oldest macOS that Rust supports.
MACOS = {"x64": "macosx_10_12_x86_64", "arm64": "macosx_11_0_arm64"}
WINDOWS = {"x64": "win_amd64", "arm64": "win_arm64"}


def platform_tag(release, target):
    if target.os == "darwin":
        return MACOS[target.cpu]
    if target.os == "win32":
        return WINDOWS[target.cpu]
    needed = glibc_version(release.binaries[target])
    if target.libc == "musl":
        if needed:
            raise Failure(f"the binary for {target.name} needs glibc", "link it statically")
        return f"musllinux_1_1_{target.machine}"
    if needed is None:
        raise Failure(f"the binary for {target.name} does not need glibc", f"is it for {target.machine}-unknown-linux-musl?")
    return f"manylinux_{needed[0]}_{needed[1]}_{target.machine}"


def metadata(release):
    return f"""Metadata-Version: 2.4
Name: {PROJECT}
Version: {release.version}
Summary: {SUMMARY}
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
Keywords: mcp,model-context-protocol,resources,server
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{release.readme}"""


def pack(release, target):
    tag = platform_tag(release, target)
    info = f"{MODULE}-{release.version}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: libris\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    entry_points = f"[console_scripts]\n{PROJECT} = {MODULE}:main\n"
    scripts, share = (f"{MODULE}-{release.version}.data/{folder}" for folder in ("scripts", "data/share"))
    entries = [
        (f"{MODULE}/__init__.py", (ROOT / "packaging/python/__init__.py").read_bytes(), 0o644),
        (f"{MODULE}/__main__.py", (ROOT / "packaging/python/__main__.py").read_bytes(), 0o644),
        (f"{scripts}/{target.program}", release.binaries[target].read_bytes(), 0o755),
        *((f"{share}/{path}", file.read_bytes(), 0o644) for path, file in release.shared_pages()),
        (f"{info}/METADATA", metadata(release).encode(), 0o644),
        (f"{info}/WHEEL", wheel.encode(), 0o644),
        (f"{info}/entry_points.txt", entry_points.encode(), 0o644),
        *((f"{info}/licenses/{path.name}", path.read_bytes(), 0o644) for path in release.licences()),
    ]
    record = "".join(f"{name},sha256={checksum(content)},{len(content)}\n" for name, content, _ in entries)
    entries.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    zip_file(release.out / f"{MODULE}-{release.version}-py3-none-{tag}.whl", entries, release.time)


def checksum(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
