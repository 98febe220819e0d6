"""Asks the four servers of examples/compare the same questions, and keeps the table in docs/compare.md true.

    tests/compare.py            fail where the table in docs/compare.md is not what was measured
    tests/compare.py --write    write that table anew

A "no" is an answer that is not the right one. Where a server dies or does not answer, the run fails. That
something is not told is never shown by waiting for a while, but by what is told or read later.
"""

import asyncio
import json
import os
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compare.md"
BINARIES = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
CLIENTS = ROOT / "target" / "clients"
PROGRAMS = ROOT / "examples" / "compare"

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
CLIENT = {"name": "compare", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}
# In seconds; long enough for a machine that is busy with other things.
PATIENCE = 180

ALL = "docs://documents"
TEMPLATE = ALL + "/{doc_id}{?version}"
NOTES = [f"{ALL}/note-{n:03}" for n in range(250)]
CHANGING, STILL = NOTES[0], NOTES[1]
ABOUT = {"mimeType": "text/markdown", "annotations": {"audience": ["user", "assistant"], "priority": 0.8}}


def locked(package):
    lock = (ROOT / "Cargo.lock").read_text()
    return re.search(rf'name = "{package}"\nversion = "(.+)"', lock)[1]


def installed(package):
    return json.loads((CLIENTS / "node" / "node_modules" / package / "package.json").read_text())["version"]


def distributed(package):
    (info,) = CLIENTS.glob(f"fastmcp/lib/python3*/site-packages/{package}-*.dist-info")
    return info.name.removeprefix(f"{package}-").removesuffix(".dist-info")


# Title, file, version, command.
SERVERS = [
    ("Libris", "libris.rs", lambda: f"libris {locked('libris')}", [BINARIES / "compare-libris"]),
    ("rmcp alone", "rmcp.rs", lambda: f"rmcp {locked('rmcp')}", [BINARIES / "compare-rmcp"]),
    (
        "FastMCP",
        "serve_fastmcp.py",
        lambda: f"fastmcp {distributed('fastmcp')}",
        [CLIENTS / "fastmcp" / "bin" / "python", "-B", PROGRAMS / "serve_fastmcp.py"],
    ),
    (
        "TypeScript SDK",
        "typescript.mjs",
        lambda: f"@modelcontextprotocol/server {installed('@modelcontextprotocol/server')}",
        [CLIENTS / "node" / "node_modules" / ".bin" / "node", PROGRAMS / "typescript.mjs"],
    ),
]

ROWS = {
    "listed": "every document is listed, once",
    "described": "… with its title, media type and annotations",
    "paged": "… in pages",
    "cursor": "… and an invalid cursor is refused with -32602",
    "added": "a new document causes `list_changed`",
    "template": "the template is listed with its title, media type and annotations",
    "single": "… and no second one is needed for reads without `?version`",
    "index": "the ids are read as JSON",
    "read": "a document is read by its id",
    "version": "… and by its id and version",
    "missing": "an unknown document is -32002 with `data.uri` before 2026-07-28",
    "missing now": "… and -32602 with `data.uri` from then on",
    "parsed": "`?version=two` is -32602 and names `version`",
    "hidden": "the cause of a failed read is not sent to the client",
    "completed": "completion returns the values that begin with the typed text",
    "counted": "… at most 100 values, with `total` and `hasMore`",
    "subscribed": "`resources/subscribe` causes notifications of that document, and of no other",
    "unsubscribed": "… until `resources/unsubscribe`",
    "discovered": "2026-07-28 is supported: `server/discover`",
    "listened": "`subscriptions/listen` causes notifications of that document, and of no other",
    "cancelled": "… until it is cancelled",
}

# What these programs do themselves, where their SDK has no part for it.
BY_HAND = {
    "rmcp.rs": {
        *("paged", "cursor", "single", "read", "version", "parsed", "hidden", "completed", "counted"),
        *("subscribed", "unsubscribed"),
    },
    "serve_fastmcp.py": {"missing now", "completed"},
    "typescript.mjs": {"parsed", "completed", "subscribed", "unsubscribed"},
}


