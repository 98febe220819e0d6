"""A folder worth serving, and what every client must find in it and hear of it: over stdio and over HTTP."""

import base64
import os
import re
import subprocess
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest

BIN = os.environ["LIBRIS_BIN"]
LEGACY = "2025-11-25"
MODERN = "2026-07-28"

LIST_CHANGED = "the list changed"
INDEX = "libris://index"
STATUS = "libris://status"
NOT_FOUND = {LEGACY: -32002, MODERN: -32602}
ROOT = "file:///library/"
TEMPLATE = ROOT + "{+path}{?lines,bytes}"
FOLDERS = ROOT + "{+folder}{?after,match,format,contents}"
SEGMENTS = "file:///library{/path*}"
IMAGES = ROOT + "{+path}?as=image{&pages,width}"
TEXTS = ROOT + "{+path}{?as,pages,sheet,rows,chapter,cells,mails,lines,content}"
INTRO = [f"line {n}\n" for n in range(1, 10)]
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
ODD = ["with space.md", "books 📚.md", "100%.md", "#1.md", "why?.md"]


def make_library(home: Path) -> Path:
    """Makes the folder; it needs three pages, and has names that a URI must escape."""
    files = {f"chapter {n % 5}/note-{n}.md": f"# Note {n}\n".encode() for n in range(250)}
    files |= {f"odd/{name}": f"{name}\n".encode() for name in ODD}
    files |= {"guide/intro.md": "".join(INTRO).encode(), "guide/picture.png": PICTURE}
    folder = home / "library"
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@contextmanager
def serve_http(folder: Path):
    """Serves the folder on a free port and gives the URL; the server stops with the block."""
    command = [BIN, "serve", folder, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            for line in server.stderr:
                if url := re.search(r"listening on (http:\S+)", line):
                    yield url[1]
                    break
            else:
                raise RuntimeError("libris did not start")
        finally:
            server.terminate()


def uri_of(path: str) -> str:
    return ROOT + quote(path)


def everything_in(folder: Path) -> list[str]:
    paths = [path.relative_to(folder).as_posix() + "/" * path.is_dir() for path in folder.rglob("*")]
    return sorted([ROOT, *map(uri_of, paths)])


def wire(model):
    """A client's object as the JSON it came from."""
    return model.model_dump(mode="json", by_alias=True)


class News:
    """What a client was told, in order: URIs that were updated, and `LIST_CHANGED`."""

    def __init__(self):
        self.heard = []
        self.told = anyio.Event()

    def tell(self, what):
        self.heard.append(what)
        self.told.set()
        self.told = anyio.Event()

    async def handle(self, message):
        """What a client of the handshake era calls with every message."""
        match message if isinstance(message, Exception) else wire(message):
            case {"method": "notifications/resources/updated", "params": {"uri": uri}}:
                self.tell(uri)
            case {"method": "notifications/resources/list_changed"}:
                self.tell(LIST_CHANGED)
            case unexpected:
                self.tell(repr(unexpected))

    async def until(self, what):
        with anyio.move_on_after(10):
            while what not in self.heard:
                await self.told.wait()
        assert what in self.heard, "it was not told"


def subscriber(subscribe, unsubscribe):
    """How a client of the handshake era comes to be told of exactly the given URIs."""
    followed = set()

    async def follow(uris):
        for uri in followed - set(uris):
            await unsubscribe(uri)
        for uri in set(uris) - followed:
            await subscribe(uri)
        followed.clear()
        followed.update(uris)
        return uris

    return follow


class Visits:
    """The tests of one client.

    A subclass says which `revision` it must speak, which `error` it raises, and how to `connect` to
    `(url, None)` or `(None, command)`, with the `News` to tell. What it connects to has `revision`,
    `list`, `read`, `templates`, `complete`, `tools`, `call`, `prompts`, `prompt` and
    `follow`. The last is given the URIs to be told of from then on, besides the list, and returns those that the
    server agreed to.
    """

    pytestmark = [
        pytest.mark.anyio,
        pytest.mark.filterwarnings("ignore:.* is removed as of 2026-07-28"),  # it is the older era's way
    ]

    @pytest.fixture(scope="class")
    def anyio_backend(self):
        return "asyncio"

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory):
        return make_library(tmp_path_factory.mktemp("clients"))

    @pytest.fixture(scope="class", params=["stdio", "http"])
    def transport(self, request):
        return request.param

    @asynccontextmanager
    async def enter(self, folder, transport, news):
        if transport == "stdio":
            async with self.connect(None, [BIN, "serve", str(folder), "--stdio"], news) as client:
                yield client
        else:
            with serve_http(folder) as url:
                async with self.connect(url, None, news) as client:
                    yield client

    @pytest.fixture(scope="class")
    async def client(self, folder, transport, anyio_backend):
        async with self.enter(folder, transport, News()) as client:
            yield client

    async def test_speaks_its_revision(self, client):
        assert client.revision == self.revision

    async def test_lists_every_page(self, client, folder):
        found, pages, cursor = [], 0, None
        while pages == 0 or cursor:
            page = wire(await client.list(cursor))
            found += page["resources"]
            cursor = page.get("nextCursor")
            pages += 1
        assert sorted(resource["uri"] for resource in found) == everything_in(folder) + [INDEX, STATUS]
        assert pages == 3
        assert sum(resource["mimeType"] == "inode/directory" for resource in found) == 8

    @pytest.mark.parametrize("name", ODD)
    async def test_reads_an_odd_name(self, client, name):
        uri = uri_of(f"odd/{name}")
        [content] = map(wire, await client.read(uri))
        assert (content["uri"], content["text"]) == (uri, f"{name}\n")

    async def test_reads_text(self, client):
        [content] = map(wire, await client.read(uri_of("guide/intro.md")))
        assert (content["mimeType"], content["text"]) == ("text/markdown", "".join(INTRO))

    async def test_reads_a_blob(self, client):
        [content] = map(wire, await client.read(uri_of("guide/picture.png")))
        assert (content["mimeType"], base64.b64decode(content["blob"])) == ("image/png", PICTURE)

    async def test_reads_a_directory(self, client):
        contents = [wire(content) for content in await client.read(ROOT + "guide/")]
        assert [content["uri"] for content in contents] == [ROOT + "guide/", uri_of("guide/intro.md")]
        assert f"[picture.png]({uri_of('guide/picture.png')})" in contents[0]["text"]

    async def test_reads_a_range(self, client):
        [lines] = map(wire, await client.read(ROOT + "guide/intro.md?lines=2-4"))
        assert lines["text"] == "".join(INTRO[1:4])
        [some_bytes] = map(wire, await client.read(ROOT + "guide/intro.md?bytes=0-9"))
        assert some_bytes["text"] == "".join(INTRO)[:10]

    async def test_lists_templates(self, client):
        templates = [wire(template)["uriTemplate"] for template in await client.templates()]
        assert templates == [FOLDERS, IMAGES, TEXTS, TEMPLATE, SEGMENTS, INDEX + "{?below}", STATUS + "{?as}"]

    async def test_completes_a_path(self, client):
        assert await client.complete(TEMPLATE, "path", "gui") == ["guide/"]
        assert await client.complete(TEMPLATE, "path", "guide/in") == ["guide/intro.md"]
        assert await client.complete(SEGMENTS, "path", "guide/in") == ["guide/intro.md"]

    async def test_calls_tools(self, client):
        tools = [wire(tool) for tool in await client.tools()]
        assert [tool["name"] for tool in tools] == ["search_resources", "read_resource", "list_resources"]
        assert all(tool["annotations"]["readOnlyHint"] and tool["outputSchema"]["type"] == "object" for tool in tools)
        found = wire(await client.call("search_resources", {"query": "intro"}))
        assert found["structuredContent"]["results"][0]["uri"] == uri_of("guide/intro.md")
        link = next(block for block in found["content"] if block["type"] == "resource_link")
        assert (link["uri"], link["mimeType"]) == (uri_of("guide/intro.md"), "text/markdown")
        read = wire(await client.call("read_resource", {"uri": uri_of("guide/intro.md"), "lines": "2-3"}))
        assert (read["structuredContent"]["text"], read["isError"]) == ("".join(INTRO[1:3]), False)
        assert "".join(INTRO[1:3]) in read["content"][0]["text"]
        listed = wire(await client.call("list_resources", {"parent": ROOT + "guide/"}))
        entries = [entry["uri"] for entry in listed["structuredContent"]["entries"]]
        assert entries == [uri_of("guide/intro.md"), uri_of("guide/picture.png")]

    async def test_gets_prompts(self, client):
        assert [prompt.name for prompt in await client.prompts()] == ["use-resources"]
        messages = wire(await client.prompt("use-resources", {"topic": "xylophones"}))["messages"]
        assert "Task: xylophones\n" in messages[0]["content"]["text"]
        index = next(message["content"] for message in messages if message["content"]["type"] == "resource")
        assert index["resource"]["uri"] == INDEX
        assert ROOT in index["resource"]["text"]

    async def test_meets_not_found(self, client):
        uri = uri_of("guide/missing.md")
        with pytest.raises(self.error) as raised:
            await client.read(uri)
        assert (raised.value.error.code, raised.value.error.data["uri"]) == (NOT_FOUND[self.revision], uri)

    async def test_hears_of_what_it_follows_and_of_nothing_else(self, transport, tmp_path):
        folder, news = make_library(tmp_path), News()
        followed, other, created = f"odd/{ODD[1]}", "guide/intro.md", "guide/created.md"
        first, second = ([f"chapter {n}/note-{n}.md", f"chapter {n}/note-{n + 5}.md"] for n in range(2))
        fences = [uri_of(path) for path in first + second]

        def write(path):
            (folder / path).write_text("written\n")

        # What is told together comes in any order. When the second of these is heard, everything that
        # was owed when the first was told has been heard too.
        async def settle(fences):
            for fence in fences:
                write(fence)
                await news.until(uri_of(fence))

        async with self.enter(folder, transport, news) as client:

            async def text(path):
                [content] = map(wire, await client.read(uri_of(path)))
                return content["text"]

            assert sorted(await client.follow([uri_of(followed), *fences])) == sorted([uri_of(followed), *fences])
            assert await text(followed) == f"{ODD[1]}\n"
            write(created)
            await news.until(LIST_CHANGED)
            assert news.heard == [LIST_CHANGED]

            write(other)
            write(followed)
            await news.until(uri_of(followed))
            await settle(first)
            # The list shows sizes.
            assert set(news.heard) - {LIST_CHANGED} == {uri_of(followed), *map(uri_of, first)}
            assert await text(followed) == "written\n"

            await client.follow(fences)
            news.heard.clear()
            write(followed)
            await settle(second)
            assert uri_of(followed) not in news.heard

    async def test_cannot_follow_what_nobody_serves(self, client):
        uri = "file:///nowhere/missing.md"
        if self.revision == MODERN:
            assert await client.follow([uri]) == []
        else:
            with pytest.raises(self.error) as raised:
                await client.follow([uri])
            assert (raised.value.error.code, raised.value.error.data["uri"]) == (NOT_FOUND[self.revision], uri)
