"""`coretools-http --check`: what it verifies, and its report (docs/specs/http.md)."""

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from coretools.errors import BadSetting
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry
from coretools.services.interface import Services
from coretools.web.auth.hashed_tokens import create_token
from coretools.web.config_check import CheckReport, check_config
from tests.web.auth.authorization_server import AuthorizationServer
from tests.web.certificates import write_certificate
from tests.web.plans import plan_of
from tests.web.replicas.redis_server import RedisServer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "policy.toml").write_text('[[commands.rule]]\nprogram = "rm"\nverdict = "deny"\n')
    (tmp_path / "policy.toml").chmod(0o600)
    for name in ("tokens", "console", "metrics"):
        create_token(str(tmp_path / name), name="ada", role="default")
    return tmp_path


async def report_of(folder: Path, others: Sequence[Registry] = (), **flags: object) -> CheckReport:
    """The report of a check; `flags` are keys of the configuration, two underscores for a dot."""
    anonymous = {} if any(key.startswith("auth__") for key in flags) else {"auth__anonymous": "user"}
    given = {key.replace("__", "."): value for key, value in {"server__port": 0, **anonymous, **flags}.items()}
    words = ("--root", f"{folder}/root", "--policy", f"{folder}/policy.toml")
    return await check_config(plan_of(*words, others=others, flags=given))


def tls_of(folder: Path, **more: int) -> dict[str, object]:
    made = write_certificate(folder, **more)
    return {"server__tls_certificate": str(made.path), "server__tls_key": str(made.key)}


async def test_each_part_has_a_line(folder: Path) -> None:
    """http-16, trust-8: one line for each verified part."""
    files = {f"{name}__tokens": str(folder / name) for name in ("auth", "console", "metrics") if name != "auth"}
    create_token(str(folder / "tokens"), name="eve", role="elsewhere")
    tls = tls_of(folder, days=100)
    report = await report_of(folder, auth__tokens=str(folder / "tokens"), **files, **tls)
    assert report.faults == []
    output = "\n".join(report.lines)
    for line in (
        "127.0.0.1:0/mcp, for this machine only; hosts 127.0.0.1:0, localhost:0, [::1]:0",
        "127.0.0.1 port 0 is free",
        f"tls: {tls['server__tls_certificate']} and its key; 1 in the chain; valid until 20",
        "99 days left",
        f"auth: {folder}/tokens: 2 tokens of 2 principals",
        "of eve: no role elsewhere here; it is refused",
        f"console: {folder}/console: 1 token of 1 principal",
        f"metrics: {folder}/metrics: 1 token of 1 principal",
        "redis: none; memory",
        f"policy: {folder}/policy.toml: 1 rule, default allow, opaque as default",
        f"role default: {folder}/root; profile dev; commands in tier ",
        "traces: off",
        "other programs and files are trusted; tools and commands can change none of them",
    ):
        assert line in output, (line, output)
    assert [line for line in report.lines if line.startswith("warning")] == [
        line for line in report.lines if "no role elsewhere" in line
    ]


