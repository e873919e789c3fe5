"""git's own protocol on TCP (git://): no encryption and no credentials."""

from coretools.config.remote_urls import RemoteUrl
from coretools.egress.connector import Connector
from coretools.egress.hosts import shown
from coretools.egress.peer import Peer
from coretools.git_remotes.exchange import Service, pass_bytes


class GitDaemon:
    """A way to a repository that git-daemon(1) serves."""

    def __init__(self, url: RemoteUrl, connector: Connector, *, limit_bytes: int) -> None:
        self._url = url
        self._connector = connector
        self._limit_bytes = limit_bytes

    async def serve(self, service: Service, git: Peer) -> None:
        """Connect, name the repository, and pass bytes until both sides have ended.

        Raises:
            Refused: the host is not reached. TooLarge: it sent too much.
        """
        remote = Peer(await self._connector.open(self._url.host, self._url.port))
        try:
            version = "\0version=2\0" if service == "git-upload-pack" else ""
            port = "" if self._url.port == 9418 else f":{self._url.port}"
            request = f"{service} {self._url.path}\0host={shown(self._url.host)}{port}\0{version}".encode()
            await remote.send(f"{len(request) + 4:04x}".encode() + request)
            await pass_bytes(git, remote, limit_bytes=self._limit_bytes)
        finally:
            remote.close()
