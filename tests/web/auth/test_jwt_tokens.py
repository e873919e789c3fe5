"""Tokens of a real authorization server, and forged ones (docs/specs/authentication.md)."""

import logging
import time
import warnings
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.warnings import InsecureKeyLengthWarning
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from coretools.config.commit_author import Author
from coretools.errors import Unreachable
from coretools.web.auth.issuer_keys import AGAIN_SECONDS, FRESH_SECONDS, STALE_SECONDS, usable_key
from coretools.web.auth.issuer_metadata import MOST_BYTES, KeysUnavailable, fetch_json, find_jwks_url, metadata_urls
from coretools.web.auth.jwt_tokens import JwtVerifier
from coretools.web.common.config import JwtSection
from coretools.web.common.principals import NotEntitled, Principal
from tests.protocol.http_peer import listening
from tests.web.auth.authorization_server import AuthorizationServer

ROLES = ("default", "dev")
SECONDS = 50


class Clock:
    """Time that passes when a test advances it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def tokens_of(server: AuthorizationServer, clock: Clock | None = None, **section: Any) -> JwtVerifier:
    return JwtVerifier(server.section(**section), audience=server.resource, roles=ROLES, clock=clock or Clock())


async def claims_of(server: AuthorizationServer, client: str = "ci") -> dict[str, Any]:
    """Return the claims of a genuine token."""
    claims: dict[str, Any] = jwt.decode(await server.token(client), options={"verify_signature": False})
    return claims


@pytest.mark.parametrize("client", ["ci", "curve"], ids=["RS256", "ES256"])
async def test_a_token_of_the_issuer_is_accepted(authorization_server: AuthorizationServer, client: str) -> None:
    """auth-10, auth-11: keys are found by discovery; issuer and subject make the principal; it ends with the leeway."""
    token = await authorization_server.token(client)
    principal = await tokens_of(authorization_server, leeway_seconds=7).verify(token)
    expires_at = jwt.decode(token, options={"verify_signature": False})["exp"] + 7
    name = f"{authorization_server.issuer}#sub:{client}"
    assert principal == Principal(name=name, role="default", expires_at=expires_at)


async def test_a_client_is_named_apart_from_a_person_of_the_same_name(
    authorization_server: AuthorizationServer,
) -> None:
    """auth-11: without a subject the client id names it; an empty or unsafe name is refused."""
    tokens, claims = tokens_of(authorization_server), await claims_of(authorization_server)

    async def name(**more: Any) -> str | None:
        changed = {key: value for key, value in {**claims, **more}.items() if value is not None}
        found = await tokens.verify(authorization_server.signed({}, changed))
        return found and found.name.removeprefix(authorization_server.issuer)

    assert await name(sub=None) == "#client:ci"
    assert await name(sub="client:ci") == "#sub:client:ci"
    assert await name(sub=None, client_id=None) is None
    assert await name(sub="") is None
    assert await name(sub="a\nb") is None
    assert await name(sub="x" * 300) is None
    assert await name(sub=7) is None


async def test_claims_say_as_whom_the_owner_commits(
    authorization_server: AuthorizationServer, caplog: pytest.LogCaptureFixture
) -> None:
    """auth-31: only if the operator names the claims; an unusable value means the role's author, and is not logged."""
    claims = {**await claims_of(authorization_server), "name": "Ada", "email": "ada@example.com"}

    async def author(*named: str, **more: Any) -> Author | None:
        section = dict(zip(("name_claim", "email_claim"), named, strict=False))
        token = authorization_server.signed({}, {**claims, **more})
        found = await tokens_of(authorization_server, **section).verify(token)
        assert found is not None
        return found.author

    assert await author() is None
    assert await author("name", "email") == Author("Ada", "ada@example.com")
    assert caplog.text.count("commits as the role does") == 0
    for bad in ({"name": "Ada\nparent 0"}, {"name": "<x>"}, {"email": ["a@x"]}, {"email": ""}):
        assert await author("name", "email", **bad) is None
    assert await author("nickname", "email") is None
    assert caplog.text.count("commits as the role does") == 5
    assert "parent 0" not in caplog.text
    with pytest.raises(ValidationError, match="go together"):
        authorization_server.section(name_claim="name")


