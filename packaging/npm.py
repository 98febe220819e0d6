"""npm: a package for each platform, and a wrapper that starts the one that npm installed."""

import json

from package import ROOT, SUMMARY, tar_gz


def package_name(target):
    return f"libris-{target.os}-{target.cpu}" + ("-musl" if target.libc == "musl" else "")


def manifest(release, name, **rest):
    return {
        "name": name,
        "version": release.version,
        "description": SUMMARY,
        "license": "MIT OR Apache-2.0",
        "keywords": ["mcp", "model-context-protocol", "resources", "server"],
        **rest,
    }


def write(release, name, fields, files):
    text = json.dumps(manifest(release, name, **fields), indent=2) + "\n"
    entries = [("package.json", text.encode(), 0o644), ("README.md", release.readme.encode(), 0o644), *files]
    entries += [(path.name, path.read_bytes(), 0o644) for path in release.licences()]
    entries = [(f"package/{name}", content, mode) for name, content, mode in entries]
    tar_gz(release.out / f"{name}-{release.version}.tgz", entries, release.time)


def pack_platform(release, target):
    fields = {"os": [target.os], "cpu": [target.cpu], "files": [f"bin/{target.program}"], "preferUnplugged": True}
    if target.libc:
        fields["libc"] = [target.libc]
    binary = (f"bin/{target.program}", release.binaries[target].read_bytes(), 0o755)
    write(release, package_name(target), fields, [binary])


def pack_wrapper(release):
    fields = {
        # By this the MCP registry knows that the package belongs to the server.
        "mcpName": release.server_name,
        "bin": {"libris": "bin/libris.js"},
        "files": ["bin/libris.js", "man", "completions"],
        # `npm install --global` puts them where `man` looks.
        "man": [f"./{path}" for path, _ in release.pages() if path.startswith("man/")],
        "engines": {"node": ">=18"},
        "optionalDependencies": {package_name(target): release.version for target in release.binaries},
    }
    script = (ROOT / "packaging/npm/libris.js").read_bytes()
    pages = [(path, file.read_bytes(), 0o644) for path, file in release.pages()]
    write(release, "libris", fields, [("bin/libris.js", script, 0o755), *pages])
