#!/usr/bin/env python3
"""Measures how many bytes a model takes in to find one named file by walking folders.

A walk reads each folder on the path of the file, from the root down, until its listing has a link to the next segment.
If a page does not have it, the walk reads the page that it names: with `?match=NAME`, or, as a client that knows only
`?after`, the next one. The size of a read is that of all its texts, blobs and URIs; each folder of the table is the median
of 101 files.

    tests/walk.py            measures target/debug/libris, or the program that LIBRIS_BIN names
"""

import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
LIBRIS = os.environ.get("LIBRIS_BIN") or str(ROOT / "target" / "debug" / "libris")
FILES = 101
NEXT = "dev.libris/next"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "walk", "version": "1"},
}


class Server:
    """A server with one source, over stdio."""

    def __init__(self, config):
        self.config = tempfile.NamedTemporaryFile("w", suffix=".toml")
        self.config.write(config)
        self.config.flush()
        self.process = subprocess.Popen(
            [LIBRIS, "serve", "--stdio", "--config", self.config.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.config.close()

    def read(self, uri):
        """The text of the first part, the URI of the next page, and the bytes of all parts."""
        request = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri, "_meta": META}}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "result" not in answer:
            raise SystemExit(f"could not read {uri}: {answer['error']['message']}")
        parts = answer["result"]["contents"]
        size = sum(len((part.get("text") or part.get("blob") or "").encode()) + len(part["uri"]) for part in parts)
        return parts[0].get("text", ""), parts[0].get("_meta", {}).get(NEXT), size


def walk(server, root, path, has_match):
    """The bytes of all reads on the way from the root to a file, without that of the file."""
    taken, folder = 0, root
    segments = path.split("/")
    for depth, segment in enumerate(segments):
        slash = "" if depth == len(segments) - 1 else "/"
        child = folder + quote(segment, safe="-._~!$&'()*+,;=:@") + slash
        page, is_first = folder, True
        while True:
            text, following, size = server.read(page)
            taken += size
            if f"]({child})" in text or f"](<{child}>)" in text:
                break
            if following is None:
                raise SystemExit(f"{page} has no link to {child}")
            page = f"{folder}?match={quote(segment)}" if has_match and is_first else following
            is_first = False
        folder = child
    return taken


def sample(base, names):
    """Some of the files in a folder that Libris serves. A seed makes the sample the same in each run."""
    chosen = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    return random.Random(7).sample(sorted(chosen), min(FILES, len(chosen)))


def files_below(base, suffix=""):
    for folder, folders, names in os.walk(base):
        folders[:] = [name for name in folders if not os.path.islink(os.path.join(folder, name))]
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(suffix) and not os.path.islink(path) and os.access(path, os.R_OK):
                yield os.path.relpath(path, base)


def tracked():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if not os.path.islink(ROOT / name)]


def pictures(folder):
    """Pictures and PDFs of up to 400 KB."""
    noise = random.Random(3)
    for number in range(12):
        (folder / f"photo-{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + noise.randbytes(30_000 * (number + 1)))
        (folder / f"report-{number}.pdf").write_bytes(b"%PDF-1.7\n" + noise.randbytes(10_000 * (number + 1)))


def database(path):
    """200 tables of 11 columns."""
    columns = ", ".join(f"c{number} text" for number in range(10))
    with sqlite3.connect(path) as connection:
        for number in range(200):
            connection.execute(f"CREATE TABLE t{number:03} (id integer PRIMARY KEY, {columns})")


def row(name, config, root, paths):
    paths = sample(root, paths)
    with Server(config) as server:
        sizes = [
            [walk(server, root, path, has_match) for path in paths]
            for has_match in (False, True)
        ]
    after, match = (statistics.median(values) for values in sizes)
    print(f"| {name} | {after:,.0f} | {match:,.0f} |", flush=True)


def table_row(path):
    """A table is found in the list of tables, and its schema read."""
    with Server(f'[[sql]]\nurl = "sqlite:{path}"\nname = "shop"\n') as server:
        text, _, taken = server.read("sqlite://shop/")
        uri = "sqlite://shop/t123/schema"
        if uri not in text:
            uri = "sqlite://shop/schema"
        print(f"| a database of 200 tables | {taken:,} | {taken:,} |")


def main():
    print("| folder | with `?after` only | with `?match` |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "pictures").mkdir()
        pictures(folder / "pictures")
        database(folder / "shop.db")
        for name, base, include in [
            ("`/usr/share/doc`", "/usr/share/doc", ""),
            ("`/usr/share`, `include = [\"*.md\"]`", "/usr/share", "*.md"),
            ("pictures and PDFs", folder / "pictures", ""),
            ("this repository", ROOT, ""),
        ]:
            config = f"[[files]]\npath = {json.dumps(str(base))}\nmount = \"root\"\n"
            config += f"include = [{json.dumps(include)}]\n" if include else ""
            paths = tracked() if base == ROOT else files_below(base, include.removeprefix("*"))
            row(name, config, "file:///root/", paths)
        repository = f'[[git]]\npath = {json.dumps(str(ROOT))}\nname = "project"\n'
        row("this repository, from git", repository, "git://project/tree/HEAD/", tracked())
        table_row(folder / "shop.db")


if __name__ == "__main__":
    sys.exit(main())
