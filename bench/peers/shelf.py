"""The files of a folder, held in memory, and a server for them that listens on a free port."""

import asyncio
import socket
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

PAGE = 100


@dataclass
class Book:
    uri: str
    name: str
    mime: str
    size: int
    modified: str
    data: str | bytes


def load(folder: str) -> list[Book]:
    """All files of a folder, in the order of their names."""
    root = Path(folder)
    books = []
    for path in sorted(root.iterdir()):
        status = path.stat()
        if path.suffix == ".txt":
            mime, data = "text/plain", path.read_text()
        else:
            mime, data = "application/octet-stream", path.read_bytes()
        modified = datetime.fromtimestamp(status.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        uri = f"file:///{root.name}/{path.name}"
        books.append(Book(uri, path.name, mime, status.st_size, modified, data))
    return books


def listen(app) -> None:
    """Listens on a free port of this machine, on connections that stay open."""
    # Only where the protocol is named does asyncio turn off Nagle's algorithm.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(256)
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_keep_alive=600)
    asyncio.run(uvicorn.Server(config).serve([listener]))