class Failed(Exception):
    """A request was answered with an error."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.error = error

    def says(self, code, **data):
        return self.error["code"] == code and data.items() <= (self.error.get("data") or {}).items()


class Client:
    """One end of a conversation in one revision, line by line."""

    def __init__(self, process, revision):
        self.process = process
        self.revision = revision
        self.count = 0
        self.waiting = {}
        self.heard = []
        self.news = asyncio.Condition()

    async def listen(self):
        async for line in self.process.stdout:
            message = json.loads(line)
            if "method" not in message:
                self.waiting.pop(message["id"]).set_result(message)
                continue
            async with self.news:
                self.heard.append(message)
                self.news.notify_all()
        gone = EOFError(f"the server left: {' '.join(map(str, self.process.args))}")
        for waiting in self.waiting.values():
            waiting.set_exception(gone)

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def notify(self, method, **params):
        self.send({"method": method, "params": params})

    def ask(self, method, **params):
        """Sends a request, whose answer can be awaited; gives its id too."""
        self.count += 1
        if self.revision == MODERN:
            params["_meta"] = META
        answer = self.waiting[self.count] = asyncio.get_running_loop().create_future()
        self.send({"id": self.count, "method": method, "params": params})
        return self.count, answer

    async def call(self, method, **params):
        answer = await self.ask(method, **params)[1]
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["result"]

    async def error(self, method, **params):
        try:
            await self.call(method, **params)
        except Failed as failed:
            return failed
        return None

    async def read(self, uri):
        (content,) = (await self.call("resources/read", uri=uri))["contents"]
        return content

    async def pages(self):
        cursor = {}
        while True:
            page = await self.call("resources/list", **cursor)
            yield page["resources"]
            if not page.get("nextCursor"):
                return
            cursor = {"cursor": page["nextCursor"]}

    async def hears(self, right):
        """The first of the messages not yet heard of that is `right`."""
        async with self.news:
            await self.news.wait_for(lambda: any(map(right, self.heard)))
            return next(filter(right, self.heard))

    def forget(self):
        """Takes what was heard until now."""
        heard, self.heard = self.heard, []
        return heard

    async def rewritten(self, times=2):
        """Comes back when the document that changes has changed so often.

        What was owed for the first change has been told when the second one, a second later, is there.
        """
        for _ in range(times):
            before = await self.read(CHANGING)
            while await self.read(CHANGING) == before:
                await asyncio.sleep(0.05)


def updates(messages):
    updated = "notifications/resources/updated"
    return [message["params"]["uri"] for message in messages if message["method"] == updated]


@asynccontextmanager
async def connect(command, revision):
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    streams = {"stdin": pipe, "stdout": pipe, "stderr": null, "limit": 1 << 24}
    process = await asyncio.create_subprocess_exec(*command, **streams)
    process.args = command
    client = Client(process, revision)
    listening = asyncio.create_task(client.listen())
    try:
        if revision == LEGACY:
            await client.call("initialize", protocolVersion=LEGACY, capabilities={}, clientInfo=CLIENT)
            client.notify("notifications/initialized")
        yield client
    finally:
        listening.cancel()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def lists(client):
    pages = [page async for page in client.pages()]
    found = [resource for page in pages for resource in page]
    known = {resource["uri"]: resource for resource in found}
    whole = {ALL, *NOTES} <= known.keys()
    told = all(known[uri] == known[uri] | ABOUT for uri in NOTES) if whole else False
    titled = whole and [known[uri].get("title") for uri in NOTES] == [f"Note {n:03}" for n in range(250)]
    invented = await client.error("resources/list", cursor="made-up")
    yield "listed", whole and len(known) == len(found)
    yield "described", told and titled
    yield "paged", len(pages) > 1
    yield "cursor", refused(invented, -32602) if pages[1:] else None


def refused(failed, code, **data):
    return failed is not None and failed.says(code, **data)


async def templates(client):
    all_templates = (await client.call("resources/templates/list"))["resourceTemplates"]
    (ours,) = [template for template in all_templates if template["uriTemplate"] == TEMPLATE]
    yield "template", ours == ours | ABOUT | {"title": "Document"}
    yield "single", sum(template["uriTemplate"].startswith(ALL) for template in all_templates) == 1


async def reads(client, modern):
    newest, older = await client.read(NOTES[5]), await client.read(f"{NOTES[5]}?version=2")
    right = {"uri": NOTES[5], "mimeType": "text/markdown", "text": "# note-005\n\nVersion 3.\n"}
    yield "read", newest == newest | right
    right = {"uri": f"{NOTES[5]}?version=2", "mimeType": "text/markdown", "text": "# note-005\n\nVersion 2.\n"}
    yield "version", older == older | right
    index = await client.read(ALL)
    yield "index", f"{ALL}/{json.loads(index['text'])[5]}" == NOTES[5]
    unknown = f"{ALL}/nothing"
    missing = await client.error("resources/read", uri=unknown)
    yield "missing", refused(missing, -32002, uri=unknown)
    missing = await modern.error("resources/read", uri=unknown)
    yield "missing now", refused(missing, -32602, uri=unknown)
    wrong = await client.error("resources/read", uri=f"{NOTES[5]}?version=two")
    named = wrong is not None and "`version`" in str(wrong)
    yield "parsed", named and wrong.says(-32602)
    broken = await client.error("resources/read", uri=f"{NOTES[249]}?version=1")
    kept = refused(broken, -32603) and "/srv" not in json.dumps(broken.error)
    yield "hidden", kept


async def completions(client):
    async def complete(typed):
        reference = {"type": "ref/resource", "uri": TEMPLATE}
        argument = {"name": "doc_id", "value": typed}
        return (await client.call("completion/complete", ref=reference, argument=argument))["completion"]

    few, many = await complete("note-24"), await complete("note-")
    yield "completed", few["values"] == [f"note-24{n}" for n in range(10)]
    counted = len(many["values"]) == 100 and many.get("total", 0) >= 250 and many.get("hasMore") is True
    yield "counted", counted


async def subscriptions(client):
    if await client.error("resources/subscribe", uri=STILL):
        yield "subscribed", False
        yield "unsubscribed", None
        return
    client.forget()
    await client.rewritten()
    other = updates(client.forget())
    await client.call("resources/subscribe", uri=CHANGING)
    await client.hears(lambda message: updates([message]))
    yield "subscribed", not other and set(updates(client.forget())) == {CHANGING}
    await client.call("resources/unsubscribe", uri=CHANGING)
    client.forget()
    await client.rewritten()
    yield "unsubscribed", not updates(client.forget())


async def additions(client):
    # The list changes with each second, and a resource is rewritten with it.
    client.forget()
    await client.rewritten()
    heard = {message["method"] for message in client.forget()}
    found = {resource["uri"] async for page in client.pages() for resource in page}
    announced = "notifications/resources/list_changed" in heard and f"{ALL}/note-250" in found
    yield "added", announced


async def discovery(client):
    discovered = await client.call("server/discover")
    yield "discovered", MODERN in discovered["supportedVersions"]


async def streams(client):
    async def listen(uri):
        """The id of the stream, once it is acknowledged; nothing where it is refused."""
        number, answer = client.ask("subscriptions/listen", notifications={"resourceSubscriptions": [uri]})
        acknowledged = "notifications/subscriptions/acknowledged"
        heard = asyncio.ensure_future(client.hears(lambda message: message["method"] == acknowledged))
        await asyncio.wait([answer, heard], return_when=asyncio.FIRST_COMPLETED)
        heard.cancel()
        client.forget()
        return None if answer.done() and "error" in answer.result() else number

    if not await listen(STILL):
        yield "listened", False
        yield "cancelled", None
        return
    await client.rewritten()
    other = updates(client.forget())
    number = await listen(CHANGING)
    await client.hears(lambda message: updates([message]))
    yield "listened", not other and set(updates(client.forget())) == {CHANGING}
    client.notify("notifications/cancelled", requestId=number)
    await client.rewritten(1)
    client.forget()
    await client.rewritten()
    yield "cancelled", not updates(client.forget())


async def visit(command):
    """Which of the rows one server fulfils."""
    async with connect(command, LEGACY) as client, connect(command, MODERN) as modern:
        asked = [
            lists(client),
            additions(client),
            templates(client),
            reads(client, modern),
            completions(client),
            subscriptions(client),
            discovery(modern),
            streams(modern),
        ]
        return {row: answer for rows in asked async for row, answer in rows}


def lines(file):
    """Lines of code, and how many of them are not the store, which is the same in all.

    Neither blank lines nor comments count. What documents an item does: it may be a description that clients
    are shown.
    """
    counts, section = {}, None
    for line in (PROGRAMS / file).read_text().splitlines()[1:]:
        text = line.strip()
        if text in ("// The store.", "# The store.", "// The server.", "# The server."):
            section = text.split()[-1]
        comment = text.startswith(("// ", "# "))
        if text and not comment:
            counts[section] = counts.get(section, 0) + 1
    return sum(counts.values()), sum(counts.values()) - counts["store."]


def word(file, row, fulfilled):
    by_hand = row in BY_HAND.get(file, ())
    if by_hand and not fulfilled:
        sys.exit(f"{file} does not do `{row}`, not even by hand")
    return {True: "by hand" if by_hand else "yes", False: "**no**", None: "–"}[fulfilled]


async def table():
    async with asyncio.timeout(PATIENCE):
        visits = await asyncio.gather(*(visit(command) for *_, command in SERVERS))
    files = [file for _, file, *_ in SERVERS]
    counted = [lines(file) for file in files]
    rows = [
        ["", *(f"[{title}](../examples/compare/{file})" for title, file, *_ in SERVERS)],
        ["---"] * (len(SERVERS) + 1),
        ["version", *(version() for _, _, version, _ in SERVERS)],
        ["lines of user code", *(str(whole) for whole, _ in counted)],
        ["… without the store", *(str(rest) for _, rest in counted)],
    ]
    for row, text in ROWS.items():
        rows.append([text, *(word(file, row, visit[row]) for file, visit in zip(files, visits))])
    return "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)


def main():
    measured = asyncio.run(table())
    print(measured, end="")
    page = PAGE.read_text()
    begin, end = "<!-- written by tests/compare.py -->\n", "<!-- end -->\n"
    before, rest = page.split(begin)
    written, after = rest.split(end)
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(before + begin + measured + end + after)
    elif written != measured:
        sys.exit("the table in docs/compare.md is another one\nhint: tests/run-compare --write, if it is meant")


if __name__ == "__main__":
    main()
