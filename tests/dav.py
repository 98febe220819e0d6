"""Lists and reads the WebDAV share with cadaver, rclone, litmus and nothing of Libris.

    LIBRIS_BIN=target/debug/libris python3 tests/dav.py

The server has a folder with an archive, a repository, a database, inline resources, skills, a command, an HTTP API, a
Notion workspace and another server behind a gateway. Every file of the share must have the bytes of `resources/read`,
nothing can be written, and what a rule hides is absent. A folder of 100,000 files must be listed without growing the
server.
"""

import base64
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree
import zipfile

ROOT = pathlib.Path(__file__).parent.parent
LIBRIS = os.environ["LIBRIS_BIN"]
DAV = "{DAV:}"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
# The most that the server may grow while it lists 100,000 files for nine clients, in KiB. Their responses have 315 MiB in all;
# the heaps of the threads that list in parallel grow by 40 to 110 MiB.
MAX_GROWTH = 192 << 10
EXTENSIONS = {
    "application/json": ".json",
    "text/markdown": ".md",
    "text/x-diff": ".diff",
    "text/plain": ".txt",
}


class Server:
    """A server on a free port, with an API key."""

    def __init__(self, folder, config):
        self.folder = folder
        (folder / "libris.toml").write_text(config)
        keys = str(folder / "keys.toml")
        added = subprocess.run([LIBRIS, "key", "add", "test", "--keys", keys], check=True, capture_output=True, text=True)
        self.key = added.stdout.strip()
        self.process = subprocess.Popen(
            [LIBRIS, "serve", "--config", str(folder / "libris.toml"), "--keys", keys, "--http", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "NOTION_TOKEN": NotionApi.TOKEN},
        )
        for line in self.process.stderr:
            if found := re.search(r"listening on (http://\S+)/mcp", line):
                self.origin = found[1]
                break
        else:
            sys.exit("the server did not start")
        self.credentials = base64.b64encode(f"reader:{self.key}".encode()).decode()

    def stop(self):
        self.process.terminate()
        self.process.wait(20)

    def open(self, method, path, headers=None, body=None):
        headers = {"authorization": f"Basic {self.credentials}", **(headers or {})}
        request = urllib.request.Request(self.origin + "/dav" + path, body, headers, method=method)
        return urllib.request.urlopen(request, timeout=60)

    def read(self, path):
        with self.open("GET", path) as response:
            data = response.read()
            assert int(response.headers["content-length"]) == len(data), path
            return data

    def list(self, path):
        """The entries of a folder with their sizes; folders end with a slash."""
        with self.open("PROPFIND", path, {"depth": "1"}) as response:
            assert response.status == 207, path
            tree = xml.etree.ElementTree.parse(response).getroot()
        entries = {}
        for entry in tree.findall(DAV + "response"):
            href = entry.find(DAV + "href").text.removeprefix("/dav")
            size = entry.find(f"{DAV}propstat/{DAV}prop/{DAV}getcontentlength")
            is_folder = entry.find(f"{DAV}propstat/{DAV}prop/{DAV}resourcetype/{DAV}collection") is not None
            assert is_folder == href.endswith("/"), href
            assert href not in entries, href
            entries[href] = None if size is None else int(size.text)
        del entries[path]
        return entries

    def walk(self, path="/"):
        for entry, size in self.list(path).items():
            if entry.endswith("/"):
                yield from self.walk(entry)
            else:
                yield entry, size

    def ask(self, method, params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
        headers = {
            "authorization": f"Bearer {self.key}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
        }
        if "uri" in params:
            headers["mcp-name"] = params["uri"]
        request = urllib.request.Request(self.origin + "/mcp", json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["result"]

    def resources(self):
        cursor = {}
        while True:
            page = self.ask("resources/list", cursor)
            yield from page["resources"]
            if "nextCursor" not in page:
                return
            cursor = {"cursor": page["nextCursor"]}

    def content(self, uri):
        [content] = self.ask("resources/read", {"uri": uri})["contents"]
        return content["text"].encode() if "text" in content else base64.b64decode(content["blob"])

    def memory(self, field):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+)", status)[1])


class Workbench:
    """A proxy that pretends to make and remove the folder `litmus`, which is there, and passes on everything else.

    litmus tests nothing before it has made this folder, which the share refuses.
    """

    def __init__(self, share):
        host, port = share.removeprefix("http://").split(":")

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.command in ("MKCOL", "DELETE") and self.path.endswith("/litmus/"):
                    return self.respond(201 if self.command == "MKCOL" else 204, [], b"")
                connection = http.client.HTTPConnection(host, int(port), timeout=60)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection", "te", "expect")}
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                content = response.read()
                connection.close()
                own = ("connection", "content-length", "transfer-encoding", "date")
                return self.respond(response.status, [header for header in response.getheaders() if header[0].lower() not in own], content)

            def respond(self, status, headers, body):
                self.send_response_only(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                # A client that expects an error closes early.
                with contextlib.suppress(OSError):
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

            def __getattr__(self, name):
                if name.startswith("do_"):
                    return self.answer
                raise AttributeError(name)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def share_path(resource):
    """The path of a resource in the share, from the manual."""
    scheme, rest = resource["uri"].split("://", 1)
    *folders, name = rest.lstrip("/").split("/")
    mime = resource.get("mimeType")
    has_file_names = scheme in ("file", "git") and mime == "text/plain"
    if "." not in name and not has_file_names:
        name += EXTENSIONS.get(mime, "")
    # These escapes are part of the name.
    shown = [urllib.parse.unquote(re.sub("%(2F|25|5C|23|3F)", r"%25\1", part)) for part in [*folders, name]]
    return "/" + "/".join(urllib.parse.quote(part, safe="!$'()*,;=:@") for part in [scheme, *shown])


def git(folder, *words):
    identity = ["-c", "user.name=A", "-c", "user.email=a@b.example"]
    return subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True).stdout


class Api:
    """An HTTP API with one document."""

    CONTENT = b'{"sky": "clear"}'

    def __init__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                found = self.path == "/stations"
                self.send_response(200 if found else 404)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(Api.CONTENT) if found else 0))
                self.end_headers()
                if found:
                    self.wfile.write(Api.CONTENT)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def rich(text):
    return [{"type": "text", "plain_text": text, "annotations": {}, "href": None}]


