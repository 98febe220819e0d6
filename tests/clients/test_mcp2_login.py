"""`libris login` at an authorization server of the Python SDK: tokens are obtained, used, renewed and removed."""

import http.server
import os
import re
import stat
import subprocess
import sys
import threading

import pytest
from issuer import running_issuer
from library import BIN
from test_mcp2_auth import RULES, serve

GUIDE = "file:///docs/guide.md"
# A browser whose user agrees to everything: it follows the redirect back to the program.
BROWSER = f"""#!{sys.executable}
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode(), file=open(__file__ + ".page", "w"))
"""


@pytest.fixture
def libris(tmp_path):
    """Runs a command of a user with an empty home folder."""
    home = tmp_path / "home"
    home.mkdir()
    browser = home / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o700)
    environment = {**os.environ, "HOME": str(home), "BROWSER": str(browser)}
    environment.pop("XDG_DATA_HOME", None)

    def run(*arguments, **more):
        command = [BIN, *map(str, arguments)]
        return subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, timeout=60)

    run.home = home
    return run


def tokens(libris):
    return sorted((libris.home / ".local/share/libris/tokens").glob("*.json"))


def test_a_login_opens_the_server_to_every_command(tmp_path, libris):
    with running_issuer() as issuer, serve(tmp_path, issuer) as url:
        refused = libris("ls", url)
        assert refused.returncode == 4 and "libris login" in refused.stderr
        none = libris("login")
        assert (none.returncode, none.stdout, none.stderr) == (0, "", "no access tokens are stored\n")
        login = libris("login", url)
        assert (login.returncode, login.stdout) == (0, ""), login.stderr
        assert "log in at http://127.0.0.1" in login.stderr and "logged in" in login.stderr
        assert "You can close this page" in (libris.home / "browser.page").read_text()
        # What the challenge named was requested, for this server.
        assert issuer.asked == [(["docs:read"], url)]
        [file] = tokens(libris)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        listed = libris("ls", url)
        assert GUIDE in listed.stdout, listed.stderr
        assert libris("read", GUIDE, url).stdout == "# Guide\n"
        assert libris("login").stdout == f"{url}\n"
        assert len(issuer.asked) == 1, "nobody was asked again"
        # It is not sent to another path of the same server.
        assert libris("ls", url + "/other").returncode != 0
        assert libris("logout", url).returncode == 0
        assert libris("logout", url).returncode == 1
        assert not list((libris.home / ".local/share/libris/tokens").iterdir()), "no lock file remains"
        assert libris("ls", url).returncode == 4
        assert not tokens(libris)


def test_a_token_that_expires_is_renewed(tmp_path, libris):
    with running_issuer() as issuer, serve(tmp_path, issuer) as url:
        issuer.lifetime = 1
        assert libris("login", url).returncode == 0
        [file] = tokens(libris)
        first = file.read_text()
        issuer.lifetime = 3600
        assert libris("read", GUIDE, url).stdout == "# Guide\n"
        second = file.read_text()
        assert first != second
        # The new one is used until it expires.
        assert libris("read", GUIDE, url).stdout == "# Guide\n"
        assert file.read_text() == second
        assert len(issuer.asked) == 1
        # A token that can no longer be renewed.
        issuer.refreshes.clear()
        file.write_text(re.sub(r'"token_received_at":\d+', '"token_received_at":1', second))
        lost = libris("read", GUIDE, url)
        assert lost.returncode == 4 and "libris login" in lost.stderr, lost.stderr


def test_a_gateway_uses_the_stored_token(tmp_path, libris):
    with running_issuer() as issuer, serve(tmp_path, issuer) as url:
        assert libris("login", url).returncode == 0
        config = libris.home / "gateway.toml"
        config.write_text(f'[[mcp]]\nname = "docs"\nurl = "{url}"\nuris = "prefixed"\n')
        read = libris("read", "docs+" + GUIDE, "--config", config)
        assert read.stdout == "# Guide\n", read.stderr


def test_a_scope_can_be_asked_for(tmp_path, libris):
    with running_issuer() as issuer, serve(tmp_path, issuer, RULES) as url:
        secret = "file:///docs/secret.md"
        assert libris("login", url).returncode == 0
        refused = libris("read", secret, url)
        assert refused.returncode != 0 and "docs:secret" in refused.stderr, refused.stderr
        assert libris("login", url, "--scope", "docs:read", "--scope", "docs:secret").returncode == 0
        assert libris("read", secret, url).stdout == "# Secret\n"


def test_a_login_that_cannot_work_says_so(tmp_path, libris):
    with running_issuer() as issuer, serve(tmp_path, issuer) as url:
        for wrong, reason in [("ftp://a.example/mcp", "https://"), ("http://a.example/mcp", "unencrypted")]:
            refused = libris("login", wrong)
            assert refused.returncode != 0 and reason in refused.stderr, refused.stderr
        # A server without authorization, and none at all.
        with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as plain:
            threading.Thread(target=plain.serve_forever).start()
            unknown = libris("login", f"http://127.0.0.1:{plain.server_port}/mcp")
            plain.shutdown()
        assert unknown.returncode == 4 and "does not say where to log in" in unknown.stderr, unknown.stderr
        nobody = libris("login", f"http://127.0.0.1:{plain.server_port}/mcp")
        assert nobody.returncode == 4, nobody.stderr
        assert not tokens(libris)


def test_only_the_answer_of_the_authorization_server_ends_a_login(tmp_path, libris):
    with running_issuer() as issuer, serve(tmp_path, issuer) as url:
        # A browser with another page that guesses the port.
        page = libris.home / "browser"
        page.write_text(
            BROWSER.replace(
                "print(",
                """import urllib.parse as parse
back = parse.parse_qs(parse.urlparse(sys.argv[1]).query)["redirect_uri"][0]
for query in ["", "?code=forged&state=forged", "?error=access_denied&state=forged"]:
    try:
        urllib.request.urlopen(back + query)
        sys.exit("a forged answer was accepted")
    except urllib.error.HTTPError as error:
        assert error.code == 404
print(""",
            )
        )
        login = libris("login", url)
        assert login.returncode == 0, login.stderr
        assert len(tokens(libris)) == 1
