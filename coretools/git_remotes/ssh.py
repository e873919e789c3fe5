"""ssh to a host that a rule permits, without a network of its own.

The server connects to an address that was judged, and hands the socket to an ssh that only authenticates
(`ProxyCommand=-`, ssh_config(5)). A second ssh asks the first one to run git's service on the host. Both are confined:
they can open sockets of files (the agent, and the one between them) and no others, and start nothing.
"""

import os
import shlex
import socket
from collections.abc import Sequence
from tempfile import TemporaryDirectory

import anyio

from coretools.config.limits import Limits
from coretools.config.remote_policy import RemoteRule
from coretools.config.remote_urls import RemoteUrl
from coretools.confinement.landlock import CHANGE, READ, READ_FILE, RESOLVE_UNIX, Rule
from coretools.egress.connector import Connector
from coretools.egress.peer import Peer
from coretools.errors import CannotStart, CoreError, PermissionRefused, Unreachable
from coretools.git_remotes.exchange import Service
from coretools.git_remotes.process_transport import ProcessTransport
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.open_beneath import HANDLE
from coretools.roots.root import Directory, Root, RootedPath

_GLOBAL_HOSTS = "/etc/ssh/ssh_known_hosts"
_SYSTEM_FILES = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl/openssl.cnf", _GLOBAL_HOSTS)

_OPTIONS = (
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "CheckHostIP=no", "VerifyHostKeyDNS=no"),
    *("PreferredAuthentications=publickey", "IdentityFile=none", "ForwardAgent=no", "ForwardX11=no"),
    *("ClearAllForwardings=yes", "PermitLocalCommand=no", "Tunnel=no", "CanonicalizeHostname=no", "EscapeChar=none"),
    *("RequestTTY=no", "LogLevel=ERROR", "ControlPersist=no", "SendEnv=GIT_PROTOCOL"),
    f"GlobalKnownHostsFile={_GLOBAL_HOSTS}",
)

_SOCKET = "s"

CONNECT_SECONDS = 30.0
"""For the first ssh to authenticate."""

_POLL_SECONDS = 0.02
"""ssh tells nobody when its socket is there."""

_MESSAGE_CHARACTERS = 300


