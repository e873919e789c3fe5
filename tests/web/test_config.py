"""The configuration of the HTTP server, and its roles (docs/specs/http.md)."""

import os
from pathlib import Path
from typing import Any

import pytest

from coretools.config.toml_file import LONGEST
from coretools.errors import BadSetting
from coretools.web.common.config import VARIABLES, Config, read_config
from coretools.web.roles import build_roles
from tests.web.plans import options_of

WHOLE = """
[server]
port = 9000
hosts = ["tools.example.com"]
[limits]
sessions = 32
[auth]
tokens = "/etc/coretools/tokens"
[auth.jwt]
issuer = "https://id.example.com"
scopes = ["tools"]
[roles.default]
roots = ["/srv/a:ro"]
[roles.builders]
roots = ["/srv/b"]
profile = "ci"
requests_per_second = 5
"""


def written(folder: Path, text: str | bytes) -> str:
    path = folder / "http.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_a_flag_overrides_a_variable_and_that_the_file(tmp_path: Path) -> None:
    """http-15: for each key."""
    path = written(tmp_path, WHOLE)
    assert read_config(path, {}, {}).server.port == 9000
    port = {"CORETOOLS_HTTP_SERVER__PORT": "9001"}
    assert read_config(path, port, {}).server.port == 9001
    found = read_config(path, port, {"server.port": 9002})
    assert (found.server.port, found.server.hosts, found.limits.sessions) == (9002, ("tools.example.com",), 32)
    assert read_config(None, {"CORETOOLS_HTTP_CONFIG": path}, {}).limits.sessions == 32


def test_every_key_is_a_variable_too() -> None:
    """http-15: lists with commas, tables by name, optional keys."""
    found = read_config(
        None,
        {
            "CORETOOLS_HTTP_SERVER__HOSTS": "a.example.com, b.example.com:*,",
            "CORETOOLS_HTTP_AUTH__JWT__ISSUER": "https://id.example.com",
            "CORETOOLS_HTTP_AUTH__JWT__SCOPES": "x,y",
            "CORETOOLS_HTTP_ROLES__DEV__ROOTS": "/a,/b:ro",
            "CORETOOLS_HTTP_ROLES__DEV__READ_ONLY": "true",
            "PATH": "/bin",
        },
        {},
    )
    assert found.server.hosts == ("a.example.com", "b.example.com:*")
    assert found.auth.jwt is not None
    assert found.auth.jwt.scopes == ("x", "y")
    assert (found.roles["dev"].roots, found.roles["dev"].read_only) == (("/a", "/b:ro"), True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[server]\nprot = 1", "server.prot: unknown key; did you mean server.port?"),
        ("[sever]\nport = 1", "sever: unknown key; did you mean server?"),
        ("port = 1", "port: unknown key; did you mean server.port?"),
        ("[server]\nqqqq = 1", "server.qqqq: unknown key"),
        ("[server]\nhosts = 'a.example.com'", "server.hosts: must be a list"),
        ("[server]\nport = 70000", "server.port"),
        ("[limits]\nsessions = 0", "limits.sessions"),
        ("[limits]\nheader_seconds = 0", "limits.header_seconds"),
        ("[roles.dev]\nroot = ['/a']", "roles.dev.root: unknown key; did you mean roles.dev.roots?"),
        ("[log]\nformat = 'xml'", "log.format: 'xml' is not valid; choose"),
        ("[server]\nport = 1\nprot = 2\n[limits]\nx = 1", "limits.x: unknown key"),
        ("[server", "not valid TOML"),
        (b"\xff", "not UTF-8 text"),
        ("x = " + "[" * 5000, "not valid TOML"),
    ],
)
def test_invalid_values_end_the_start(tmp_path: Path, text: str | bytes, expected: str) -> None:
    """http-15: each is named by its key, all at once."""
    with pytest.raises(BadSetting) as refused:
        read_config(written(tmp_path, text), {}, {})
    assert expected in str(refused.value)
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"CORETOOLS_HTTP_SERVER__PROT": "1"},
            r"_SERVER__PROT: unknown variable; did you mean .*_SERVER__PORT\?",
        ),
        (
            {"CORETOOLS_HTTP_PORT": "1"},
            r"CORETOOLS_HTTP_PORT: unknown variable; did you mean .*_SERVER__PORT\?",
        ),
        (
            {"CORETOOLS_HTTP_SERVER_PORT": "1"},
            r"_SERVER_PORT: unknown variable; did you mean .*_SERVER__PORT\?",
        ),
        (
            {"CORETOOLS_HTTP_SEVER__PORT": "1"},
            r"_SEVER__PORT: unknown variable; did you mean .*_SERVER__PORT\?",
        ),
        ({"CORETOOLS_HTTP_QQQQ": "1"}, "CORETOOLS_HTTP_QQQQ: unknown variable$"),
        ({"CORETOOLS_HTTP_SERVER__PORT": "many"}, "^CORETOOLS_HTTP_SERVER__PORT: must be a whole number"),
        ({"CORETOOLS_HTTP_SERVER": "1"}, "CORETOOLS_HTTP_SERVER: "),
        ({"CORETOOLS_HTTP_SERVER": "1", "CORETOOLS_HTTP_SERVER__PORT": "2"}, "server is no table"),
    ],
)
def test_unknown_variables_end_the_start(environment: dict[str, str], expected: str) -> None:
    """http-15: a typing error is not ignored."""
    with pytest.raises(BadSetting, match=expected):
        read_config(None, environment, {})


