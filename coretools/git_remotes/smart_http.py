"""git's protocol over HTTP (gitprotocol-http(5)): requests of git become requests of HTTP, and answers stream back.

git speaks as over any other connection. Of version 2, each of its requests is complete in itself; a push is one
request. The token stays here: git never has it.
"""

from collections.abc import AsyncIterator, Callable

from coretools.config.limits import Limits
from coretools.config.remote_urls import InvalidUrl, RemoteUrl
from coretools.egress.connector import Connector
from coretools.egress.peer import Peer
from coretools.errors import NotFound, PermissionRefused, TooLarge, Unreachable, Unsupported
from coretools.git_remotes.exchange import Service, too_large
from coretools.git_remotes.http_client import Headers, HttpClient, Response
from coretools.git_remotes.packets import FLUSH, PacketEnd, packet_length, packets_of, read_section

MAX_REDIRECTS = 3
"""Most redirects before the first request, all on the same host."""

BUFFERED_BYTES = 1024 * 1024
"""A longer pack is sent in chunks, which some servers do not accept."""

ADVERTISED_BYTES = 16 * 1024 * 1024
"""Longest list of references and capabilities."""

_VERSION = ("Git-Protocol", "version=2")


class SmartHttp:
    """A way to a repository of one HTTP server."""

    def __init__(
        self,
        url: RemoteUrl,
        connector: Connector,
        *,
        authorization: str,
        authorities: str,
        limits: Limits,
        accepts: Callable[[RemoteUrl], bool],
    ) -> None:
        """`accepts` decides about a path on the same host to which the server redirects."""
        self._url = url
        self._client = HttpClient(url, connector, authorities=authorities, idle_seconds=limits.transfer_idle_seconds)
        self._authorization: Headers = [("Authorization", authorization)] if authorization else []
        self._left = self._limit_bytes = limits.transfer_bytes
        self._accepts = accepts

    async def serve(self, service: Service, git: Peer) -> None:
        """Pass on requests and answers until git ends.

        Raises:
            Unreachable, PermissionRefused, NotFound, Unsupported, TooLarge: the server's answer, or none.
        """
        advertised = await self._advertised(service)
        if service == "git-upload-pack" and packets_of(advertised[:1000])[:1] != [b"version 2\n"]:
            raise Unsupported(f"{self._url.authority}: the server does not speak version 2 of git's protocol")
        await git.send(advertised)
        end = PacketEnd()
        end.add(advertised)
        # Of an answer that is cut git itself says what is wrong, once it has the end.
        if end.is_complete and service == "git-upload-pack":
            await self._fetch(git)
        elif end.is_complete and packets_of(commands := await read_section(git)):
            await self._post(service, git, await _push_body(git, commands), most=self._left)
        git.send_end()

    async def _fetch(self, git: Peer) -> None:
        """Pass on one request after the other. An answer that is cut ends this: git would wait for the rest."""
        while (request := await read_section(git)) not in (b"", FLUSH):
            is_list = packets_of(request)[:1] == [b"command=ls-refs\n"]
            if not await self._post("git-upload-pack", git, request, most=ADVERTISED_BYTES if is_list else self._left):
                return

    async def _advertised(self, service: Service) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            target = f"{self._url.path}/info/refs?service={service}"
            headers = [*self._authorization, *([_VERSION] if service == "git-upload-pack" else [])]
            async with self._client.request("GET", target, headers) as response:
                if not 300 <= response.status < 400:
                    self._require(response, f"application/x-{service}-advertisement")
                    advertised = _without_service(await self._whole(response))
                    if not advertised:
                        raise self._empty("info/refs")
                    return advertised
                self._follow(response.headers.get("location", ""), service)
        raise Unreachable(f"{self._url.authority}: redirects more than {MAX_REDIRECTS} times")

    def _follow(self, location: str, service: Service) -> None:
        """Go on at another path of the same host, if the policy allows that one too."""
        target = self._redirected(location, service)
        if target is None:
            raise Unreachable(f"{self._url.authority}: redirects to a page that is no repository")
        here = (self._url.scheme, self._url.host, self._url.port)
        if (target.scheme, target.host, target.port) != here or not self._accepts(target):
            raise Unreachable(
                f"{self._url.authority}: redirects to {target.text}, which is not followed; give the remote that URL,"
                " if the policy allows it"
            )
        self._url = target

    def _redirected(self, location: str, service: Service) -> RemoteUrl | None:
        """Return the repository to which a redirect leads."""
        address, _, query = location.partition("?")
        if query != f"service={service}" or not address.endswith("/info/refs"):
            return None
        address = address.removesuffix("/info/refs")
        if address.startswith("/"):
            address = f"{self._url.text.removesuffix(self._url.path)}{address}"
        try:
            return RemoteUrl.parse(address)
        except InvalidUrl:
            return None

    async def _post(self, service: Service, git: Peer, body: bytes | AsyncIterator[bytes], *, most: int) -> bool:
        """Pass on a request and its answer; return whether the answer is complete."""
        headers = [
            *self._authorization,
            ("Content-Type", f"application/x-{service}-request"),
            ("Accept", f"application/x-{service}-result"),
            *([_VERSION] if service == "git-upload-pack" else []),
        ]
        async with self._client.request("POST", f"{self._url.path}/{service}", headers, body) as response:
            self._require(response, f"application/x-{service}-result")
            end = PacketEnd()
            async for piece in response.body:
                self._left -= len(piece)
                most -= len(piece)
                if self._left < 0:
                    raise too_large(self._limit_bytes)
                if most < 0:
                    raise TooLarge("the remote has too many references", limit=ADVERTISED_BYTES)
                end.add(piece)
                await git.send(piece)
            if end.is_empty:
                raise self._empty(service)
            return end.is_complete

    def _empty(self, what: str) -> Unreachable:
        return Unreachable(f"{self._url.authority}: the server's answer to {what} is empty")

    async def _whole(self, response: Response) -> bytes:
        data = bytearray()
        async for piece in response.body:
            data += piece
            if len(data) > min(ADVERTISED_BYTES, self._limit_bytes):
                raise TooLarge("the remote has too many references", limit=ADVERTISED_BYTES)
        return bytes(data)

    def _require(self, response: Response, content_type: str) -> None:
        where = self._url.authority
        if response.status in (401, 403):
            way = "the operator configures others" if self._authorization else "the operator configures some"
            raise PermissionRefused(
                f"{where}: refused ({response.status}): {'with' if self._authorization else 'without'} credentials;"
                f" {way} in the [[remote]] of the policy file"
            )
        if response.status == 404:
            raise NotFound(f"{self._url.text}: no repository there, or none for these credentials (404)")
        if response.status != 200:
            raise Unreachable(f"{where}: answered with status {response.status}")
        if response.headers.get("content-type", "").partition(";")[0].strip() != content_type:
            raise Unsupported(f"{self._url.text}: not a git repository over smart HTTP")


def _without_service(data: bytes) -> bytes:
    """Return an advertisement without the packet that names the service, which only HTTP has."""
    if not data[4:].startswith(b"# service="):
        return data
    return data[packet_length(data[:4]) :].removeprefix(FLUSH)


async def _push_body(git: Peer, commands: bytes) -> bytes | AsyncIterator[bytes]:
    """Return the body of a push: references, and the pack if one of them is not deleted."""
    if not any(_needs_pack(packet) for packet in packets_of(commands)):
        return commands
    buffered = bytearray(commands)
    while len(buffered) <= BUFFERED_BYTES:
        piece = await git.receive()
        if not piece:
            return bytes(buffered)
        buffered += piece
    return _streamed(bytes(buffered), git)


async def _streamed(first: bytes, git: Peer) -> AsyncIterator[bytes]:
    yield first
    while piece := await git.receive():
        yield piece


def _needs_pack(packet: bytes) -> bool:
    parts = packet.split(b" ", 2)
    return len(parts) == 3 and len(parts[1]) >= 40 and parts[1].strip(b"0") != b""
