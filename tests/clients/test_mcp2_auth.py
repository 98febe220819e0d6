"""The Python SDK of both eras and its OAuth provider: a whole authorization flow, and more scopes on demand."""

import re
import socket
import subprocess
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import parse_qs, urlparse

import anyio
import httpx2
import pytest
from issuer import running_issuer
from library import BIN, LEGACY, MODERN
from mcp import Client, MCPError
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientMetadata

GUIDE = "file:///docs/guide.md"
SECRET = "file:///docs/secret.md"
MODES = {"legacy": LEGACY, "auto": MODERN}


class MemoryStorage:
    def __init__(self):
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serve(home, issuer, rules=""):
    """Serves a folder to whom the issuer vouches for, and gives the URL."""
    folder = home / "docs"
    folder.mkdir()
    (folder / "guide.md").write_text("# Guide\n")
    (folder / "secret.md").write_text("# Secret\n")
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    config = home / "libris.toml"
    config.write_text(
        f"""
[auth]
resource = "{url}"
scopes = ["docs:read"]

[[auth.issuer]]
issuer = "{issuer.url}"
jwks = "{issuer.url}jwks"

[[files]]
path = "{folder}"
{rules}
"""
    )
    command = [BIN, "serve", "--config", config, "--http", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            for line in server.stderr:
                if re.search(r"listening on http:", line):
                    yield url
                    break
            else:
                raise RuntimeError("libris did not start")
        finally:
            server.terminate()


@asynccontextmanager
async def connected(url, mode, storage):
    """A client that asks its user, who agrees, in a browser, which this is."""
    redirects = []

    async def browse(authorization_url):
        async with httpx2.AsyncClient() as browser:
            response = await browser.get(authorization_url)
        redirects.append(parse_qs(urlparse(response.headers["location"]).query))

    async def callback():
        answer = redirects.pop()
        return AuthorizationCodeResult(
            code=answer["code"][0], state=answer["state"][0], iss=answer.get("iss", [None])[0]
        )

    metadata = OAuthClientMetadata(client_name="test", redirect_uris=["http://127.0.0.1:1/callback"])
    provider = OAuthClientProvider(url, metadata, storage, browse, callback)
    async with (
        create_mcp_http_client(auth=provider) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def text_of(client, uri):
    return (await client.read_resource(uri)).contents[0].text


@pytest.mark.parametrize("mode", MODES)
def test_a_client_finds_the_issuer_and_gets_in(tmp_path, mode):
    async def visit(url, issuer):
        storage = MemoryStorage()
        async with connected(url, mode, storage) as client:
            assert client.protocol_version == MODES[mode]
            assert await text_of(client, GUIDE) == "# Guide\n"
        # What the challenge named was requested, for this server.
        assert issuer.asked == [(["docs:read"], url)]
        async with connected(url, mode, storage) as client:
            assert await text_of(client, GUIDE) == "# Guide\n"
        assert len(issuer.asked) == 1, "the token is used again"

    with running_issuer() as issuer, serve(tmp_path, issuer) as url:
        anyio.run(visit, url, issuer)


@pytest.mark.parametrize("mode", MODES)
def test_a_token_that_expires_is_refreshed(tmp_path, mode):
    async def visit(url, issuer):
        storage = MemoryStorage()
        # The client takes it for expired at once, and the server accepts it for as long as clocks may differ.
        issuer.lifetime = 1
        async with connected(url, mode, storage) as client:
            first = storage.tokens.access_token
            issuer.lifetime = 3600
            await anyio.sleep(2)
            assert await text_of(client, GUIDE) == "# Guide\n"
            assert storage.tokens.access_token != first
        assert len(issuer.asked) == 1

    with running_issuer() as issuer, serve(tmp_path, issuer) as url:
        anyio.run(visit, url, issuer)


@pytest.mark.parametrize("mode", MODES)
def test_a_client_asks_for_a_scope_that_it_was_not_granted(tmp_path, mode):
    async def visit(url, issuer):
        issuer.withheld = {"docs:read"}
        storage = MemoryStorage()

        original = issuer.authorize

        async def authorize(client, params):
            # The user agrees when the client asks again.
            if len(issuer.asked) == 1:
                issuer.withheld = set()
            return await original(client, params)

        issuer.authorize = authorize
        if mode == "legacy":
            # This client answers one challenge for each request, and `initialize` had that for the missing token.
            with pytest.raises((MCPError, ExceptionGroup)):
                async with connected(url, mode, storage):
                    pass
            assert storage.tokens.scope == ""
        async with connected(url, mode, storage) as client:
            assert await text_of(client, GUIDE) == "# Guide\n"
        assert issuer.asked == [(["docs:read"], url)] * 2

    with running_issuer() as issuer, serve(tmp_path, issuer) as url:
        anyio.run(visit, url, issuer)


RULES = """
[[rule]]
uri = "file:///docs/secret.md"
operation = "read"
require = "docs:secret"

[[rule]]
user = "*"
action = "allow"
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_client_asks_for_the_scope_that_a_rule_requires(tmp_path, mode):
    async def visit(url, issuer):
        async with connected(url, mode, MemoryStorage()) as client:
            assert await text_of(client, GUIDE) == "# Guide\n"
            assert issuer.asked == [(["docs:read"], url)]
            assert await text_of(client, SECRET) == "# Secret\n"
            # The client keeps what it had.
            assert issuer.asked[1:] == [(["docs:read", "docs:secret"], url)]
            assert await text_of(client, GUIDE) == "# Guide\n"
        assert len(issuer.asked) == 2

    with running_issuer() as issuer, serve(tmp_path, issuer, RULES) as url:
        anyio.run(visit, url, issuer)


def test_a_token_for_another_server_is_refused(tmp_path):
    async def visit(url, issuer):
        storage = MemoryStorage()
        original = issuer.tokens
        issuer.tokens = lambda client_id, scopes, resource: original(client_id, scopes, "http://127.0.0.1:1/mcp")
        with pytest.raises((MCPError, ExceptionGroup, httpx2.HTTPError)):
            async with connected(url, "auto", storage) as client:
                await text_of(client, GUIDE)
        headers = {"authorization": f"Bearer {storage.tokens.access_token}"}
        async with httpx2.AsyncClient() as http:
            response = await http.post(url, headers=headers, json={})
        assert response.status_code == 401
        assert "the token was issued for another resource" in response.headers["www-authenticate"]

    with running_issuer() as issuer, serve(tmp_path, issuer) as url:
        anyio.run(visit, url, issuer)