class NotionApi:
    """The API of Notion, as its documentation describes it, with a page, and a database of one row."""

    TOKEN = "ntn_a-token-for-the-share"
    PAGE, DATABASE, TABLE, ROW = (f"0b5f3c1e-0000-4000-8000-{number:012x}" for number in range(1, 5))
    EDITED = "2026-03-01T12:00:00.000Z"

    def __init__(self):
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                self.rfile.read(int(self.headers.get("content-length", 0)))
                is_admitted = self.headers["authorization"] == f"Bearer {api.TOKEN}" and self.headers["notion-version"]
                found = api.find(self.command, self.path.split("?")[0].strip("/").split("/")[1:]) if is_admitted else None
                status = 200 if found else 404 if is_admitted else 401
                body = json.dumps(found or {"object": "error", "status": status, "code": "object_not_found", "message": ""}).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def page(self, page, title, parent):
        return {
            "object": "page", "id": page, "parent": parent, "in_trash": False, "last_edited_time": self.EDITED, "icon": None,
            "url": f"https://www.notion.so/{page}", "properties": {"Name": {"id": "title", "type": "title", "title": rich(title)}},
        }

    def find(self, method, path):
        """The answer to a request; `None` if there is no such object."""
        page = self.page(self.PAGE, "The plan of the year", {"type": "workspace", "workspace": True})
        row = self.page(self.ROW, "The first row", {"type": "data_source_id", "data_source_id": self.TABLE, "database_id": self.DATABASE})
        table = {
            "object": "data_source", "id": self.TABLE, "title": rich("Tasks"), "last_edited_time": self.EDITED, "in_trash": False,
            "parent": {"type": "database_id", "database_id": self.DATABASE}, "icon": None,
            "properties": {"Name": {"id": "title", "name": "Name", "type": "title", "title": {}}},
        }
        database = {
            "object": "database", "id": self.DATABASE, "title": rich("Tasks"), "description": [], "in_trash": False,
            "data_sources": [{"id": self.TABLE, "name": "Tasks"}],
        }
        paragraph = {
            "object": "block", "id": self.PAGE[:-1] + "f", "type": "paragraph", "has_children": False,
            "paragraph": {"rich_text": rich("We shall rest more.")},
        }
        objects = {("pages", self.PAGE): page, ("pages", self.ROW): row, ("databases", self.DATABASE): database, ("data_sources", self.TABLE): table}
        lists = {
            ("search",): [page, row, table],
            ("blocks", self.PAGE, "children"): [paragraph],
            ("blocks", self.ROW, "children"): [],
            ("data_sources", self.TABLE, "query"): [row],
        }
        if path == ["users", "me"]:
            return {"object": "user", "id": self.PAGE, "name": "Libris", "type": "bot", "bot": {"workspace_name": "Example", "owner": {"type": "workspace"}}}
        if tuple(path) in lists:
            return {"object": "list", "results": lists[tuple(path)], "has_more": False, "next_cursor": None}
        return objects.get(tuple(path))

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def everything(base, api, notion):
    """Every kind of source; `api` and `notion` are the origins of an HTTP API and of that of Notion."""
    shutil.copytree(ROOT / "examples/handbook", base / "handbook")
    hidden = base / "handbook/hidden"
    hidden.mkdir()
    (hidden / "plan.md").write_text("# A secret plan\n")
    (base / "handbook/litmus").mkdir()
    (base / "handbook/litmus/file.txt").write_text("for litmus\n")
    odd = base / "handbook/odd"
    odd.mkdir()
    for name in ["a b & <c>.txt", "100%.txt", "中文.md", "it's \"quoted\".txt", "semi;colon#hash?mark.txt", "UPPER.TXT", "upper.txt"]:
        (odd / name).write_text(f"the content of {name}\n")
    (odd / "bytes.bin").write_bytes(bytes(range(256)))
    (odd / "latin-1.txt").write_bytes("Grüße aus Köln, größer als üblich\n".encode("latin-1"))
    (odd / "marked.txt").write_bytes(b"\xef\xbb\xbfmarked\n")
    (odd / "empty").write_bytes(b"")
    (odd / "large.bin").write_bytes(os.urandom(9_500_000))
    with zipfile.ZipFile(odd / "papers.zip", "w") as archive:
        archive.writestr("first.md", "# The first paper\n")
        archive.writestr("notes/second.txt", "the second paper\n")
    shutil.copytree(ROOT / "examples/skills", base / "skills")
    shutil.copy(ROOT / "examples/shop.db", base / "shop.db")
    project = base / "project"
    project.mkdir()
    git(project, "init", "--initial-branch=main")
    (project / "src").mkdir()
    (project / "src/lib.rs").write_text("pub fn one() -> u8 { 1 }\n")
    (project / "LICENSE").write_text("Do as you like.\n")
    git(project, "add", ".")
    git(project, "commit", "--message=begin")
    git(project, "branch", "feature/login")
    (project / "src/lib.rs").write_text("pub fn two() -> u8 { 2 }\n")
    git(project, "commit", "--all", "--message=go on")
    upstream = base / "upstream"
    upstream.mkdir()
    (upstream / "far.md").write_text("# Far away\n")
    return f"""
[[files]]
path = "handbook"
[[git]]
path = "project"
[[sql]]
url = "sqlite:shop.db"
[[inline.resource]]
uri = "config://app/settings"
mime = "application/json"
text = '{{ "theme": "dark" }}'
[[inline.resource]]
uri = "config://app/motd"
mime = "text/plain"
text = 'hello'
[[skills]]
path = "skills"
[[command]]
uri = "greeting://now"
mime = "text/plain"
run = ["echo", "good morning"]
[[http]]
base = "{api}"
[http.limits]
allow_private = true
[[http.resource]]
uri = "weather://stations"
url = "stations"
mime = "application/json"
[notion]
url = "{notion}"
[[mcp]]
name = "other"
run = ["{LIBRIS}", "serve", "upstream", "--stdio"]
[[rule]]
uri = "file:///handbook/hidden/**"
action = "deny"
[[rule]]
uri = "**"
action = "allow"
"""