class SshTransport:
    """A way to a repository on a host that ssh reaches."""

    def __init__(
        self, url: RemoteUrl, rule: RemoteRule, runner: Runner, confined: ConfinedRunner, *, limits: Limits, agent: str
    ) -> None:
        """`agent`: the socket of the user's ssh agent; empty: no credentials."""
        self._url = url
        self._rule = rule
        self._runner = runner
        self._confined = confined
        self._limits = limits
        self._agent = agent

    async def serve(self, service: Service, git: Peer) -> None:
        """Authenticate, run the service on the host, and pass bytes until both sides have ended.

        Raises:
            Refused, Unreachable: the host is not reached. PermissionRefused: it is not the known one, or refuses the
            user. TooLarge: it sent too much. CannotStart: there is no ssh.
        """
        if self._rule.credentials == "agent" and not self._agent:
            raise PermissionRefused("there is no ssh agent: the server was started without SSH_AUTH_SOCK")
        if self._agent and (reason := self._runner.reach.reason(self._agent)):
            raise PermissionRefused(f"SSH_AUTH_SOCK: {reason}; start the agent with its socket elsewhere")
        connected = await Connector(self._rule.hosts(self._url)).open(self._url.host, self._url.port)
        failures: list[CoreError] = []
        # Beside the scratch directory: no command reaches what is there, even where /tmp is shared with commands.
        apart = os.path.dirname(self._runner.scratch) or None
        with connected, TemporaryDirectory(prefix="coretools-ssh-", dir=apart) as private:
            async with anyio.create_task_group() as group:
                group.start_soon(self._authenticate, private, connected, failures)
                try:
                    if await self._is_authenticated(private, failures):
                        await self._serve(private, service, git)
                except CoreError as error:  # raised below: a task group would wrap it
                    failures.append(error)
                group.cancel_scope.cancel()
        if failures:
            raise failures[0]

    async def _authenticate(self, private: str, connected: socket.socket, failures: list[CoreError]) -> None:
        """Run the ssh that has the connection, until it is cancelled."""
        try:
            options = ("ControlMaster=yes", "ProxyCommand=-")
            completed = await self._run(private, options, ("-N", "--", self._host), connected.fileno())
            failures.append(PermissionRefused(self._explained(completed) or f"{self._url.authority}: ssh ended"))
        except CoreError as error:
            failures.append(error)

    async def _is_authenticated(self, private: str, failures: list[CoreError]) -> bool:
        """Wait for the socket of the first ssh; False if it ended before.

        Raises:
            Unreachable: it takes too long.
        """
        with anyio.move_on_after(CONNECT_SECONDS):
            while not await anyio.Path(private, _SOCKET).exists():
                if failures:
                    return False
                await anyio.sleep(_POLL_SECONDS)
            return True
        raise Unreachable(f"{self._url.authority}: ssh did not authenticate within {CONNECT_SECONDS:g} s")

    async def _serve(self, private: str, service: Service, git: Peer) -> None:
        command = f"{service} {shlex.quote(self._url.path)}"

        async def start(_: Service, connection: int) -> Completed:
            options = ("ControlMaster=no", "ProxyCommand=false")
            return await self._run(private, options, ("--", self._host, command), connection)

        await ProcessTransport(start, limit_bytes=self._limits.transfer_bytes, explain=self._explained).serve(
            service, git
        )

    async def _run(self, private: str, options: Sequence[str], words: Sequence[str], connection: int) -> Completed:
        program = self._runner.program("ssh")
        if program is None:
            raise CannotStart("ssh: not found in PATH")
        known = self._rule.known_hosts.replace("%", "%%")
        agent = self._agent.replace("%", "%%") or "none"
        own = (f'UserKnownHostsFile="{known}"', f'IdentityAgent="{agent}"', f"ControlPath={private}/{_SOCKET}")
        named = [word for option in (*_OPTIONS, *own, *options) for word in ("-o", option)]
        user = ("-l", self._url.user) if self._url.user else ()
        run_options = RunOptions(
            timeout_seconds=self._limits.transfer_seconds,
            environment={"PATH": self._runner.tool_path, "LC_ALL": "C", "GIT_PROTOCOL": "version=2"},
            inherit=False,
            connection=connection,
            confined_thread=self._confined.confined_thread(program, self._rules(private), unix_sockets=True),
        )
        argv = (program, "-F", "none", *named, "-p", str(self._url.port), *user, *words)
        with top_directory() as directory:
            return await self._runner.run(argv, cwd=directory, options=run_options)

    def _rules(self, private: str) -> list[Rule]:
        rules: list[Rule] = [(file, READ_FILE) for file in (*_SYSTEM_FILES, self._rule.known_hosts)]
        rules.append((private, READ | CHANGE | RESOLVE_UNIX))
        return [*rules, (self._agent, RESOLVE_UNIX)] if self._agent else rules

    @property
    def _host(self) -> str:
        return str(self._url.host)

    def _explained(self, completed: Completed) -> str:
        """Return what ssh said, in one line, for an error."""
        lines = [line.strip() for line in completed.stderr.text().split("\n") if line.strip()]
        said = " ".join("".join(character for character in line if character.isprintable()) for line in lines[-3:])
        hint = ""
        if "Host key verification failed" in said:
            hint = f"; its key is not the one in {self._rule.known_hosts}, where the operator adds it with ssh-keyscan"
        elif "Permission denied" in said:
            hint = '; credentials = "agent" in the [[remote]] lets it use the user\'s ssh agent'
        return f"{self._url.authority}: ssh: {said[:_MESSAGE_CHARACTERS]}{hint}" if said else ""


def top_directory() -> Directory:
    """Open `/`, for a program that must find nothing of a repository in its working directory."""
    root = Root("/", "/", writable=False, fd=os.open("/", HANDLE), identity=(0, 0))
    return Directory(root.fd, RootedPath(root, "."), "/")