LONG_AGO, FAR_AHEAD = 1_000_000_000, 4_102_444_800


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "https://elsewhere.example.com/mcp"},
        {"aud": "http://127.0.0.1:8765/mcp/"},
        {"aud": None},
        {"aud": []},
        {"iss": "https://elsewhere.example.com"},
        {"iss": None},
        {"exp": LONG_AGO},
        {"exp": None},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"exp": "tomorrow"},
        {"nbf": FAR_AHEAD},
        {"iat": FAR_AHEAD},
        {"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}},
        {"nonce": "n"},
        {"at_hash": "MTIzNDU2Nzg5MDEyMzQ1Ng"},
    ],
    ids=lambda changed: " ".join(f"{name} {value}" for name, value in changed.items()),
)
async def test_claims_for_another_server_are_refused_whoever_signed_them(
    authorization_server: AuthorizationServer, changed: dict[str, Any]
) -> None:
    """auth-10, auth-12: a genuine token with one claim changed, signed with the issuer's own key."""
    tokens, claims = tokens_of(authorization_server), await claims_of(authorization_server)
    assert await tokens.verify(authorization_server.signed({}, claims)) is not None
    claims = {name: value for name, value in {**claims, **changed}.items() if value is not None}
    assert await tokens.verify(authorization_server.signed({}, claims)) is None


async def test_an_expired_claim_is_valid_within_the_leeway(authorization_server: AuthorizationServer) -> None:
    """auth-10: clocks differ."""
    claims = {**await claims_of(authorization_server), "exp": int(time.time()) - 60}
    token = authorization_server.signed({}, claims)
    assert await tokens_of(authorization_server, leeway_seconds=3600).verify(token) is not None
    assert await tokens_of(authorization_server, leeway_seconds=0).verify(token) is None


async def test_a_token_that_was_valid_once_expires(authorization_server: AuthorizationServer) -> None:
    """auth-10: a cached result ends with its token."""
    claims = await claims_of(authorization_server)
    tokens = tokens_of(authorization_server, leeway_seconds=0)
    with anyio.fail_after(SECONDS):
        for seconds in (2, 4, 8, 16):
            token = authorization_server.signed({}, {**claims, "exp": int(time.time()) + seconds})
            if await tokens.verify(token) is not None:  # the machine was fast enough to see it valid
                break
        while await tokens.verify(token) is not None:  # what is waited for is the expiry itself
            await anyio.to_thread.run_sync(authorization_server.requests)


async def test_more_tokens_than_are_cached_are_accepted(authorization_server: AuthorizationServer) -> None:
    """auth-10: the cache is bounded, and no token is taken for another."""
    claims = await claims_of(authorization_server)
    many = [authorization_server.signed({}, {**claims, "sub": f"user-{number}"}) for number in range(8)]
    tokens = JwtVerifier(
        authorization_server.section(), audience=authorization_server.resource, roles=ROLES, most_known=5
    )
    for token in (*many, *many, many[-1]):
        found = await tokens.verify(token)
        assert found is not None
        assert found.name.endswith(f"#sub:user-{many.index(token)}")
    changed = many[0][:-4] + ("AAAA" if many[0][-4:] != "AAAA" else "BBBB")
    assert await tokens.verify(changed) is None


async def test_a_token_for_another_resource_is_refused(authorization_server: AuthorizationServer) -> None:
    """auth-10: of the same issuer for another resource, and of another issuer for this one."""
    tokens = tokens_of(authorization_server)
    elsewhere = await authorization_server.token(resource="https://elsewhere.example.com/mcp")
    assert await tokens.verify(elsewhere) is None
    assert await tokens.verify(await authorization_server.token(server="other")) is None
    claims = await claims_of(authorization_server)
    forged = authorization_server.signed({"kid": authorization_server.kid()}, claims, server="other")
    assert await tokens.verify(forged) is None
    for_another = JwtVerifier(
        authorization_server.section(audience="https://elsewhere.example.com/mcp"), audience="", roles=ROLES
    )
    assert await for_another.verify(elsewhere) is not None


