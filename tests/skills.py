"""Checks the skills that a server publishes against the files of a folder, with nothing of Libris.

    python3 tests/skills.py URL FOLDER

Every folder with a SKILL.md in FOLDER must be listed, with every file in it, and reading each file must give the bytes
on the disk, whose digest and size the manifest has.
"""

import base64
import hashlib
import json
import pathlib
import sys
import urllib.request

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def ask(url, method, params):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
    }
    if method == "resources/read":
        headers["mcp-name"] = params["uri"]
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        answer = json.load(response)
    if "error" in answer:
        sys.exit(f"{method} {params}: {answer['error']}")
    return answer["result"]


def pages(url, method, key, params):
    cursor = {}
    while True:
        result = ask(url, method, {**params, **cursor})
        yield from result[key]
        if "nextCursor" not in result:
            return
        cursor = {"cursor": result["nextCursor"]}


def raw_bytes(content):
    return content["text"].encode() if "text" in content else base64.b64decode(content["blob"])


def main(url, folder):
    folder = pathlib.Path(folder)
    listed = {skill["uri"]: skill for skill in pages(url, "skills/list", "skills", {})}
    on_disk = {path.parent for path in folder.rglob("SKILL.md")}
    expected = {f"skill://{path.relative_to(folder).as_posix()}/SKILL.md" for path in on_disk}
    assert set(listed) == expected, f"listed {sorted(listed)}, on disk {sorted(expected)}"
    files = 0
    for uri, skill in listed.items():
        assert ask(url, "skills/get", {"uri": uri})["skill"] == skill, uri
        root = folder / uri.removeprefix("skill://").removesuffix("/SKILL.md")
        manifest = {file["uri"]: file for file in skill["resources"]}
        assert len(manifest) == len(skill["resources"]), f"{uri} lists a file twice"
        there = {path for path in root.rglob("*") if path.is_file()}
        complete = {f"skill://{path.relative_to(folder).as_posix()}" for path in there}
        assert set(manifest) == complete, f"{uri} lists {sorted(manifest)}, on disk {sorted(complete)}"
        for path in there:
            file = manifest[f"skill://{path.relative_to(folder).as_posix()}"]
            data = path.read_bytes()
            digest = "sha256:" + hashlib.sha256(data).hexdigest()
            assert (file["digest"], file["size"]) == (digest, len(data)), file
            [content] = ask(url, "resources/read", {"uri": file["uri"]})["contents"]
            assert raw_bytes(content) == data, file["uri"]
            files += 1
        # The directories hold exactly these files.
        found, left = set(), [uri.removesuffix("/SKILL.md")]
        while left:
            for child in pages(url, "resources/directory/read", "resources", {"uri": left.pop()}):
                assert not child["uri"].endswith("/"), child
                if child.get("mimeType") == "inode/directory":
                    left.append(child["uri"])
                else:
                    found.add(child["uri"])
        assert found == complete, f"the directories of {uri} hold {sorted(found)}"
    print(f"skills: {len(listed)} skills and {files} files are as on the disk")


main(*sys.argv[1:])
