"""The files for operators in docs/deploy: well-formed, and about metrics, flags and addresses that exist."""

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from coretools.errors import InternalFailure
from coretools.servers.http_server import _parser
from coretools.web.auth.verifiers import WINDOW_SECONDS
from coretools.web.common.config import Config
from coretools.web.service import END_SECONDS
from tests.checkout import TREE

DEPLOY = TREE / "docs" / "deploy"
SPEC = (TREE / "docs" / "specs" / "observability.md").read_text("utf-8")
ELSEWHERE = {"up", "process_open_fds", "process_max_fds", "process_resident_memory_bytes"}
"""Metrics of Prometheus itself and of prometheus_client."""


def metrics_in(expression: str) -> set[str]:
    """The names of metrics in an expression of Prometheus."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|label_values)\s*\([^)]*\)", " ", expression)
    words = set(re.findall(r"\b[a-z_][a-z0-9_]*\b(?!\s*\()", bare))
    return {re.sub(r"_bucket$", "", word) for word in words if word not in {"by", "sum", "time"}}


def expressions() -> dict[str, str]:
    """Each expression of the dashboard and of the alert rules, by where it stands."""
    board = json.loads((DEPLOY / "dashboard.json").read_text())
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    found = {f"alert {rule['alert']}": rule["expr"] for rule in rules}
    return found | {f"panel {one['title']}": " + ".join(t["expr"] for t in one["targets"]) for one in board["panels"]}


def test_rules_and_dashboard_name_metrics_that_exist() -> None:
    """observability-33: those of the specification, with labels and outcomes that they have; each rule is explained."""
    labels = {
        name: set(re.findall(r"`(\w+)`", row))
        for name, row in re.findall(r"^\| `(coretools_\w+)` \|([^|]*)\|", SPEC, re.MULTILINE)
    }
    for place, expression in expressions().items():
        names = metrics_in(expression)
        assert names, place
        assert names <= labels.keys() | ELSEWHERE, (place, names)
        for name, selected in re.findall(r"(coretools_\w+)\{([^}]*)\}", expression):
            used = set(re.findall(r"(\w+)=", selected)) - {"instance", "job"}
            assert used <= labels[re.sub(r"_bucket$", "", name)], (place, name, used)
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            known = set().union(*(labels.get(name, set()) for name in names)) | {"instance", "le"}
            assert {one.strip() for one in grouped.split(",")} <= known, (place, grouped)
    assert f'outcome="{InternalFailure.kind}"' in expressions()["alert CoretoolsInternalErrors"]
    page = (DEPLOY / "monitoring.md").read_text()
    assert set(re.findall(r"^\| `(Coretools\w+)`", page, re.MULTILINE)) == {
        place.removeprefix("alert ") for place in expressions() if place.startswith("alert ")
    }


def test_the_scrape_configuration_has_a_token_for_every_job() -> None:
    """observability-33: without one a server that other machines reach has no metrics."""
    found = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    assert all("credentials_file" in job["authorization"] for job in found["scrape_configs"])
    assert found["rule_files"] == ["alerts.yaml"]


def unit() -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capitals
    found.read(DEPLOY / "coretools-http.service")
    return found


def test_the_unit_gives_the_server_time_to_end_and_does_not_weaken_confinement() -> None:
    """http-31: it starts with flags that the server knows, and hides nothing that tier `full` needs."""
    service = unit()["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/coretools-http")
    assert _parser().parse_args(words).config == "/etc/coretools/http.toml"
    needed = Config().server.drain_seconds + 5.0 + END_SECONDS
    assert float(service["TimeoutStopSec"]) > needed
    assert (service["Delegate"], service["KillMode"], service["SuccessExitStatus"]) == ("yes", "mixed", "143")
    assert service["RestartPreventExitStatus"] == "78"
    weaker = {"ProtectProc", "ProcSubset", "ProtectKernelTunables", "ProtectControlGroups", "RestrictNamespaces"}
    assert not weaker & set(service)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """http-31: with a program that exists here."""
    text = (DEPLOY / "coretools-http.service").read_text().replace("/opt/coretools/bin/coretools-http", "/bin/true")
    path = tmp_path / "coretools-http.service"
    path.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    about = [line for line in done.stderr.splitlines() if path.name in line]
    assert about == []


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_a_proxy_forwards_the_endpoint_only_and_buffers_nothing(name: str) -> None:
    """http-31: as proxies.md demands."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / name).read_text(), flags=re.MULTILINE)
    assert "127.0.0.1:8765" in text
    assert "/mcp" in text
    assert "404" in text
    assert not re.search(r"/(metrics|console|healthz|readyz)", text)
    wanted = {
        "nginx.conf": (
            "proxy_buffering off;",
            "Host $host;",
            "X-Forwarded-For $remote_addr;",
            "proxy_next_upstream off;",
        ),
        "Caddyfile": ("flush_interval -1",),
    }
    assert all(words in text for words in wanted[name])


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("promtool", ("check", "rules", "alerts.yaml")),
        ("caddy", ("validate", "--adapter", "caddyfile", "--config", "Caddyfile")),
    ],
)
def test_the_programs_accept_their_files(program: str, words: tuple[str, ...]) -> None:
    """http-31, observability-33."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([program, *words], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    """observability-33: without the job for pods, which Debian's Prometheus is built without."""
    found = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    found["scrape_configs"] = [job for job in found["scrape_configs"] if "kubernetes_sd_configs" not in job]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(found))
    words = ["promtool", "check", "config", "--syntax-only", "prometheus.yaml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_accepts_its_file(tmp_path: Path) -> None:
    """http-31: within a whole configuration, without TLS, whose files nobody has here."""
    text = (DEPLOY / "nginx.conf").read_text().replace("443 ssl", "127.0.0.1:8443")
    text = re.sub(r"ssl_certificate\w* .*", "", text)
    whole = tmp_path / "nginx.conf"
    whole.write_text(f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; {text} }}")
    done = subprocess.run(["nginx", "-t", "-c", whole], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_jail_counts_as_the_server_does() -> None:
    """observability-28: fail2ban bans who went on after the server began to delay."""
    text = (DEPLOY / "fail2ban.conf").read_text()
    found: dict[str, Any] = dict(re.findall(r"^#\s+(\w+) = (\S+)", text, re.MULTILINE))
    limits, server = Config().limits, Config().server
    assert (int(found["maxretry"]), int(found["findtime"])) == (limits.failures_per_minute, WINDOW_SECONDS)
    assert int(found["port"]) == server.port