async def test_an_id_token_is_no_access_token(authorization_server: AuthorizationServer) -> None:
    """auth-12: even if the client is the audience, and where tokens without a type are accepted."""
    id_token = authorization_server.wish("idToken", subject="ada", nonce="n")["token"]
    for more in ({}, {"audience": "ci"}, {"audience": "ci", "token_types": ("at+jwt", "JWT")}):
        assert await tokens_of(authorization_server, **more).verify(id_token) is None


@pytest.mark.parametrize(
    ("typ", "types", "is_good"),
    [
        ("at+jwt", ("at+jwt",), True),
        ("AT+JWT", ("at+jwt",), True),
        ("application/at+jwt", ("at+jwt",), True),
        ("JWT", ("at+jwt",), False),
        (None, ("at+jwt",), False),
        ("logout+jwt", ("at+jwt", "JWT"), False),
        ("JWT", ("at+jwt", "JWT"), True),
        (None, ("at+jwt", "JWT"), True),
        (7, ("at+jwt", "JWT"), False),
    ],
)
async def test_the_type_of_a_token_is_one_of_those_configured(
    authorization_server: AuthorizationServer, typ: object, types: tuple[str, ...], is_good: bool
) -> None:
    """auth-12: RFC 9068, part 4, unless the operator's authorization server marks its tokens otherwise."""
    token = authorization_server.signed({"typ": typ}, await claims_of(authorization_server))
    assert (await tokens_of(authorization_server, token_types=types).verify(token) is not None) is is_good


@pytest.mark.parametrize(
    ("header", "changed", "expected"),
    [
        ({"typ": "JWT"}, {}, 'typ is JWT, and auth.jwt.token_types is at+jwt; add "JWT" there'),
        ({"typ": None}, {}, "no typ, which counts as JWT, and auth.jwt.token_types is at+jwt; add"),
        ({"typ": "hidden+jwt"}, {}, "typ is none of auth.jwt.token_types (at+jwt)"),
        ({}, {"cnf": {"jkt": "hidden"}}, "bound to a key (cnf: DPoP or mutual TLS), which no setting takes"),
        ({}, {"nonce": "hidden"}, "an ID token, which no setting takes"),
        ({}, {"aud": "hidden"}, "auth.jwt.audience, by default server.public_url"),
        ({}, {"iss": "hidden"}, "auth.jwt.issuer"),
        ({}, {"exp": 1_000_000_000}, "it is expired (auth.jwt.leeway_seconds"),
        ({}, {"nbf": 4_102_444_800}, "not valid yet (auth.jwt.leeway_seconds"),
        ({}, {"exp": None}, "lacks the claim exp"),
        ({}, {"sub": None, "client_id": None}, "lacks the claim client_id"),
        ({"kid": "hidden"}, {}, "auth.jwt.jwks_url"),
        ({"alg": "HS256"}, {}, "auth.jwt.algorithms"),
    ],
    ids=lambda one: str(one)[:40],
)
async def test_the_log_says_which_setting_refused_a_token(
    authorization_server: AuthorizationServer,
    caplog: pytest.LogCaptureFixture,
    header: dict[str, Any],
    changed: dict[str, Any],
    expected: str,
) -> None:
    """auth-32: the claims of the token are not logged."""
    caplog.set_level(logging.INFO, "coretools")
    claims = {**await claims_of(authorization_server), **changed}
    claims = {name: value for name, value in claims.items() if value is not None}
    more = {"secret": "x" * 32} if header.get("alg") == "HS256" else {}
    token = authorization_server.signed(header, claims, **more)
    assert await tokens_of(authorization_server).verify(token) is None
    assert expected in caplog.text
    assert "hidden" not in caplog.text


