"""`coretools mcp login` and `logout`, from a pipe and at a terminal (docs/specs/client-authorization.md)."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.checkout import TREE
from tests.cli.terminal import terminal
from tests.cli.test_mcp import STARTS, Captured, configured, home, typed
from tests.client.authorization import SECRET, AuthorizationServer, ResourceServer, browse, protected, stored
from tests.client.peers import environment
from tests.starting import warm
from tests.variables import variables
from tests.web.certificates import write_certificate

__all__ = ["home"]

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/authorize\?\S+")


class Peers:
    """The servers, run beside a command that blocks."""

    def __init__(self, portal: BlockingPortal, resource: ResourceServer, authorization: AuthorizationServer) -> None:
        self.portal = portal
        self.resource = resource
        self.authorization = authorization

    def browse(self, text: str) -> str:
        """Open the address in a text."""
        found = ADDRESS.search(text)
        assert found, text
        return self.portal.call(browse, found[0]).text

    def log_in(self, home: Path, *prefix: str) -> tuple[int, str, str]:
        """Log in from a pipe; return the exit code and both outputs."""
        command = [*prefix, sys.executable, *STARTS, "mcp", "login", "a"]
        child = warm.Popen(
            command,
            cwd=home,
            env={**os.environ, **environment(home), "PYTHONPATH": str(TREE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stderr is not None
        lines = ""
        while not ADDRESS.search(lines):
            line = child.stderr.readline()
            assert line, lines
            lines += line
        assert "You can close this page" in self.browse(lines)
        out, err = child.communicate(timeout=60)
        return child.returncode, out, lines + err


@pytest.fixture(scope="module", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One certificate authority instead of 140, which each client of HTTP loads: nothing here is encrypted."""
    authority = write_certificate(tmp_path_factory.mktemp("authority")).path
    with variables(SSL_CERT_FILE=str(authority)):
        yield


@pytest.fixture
def peers(home: Path) -> Iterator[Peers]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(protected()) as (resource, authorization):
        configured(home, {"a": {"type": "http", "url": resource.url}})
        yield Peers(portal, resource, authorization)


def state(capsys: Captured) -> tuple[str, str]:
    capsys.readouterr()
    assert typed("list", "--output", "json") == 0
    [row] = json.loads(capsys.readouterr().out)["servers"]
    return row["state"], row["error"] or ""


def test_a_login_from_a_pipe_prints_the_address_and_logout_forgets_the_tokens(
    home: Path, peers: Peers, capsys: Captured
) -> None:
    """client-authorization-2, client-authorization-3, client-authorization-6, client-authorization-12: also again."""
    assert typed("ping", "a") == 67
    assert state(capsys) == ("needs login", "server 'a': needs a login; run `coretools mcp login a`")
    code, out, err = peers.log_in(home)
    assert (code, out) == (0, "logged in to a\n")
    assert f"server 'a' wants a login at {peers.authorization.issuer}\n" in err
    assert re.search("access-token|refresh-token", out + err) is None
    assert state(capsys) == ("ready", "")
    assert typed("call", "a", "echo", "text=hello", "--yes") == 0
    peers.resource.wants_scope = "write"
    assert typed("call", "a", "echo", "text=hello", "--yes") == 67
    printed = capsys.readouterr()
    assert "call echo: needs a login with the scope 'write'; run `coretools mcp login a`" in printed.err
    assert peers.log_in(home)[:2] == (0, "logged in to a\n")
    assert typed("call", "a", "echo", "text=hello", "--yes") == 0
    peers.authorization.valid.clear()  # revoked by the server
    peers.authorization.refresh_tokens.clear()
    assert peers.log_in(home)[:2] == (0, "logged in to a\n")
    assert typed("call", "a", "echo", "text=hello", "--yes") == 0
    assert peers.authorization.refresh_tokens
    assert typed("logout", "a") == 0
    assert stored(home) == []
    assert peers.authorization.refresh_tokens == {}
    assert typed("logout", "a") == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["logged out of a", "not logged in to a"]
    assert state(capsys)[0] == "needs login"
    capsys.readouterr()
    assert typed("ping", "--url", peers.resource.url) == 67
    hint = f"needs a login; run `coretools mcp login --url {peers.resource.url}`"
    assert hint in capsys.readouterr().out
    peers.resource.is_open, peers.resource.wants_scope = True, ""
    assert typed("tools", "--url", peers.resource.url, "--signatures") == 0
    assert f"{peers.resource.url.split('/')[2]}: echo(text: string)" in capsys.readouterr().out
    assert typed("call", "a", "echo", "text=hello", "--yes") == 67
    assert peers.log_in(home)[:2] == (0, "logged in to a\n")
    assert typed("call", "a", "echo", "text=hello", "--yes") == 0


