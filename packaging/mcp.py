"""The MCP registry: `server.json`, and bundles (MCPB) that a host installs with a click and a folder."""

import json

import wheel
from archives import name
from package import SUMMARY, digest, zip_file

TITLE = "Libris"
# The registry refuses a description of more than 100 characters, and a document without the version of its schema.
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
ASKED = "The folder to serve. Libris reads nothing outside of it."


def bundle_manifest(release, target):
    return {
        "manifest_version": "0.3",
        "name": "libris",
        "display_name": TITLE,
        "version": release.version,
        "description": SUMMARY,
        "long_description": "Serves the folders you choose to this app as MCP resources: listed, searched, completed, "
        "read and subscribed to. Documents such as PDF and Word files are served as text. Libris only reads.",
        "author": {"name": "The Libris authors"},
        "license": "MIT OR Apache-2.0",
        "keywords": ["mcp", "resources", "files", "search"],
        "server": {
            "type": "binary",
            "entry_point": f"server/{target.program}",
            "mcp_config": {
                "command": f"${{__dirname}}/server/{target.program}",
                "args": ["serve", "${user_config.folders}", "--stdio"],
            },
        },
        "tools_generated": True,
        "prompts_generated": True,
        "user_config": {
            "folders": {
                "type": "directory",
                "title": "Folders",
                "description": "The folders to serve. Libris reads nothing outside of them.",
                "multiple": True,
                "required": True,
            }
        },
        "compatibility": {"platforms": [target.os]},
    }


def pack_bundle(release, target):
    manifest = json.dumps(bundle_manifest(release, target), indent=2) + "\n"
    entries = [
        ("manifest.json", manifest.encode(), 0o644),
        (f"server/{target.program}", release.binaries[target].read_bytes(), 0o755),
        *((path, file.read_bytes(), 0o644) for path, file in release.pages()),
        *((path.name, path.read_bytes(), 0o644) for path in release.licences()),
    ]
    zip_file(release.out / f"{name(release, target)}.mcpb", entries, release.time)


def positional(value):
    return {"type": "positional", "value": value}


def package(kind, identifier, version=None, **rest):
    versioned = {"version": version} if version else {}
    return {"registryType": kind, "identifier": identifier, **versioned, **rest, "transport": {"type": "stdio"}}


def server_json(release):
    folder = {"type": "positional", "valueHint": "folder", "description": ASKED, "format": "filepath", "isRequired": True}
    arguments = {"packageArguments": [positional("serve"), folder, positional("--stdio")]}
    owner = release.server_name.split("/")[0].rsplit(".", 1)[-1]
    mount = {
        "type": "named",
        "name": "--mount",
        "description": ASKED,
        "value": "type=bind,src={folder},dst=/data,readonly",
        "isRequired": True,
        "variables": {"folder": {"description": ASKED, "format": "filepath", "isRequired": True}},
    }
    packages = [
        package("npm", "libris", release.version, runtimeHint="npx", **arguments),
        package("pypi", wheel.PROJECT, release.version, runtimeHint="uvx", **arguments),
        package("cargo", "libris-cli", release.version, **arguments),
        package(
            "oci",
            f"{owner}/libris:{release.version}",
            runtimeHint="docker",
            runtimeArguments=[mount],
            packageArguments=[positional("serve"), positional("/data"), positional("--stdio")],
        ),
    ]
    # A bundle is named by the address it can be downloaded from.
    if release.url:
        for target in release.binaries:
            bundle = f"{name(release, target)}.mcpb"
            checksum = digest(release.out / bundle)
            packages.append(package("mcpb", f"{release.url}/{bundle}", release.version, fileSha256=checksum))
    document = {
        "$schema": SCHEMA,
        "name": release.server_name,
        "title": TITLE,
        "description": SUMMARY,
        "version": release.version,
        "packages": packages,
    }
    (release.out / "server.json").write_text(json.dumps(document, indent=2) + "\n")