async def test_an_algorithm_that_the_operator_did_not_name_is_refused(
    authorization_server: AuthorizationServer,
) -> None:
    """auth-13: no signature, a public key as a shared secret (CVE-2015-9235), a good key of another algorithm."""
    claims = await claims_of(authorization_server)
    for algorithms in (("RS256", "ES256"), ("RS256", "ES256", "HS256", "none")):
        tokens = tokens_of(authorization_server, algorithms=algorithms)
        assert await tokens.verify(authorization_server.signed({}, claims)) is not None
        for alg in ("none", "None", "NONE", ""):
            assert await tokens.verify(authorization_server.signed({"alg": alg}, claims, secret="")) is None
        for key in authorization_server.about["first"]["publicKeys"]:
            for kid in authorization_server.about["first"]["kids"]:
                for secret in (key, key.strip(), ""):
                    confused = authorization_server.signed({"alg": "HS256", "kid": kid}, claims, secret=secret)
                    assert await tokens.verify(confused) is None
    only = tokens_of(authorization_server, algorithms=("RS256",))
    assert await only.verify(await authorization_server.token("curve")) is None


async def test_a_key_is_of_one_algorithm_whatever_a_token_says(authorization_server: AuthorizationServer) -> None:
    """auth-13: the id of another key, or of none."""
    tokens, claims = tokens_of(authorization_server), await claims_of(authorization_server)
    for kid in (authorization_server.kid("ES256"), "", None, "x" * 300, "../../keys"):
        assert await tokens.verify(authorization_server.signed({"kid": kid}, claims)) is None


async def test_no_address_in_a_token_is_ever_fetched(authorization_server: AuthorizationServer) -> None:
    """auth-14: and a key inside the token is not trusted (RFC 8725, 3.10)."""
    asked: list[str] = []

    async def canary(request: Request) -> Response:
        asked.append(str(request.url))
        return Response("{}")

    claims = {**await claims_of(authorization_server), "iss": authorization_server.issuer}
    async with listening(Starlette(routes=[Route("/{path:path}", canary)])) as url:
        tokens = tokens_of(authorization_server)
        foreign = authorization_server.about["other"]["kids"][0]
        forged = [
            authorization_server.signed({"kid": kid, **header}, {**claims, **more}, server="other")
            for kid in (foreign, url, authorization_server.kid())
            for header, more in (
                ({"jku": url}, {}),
                ({"x5u": url}, {}),
                ({"jku": url, "jwk": {"kty": "oct", "k": "AA"}}, {}),
                ({}, {"iss": url}),
            )
        ]
        for token in forged:
            assert await tokens.verify(token) is None
    assert asked == []


async def test_new_keys_are_fetched_when_a_token_comes_with_one(authorization_server: AuthorizationServer) -> None:
    """auth-15: the old keys are refused from then on, because the issuer no longer publishes them."""
    clock = Clock()
    tokens = tokens_of(authorization_server, clock)
    old = await authorization_server.token()
    assert await tokens.verify(old) is not None
    authorization_server.rotate()
    new = await authorization_server.token()
    clock.now += AGAIN_SECONDS + 1
    assert await tokens.verify(new) is not None
    assert await tokens.verify(old) is None


async def test_keys_grow_old_and_are_fetched_again(authorization_server: AuthorizationServer) -> None:
    """auth-15: a withdrawn key expires whatever tokens arrive."""
    clock = Clock()
    tokens = tokens_of(authorization_server, clock)
    old = await authorization_server.token()
    assert await tokens.verify(old) is not None
    authorization_server.rotate()
    clock.now += FRESH_SECONDS - 1
    assert await tokens.verify(old) is not None
    clock.now += 2
    assert await tokens.verify(old) is None