class Everything(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.base = pathlib.Path(cls.scratch.name)
        cls.api = Api()
        cls.notion = NotionApi()
        cls.server = Server(cls.base, everything(cls.base, cls.api.origin, cls.notion.origin))
        cls.home = cls.base / "home"
        cls.home.mkdir()
        (cls.home / ".netrc").write_text(f"machine 127.0.0.1 login reader password {cls.server.key}\n")
        (cls.home / ".netrc").chmod(0o600)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.api.stop()
        cls.notion.stop()
        cls.scratch.cleanup()

    def run_program(self, *command, given=None):
        environment = {**os.environ, "HOME": str(self.home), "TESTS": "basic props", "RCLONE_CONFIG": str(self.home / "rclone.conf")}
        return subprocess.run(
            command, input=given, env=environment, cwd=self.home, capture_output=True, text=True, errors="replace", timeout=240
        )

    def rclone(self, *words):
        password = self.run_program("rclone", "obscure", self.server.key).stdout.strip()
        remote = ["--webdav-url", self.server.origin + "/dav", "--webdav-user", "reader", "--webdav-pass", password]
        return self.run_program("rclone", *words, *remote, "--retries", "1", "--low-level-retries", "1")

    def test_every_listed_resource_has_its_file(self):
        resources = [resource for resource in self.server.resources() if resource.get("mimeType") != "inode/directory"]
        files = dict(self.server.walk())
        schemes = {resource["uri"].split(":")[0] for resource in resources}
        self.assertLessEqual({"file", "git", "sqlite", "config", "skill", "greeting", "weather", "libris"}, schemes)
        for resource in resources:
            path = share_path(resource)
            self.assertIn(path, files)
            # The state of the server changes.
            if resource["uri"].startswith("libris:") or "large.bin" in path:
                continue
            self.assertEqual(self.server.read(path), self.server.content(resource["uri"]), path)
        large = self.base / "handbook/odd/large.bin"
        self.assertEqual(self.server.read("/file/handbook/odd/large.bin"), large.read_bytes())

    def test_every_file_has_its_size(self):
        for path, size in self.server.walk():
            if not path.startswith("/libris/"):
                self.assertEqual(size, len(self.server.read(path)), path)

    def test_branches_commits_and_rows_are_browsable(self):
        files = dict(self.server.walk("/git/project/"))
        commit = git(self.base / "project", "rev-parse", "HEAD").strip()
        for path, uri in [
            ("/git/project/tree/main/src/lib.rs", "git://project/tree/main/src/lib.rs"),
            ("/git/project/tree/feature%252Flogin/src/lib.rs", "git://project/tree/feature%2Flogin/src/lib.rs"),
            ("/git/project/tree/HEAD/LICENSE", "git://project/tree/HEAD/LICENSE"),
        ]:
            self.assertIn(path, files)
            self.assertEqual(self.server.read(path), self.server.content(uri))
        self.assertNotEqual(
            self.server.read("/git/project/tree/main/src/lib.rs"),
            self.server.read("/git/project/tree/feature%252Flogin/src/lib.rs"),
        )
        self.assertEqual(self.server.read(f"/git/project/commit/{commit}.md"), self.server.content(f"git://project/commit/{commit}"))
        rows = dict(self.server.walk("/sqlite/shop/users/"))
        self.assertIn("/sqlite/shop/users/rows/1.json", rows)
        self.assertEqual(self.server.read("/sqlite/shop/users/rows/1.json"), self.server.content("sqlite://shop/users/rows/1"))

    def test_pages_and_databases_of_notion_are_files(self):
        files = dict(self.server.walk("/notion/"))
        page = f"/notion/pages/{NotionApi.PAGE}.md"
        rows = f"/notion/databases/{NotionApi.DATABASE}/rows.json"
        self.assertLessEqual({page, rows}, set(files), files)
        self.assertIn(b"We shall rest more.", self.server.read(page))
        self.assertIn(b"The first row", self.server.read(rows))
        self.assertEqual(self.server.read(rows), self.server.content(f"notion://databases/{NotionApi.DATABASE}/rows"))

    def test_members_of_an_archive_are_read_by_their_path(self):
        archive = "/file/handbook/odd/papers.zip"
        self.assertEqual(self.server.read(archive), (self.base / "handbook/odd/papers.zip").read_bytes())
        for member, content in [("first.md", b"# The first paper\n"), ("notes/second.txt", b"the second paper\n")]:
            self.assertEqual(self.server.read(f"{archive}/{member}"), content)
            self.assertEqual(self.server.content(f"file:///handbook/odd/papers.zip/{member}"), content)

    def test_what_is_hidden_is_absent(self):
        self.assertFalse([path for path, _ in self.server.walk("/file/") if "hidden" in path])
        for path in ["/file/handbook/hidden/", "/file/handbook/hidden/plan.md", "/file/handbook/none.md"]:
            for method, headers in [("GET", {}), ("HEAD", {}), ("PROPFIND", {"depth": "1"})]:
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    self.server.open(method, path, headers)
                self.assertEqual(refused.exception.code, 404, path)

    def test_rclone_copies_and_cannot_write(self):
        copied = self.base / "copied"
        result = self.rclone("copy", ":webdav:", str(copied), "--exclude", "/libris/**")
        self.assertEqual(result.returncode, 0, result.stderr)
        for path, _ in self.server.walk():
            if path.startswith("/libris/"):
                continue
            file = copied / urllib.parse.unquote(path[1:])
            self.assertEqual(file.read_bytes(), self.server.read(path), path)
        self.assertEqual(
            (copied / "file/upstream/far.md").read_bytes(), (self.base / "upstream/far.md").read_bytes()
        )
        listed = self.rclone("lsf", "--recursive", ":webdav:file/handbook")
        self.assertNotIn("hidden", listed.stdout)
        self.assertIn("odd/中文.md", listed.stdout)
        before = sorted(path for path, _ in self.server.walk("/file/"))
        (self.base / "new.md").write_text("new\n")
        for words in [
            ("copyto", str(self.base / "new.md"), ":webdav:file/handbook/new.md"),
            ("copyto", str(self.base / "new.md"), ":webdav:file/handbook/README.md"),
            ("deletefile", ":webdav:file/handbook/README.md"),
            ("mkdir", ":webdav:file/handbook/made"),
            ("purge", ":webdav:file/handbook/odd"),
            ("moveto", ":webdav:file/handbook/README.md", ":webdav:file/handbook/moved.md"),
        ]:
            self.assertNotEqual(self.rclone(*words).returncode, 0, words)
        self.assertEqual(before, sorted(path for path, _ in self.server.walk("/file/")))
        self.assertFalse((self.base / "handbook/new.md").exists())

    def test_cadaver_lists_and_gets_and_cannot_write(self):
        wanted = self.home / "got.md"
        script = f"""ls
cd file/handbook
ls
get README.md {wanted}
cd odd
get bytes.bin {self.home}/got.bin
cd /dav/sqlite/shop/users
ls
get schema.md {self.home}/got-schema.md
cd /dav/config/app
ls
get settings.json {self.home}/got-settings
cd /dav/git/project/tree/main/src
ls
get lib.rs {self.home}/got-lib.rs
cd /dav/file/upstream
ls
get far.md {self.home}/got-far.md
cd /dav/skill/meeting-notes
ls
get SKILL.md {self.home}/got-skill.md
cd /dav/greeting
ls
get now.txt {self.home}/got-now
cd /dav/weather
ls
get stations.json {self.home}/got-stations
cd /dav/file/handbook/odd
get papers.zip {self.home}/got-papers
cd /dav/file/handbook
put {wanted} written.md
delete README.md
mkcol made
move README.md moved.md
quit
"""
        done = self.run_program("cadaver", self.server.origin + "/dav/", given=script).stdout
        self.assertRegex(done, r"Coll:\s+file\s")
        self.assertRegex(done, r"README.md\s+\d+")
        self.assertNotIn("hidden", done)
        self.assertEqual(wanted.read_bytes(), (self.base / "handbook/README.md").read_bytes())
        self.assertEqual((self.home / "got.bin").read_bytes(), bytes(range(256)))
        self.assertEqual((self.home / "got-schema.md").read_bytes(), self.server.content("sqlite://shop/users/schema"))
        for name, content in [
            ("got-settings", b'{ "theme": "dark" }'),
            ("got-lib.rs", b"pub fn two() -> u8 { 2 }\n"),
            ("got-far.md", b"# Far away\n"),
            ("got-skill.md", (self.base / "skills/meeting-notes/SKILL.md").read_bytes()),
            ("got-now", b"good morning\n"),
            ("got-stations", Api.CONTENT),
            ("got-papers", (self.base / "handbook/odd/papers.zip").read_bytes()),
        ]:
            self.assertEqual((self.home / name).read_bytes(), content, name)
        for listed in ["schema.md", "settings.json", "lib.rs", "far.md", "SKILL.md", "now.txt", "stations.json"]:
            self.assertRegex(done, rf"(?m)^\s+{re.escape(listed)}\s", listed)
        self.assertEqual(done.count("405 Method Not Allowed"), 3, done)
        self.assertEqual(done.count("403 Forbidden"), 1, done)
        self.assertTrue((self.base / "handbook/README.md").exists())

    def test_litmus_finds_no_fault_in_what_is_read_only(self):
        with Workbench(self.server.origin) as bench:
            litmus = ["litmus", "--keep-going", bench.origin + "/dav/file/handbook/", "reader", self.server.key]
            done = self.run_program(*litmus).stdout
        results = re.findall(r"^ ?\d+\. (\w+)\.+ (pass|FAIL|SKIPPED|WARNING)", done.replace("\r", "\n"), re.MULTILINE)
        # It warns that the share has no locks.
        self.assertIn(("options", "WARNING"), results, done)
        self.assertIn("does not claim Class 2 compliance", done)
        for name in ["init", "begin", "propfind_invalid", "propfind_invalid2", "propfind_d0", "propextended", "propwformed", "finish"]:
            judged = {result for test, result in results if test == name}
            self.assertEqual(judged, {"pass"}, f"{name}\n{done}")
        # The rest writes.
        self.assertNotRegex(done, r"(?i)segmentation|timed out|could not connect", done)
        self.assertEqual(self.server.read("/file/handbook/litmus/file.txt"), b"for litmus\n")

    def test_litmus_cannot_write(self):
        # Every suite begins by making a folder, which must be refused.
        litmus = ["litmus", "--keep-going", self.server.origin + "/dav/file/handbook/", "reader", self.server.key]
        done = self.run_program(*litmus).stdout
        self.assertRegex(done, r"init\.+ pass", done)
        self.assertRegex(done, r"begin\.+ FAIL \(.*403", done)


class Wide(unittest.TestCase):
    """A folder of 100,000 files."""

    COUNT = 100_000

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        base = pathlib.Path(cls.scratch.name)
        (base / "wide").mkdir()
        for number in range(cls.COUNT):
            (base / f"wide/note-{number:06}.txt").touch()
        # The index of the search would be built at the same time.
        cls.server = Server(base, '[search]\nenabled = false\n[[files]]\npath = "wide"\n')

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.scratch.cleanup()

    def connect(self):
        host, port = self.server.origin.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=120)
        connection.sendall(
            f"PROPFIND /dav/file/wide/ HTTP/1.1\r\nhost: {host}:{port}\r\ndepth: 1\r\nconnection: close\r\n"
            f"authorization: Basic {self.server.credentials}\r\ncontent-length: 0\r\n\r\n".encode()
        )
        return connection

    def list_folder(self):
        """The size of the response, and how many entries it has."""
        response = http.client.HTTPResponse(self.connect())
        response.begin()
        self.assertEqual(response.status, 207)
        size = count = 0
        last = b""
        while piece := response.read(1 << 16):
            size += len(piece)
            count += (last[-20:] + piece).count(b"</D:response>") - last[-20:].count(b"</D:response>")
            last = piece if len(piece) >= 20 else last + piece
        self.assertTrue(last.endswith(b"</D:multistatus>\n"))
        return size, count

    def test_a_large_folder_is_listed_in_little_memory(self):
        # Whoever lists the folder fills the caches of the source, which have budgets of their own.
        self.list_folder()
        before = self.server.memory("VmRSS")
        # Clients that read nothing make the server wait, not buffer.
        waiting = [self.connect() for _ in range(8)]
        for connection in waiting:
            self.assertTrue(connection.recv(1).startswith(b"H"))
        size, count = self.list_folder()
        self.assertEqual(count, self.COUNT + 1)
        for connection in waiting:
            connection.close()
        growth = self.server.memory("VmHWM") - before
        print(f"{self.COUNT} entries, {size >> 20} MiB of XML, 8 clients that do not read: {growth >> 10} MiB more")
        self.assertLess(growth, MAX_GROWTH)


if __name__ == "__main__":
    unittest.main(verbosity=2)
