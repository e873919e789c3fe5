"""A real NATS with JetStream: a child with a store in its own folder, which can be killed and started on it again."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.clients.conftest import without
from tests.web.replicas.redis_server import WITH_ITS_PARENT

PROGRAM = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
"""Debian has it in /usr/sbin, which the PATH of ordinary users lacks."""

LISTENING = re.compile(r"Listening for client connections on [^ ]*:(\d+)")


class NatsServer:
    """One nats-server on a free port, which it keeps when it is started again."""

    def __init__(self, configuration: str = "") -> None:
        if PROGRAM is None:
            without("no nats-server: apt-get install nats-server")
        self.folder = Path(tempfile.mkdtemp(prefix="nats-"))
        self._configuration = configuration
        self._port = -1  # any
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"nats://{self.address}"

    def start(self) -> None:
        """Start, and return when it answers."""
        assert PROGRAM is not None
        settings = self._configure(self._configuration)
        self.log = ""
        self._process = subprocess.Popen(
            [*WITH_ITS_PARENT, PROGRAM, "--config", settings], stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log += line
            if listening := LISTENING.search(line):
                self._port = int(listening[1])
            if "Server is ready" in line:
                return
        raise AssertionError(self.log)

    def reload(self, configuration: str) -> None:
        """Use another configuration from now on."""
        self._configure(configuration)
        self._process.send_signal(signal.SIGHUP)

    def _configure(self, configuration: str) -> Path:
        settings = self.folder / "nats.conf"
        jetstream = f'jetstream {{store_dir: "{self.folder}"}}'
        settings.write_text(f"listen: 127.0.0.1:{self._port}\n{jetstream}\n{configuration}\n")
        return settings

    def kill(self) -> None:
        """Kill it; what the system has of its files stays."""
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, by default so that it writes all that it has."""
        self._process.send_signal(how)
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def hold(self) -> None:
        """Suspend it: it accepts bytes and answers nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # its threads stop one by one

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)
