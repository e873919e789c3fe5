"""The connection to NATS: opened again when it is lost, failures as `Unreachable`, and a URL that is never shown."""

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote_from_bytes, unquote, urlsplit

import anyio
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.client import JetStreamContext
from nats.js.errors import APIError

from coretools.errors import BadSetting, CoreError, TooLarge, Unreachable
from coretools.services.interface import UNREACHABLE

SCHEMES = ("nats", "tls")

TIMEOUT_SECONDS = 5.0
"""For one answer of NATS, which may have to write to its disk first, and for a connection to come back."""

TRY_SECONDS = 1.0
"""A question that may be repeated is repeated after this time: its answer is lost when a server ends."""

AGAIN_SECONDS = 0.5
"""Pause between attempts to connect."""

PING_SECONDS = 10
"""A connection that is silent is pinged so often, and given up after two pings without an answer."""

HEADER_BYTES = 512
"""What a message needs beside its value, within the largest message of the server."""

UNREADABLE = "services.url: can't be read; write reserved characters of a password as %XX"


NO_ROOM = frozenset({10077, 10047, 10023})
"""Errors of JetStream that has no room (its errors.json): a limit of the stream, of the account, of the server."""

WRONG_LAST_SEQUENCE = 10071
"""The error of a message that is not the next of its subject."""

_ANSWERS = NO_ROOM | {WRONG_LAST_SEQUENCE, 10037, 10014}
"""Errors that callers expect; the last two: no such message, no such consumer."""