def test_a_browser_is_opened_only_after_a_yes(home: Path, peers: Peers) -> None:
    """client-authorization-2: after a no the address is printed; an answer of another login ends with 67."""
    opened = home / "opened"
    browser = home / "browser"
    browser.write_text(
        f"#!{sys.executable} -IS\nimport sys, urllib.request\nopen({str(opened)!r}, 'a').write('x')\n"
        "urllib.request.urlopen(sys.argv[1]).read()\n"
    )
    browser.chmod(0o755)
    variables = {"HOME": str(home), "BROWSER": f"{browser} %s"}
    with terminal(*STARTS, "mcp", "login", "a", cwd=home, environment=variables) as person:
        person.wait_for("Open it in the browser?")
        person.type("n\n")
        peers.authorization.redirected = {"error": "access_denied"}
        assert "The login was refused" in peers.browse(person.wait_for("response_type") + person.wait_for("\n"))
        assert person.end() == 67
        assert "the login was refused: access_denied" in person.output
    assert not opened.exists()
    peers.authorization.redirected = {}
    with terminal(*STARTS, "mcp", "login", "a", cwd=home, environment=variables) as person:
        person.wait_for("Open it in the browser?")
        person.type("y\n")
        person.wait_for("logged in to a")
        assert person.end() == 0
    assert opened.read_text() == "x"


def test_tokens_that_can_not_be_kept_are_an_error_of_the_login(home: Path, peers: Peers) -> None:
    """client-authorization-3: as on a full disk, no file may get any content here."""
    code, out, err = peers.log_in(home, "sh", "-c", 'ulimit -f 0; exec "$0" "$@"')
    assert (code, out) == (74, "")
    assert "cannot be written: File too large" in err
    assert stored(home) == []


CAN_NOT_LOG_IN: list[tuple[dict[str, object], str, int, str]] = [
    ({"headers": {"Authorization": "Bearer wrong-token"}}, "ping a", 67, "refuses the credentials (HTTP 401)"),
    ({"headers": {"Authorization": "Bearer wrong-token"}}, "login a", 78, "gives it an Authorization header"),
    ({"oauth": {"enabled": False}}, "login a", 78, "or switches `oauth` off"),
    ({"oauth": {"grant": "client_credentials"}}, "ping a", 78, "client_credentials needs `clientId`"),
    ({"oauth": {"clientId": 5}}, "ping a", 78, "oauth.clientId: must be text"),
    (
        {"oauth": {"grant": "client_credentials", "clientId": "ci", "clientSecret": SECRET}},
        "login a",
        78,
        "it needs no login",
    ),
    (
        {"oauth": {"grant": "client_credentials", "clientId": "ci", "privateKey": SECRET}},
        "ping a",
        78,
        "oauth.privateKey: is no private key in PEM",
    ),
    ({"oauth": {"redirectUri": "https://attacker.example/"}}, "ping a", 78, "oauth.redirectUri: must be http://"),
    ({"type": "stdio", "command": "true"}, "login a", 64, "is a local program"),
    ({}, "login a --connect-timeout 0.3", 124, "within 0.3 s"),
    ({}, "login b", 64, "no server 'b' is configured"),
    ({}, "login", 64, "wrong number of words"),
]


def test_what_can_not_log_in_says_why(home: Path, peers: Peers, capsys: Captured) -> None:
    """client-authorization-12: without a secret."""
    for entry, words, code, message in CAN_NOT_LOG_IN:
        configured(home, {"a": {"type": "http", "url": peers.resource.url} | entry})
        assert typed(*words.split()) == code, message
        printed = capsys.readouterr()
        assert message in printed.err + printed.out
        assert SECRET not in printed.err + printed.out


def test_the_approval_of_an_entry_shows_where_its_credentials_go(home: Path, peers: Peers, capsys: Captured) -> None:
    """client-14, client-authorization-10: an entry of the project gets no token and sends no secret before it."""
    oauth = {
        "grant": "client_credentials",
        "clientId": "ci",
        "clientSecret": "${CI_SECRET:-" + SECRET + "}",
        "issuer": peers.authorization.issuer,
    }
    configured(
        home.parent, {"theirs": {"type": "http", "url": peers.resource.url, "oauth": oauth}}, "project/.mcp.json"
    )
    assert typed("ping", "theirs") == 77
    assert (peers.resource.seen, peers.authorization.seen) == ([], [])
    assert typed("trust", "theirs", "--yes") == 0
    shown = capsys.readouterr().err
    assert f"with a login at {peers.authorization.issuer}" in shown
    assert "CI_SECRET" in shown
    assert SECRET not in shown
    assert typed("ping", "theirs") == 0