def test_the_message_does_not_contain_the_value() -> None:
    """http-15: it may be a password."""
    with pytest.raises(BadSetting) as refused:
        read_config(None, {f"{VARIABLES}REDIS__TIMEOUT_SECONDS": "redis://:hunter2@h"}, {})
    assert "hunter2" not in str(refused.value)


def test_what_is_not_a_configuration_file_ends_the_start(tmp_path: Path) -> None:
    """http-15: missing, a directory, or endless."""
    for path, expected in ((tmp_path / "none", "No such file"), (tmp_path, "directory")):
        with pytest.raises(BadSetting, match=expected):
            read_config(str(path), {}, {})
    with pytest.raises(BadSetting, match="larger than"):
        read_config(written(tmp_path, b"#" * (LONGEST + 1)), {}, {})


ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def roles(config: Config, folder: Path, *words: str) -> dict[str, Any]:
    return build_roles(config, options_of(*words), ENVIRONMENT, str(folder))


def test_without_roles_there_is_the_default_one_of_the_flags(tmp_path: Path) -> None:
    """http-12: without a root it serves the directory that it was started in, like the stdio server."""
    (role,) = roles(Config(), tmp_path, "--profile", "read").values()
    assert (role.name, role.settings.roots, role.settings.profile) == ("default", (str(tmp_path),), "read")
    (role,) = roles(Config(), tmp_path, "--root", "/a:ro", "--read-only").values()
    assert (role.settings.roots, role.settings.read_only) == (("/a:ro",), True)


def test_each_role_has_its_own_roots_and_rights(tmp_path: Path) -> None:
    """http-12: keys that it does not set come from the flags; read-only flags win."""
    config = read_config(written(tmp_path, WHOLE.replace('tokens = "/etc/coretools/tokens"', "")), {}, {})
    found = roles(config, tmp_path, "--deny", "*.key")
    assert found["default"].settings.roots == ("/srv/a:ro",)
    assert (found["builders"].settings.profile, found["builders"].rates.requests_per_second) == ("ci", 5.0)
    assert {role.settings.deny for role in found.values()} == {("*.key",)}
    assert all(role.settings.read_only for role in roles(config, tmp_path, "--read-only").values())


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        ("", (0.0, 5.0)),
        ('[auth]\ntokens = "{tokens}"\n', (50.0, 5.0)),
        ('[auth.jwt]\nissuer = "https://a.example"\n', (50.0, 5.0)),
    ],
    ids=["loopback", "tokens", "issuer"],
)
def test_requests_are_limited_if_there_are_tokens_or_the_operator_sets_a_rate(
    tmp_path: Path, auth: str, expected: tuple[float, float]
) -> None:
    """validation-33."""
    tokens = tmp_path / "tokens"
    tokens.touch(mode=0o600)
    text = (
        auth.format(tokens=tokens)
        + '[roles.a]\nroots = ["/srv/a"]\n[roles.b]\nroots = ["/srv/b"]\nrequests_per_second = 5\n'
    )
    found = roles(read_config(written(tmp_path, text), {}, {}), tmp_path)
    assert (found["a"].rates.requests_per_second, found["b"].rates.requests_per_second) == expected


