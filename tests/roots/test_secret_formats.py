"""One property for each format: however a document is written, it is a secret exactly when one of its values is.

Documents are generated at random, and read back by another parser or program where there is one.
"""

import json
import random
import subprocess
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from tests.roots.test_secret_files import of

SECRET = "hunter2Kq"
Maker = Callable[[random.Random, str], tuple[str, str]]
"""Generates the path and the text of a document with this value for a credential."""


def _escaped(rnd: random.Random, text: str) -> str:
    """A JSON string of this value, with some characters as escapes."""
    if '"' in text or "\\" in text:
        return json.dumps(text)
    return '"' + "".join(f"\\u{ord(char):04x}" if rnd.random() < 0.2 else char for char in text) + '"'


def _json(rnd: random.Random, value: object) -> str:
    """A random spelling of a JSON value: blanks, line breaks and escapes wherever they are allowed."""
    blank = lambda: "".join(rnd.choices(" \n\t", k=rnd.choice((0, 0, 1, 30))))  # noqa: E731
    if isinstance(value, dict):
        members = (f"{blank()}{_escaped(rnd, k)}{blank()}:{blank()}{_json(rnd, v)}{blank()}" for k, v in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(blank() + _json(rnd, one) for one in value) + "]"
    return _escaped(rnd, value) if isinstance(value, str) else json.dumps(value)


def _written(rnd: random.Random, document: object) -> str:
    text = _json(rnd, document)
    assert json.loads(text) == document
    return text


def docker(rnd: random.Random, value: str) -> tuple[str, str]:
    member = {rnd.choice(("auth", "identitytoken", "registrytoken", "password")): value, "email": "a@b"}
    return ".docker/config.json", _written(rnd, {"credsStore": "desktop", "auths": {"host": member}, "n": [1, None]})


def settings(rnd: random.Random, value: str) -> tuple[str, str]:
    name = rnd.choice(("client_secret", "Db:ConnectionString", "refresh_token", "apiKey"))
    return rnd.choice(("secrets.json", "auth.json")), _written(rnd, {"a": [{"region": "eu", name: value}], "b": 1.5})


def kube_as_json(rnd: random.Random, value: str) -> tuple[str, str]:
    return rnd.choice((".kube/config", "dev.kubeconfig")), _written(rnd, _kube(rnd, value))


def kube_as_yaml(rnd: random.Random, value: str) -> tuple[str, str]:
    """Block style, flow style, and flow within block; quotes of each kind."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    document = _kube(rnd, value)
    style, quotes = rnd.choice((True, False, None)), rnd.choice((None, None, "'", '"'))
    text = yaml.safe_dump(document, default_flow_style=style, default_style=quotes, width=rnd.choice((20, 500)))
    assert yaml.safe_load(text) == document
    return ".kube/config", text


def _kube(rnd: random.Random, value: str) -> object:
    names = ("token", "password", "client-key-data", "id-token", "client-secret")
    user = {"client-certificate-data": "LS0t", rnd.choice(names): value, "username": "me"}
    cluster = {"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": "LS0t"}}
    return {"apiVersion": "v1", "clusters": [cluster], "users": [{"name": "x", "user": user}]}


def maven(rnd: random.Random, value: str) -> tuple[str, str]:
    tag = rnd.choice(("password", "passphrase", "privateKey"))
    blank = lambda: rnd.choice(("", "\n   "))  # noqa: E731
    tag_and_more = tag + rnd.choice(("", ' xml:space="preserve"'))
    note = rnd.choice(("", "<!-- of the mirror -->"))
    inner = f"{blank()}{note}{blank()}{rnd.choice((f'<![CDATA[{value}]]>', value))}{blank()}"
    text = f"<settings><server><id>m</id><{tag_and_more}>{inner}</{tag}></server></settings>"
    found = ET.fromstring(text).find(f"server/{tag}")
    assert found is not None
    assert (found.text or "").strip() == value
    return "settings.xml", text


def toml(rnd: random.Random, value: str) -> tuple[str, str]:
    quote = rnd.choice(('"', "'", '"""', "'''"))
    start = rnd.choice(("", "\n")) if len(quote) > 1 else ""
    start += rnd.choice(("", "\\\n   ")) if quote == '"""' else ""
    name = rnd.choice(("token", '"token"', "secret-key"))
    text = f"[registries.mine]\nindex = 'https://h'\n{name}{rnd.choice(('=', ' = '))}{quote}{start}{value}{quote}\n"
    assert value in tomllib.loads(text)["registries"]["mine"].values()
    return ".cargo/credentials.toml", text


def properties(rnd: random.Random, value: str) -> tuple[str, str]:
    separator = rnd.choice(("=", ":", " ", "\t", " = ", "  :  ", "=\\\n   ", " \\\n\t"))
    name = rnd.choice(("ossrhPassword", "signing.password", "systemProp.http.proxyPassword"))
    head = "# password is elsewhere\norg.gradle.jvmargs -Xmx2g\nkotlin.code.style=official\n"
    return "gradle.properties", f"{head}{rnd.choice(('', '  '))}{name}{separator}{value}\n"


def bundle(rnd: random.Random, value: str) -> tuple[str, str]:
    host = rnd.choice(("GEMS__EXAMPLE__COM", "GEM__FURY__IO", "GITHUB__COM", "HTTPS://GEMS__EXAMPLE__COM/PRIVATE/"))
    given = value if value != SECRET else rnd.choice((value, f"me:{value}", f"{value}:x-oauth-basic"))
    quote = rnd.choice(('"', "'", ""))
    rest = 'BUNDLE_PATH: "vendor"\nBUNDLE_WITHOUT: "development:test"\nBUNDLE_BUILD__PG: "--with-pg-config=/x:y"\n'
    more = 'BUNDLE_LOCAL__RACK: "/a"\nBUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG/: "https://m"\nBUNDLE_GEM__TEST: "rspec"\n'
    return ".bundle/config", f"---\n{rest}{more}BUNDLE_{host}: {quote}{given}{quote}\n"


def npm(rnd: random.Random, value: str) -> tuple[str, str]:
    before = rnd.choice(("", "${X}", "${X}:")) if value == SECRET else rnd.choice(("", "${X}" * bool(value)))
    after = rnd.choice(("", "${Y}")) if value == SECRET else ""
    name = rnd.choice(("//h/:_authToken", "_auth", "//h/:_password"))
    return ".npmrc", f"package-lock=false\n{name}{rnd.choice(('=', ' = '))}{before}{value}{after}\n"


def yarn(rnd: random.Random, value: str) -> tuple[str, str]:
    given = rnd.choice((value, f"${{TOKEN:-{value}}}", f"${{TOKEN-{value}}}")) if value in (SECRET, "") else value
    return ".yarnrc.yml", f"npmAuthToken: {rnd.choice(('', chr(34)))}{given}\n"


def environment(rnd: random.Random, value: str) -> tuple[str, str]:
    """A shell reads the value from it, or nothing."""
    printing = (f"$(echo {value})", f"$(echo -n '{value}')", f"$(printf '%s' {value})", f"$(printf %s\\\\n {value})")
    more = (f'"$(echo $NONE {value})"', f"$(tr a b <<< {value})", value)
    nothing = (value, "$(echo $NONE)", '"$(cat /dev/null)"')
    given = rnd.choice((*printing, *more) if value == SECRET else nothing)
    words = ["bash", "-c", f'NAME={given}; printf %s "$NAME"']
    completed = subprocess.run(words, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == (SECRET if value == SECRET else "")
    return ".env", f"{rnd.choice(('', 'export '))}TOKEN={given}\n"


FORMATS: tuple[Maker, ...] = (
    *(docker, settings, kube_as_json, kube_as_yaml, maven, toml),
    *(properties, bundle, npm, yarn, environment),
)
HARMLESS = ("", "${TOKEN}")


@pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
def test_a_document_is_a_secret_when_a_value_in_it_is(make: Maker) -> None:
    """secret-files-1"""
    for seed in range(8 if make is environment else 60):
        rnd = random.Random(seed)
        path, text = make(rnd, SECRET)
        assert of(path, text), text
        path, text = make(rnd, rnd.choice(HARMLESS))
        assert not of(path, text), text