FAILURES = (nats.errors.Error, OSError, TimeoutError)
"""What the client raises."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsAddress:
    """Servers of one NATS, and how to log in."""

    servers: list[str]
    """Without credentials, so that no error of the client can contain them."""
    credentials: dict[str, str] = field(repr=False)
    tls: ssl.SSLContext | None
    """With `tls://`: a server without TLS is refused."""

    @classmethod
    def parse(cls, url: str) -> "NatsAddress":
        """Read `nats://user:password@host:port,host:port`, or `tls://...`; a user alone is a token.

        Raises:
            BadSetting: the URL can't be used; it is not repeated.
        """
        try:
            parts = urlsplit(url)
            login, _, hosts = parts.netloc.rpartition("@")
            servers = [f"nats://{host}" for host in hosts.split(",")]
            is_usable = all(urlsplit(server).hostname and urlsplit(server).port != 0 for server in servers)
        except ValueError:
            # Without the cause, which can repeat a part of a password.
            raise BadSetting(UNREADABLE) from None
        if not is_usable or parts.scheme not in SCHEMES or parts.path not in {"", "/"} or parts.query or parts.fragment:
            raise BadSetting(UNREADABLE)
        user, colon, password = login.partition(":")
        credentials = {"user": unquote(user), "password": unquote(password)} if colon else {"token": unquote(user)}
        tls = ssl.create_default_context() if parts.scheme == "tls" else None
        return cls(servers=servers, credentials=credentials if login else {}, tls=tls)


class NatsConnection:
    """The client of one NATS, shared by all services of a process."""

    def __init__(self, address: NatsAddress, prepare: Callable[[JetStreamContext], Awaitable[None]]) -> None:
        """`prepare` is awaited whenever a connection has been opened, before others use it."""
        self._address = address
        self._prepare = prepare
        self._client: Any = None
        self._usable = asyncio.Event()
        self._gap_listeners: list[Callable[[], None]] = []
        self._subscribers: list[_Subscriber] = []
        self._reported = ""

    async def client(self) -> Any:
        """The client, once it is connected. `Any`: half of its functions have no types.

        Raises:
            Unreachable: it is not connected in time.
        """
        with anyio.move_on_after(TIMEOUT_SECONDS):
            await self._usable.wait()
            return self._client
        raise Unreachable(UNREACHABLE)

    async def ask(self, question: Callable[[JetStreamContext], Awaitable[T]], *, may_repeat: bool = False) -> T:
        """Put a question to JetStream. One that `may_repeat` survives a restart of the server.

        Raises:
            Unreachable: no answer in time, or it was refused as a whole. APIError: one that callers expect.
        """
        return await self.request(
            lambda client: question(client.jetstream(timeout=TIMEOUT_SECONDS)), may_repeat=may_repeat
        )

    async def request(self, question: Callable[[Any], Awaitable[T]], *, may_repeat: bool = False) -> T:
        """Put a question to the client; otherwise as `ask`."""
        deadline = anyio.current_time() + TIMEOUT_SECONDS
        while True:
            client = await self.client()
            try:
                async with asyncio.timeout(TRY_SECONDS if may_repeat else TIMEOUT_SECONDS):
                    return await question(client)
            except FAILURES as error:
                if isinstance(error, APIError) and error.err_code in _ANSWERS:
                    raise
                logger.debug("nats: %s", error if isinstance(error, APIError) else type(error).__name__)
                if not may_repeat or anyio.current_time() > deadline:
                    raise Unreachable(UNREACHABLE) from error
            await anyio.sleep(TRY_SECONDS / 10)

    async def remove_message(self, stream: str, number: int, *, may_repeat: bool = False) -> bool:
        """Remove a message from a stream. Returns False if it is gone.

        Raises:
            Unreachable: no answer in time; it may have been removed.
        """
        # Not overwritten with random bytes, as the client's own function has it.
        request = json.dumps({"seq": number, "no_erase": True}).encode()
        subject = f"$JS.API.STREAM.MSG.DELETE.{stream}"
        answer = await self.request(
            lambda client: client.request(subject, request, timeout=TIMEOUT_SECONDS), may_repeat=may_repeat
        )
        return bool(json.loads(answer.data).get("success"))

    @contextmanager
    def told_of_gaps(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` whenever a connection was opened again, until the end of the block."""
        self._gap_listeners.append(listener)
        try:
            yield
        finally:
            self._gap_listeners.remove(listener)

    @asynccontextmanager
    async def subscribed(self, subject: str, receive: Callable[[Msg], Awaitable[None]]) -> AsyncIterator[None]:
        """Receive the messages of a subject until the end of the block, on whatever connection there is.

        Raises:
            Unreachable: it is not connected in time.
        """
        subscriber = _Subscriber(subject, receive)
        await self.request(subscriber.begin)
        self._subscribers.append(subscriber)
        try:
            yield
        finally:
            self._subscribers.remove(subscriber)
            with anyio.CancelScope(shield=True), anyio.move_on_after(TRY_SECONDS):
                await subscriber.end()

    async def require_room(self, name: str, value: bytes) -> None:
        """Refuse what the server would: it answers a message that is too large by closing the connection.

        Raises:
            TooLarge: the value is too large. Unreachable: it is not connected in time.
        """
        most = (await self.client()).max_payload - HEADER_BYTES
        if len(value) > most:
            raise TooLarge(f"{name}: a value of {len(value)} bytes is too large; NATS takes {most} (max_payload)")

    async def run(self) -> None:
        """Connect, and again whenever the connection is lost, until cancelled."""
        while True:
            # A client can connect again by itself, but leaves sockets open, and gives up after some errors of a server.
            closed = asyncio.Event()
            client: Any = _Client(requires_tls=self._address.tls is not None)
            try:
                await self._connect(client, closed)
                await self._use(client)
                await closed.wait()
                self._report("the connection was lost")
            except APIError as error:
                self._report(error.description or type(error).__name__)
            except CoreError as error:
                self._report(str(error))
            except FAILURES as error:
                self._report(type(error).__name__)
            finally:
                self._usable.clear()
                with anyio.CancelScope(shield=True), anyio.move_on_after(TRY_SECONDS):
                    await client.close()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _connect(self, client: Any, closed: asyncio.Event) -> None:
        async def failed(error: Exception) -> None:
            self._report(type(error).__name__)

        async def disconnected() -> None:
            self._usable.clear()

        async def ended() -> None:
            closed.set()

        tls = {} if self._address.tls is None else {"tls": self._address.tls}
        await client.connect(
            self._address.servers,
            name="coretools",
            error_cb=failed,
            disconnected_cb=disconnected,
            closed_cb=ended,
            allow_reconnect=False,
            max_reconnect_attempts=-1,  # but for a server that does not listen
            reconnect_time_wait=AGAIN_SECONDS,
            ping_interval=PING_SECONDS,
            **tls,
            **self._address.credentials,
        )

    async def _use(self, client: Any) -> None:
        await self._prepare(client.jetstream(timeout=TIMEOUT_SECONDS))
        for subscriber in self._subscribers:
            await subscriber.begin(client)
        is_first = self._client is None
        self._client = client
        self._reported = ""
        self._usable.set()
        if not is_first:
            logger.warning("services: connected to NATS again")
            for listener in tuple(self._gap_listeners):
                listener()

    def _report(self, reason: str) -> None:
        if reason != self._reported:
            logger.warning("services: NATS can't be used now; calls that need it fail until it can: %s", reason)
            self._reported = reason


