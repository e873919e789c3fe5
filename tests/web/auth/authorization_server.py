"""A real authorization server (oidc-provider, in a child process). It issues tokens and signs any a test asks for."""

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2

from coretools.web.common.config import JwtSection
from tests.clients.conftest import without

NODE_FOLDER = Path(__file__).parents[1] / "node"


class AuthorizationServer:
    """Two issuers: `first`, which the server under test trusts and whose name has a path, and `other`, not trusted."""

    def __init__(self) -> None:
        program = NODE_FOLDER / "node_modules" / ".bin" / "node"
        if not program.exists():
            without("npm package oidc-provider: run `npm ci` in tests/web/node")
        self._process = subprocess.Popen(
            [program, "authorization_server.js"],
            cwd=NODE_FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.about = self._answer()
        self.resource: str = self.about["resource"]
        self.secret: str = self.about["secret"]
        self.issuer: str = self.about["first"]["issuer"]

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.kill()
        self._process.wait()

    def wish(self, wish: str, *, server: str = "first", **more: Any) -> dict[str, Any]:
        """Make the server misbehave, or reconfigure it as its operator would."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"server": server, "wish": wish, **more}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def rotate(self) -> None:
        """Replace the signing keys."""
        self.about["first"] = self.wish("rotate")

    def requests(self) -> list[str]:
        """Return the paths requested since the last call."""
        seen: list[str] = self.wish("seen")["requests"]
        return seen

    def kid(self, algorithm: str = "RS256", *, server: str = "first") -> str:
        return next(kid for kid in self.about[server]["kids"] if kid.endswith(algorithm))

    def signed(self, header: dict[str, Any], claims: dict[str, Any], *, server: str = "first", **more: Any) -> str:
        """Return a token with any header and claims, signed with the server's own key."""
        header = {"alg": "RS256", "typ": "at+jwt", "kid": self.kid(server=server), **header}
        header = {name: value for name, value in header.items() if value is not None}
        token: str = self.wish("sign", server=server, header=header, payload=json.dumps(claims), **more)["token"]
        return token

    async def token(self, client: str = "ci", *, server: str = "first", resource: str = "", scope: str = "") -> str:
        """Return a token as a program gets it: client credentials (RFC 6749, 4.4) for a resource (RFC 8707)."""
        form = {"grant_type": "client_credentials", "resource": resource or self.resource}
        issuer = self.about[server]["issuer"]
        async with httpx2.AsyncClient(trust_env=False, verify=False) as http:
            answer = await http.post(
                f"{issuer}/token", data={**form, **({"scope": scope} if scope else {})}, auth=(client, self.secret)
            )
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["access_token"]
        return token

    def section(self, **more: Any) -> JwtSection:
        """Return the configuration that trusts the first issuer."""
        return JwtSection(issuer=self.issuer, **more)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # oidc-provider also writes its warnings about the set-up there
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise AssertionError("the authorization server ended")
