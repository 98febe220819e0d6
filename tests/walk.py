#!/usr/bin/env python3
"""Measures how many bytes a model takes in to find one named file by walking folders.

A walk reads each folder on the path of the file, from the root down, until its listing has a link to the next segment.
If a page does not have it, the walk reads the page that it names: with `?match=NAME`, or, as a client that knows only
`?after`, the next one. The size of a read is that of all its texts, blobs and URIs; each folder of the table is the median
of 101 files.

    tests/walk.py                  measures target/debug/libris, or the program that LIBRIS_BIN names
    tests/walk.py --without-links  measures a version whose folders have no listing: the children of a folder are the URIs
                                   of its parts. If the file is not among them, the pages of `resources/list` are read
                                   until one has it; the size of a page is that of its URIs, names, titles and descriptions
"""

import itertools
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
WITHOUT_LINKS = "--without-links" in sys.argv[1:]
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
        # The pages of `resources/list` that were read.
        self.listed = []
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

    def ask(self, method, **params):
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def parts(self, uri):
        """The parts of a resource, and their bytes; no parts if it cannot be read."""
        answer = self.ask("resources/read", uri=uri)
        parts = answer.get("result", {}).get("contents", [])
        if not parts:
            print(f"could not read {uri}: {answer}", file=sys.stderr)
        size = sum(len((part.get("text") or part.get("blob") or "").encode()) + len(part["uri"]) for part in parts)
        return parts, size

    def read(self, uri):
        """The text of the first part, the URI of the next page, and the bytes of all parts."""
        parts, size = self.parts(uri)
        return parts[0].get("text", ""), parts[0].get("_meta", {}).get(NEXT), size

    def pages(self):
        """The pages of `resources/list`: the URIs, and the bytes."""
        cursor = {}
        for number in itertools.count():
            if number == len(self.listed):
                result = self.ask("resources/list", **cursor)["result"]
                shown = ("uri", "name", "title", "description")
                texts = [entry.get(key) or "" for entry in result["resources"] for key in shown]
                uris = {entry["uri"] for entry in result["resources"]}
                self.listed.append((uris, sum(len(text.encode()) for text in texts), result.get("nextCursor")))
            uris, size, following = self.listed[number]
            yield uris, size
            if following is None:
                return
            cursor = {"cursor": following}


def walk(server, root, path, has_match):
    """The bytes of all reads on the way from the root to a file, without that of the file."""
    taken, folder = 0, root
    segments = path.split("/")
    for depth, segment in enumerate(segments):
        slash = "" if depth == len(segments) - 1 else "/"
        child = folder + encoded(segment) + slash
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


def walk_without_links(server, root, path):
    """The bytes of all reads on the way to a file in a version whose folders have no listing."""
    taken, folder = 0, root
    segments = path.split("/")
    for depth, segment in enumerate(segments):
        is_last = depth == len(segments) - 1
        child = folder + encoded(segment) + ("" if is_last else "/")
        parts, size = server.parts(folder)
        taken += size
        if not any(part["uri"].removesuffix("/") == child.removesuffix("/") for part in parts):
            return taken + listed_until(server, root + "/".join(map(encoded, segments)))
        folder = child
    return taken


def listed_until(server, uri):
    """The bytes of the pages of `resources/list` up to the one that has a resource."""
    taken = 0
    for uris, size in server.pages():
        taken += size
        if uri in uris:
            return taken
    raise SystemExit(f"{uri} is not listed")


def encoded(segment):
    return quote(segment, safe="-._~!$&'()*+,;=:@")


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
        if WITHOUT_LINKS:
            taken = statistics.median(walk_without_links(server, root, path) for path in paths)
            print(f"| {name} | {taken:,.0f} |", flush=True)
            return
        sizes = [
            [walk(server, root, path, has_match) for path in paths]
            for has_match in (False, True)
        ]
    after, match = (statistics.median(values) for values in sizes)
    print(f"| {name} | {after:,.0f} | {match:,.0f} |", flush=True)


def table_row(path):
    """A table is found in the list of tables, and its schema read."""
    with Server(f'[[sql]]\nurl = "sqlite:{path}"\nname = "shop"\n') as server:
        if WITHOUT_LINKS:
            # It is the schema of all tables.
            _, taken = server.parts("sqlite://shop/")
            print(f"| a database of 200 tables | {taken:,} |")
            return
        text, _, taken = server.read("sqlite://shop/")
        uri = "sqlite://shop/t123/schema"
        if uri not in text:
            uri = "sqlite://shop/schema"
        print(f"| a database of 200 tables | {taken:,} | {taken:,} |")


def main():
    if WITHOUT_LINKS:
        print("| folder | bytes |\n|---|---|")
    else:
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
