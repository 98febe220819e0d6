"""Notes as resources, with FastMCP."""

import asyncio
from contextlib import asynccontextmanager, suppress

from fastmcp import FastMCP
from fastmcp.exceptions import MCPError
from fastmcp.resources import Resource
from mcp_types import INVALID_PARAMS

# The store.


class Store:
    """The versions of each note."""

    def __init__(self):
        self.notes = {}
        for _ in range(250):
            self.add()

    def add(self):
        doc_id = f"note-{len(self.notes):03}"
        self.notes[doc_id] = [f"# {doc_id}\n\nVersion {version}.\n" for version in (1, 2, 3)]
        return doc_id

    def rewrite(self, doc_id, second):
        self.notes[doc_id][-1] = f"# {doc_id}\n\nWritten in second {second}.\n"

    def text(self, doc_id, version):
        if (doc_id, version) == ("note-249", 1):
            raise OSError("cannot open /srv/archive/note-249.md")
        versions = self.notes.get(doc_id, [])
        version = len(versions) if version is None else version
        return versions[version - 1] if 1 <= version <= len(versions) else None


def title(doc_id):
    return doc_id.replace("note-", "Note ")


# The server.

ABOUT = {"mime_type": "text/markdown", "annotations": {"audience": ["user", "assistant"], "priority": 0.8}}

store = Store()


@asynccontextmanager
async def author(_server):
    async def write():
        second = 0
        while True:
            await asyncio.sleep(1)
            second += 1
            store.rewrite("note-000", second)
            add(store.add())

    writing = asyncio.create_task(write())
    yield
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing


mcp = FastMCP("documents", lifespan=author, list_page_size=100, mask_error_details=True)


@mcp.resource("docs://documents", title="Documents", mime_type="application/json")
def documents() -> list[str]:
    """The ids of all documents."""
    return list(store.notes)


@mcp.resource("docs://documents/{doc_id}{?version}", title="Document", **ABOUT)
def document(doc_id: str, version: int | None = None) -> str:
    """One document, the newest version unless another one is named."""
    text = store.text(doc_id, version)
    if text is None:
        query = "" if version is None else f"?version={version}"
        uri = f"docs://documents/{doc_id}{query}"
        raise MCPError(INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
    return text


def add(doc_id):
    """Lists a document: a template has no list of its own."""
    uri = f"docs://documents/{doc_id}"
    read = Resource.from_function(lambda: document(doc_id), uri, name=doc_id, title=title(doc_id), **ABOUT)
    mcp.add_resource(read)


for doc_id in store.notes:
    add(doc_id)


@mcp.completion
def complete(ref, argument, _context):
    if getattr(ref, "uri", None) == "docs://documents/{doc_id}{?version}" and argument.name == "doc_id":
        return [doc_id for doc_id in store.notes if doc_id.startswith(argument.value)]
    return None


if __name__ == "__main__":
    mcp.run("stdio", show_banner=False)