class NatsClock:
    """The clock of NATS, as far as a process can know it: read when needed, at most once a minute.

    A server of 2.9 tells its time by nothing but the time of a message that it stores.
    """

    READ_SECONDS = 60.0

    def __init__(self, connection: NatsConnection, stream: str, subject: str) -> None:
        """`subject` is one of `stream`, which keeps one message of it."""
        self._connection = connection
        self._stream = stream
        self.subject = subject
        self._offset = 0.0
        self._read_at = -self.READ_SECONDS

    async def now(self) -> float:
        """Seconds since 1970, late by at most the time that a message takes to be stored.

        Raises:
            Unreachable: NATS did not answer.
        """
        if time.monotonic() - self._read_at >= self.READ_SECONDS:
            await self._connection.ask(lambda js: js.publish(self.subject), may_repeat=True)
            stored_by = time.monotonic()
            message = await self._connection.ask(
                lambda js: js.get_last_msg(self._stream, self.subject), may_repeat=True
            )
            assert message.time is not None
            self._offset, self._read_at = message.time.timestamp() - stored_by, stored_by
        return time.monotonic() + self._offset


class _Subscriber:
    def __init__(self, subject: str, receive: Callable[[Msg], Awaitable[None]]) -> None:
        self._subject = subject
        self._receive = receive
        self._subscription: Any = None

    async def begin(self, client: Any) -> None:
        """Subscribe; NATS knows of it when this returns."""
        self._subscription = await client.subscribe(self._subject, cb=self._receive)
        # Any answer to what was sent later; not `flush`, whose PING overtakes what waits to be sent (nats-py 2.16).
        await client.jetstream(timeout=TIMEOUT_SECONDS).account_info()

    async def end(self) -> None:
        try:
            await self._subscription.unsubscribe()
        except FAILURES as error:
            logger.debug("nats: %s", type(error).__name__)


class _Client(Client):
    """Refuses a server without TLS before it sends credentials: the library would go on in the clear."""

    def __init__(self, *, requires_tls: bool) -> None:
        super().__init__()
        self._requires_tls = requires_tls

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self._requires_tls and not info.get("tls_required"):
            raise nats.errors.SecureConnRequiredError
        await super()._process_info(info, initial_connection)

    async def lose_interest(self, subscription: Subscription) -> None:
        """Let the server send nothing more; what it has sent is still received, until `unsubscribe`."""
        await self._send_unsubscribe(subscription._id)  # noqa: SLF001 - `drain` waits by `flush`, see above


def token(name: str) -> str:
    """One token of a subject for a name: readable where it can be, different for different names."""
    encoded = quote_from_bytes(name.encode("utf-8", "surrogatepass"), safe="").replace(".", "%2E")
    return encoded or "%"