async def test_unknown_keys_cost_one_fetch_however_many_come(authorization_server: AuthorizationServer) -> None:
    """auth-15: in parallel or in turn; a caller that gives up does not stop the fetch for others."""
    clock = Clock()
    tokens = tokens_of(authorization_server, clock)
    claims = await claims_of(authorization_server)
    strange = [authorization_server.signed({"kid": f"key-{number}"}, claims) for number in range(20)]
    good = authorization_server.signed({}, claims)
    authorization_server.requests()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as leaving:
            authorization_server.wish("hold")
            leaving.start_soon(tokens.verify, strange[0])
            asked: list[str] = []
            while not asked:  # each fetch is a request of its own
                asked = await anyio.to_thread.run_sync(authorization_server.requests)
            leaving.cancel_scope.cancel()
            authorization_server.wish("release")
        assert await tokens.verify(good) is not None
        async with anyio.create_task_group() as group:
            for token in strange:
                group.start_soon(tokens.verify, token)
        for token in strange:
            assert await tokens.verify(token) is None
        assert sum(path.endswith("/jwks") for path in authorization_server.requests()) == 1
        clock.now += AGAIN_SECONDS + 1
        async with anyio.create_task_group() as group:
            for token in strange:
                group.start_soon(tokens.verify, token)
    assert sum(path.endswith("/jwks") for path in authorization_server.requests()) == 1


async def test_when_the_issuer_is_down_known_keys_work_and_others_are_unavailable(
    authorization_server: AuthorizationServer, caplog: pytest.LogCaptureFixture
) -> None:
    """auth-16: an unknown key is an error of the server, not of the token; known keys expire after a day."""
    clock = Clock()
    tokens, fresh = tokens_of(authorization_server, clock), tokens_of(authorization_server)
    good = await authorization_server.token()
    strange = authorization_server.signed({"kid": "strange"}, await claims_of(authorization_server))
    assert await tokens.verify(good) is not None
    authorization_server.wish("down", value=True)
    try:
        clock.now += FRESH_SECONDS + 1
        assert await tokens.verify(good) is not None
        for token in (strange, strange):
            with pytest.raises(Unreachable):
                await tokens.verify(token)
        with pytest.raises(Unreachable):
            await fresh.verify(good)
        clock.now += STALE_SECONDS
        with pytest.raises(Unreachable):
            await tokens.verify(good)
    finally:
        authorization_server.wish("down", value=False)
    clock.now += AGAIN_SECONDS + 1
    assert await tokens.verify(good) is not None
    assert await tokens.verify(strange) is None
    assert "keys of" in caplog.text


async def test_keys_can_be_named_by_their_own_address(authorization_server: AuthorizationServer) -> None:
    """auth-17: metadata are not fetched then."""
    keys_url = await find_jwks_url(authorization_server.issuer)
    token = await authorization_server.token()
    authorization_server.requests()
    assert await tokens_of(authorization_server, jwks_url=keys_url).verify(token) is not None
    assert authorization_server.requests() == ["/tenant/jwks"]


def test_metadata_are_looked_for_where_the_standards_say() -> None:
    """auth-17: before the path of the issuer (RFC 8414), and behind it (OpenID Connect)."""
    assert metadata_urls("https://as.example.com") == (
        "https://as.example.com/.well-known/oauth-authorization-server",
        "https://as.example.com/.well-known/openid-configuration",
    )
    assert metadata_urls("https://as.example.com/tenant/1/") == (
        "https://as.example.com/.well-known/oauth-authorization-server/tenant/1",
        "https://as.example.com/.well-known/openid-configuration/tenant/1",
        "https://as.example.com/tenant/1/.well-known/openid-configuration",
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('{"issuer": "https://elsewhere.example.com", "jwks_uri": "https://x.example.com"}', "another issuer"),
        ('{"issuer": "ISSUER/", "jwks_uri": "https://x.example.com"}', "another issuer"),
        ('{"issuer": "ISSUER"}', "no jwks_uri"),
        ('{"issuer": "ISSUER", "jwks_uri": "http://as.example.com/keys"}', "https is needed"),
        ('{"issuer": "ISSUER", "jwks_uri": "file:///etc/passwd"}', "no https URL"),
        ("[1]", "no JSON object"),
        ("not JSON", "no JSON"),
        ("[" * 100_000, "no JSON"),
        (" " * (MOST_BYTES + 1), "over"),
    ],
    ids=["issuer", "slash", "no keys", "plain", "file", "array", "text", "deep", "long"],
)
async def test_invalid_metadata_are_refused(document: str, expected: str) -> None:
    """auth-17, auth-18: of another issuer, or malformed."""

    async def metadata(request: Request) -> Response:
        return Response(document.replace("ISSUER", str(request.base_url).rstrip("/")))

    async with listening(Starlette(routes=[Route("/{path:path}", metadata)])) as url:
        issuer = url.removesuffix("/mcp")
        with pytest.raises(KeysUnavailable, match=expected):
            await fetch_json(await find_jwks_url(issuer))