async def test_each_role_has_its_own_network_and_traces_have_their_collector(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """http-16: what the commands of this role may do; roles start one after the other."""
    good = str(folder / "root")
    kinds = {
        "build": {"network": "allow"},
        "test": {"profile": "ci"},
        "some": {"network": ["pypi"]},
        "look": {"profile": "read"},
    }
    roles = {name: {"roots": [good], **given} for name, given in kinds.items()}
    report = await report_of(folder, roles=roles, auth__tokens=str(folder / "tokens"), telemetry__traces=True)
    assert report.faults == []
    lines = {line.split(":")[0].removeprefix("role "): line for line in report.lines if line.startswith("role ")}
    ends = {name: line.rpartition("; ")[2].partition("network ")[2] for name, line in lines.items()}
    listed = "pypi" if "tier full" in lines["some"].partition("network")[0] else "none (pypi needs tier full)"
    assert ends == {"build": "allow", "test": "deny", "some": listed, "look": ""}
    assert lines["look"].endswith("; no commands")
    assert "traces: to http://localhost:4318" in report.lines
    assert "Overriding" not in caplog.text


async def test_commands_with_services_are_refused_where_replicas_would_not_share_them(
    folder: Path, shared_redis: RedisServer
) -> None:
    """http-30, services-8: they are in the memory of each replica, unless services.url leads to a store."""
    registry = Registry()

    @registry.tool(Effect.CHANGE)
    async def remember(text: str, services: Services) -> str:
        """Remember."""
        await services.values.set("x", text.encode())
        return "done"

    assert (await report_of(folder, (registry,))).faults == []
    faults = (await report_of(folder, (registry,), redis__url=shared_redis.url)).faults
    assert [(fault.partition(": commands")[0], "services.url" in fault) for fault in faults] == [
        ("--with: remember", True)
    ]
    shared = {"redis__url": shared_redis.url, "services__url": shared_redis.url}
    report = await report_of(folder, (registry,), **shared)
    assert report.faults == []
    assert [line.partition("redis ")[0] for line in report.lines if "services: " in line] == [
        "services: ",
        "warning: services: appendonly is off, so a restart loses what is stored",
    ]
    gone = await report_of(folder, (registry,), services__url="unix:///no/such")
    assert gone.faults == ["services.url: no store answers there, or it refuses us (ConnectionError)"]


async def test_a_certificate_is_checked_for_its_time_its_key_and_its_chain(folder: Path) -> None:
    """http-16, http-24: an expired one is a fault, one with a few days left a warning."""
    soon = await report_of(folder, **tls_of(folder, days=3))
    assert (soon.faults, "warning: tls: 2 days left; renew it and send SIGHUP" in soon.lines) == ([], True)
    expired = await report_of(folder, **tls_of(folder, days=0))
    assert [("expired on" in fault, "certificate.pem" in fault) for fault in expired.faults] == [(True, True)]
    flags = tls_of(folder)
    first = (folder / "certificate.pem").read_bytes()
    write_certificate(folder)
    second = (folder / "certificate.pem").read_bytes()
    (folder / "certificate.pem").write_bytes(second + first)
    (fault,) = (await report_of(folder, **flags)).faults
    assert "certificate 2 did not sign certificate 1" in fault
    (folder / "certificate.pem").write_bytes(first)
    faults = (await report_of(folder, **flags)).faults
    assert [("it is the key of another" in fault, f"{folder}/certificate.pem" in fault) for fault in faults] == [
        (True, True)
    ]


async def test_keys_of_an_issuer_are_fetched(folder: Path, authorization_server: AuthorizationServer) -> None:
    """http-16, http-24: keys that cannot be fetched are a fault that names the URL."""
    jwt = {"issuer": authorization_server.issuer}
    more = {"server__public_url": authorization_server.resource}
    fine = await report_of(folder, auth__jwt=jwt, **more)
    assert fine.faults == []
    output = f"auth.jwt: {jwt['issuer']}: 2 keys fetched; audience {authorization_server.resource}; types at+jwt"
    assert output in "\n".join(fine.lines)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    report = await report_of(folder, auth__jwt={"issuer": nobody, "jwks_url": f"{nobody}/keys"}, **more)
    assert report.faults == [f"auth.jwt: the keys of {nobody} can't be fetched: {nobody}/keys: ConnectError"]


async def test_redis_is_queried_and_nothing_is_written_there(folder: Path) -> None:
    """http-16, http-24: a replica of the same name may be running; a Redis that does not answer is a fault."""
    redis = RedisServer()
    try:
        fine = await report_of(folder, redis__url=redis.url, redis__replica="a")
        assert (fine.faults, [line for line in fine.lines if line.startswith("redis: version ")] != []) == ([], True)
    finally:
        redis.close()
    gone = await report_of(folder, redis__url=redis.url)
    assert gone.faults == ["redis.url: no Redis answers there, or it refuses us (ConnectionError)"]


async def test_a_port_in_use_is_a_warning_and_every_fault_is_reported(folder: Path) -> None:
    """http-16, http-24: a check before a reload finds the server itself; one fault does not hide others."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        report = await report_of(folder, server__port=port, redis__url="unix:///no/such", **tls_of(folder, days=0))
    assert f"warning: 127.0.0.1 port {port} is in use now, by this server or another program" in report.lines
    assert [fault.partition(":")[0] for fault in report.faults] == [
        f"server.tls_certificate {folder}/certificate.pem",
        "redis.url",
    ]
    assert any(line.startswith("role default") for line in report.lines)
    report = await report_of(folder, server__host="192.0.2.7", server__port=1)
    assert "server.host 192.0.2.7, port 1: can't listen there" in report.faults[0]


async def test_every_role_and_every_root_is_verified_separately(folder: Path) -> None:
    """http-24, http-16: also with a missing token file; a world-readable key is a warning."""
    flags = tls_of(folder)
    (folder / "key.pem").chmod(0o644)
    good = str(folder / "root")
    roles = {
        "a": {"roots": [f"{folder}/one", f"{folder}/two:ro"]},
        "b": {"roots": [good, good]},
        "c": {"roots": [good]},
        "d": {"roots": [f"{folder}/one"]},
    }
    report = await report_of(folder, auth__tokens=f"{folder}/none", roles=roles, **flags)
    assert [fault.partition(":")[0] for fault in report.faults] == [
        f"{folder}/none",
        f"root {folder}/one",
        f"root {folder}/two",
        f"root {good}",
    ]
    assert any(line.startswith(f"role c: {good}; profile dev; commands in tier ") for line in report.lines)
    warned = f"warning: tls: server.tls_key {folder}/key.pem: every user of this machine can read it; run chmod 600 "
    assert f"{warned}{folder}/key.pem" in report.lines
    with pytest.raises(BadSetting, match=r"role a: .*'x'.*; role b: .*'y'"):
        await report_of(folder, roles={"a": {"profile": "x", "roots": [good]}, "b": {"profile": "y"}})


async def test_unusable_files_are_reported_once_each_and_hide_nothing(folder: Path) -> None:
    """http-24: by name; a missing file does not end the check."""
    (folder / "tokens").chmod(0o644)
    (folder / "metrics").unlink()
    flags = {**tls_of(folder), "server__tls_key": f"{folder}/no.pem"}
    report = await report_of(folder, auth__tokens=f"{folder}/tokens", metrics__tokens=f"{folder}/metrics", **flags)
    assert [fault.partition(":")[0] for fault in report.faults] == [
        f"server.tls_key {folder}/no.pem",
        f"{folder}/tokens",
        f"{folder}/metrics",
    ]
    (folder / "certificate.pem").write_text("no certificate")
    (fault,) = (await report_of(folder, **tls_of(folder) | {"server__tls_certificate": f"{folder}/tokens"})).faults
    assert fault.startswith(f"server.tls_certificate {folder}/tokens and its key: ")
