"""Uses a built binary of another platform as a client does: over stdio, over HTTP, and with child processes.

    LIBRIS_RUN='qemu-aarch64 -L /usr/aarch64-linux-gnu' LIBRIS_BIN=target/…/libris python3 tests/platforms/visit.py

`LIBRIS_RUN` is the command that runs programs of the platform; empty if this machine runs them itself.
"""

import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

BINARY = str(Path(os.environ["LIBRIS_BIN"]).resolve())
COMMAND = [*shlex.split(os.environ.get("LIBRIS_RUN", "")), BINARY]
IS_WINDOWS = BINARY.endswith(".exe")
IS_EMULATED = len(COMMAND) > 1 and not IS_WINDOWS
# Emulated programs are slow to start.
DEADLINE = 60
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "visit", "version": "1"}}


def request(method, params, number=1):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Stdio:
    """A server over stdio."""

    def __init__(self, *arguments, cwd):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([*COMMAND, "serve", *arguments, "--stdio"], cwd=cwd, **pipes)

    def ask(self, method, params):
        self.process.stdin.write(json.dumps(request(method, params)).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(DEADLINE)
        self.process.stdout.close()
        return code


def run(*arguments, cwd):
    done = subprocess.run([*COMMAND, *arguments], cwd=cwd, capture_output=True, timeout=DEADLINE, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout.decode().replace("\r\n", "\n"), done.stderr.decode()


class Visit(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="libris-visit-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        (self.folder / "docs/more").mkdir(parents=True)
        (self.folder / "docs/start.md").write_text("# Start\n")
        (self.folder / "docs/more/page.html").write_text("<html><body><h1>Hello</h1><p>from <b>HTML</b></p></body></html>")

    def check_resources(self, ask):
        """Lists and reads the folder through a function that sends a request."""
        listed = ask("resources/list", {})["result"]["resources"]
        names = [resource["uri"] for resource in listed if resource["uri"].startswith("file:")]
        self.assertEqual(names, [f"file:///docs/{path}" for path in ("", "more/", "more/page.html", "start.md")])
        read = ask("resources/read", {"uri": "file:///docs/start.md"})
        self.assertEqual(read["result"]["contents"][0]["text"], "# Start\n")
        for path in ("../secret", "%2e%2e/secret", "no-such-file", "C:%5Cwindows%5Cwin.ini", "NUL", "start.md::$DATA"):
            answer = ask("resources/read", {"uri": f"file:///docs/{path}"})
            self.assertIn(answer["error"]["code"], (-32002, -32602), path)

    def test_stdio(self):
        server = Stdio("docs", cwd=self.folder)
        self.assertEqual(server.ask("initialize", HELLO)["result"]["serverInfo"]["name"], "libris")
        self.check_resources(server.ask)
        self.assertEqual(server.close(), 0)

    def serve_http(self):
        """A server over HTTP: its process and its URL."""
        arguments = [*COMMAND, "serve", "docs", "--http", "127.0.0.1:0"]
        # Ctrl-Break goes to a whole group, and must not end this program.
        group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if os.name == "nt" else {}
        server = subprocess.Popen(arguments, cwd=self.folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **group)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        lines = (line.decode().strip() for line in server.stderr)
        return server, next(line.removeprefix("listening on ") for line in lines if line.startswith("listening on "))

    def post(self, url, method, params):
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
        }
        if "uri" in params:
            headers["mcp-name"] = params["uri"]
        body = json.dumps(request(method, {**params, "_meta": META})).encode()
        return urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=DEADLINE)

    def test_http(self):
        _, url = self.serve_http()

        def ask(method, params):
            try:
                with self.post(url, method, params) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                return json.load(error)

        self.check_resources(ask)

    def test_shutdown(self):
        """Ctrl-Break, or Ctrl-C elsewhere: a listen stream ends with its result, and the server with success."""
        server, url = self.serve_http()
        wanted = {"notifications": {"resourceSubscriptions": ["file:///docs/start.md"]}}
        with self.post(url, "subscriptions/listen", wanted) as stream:
            lines = (line.decode().strip() for line in stream)
            messages = (json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:"))
            self.assertEqual(next(messages)["method"], "notifications/subscriptions/acknowledged")
            # Wine makes Ctrl-C of SIGINT.
            server.send_signal(signal.CTRL_BREAK_EVENT if os.name == "nt" else signal.SIGINT)
            rest = list(messages)
        self.assertEqual([message.get("id") for message in rest], [1], rest)
        self.assertIn("result", rest[0])
        self.assertEqual(server.wait(DEADLINE), 0)

    def test_commands(self):
        """The output of a command, one that fails, and one that is killed with its child when its time is over."""
        shell = ["cmd", "/c"] if IS_WINDOWS else ["sh", "-c"]
        slow = "ping -n 600 127.0.0.1" if IS_WINDOWS else "sleep 600 & wait"
        commands = {"fast": "echo {{word}}", "failing": "exit 3", "slow": slow}
        config = "".join(
            f'[[command]]\nuri = "run://{name}{"/{word}" if name == "fast" else ""}"\n'
            f"run = {json.dumps([*shell, text])}\n" + ('timeout = "2s"\n' if name == "slow" else "") + "\n"
            for name, text in commands.items()
        )
        (self.folder / "libris.toml").write_text(config)
        code, out, errors = run("read", "run://fast/hello", "libris.toml", cwd=self.folder)
        self.assertEqual((code, out.strip()), (0, "hello"), errors)
        code, _, errors = run("read", "run://failing", "libris.toml", cwd=self.folder)
        self.assertNotEqual(code, 0)
        self.assertIn("exit code 3", errors)
        began = time.monotonic()
        code, _, errors = run("read", "run://slow", "libris.toml", cwd=self.folder)
        self.assertNotEqual(code, 0)
        self.assertLess(time.monotonic() - began, 30, errors)

    def test_another_server(self):
        """A server as a child process: `libris ls -- libris serve docs --stdio`."""
        program = COMMAND if IS_EMULATED else [BINARY]
        code, out, errors = run("ls", "--", *program, "serve", "docs", "--stdio", cwd=self.folder)
        self.assertEqual(code, 0, errors)
        self.assertIn("start.md", out)

    @unittest.skipIf(IS_EMULATED, "the emulated program cannot start itself")
    def test_documents(self):
        """The text of a document, which a child process extracts."""
        code, out, errors = run("read", "file:///docs/more/page.html?as=text", "docs", cwd=self.folder)
        self.assertEqual(code, 0, errors)
        self.assertIn("# Hello", out)

    def test_start_up(self):
        """The time from the start of the process to its first answer."""
        times = []
        for _ in range(20):
            began = time.perf_counter()
            server = Stdio("docs", cwd=self.folder)
            server.ask("initialize", HELLO)
            times.append((time.perf_counter() - began) * 1000)
            server.close()
        size = Path(BINARY).stat().st_size / 1e6
        print(f"{BINARY}: {size:.1f} MB, first answer after {statistics.median(times):.1f} ms (median of 20, {min(times):.1f} to {max(times):.1f})")


if __name__ == "__main__":
    unittest.main()