async def test_fetching_follows_no_redirect_and_unpacks_nothing() -> None:
    """auth-18: a redirect, an error, a compressed response, plain HTTP beyond loopback, a closed port."""
    asked: list[str] = []

    async def canary(request: Request) -> Response:
        asked.append(request.url.path)
        return Response("{}")

    async def packed(_: Request) -> Response:
        return Response(b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    routes = [
        Route("/moved", lambda _: RedirectResponse("/canary")),
        Route("/packed", packed),
        Route("/broken", lambda _: Response("{}", status_code=500)),
        Route("/canary", canary),
    ]
    async with listening(Starlette(routes=routes)) as url:
        place = url.removesuffix("/mcp")
        for path, expected in (("moved", "307"), ("packed", "encoding"), ("broken", "500")):
            with pytest.raises(KeysUnavailable, match=expected):
                await fetch_json(f"{place}/{path}")
        assert await fetch_json(f"{place}/missing") is None
        assert asked == []
        with pytest.raises(KeysUnavailable, match="no metadata"):
            await find_jwks_url(place)
    with pytest.raises(KeysUnavailable, match="ConnectError"):
        await fetch_json(f"{place}/canary")
    with pytest.raises(KeysUnavailable, match="https is needed"):
        await fetch_json("http://as.example.com/keys")


KEY: dict[str, Any] = {
    "kty": "EC",
    "crv": "P-256",
    "kid": "k",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
}
"""RFC 7517, A.1."""


@pytest.mark.parametrize(
    ("changed", "algorithm", "is_usable"),
    [
        ({}, "ES256", True),
        ({"use": "sig", "alg": "ES256", "key_ops": ["verify"]}, "ES256", True),
        ({"use": "enc"}, "ES256", False),
        ({"alg": "ES384"}, "ES256", False),
        ({"key_ops": ["encrypt"]}, "ES256", False),
        ({"key_ops": 7}, "ES256", False),
        ({"kid": None}, "ES256", False),
        ({"d": "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE"}, "ES256", False),
        ({"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ"}, "HS256", False),
        ({"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ"}, "ES256", False),
        ({"x": "AA"}, "ES256", False),
        ({"x": 7}, "ES256", False),
        ({"kty": ["EC"]}, "ES256", False),
        ({}, "RS256", False),
        ({}, "none", False),
    ],
)
def test_a_key_is_used_for_what_it_is_made_for(changed: dict[str, Any], algorithm: str, is_usable: bool) -> None:
    """auth-13: its use, its algorithm, and never a symmetric one."""
    assert (usable_key({**KEY, **changed}, algorithm) is not None) is is_usable


@pytest.mark.parametrize(("bits", "is_good"), [(1024, False), (2048, True)])
async def test_a_short_key_of_an_issuer_is_refused(bits: int, is_good: bool) -> None:
    """auth-13: it can be factored (NIST SP 800-131A)."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    keys = {"keys": [{**jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "k"}]}
    async with listening(Starlette(routes=[Route("/keys", lambda _: JSONResponse(keys))])) as url:
        issuer = url.removesuffix("/mcp")
        claims = {"iss": issuer, "aud": "us", "sub": "ada", "exp": FAR_AHEAD}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InsecureKeyLengthWarning)
            token = jwt.encode(claims, private, algorithm="RS256", headers={"kid": "k", "typ": "at+jwt"})
        tokens = JwtVerifier(JwtSection(issuer=issuer, jwks_url=f"{issuer}/keys"), audience="us", roles=ROLES)
        assert (await tokens.verify(token) is not None) is is_good


async def test_scopes_that_are_missing_are_named(authorization_server: AuthorizationServer) -> None:
    """auth-19: a valid token without a required scope gets the list of missing scopes."""
    tokens = tokens_of(authorization_server, scopes=("tools:read", "tools:write"))
    assert await tokens.verify(await authorization_server.token(scope="tools:read tools:write")) is not None
    for scope in ("tools:read", ""):
        with pytest.raises(NotEntitled) as refused:
            await tokens.verify(await authorization_server.token(scope=scope))
        assert refused.value.scopes == ("tools:read", "tools:write")
    claims = await claims_of(authorization_server)
    listed = authorization_server.signed({}, {**claims, "scp": ["tools:read", "tools:write"]})
    assert await tokens.verify(listed) is not None
    with pytest.raises(NotEntitled):
        await tokens.verify(authorization_server.signed({}, {**claims, "scope": "tools:readtools:write"}))


async def test_a_role_comes_from_a_claim_that_the_operator_named(authorization_server: AuthorizationServer) -> None:
    """auth-20: a value that the operator did not map gives no role; the first of several counts."""
    tokens = tokens_of(authorization_server, role_claim="team", roles={"builders": "dev", "all": "default", "x": "no"})
    found = await tokens.verify(await authorization_server.token("ci"))
    assert found is not None
    assert found.role == "dev"
    claims = await claims_of(authorization_server)
    several = await tokens.verify(authorization_server.signed({}, {**claims, "team": ["all", "builders", 7, {}]}))
    assert several is not None
    assert several.role == "dev"
    with pytest.raises(NotEntitled) as refused:
        await tokens.verify(await authorization_server.token("stranger"))
    assert refused.value.scopes == ()
    for team in (None, "", [], {"builders": True}, True, "x", ["gardeners"], [["builders"]]):
        with pytest.raises(NotEntitled):
            await tokens.verify(authorization_server.signed({}, {**claims, "team": team}))


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "e30.e30.",
        "e30.e30.e30",
        "bnVsbA.e30.e30",
        "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsiLCJ0eXAiOiJhdCtqd3QifQ.e30.e30",
        "eyJhbGciOiJSUzI1NiIsInR5cCI6ImF0K2p3dCJ9.e30.e30",
        "x" * 8000,
        "ct_x",
        "W10.W10.W10",
        "é.é.é",
    ],
)
async def test_what_is_no_token_is_refused(token: str) -> None:
    """auth-10: without a request to any server."""
    section = JwtSection(issuer="https://as.invalid")
    assert await JwtVerifier(section, audience="x", roles=ROLES).verify(token) is None


async def test_claims_are_not_logged(
    authorization_server: AuthorizationServer, caplog: pytest.LogCaptureFixture
) -> None:
    """auth-29: for valid and invalid tokens."""
    caplog.set_level(logging.DEBUG)
    claims = await claims_of(authorization_server)
    seen = []
    for header, more in (({}, {}), ({}, {"aud": "hidden-audience"}), ({}, {"exp": 1}), ({"kid": "hidden-key"}, {})):
        token = authorization_server.signed(header, {**claims, **more})
        await tokens_of(authorization_server).verify(token)
        seen += token.split(".")[1:]
    assert "token refused: " in caplog.text
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("coretools"))
    assert [part for part in (*seen, "hidden-audience", "hidden-key") if part in ours] == []
