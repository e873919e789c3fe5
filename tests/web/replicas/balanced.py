"""Replicas of `coretools-http` as users run them: processes, one Redis, and HAProxy as the docs configure it."""

import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from coretools.web.auth.hashed_tokens import create_token
from tests.checkout import TREE
from tests.clients.conftest import without
from tests.web.http_server_peer import HttpServer, http_server
from tests.web.replicas.redis_server import WITH_ITS_PARENT, RedisServer

NAMES = ("a", "b", "c")
PRINCIPALS = ("ann", "ben", "slow")
CONFIGURATION = TREE / "docs" / "deploy" / "haproxy.cfg"
REGISTRY = Path(__file__).with_name("replicated.py")

SETTINGS = """
[server]
hosts = ["127.0.0.1:*"]
proxies = ["127.0.0.1"]

[auth]
tokens = "{folder}/tokens"

[limits]
session_idle_seconds = 60.0

[redis]
url = "{redis}"
timeout_seconds = 10.0
lease_seconds = {lease}

[roles.default]
requests_per_second = 1000.0
burst = 1000

[roles.slow]
requests_per_second = 0.01
burst = 4
"""


@dataclass
class Cluster:
    """The processes of a cluster: Redis, the replicas and the balancer."""

    folder: Path
    redis: RedisServer
    tokens: dict[str, str]
    settings: Path
    registry: Path
    replicas: dict[str, HttpServer] = field(default_factory=dict)
    balancer: int = 0

    @property
    def url(self) -> str:
        """The URL of the balancer."""
        return f"http://127.0.0.1:{self.balancer}/mcp"

    def authorization(self, principal: str = "ann") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[principal]}"}

    @contextmanager
    def replica(self, name: str, port: int = 0) -> Iterator[HttpServer]:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        words = ("--config", self.settings, "--root", self.folder / "root", "--with", f"{self.registry}:registry")
        listens = ("--port", port) if port else ()
        environment = {"CORETOOLS_HTTP_REDIS__REPLICA": name}
        with http_server(folder, *map(str, (*words, *listens)), environment=environment) as server:
            yield server


@contextmanager
def cluster(folder: Path, *, lease_seconds: float = 9.0, registry: Path = REGISTRY) -> Iterator[Cluster]:
    """Three replicas behind HAProxy."""
    (folder / "root").mkdir()
    redis = RedisServer()
    with ExitStack() as stack:
        stack.callback(redis.close)
        role = {"slow": "slow"}
        made = {
            name: create_token(str(folder / "tokens"), name=name, role=role.get(name, "default")) for name in PRINCIPALS
        }
        settings = folder / "coretools.toml"
        settings.write_text(SETTINGS.format(folder=folder, redis=redis.url, lease=lease_seconds))
        found = Cluster(folder, redis, {name: token for name, (_, token) in made.items()}, settings, registry)
        with ThreadPoolExecutor(len(NAMES)) as threads:
            starting = [threads.submit(stack.enter_context, found.replica(name)) for name in NAMES]
            found.replicas = dict(zip(NAMES, (one.result() for one in starting), strict=True))
        found.balancer = stack.enter_context(haproxy(folder, partial(_configured, CONFIGURATION.read_text(), found)))
        yield found


@contextmanager
def haproxy(folder: Path, text: Callable[[int, int], str]) -> Iterator[int]:
    """HAProxy on a free port; `text` makes its configuration of the listening descriptor and the port."""
    if shutil.which("haproxy") is None:
        without("no haproxy: apt-get install haproxy")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Handed over as a descriptor: nobody else can have the port meanwhile.
        listening.set_inheritable(True)
        port: int = listening.getsockname()[1]
        written = folder / f"haproxy-{port}.cfg"
        written.write_text(text(listening.fileno(), port))
        process = subprocess.Popen(
            [*WITH_ITS_PARENT, "haproxy", "-db", "-f", str(written)], pass_fds=[listening.fileno()]
        )
        try:
            yield port
        finally:
            process.terminate()
            process.wait()


def _configured(text: str, cluster: Cluster, descriptor: int, port: int) -> str:
    """The configuration of the docs with the addresses of this test; without TLS, which a test has no name for."""
    ports = {name: server.url.rpartition(":")[2].partition("/")[0] for name, server in cluster.replicas.items()}
    text, binds = re.subn(r"bind :443 .*", f"bind fd@{descriptor}", text)
    text, hosts = re.subn(r"hdr Host \S+", f"hdr Host 127.0.0.1:{port}", text)
    text, servers = re.subn(r"server (\w) \S+", lambda found: f"server {found[1]} 127.0.0.1:{ports[found[1]]}", text)
    assert (binds, hosts, servers) == (1, 1, len(NAMES))
    return text