def test_the_network_is_set_by_role_or_by_the_flags(tmp_path: Path) -> None:
    """http-12, network-15: a role without the key has the setting of the flags and the policy file."""
    text = """\
[roles.a]
roots = ['/a']
network = 'allow'
[roles.b]
roots = ['/b']
[roles.c]
roots = ['/c']
network = false
[roles.d]
roots = ['/d']
network = ['pypi', 'example.com']
"""
    config = read_config(written(tmp_path, text), {}, {})
    policy = tmp_path / "policy.toml"
    policy.write_text("[confinement]\nexpose = [5173]\n")
    for role in roles(config, tmp_path, "--policy", str(policy)).values():
        assert role.settings.policy.confinement.expose == (), "network-21"

    def networks(*words: str) -> list[object]:
        return [role.settings.policy.confinement.network for role in roles(config, tmp_path, *words).values()]

    listed = ("pypi", "example.com")
    assert networks() == ["allow", "deny", "deny", listed]
    assert networks("--network", "allow") == ["allow", "allow", "deny", listed]
    with pytest.raises(BadSetting, match=r"roles\.a\.network: 'pipy': no set"):
        read_config(written(tmp_path, "[roles.a]\nnetwork = ['pipy']"), {}, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[roles.dev]", "role dev: no root"),
        ("[roles.dev]\nroots=['/a']\nprofile='most'", "role dev: unknown profile 'most'"),
    ],
)
def test_an_invalid_role_ends_the_start(tmp_path: Path, text: str, expected: str) -> None:
    """http-12: the message names it."""
    with pytest.raises(BadSetting, match=expected):
        roles(read_config(written(tmp_path, text), {}, {}), tmp_path)


@pytest.mark.parametrize("key", ["auth.tokens", "console.tokens", "metrics.tokens", "server.tls_key"])
@pytest.mark.parametrize("way", ["straight", "link", "read-only"])
def test_the_operator_s_files_may_not_lie_in_a_root(tmp_path: Path, key: str, way: str) -> None:
    """http-14: tools could read or change them; also through a symbolic link."""
    root, apart = tmp_path / "root", tmp_path / "apart"
    root.mkdir()
    apart.mkdir()
    (root / "file").write_text("")
    (apart / "file").write_text("")
    (apart / "link").symlink_to(root / "file")
    path = apart / "link" if way == "link" else root / "file"
    suffix = ":ro" if way == "read-only" else ""
    with pytest.raises(BadSetting, match="by tools or commands: it lies in the"):
        roles(read_config(None, {}, {key: str(path)}), tmp_path, "--root", f"{root}{suffix}")
    assert roles(read_config(None, {}, {key: str(apart / "file")}), tmp_path, "--root", str(root))


def test_the_configuration_file_may_not_lie_in_a_root(tmp_path: Path) -> None:
    """http-14: whoever can write it controls the server."""
    path = written(tmp_path, "[limits]\nsessions = 3")
    with pytest.raises(BadSetting, match="by tools or commands: it lies in the"):
        build_roles(read_config(path, {}, {}), options_of("--config", path), ENVIRONMENT, str(tmp_path))
