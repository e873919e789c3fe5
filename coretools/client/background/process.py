"""The background process of a user: keeps chosen servers connected, for lines of `coretools mcp` that come and go.

Begun by `client.begin`. Each connection to its socket carries the secret, and then one request or, once
attached, the messages of one client of a server. It ends when its last server is stopped, when nobody has used it for a
while, or by a signal; the watchdog ends the servers if it is killed.
"""

import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hmac import compare_digest
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.client.session import ClientRequestContext

from coretools.client.approval.decisions import launch_digest
from coretools.client.configuration.launch import launch_of
from coretools.client.configuration.server_entries import load_configuration
from coretools.client.connection.background_socket import (
    MAX_LINE_BYTES,
    as_line,
    is_own_peer,
    read_secret,
)
from coretools.client.connection.background_stream import Outbox, received
from coretools.client.connection.options import RECONNECT_SECONDS, ConnectionOptions, State
from coretools.client.connection.server_connection import Connection
from coretools.client.connection.server_log import LogDirectory
from coretools.client.connection.server_requests import Callbacks
from coretools.client.containment.containment import Containment
from coretools.client.hub import Connections, open_hub
from coretools.config.logs import configure_logging
from coretools.errors import CoreError, InvalidArguments

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
"""For a client to send the secret and its request."""

MAX_SECRET_BYTES = 256
"""Longest first line of a client."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A server in the background."""

    connection: Connection
    digest: str
    since: str
    config: str | None
    follows: bool
    """Whether it was started with all servers of its configuration."""
    containment: str | None
    """The confinement chosen when the server was started."""
    samples: bool
    """Whether the server was started with sampling enabled."""

    @property
    def is_alive(self) -> bool:
        return self.connection.state in (State.READY, State.CONNECTING)

    def is_same(self, digest: Any, containment: Any, samples: Any) -> bool:
        """Whether it runs with this entry, and as a line wants it that chooses a confinement or answers for a model."""
        is_as_wanted = containment in (None, self.containment) and (self.samples or not samples)
        return bool(self.digest == digest and is_as_wanted)


class _NobodyThere:
    """Answers servers while no client is attached: declared, so that an attached client can answer."""

    def __init__(self, *, samples: bool) -> None:
        self._samples = samples

    def callbacks(self, server: str) -> Callbacks:
        """Return callbacks that refuse."""
        logger.debug("server %s is connected", server)
        return Callbacks(
            elicitation=_cancel_question,
            sampling=_refuse_sampling if self._samples else None,
            log_level="info",
        )


async def _cancel_question(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    logger.info("question %s is cancelled, no client is attached: %s", context.request_id, params.message)
    return types.ElicitResult(action="cancel")


async def _refuse_sampling(context: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.ErrorData:
    logger.info("request %s of %s messages is refused", context.request_id, len(params.messages))
    return types.ErrorData(code=types.INVALID_REQUEST, message="no client is attached")


class Background:
    """The servers, and the answers to requests."""

    def __init__(self, connections: Connections, secret: bytes, idle_seconds: float) -> None:
        self.is_over = anyio.Event()
        self._secret = secret
        self._connections = connections
        self._idle_seconds = idle_seconds
        self._running: dict[str, _Running] = {}
        self._starting = anyio.Lock()
        self._clients = 0
        self._unused = anyio.Event()
        self._used = anyio.current_time()

    async def serve(self, stream: SocketStream) -> None:
        """Answer one client."""
        self._clients += 1
        self._unused = anyio.Event()
        try:
            async with stream:
                await self._answer(stream, BufferedByteReceiveStream(stream))
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the client is gone
        except (anyio.IncompleteRead, anyio.DelimiterNotFound, TimeoutError, ValueError):
            pass  # it sent no request
        finally:
            self._clients -= 1
            self._used = anyio.current_time()
            if not self._clients:
                self._unused.set()

    async def wait_unused(self) -> None:
        """Wait until no client is connected."""
        await self._unused.wait()

    async def end_when_idle(self) -> None:
        """Wait until nobody has used the process for the idle time."""
        while True:
            left = self._used + self._idle_seconds - anyio.current_time()
            if left <= 0 and not self._clients:
                self.is_over.set()
                return
            await anyio.sleep(max(left, 1.0))

    async def _answer(self, stream: SocketStream, reading: BufferedByteReceiveStream) -> None:
        with anyio.fail_after(REQUEST_SECONDS):
            if not compare_digest(await reading.receive_until(b"\n", MAX_SECRET_BYTES), self._secret):
                return
            wanted = json.loads(await reading.receive_until(b"\n", MAX_LINE_BYTES))
        if not isinstance(wanted, dict):
            return
        if wanted.get("do") == "attach":
            await self._attach(stream, reading, wanted)
            return
        actions = {"status": self._status, "start": self._start, "stop": self._stop}
        try:
            answer = await actions[wanted["do"]](wanted)
        except CoreError as error:
            answer = {"error": str(error), "kind": error.kind}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            answer = {"error": f"not understood: {error}", "kind": "invalid-arguments"}
        await stream.send(as_line(answer))

    async def _status(self, _wanted: Mapping[str, Any]) -> dict[str, Any]:
        return {"pid": os.getpid(), "servers": [self._row(key, one) for key, one in self._running.items()]}

    def _row(self, key: str, one: _Running) -> dict[str, Any]:
        connection = one.connection
        return {
            "key": key,
            "name": connection.name,
            "project": connection.entry.project,
            "config": one.config,
            "digest": one.digest,
            "follows": one.follows,
            "since": one.since,
            "state": str(connection.state),
            "protocol": connection.protocol_version,
            "error": None if connection.error is None else str(connection.error),
            "remarks": connection.remarks(),
        }

    async def _start(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Start a server, unless it runs with the same entry; one that does not become ready is not kept."""
        async with self._starting:
            environment, inputs, config = wanted["environment"], wanted["inputs"], wanted["config"]
            entry = load_configuration(wanted["directory"], environment, file=config).find(wanted["name"])
            if entry is None or launch_digest(entry, environment) != wanted["digest"]:
                raise InvalidArguments(f"server {wanted['name']!r}: its entry has just changed; try again")
            key = entry.key
            old = self._running.get(key)
            containment = Containment.of(wanted["confined"], wanted["unconfined"], {})
            choice = containment.choice(entry.name)
            is_kept = old is not None and old.is_alive and old.is_same(wanted["digest"], choice, wanted["samples"])
            if old is not None and is_kept and not wanted["replaces"]:
                return {"state": str(await old.connection.wait_settled()), "was_running": True, "pid": os.getpid()}
            options = replace(
                self._connections.options,
                connect_seconds=wanted["connect_seconds"],
                server_requests=_NobodyThere(samples=wanted["samples"]),
                containment=containment,
            )
            launch = partial(launch_of, entry, environment, inputs)
            connection = await self._connections.start_as(key, entry, launch, options)
            since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            chosen = (wanted["follows"], choice, wanted["samples"])
            self._running[key] = _Running(connection, wanted["digest"], since, config, *chosen)
        state = await connection.wait_settled()
        if state is State.READY:
            return {"state": str(state), "was_running": False, "pid": os.getpid()}
        await self._drop([key])
        error = connection.error or CoreError(f"server {entry.name!r} was stopped")
        return {"error": str(error), "kind": error.kind}

    async def _stop(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        keys = (
            list(self._running) if wanted["keys"] is None else [key for key in wanted["keys"] if key in self._running]
        )
        names = [self._running[key].connection.name for key in keys]
        await self._drop(keys)
        return {"stopped": names, "is_over": self.is_over.is_set()}

    async def _drop(self, keys: list[str]) -> None:
        for key in keys:
            await self._connections.stop(key)
            self._running.pop(key, None)
        if not self._running:
            self.is_over.set()

    async def _attach(
        self, stream: SocketStream, reading: BufferedByteReceiveStream, wanted: Mapping[str, Any]
    ) -> None:
        """Relay the messages of one client until it goes, or the server is lost."""
        one = self._running.get(str(wanted.get("key")))
        asked = (wanted.get("digest"), wanted.get("containment"), wanted.get("samples"))
        if one is None or not one.is_alive or not one.is_same(*asked):
            await stream.send(as_line({"attached": False}))
            return
        await stream.send(as_line({"attached": True}))
        await reading.receive_until(b"\n", MAX_LINE_BYTES)  # the client is ready for messages
        await one.connection.wait_settled()
        outbox = Outbox()
        try:
            client, version, handshake = one.connection.attach(outbox.put)
        except CoreError as error:
            await stream.send(as_line({"lost": str(error)}))
            return
        try:
            await stream.send(as_line({"version": version, "handshake": handshake}))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(outbox.send_all, stream)
                tasks.start_soon(self._say_lost, client.wait_ended, outbox)
                async for message, headers in received(reading):
                    await client.receive(message, headers)
                tasks.cancel_scope.cancel()
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass  # the client is gone
        finally:
            await client.detach()

    async def _say_lost(self, wait_ended: Any, outbox: Outbox) -> None:
        outbox.close(as_line({"lost": await wait_ended()}))


async def _run(listener: socket.socket, secret: bytes, idle_seconds: float) -> None:
    environment = dict(os.environ)
    options = ConnectionOptions(reconnect_seconds=RECONNECT_SECONDS, logs=LogDirectory(environment))
    async with open_hub([], environment, options=options) as connections, anyio.create_task_group() as tasks:
        background = Background(connections, secret, idle_seconds)
        tasks.start_soon(_accept, listener, background)
        tasks.start_soon(background.end_when_idle)
        tasks.start_soon(_end_by_signal, background)
        await background.is_over.wait()
        # The line that stopped the last server gets its answer first.
        with anyio.move_on_after(1.0):
            await background.wait_unused()
        tasks.cancel_scope.cancel()


async def _accept(listener: socket.socket, background: Background) -> None:
    listener.setblocking(False)
    async with anyio.create_task_group() as tasks:
        while True:
            await anyio.wait_readable(listener)
            with suppress(OSError):  # the client is gone already, or there are no more descriptors
                connection, _ = listener.accept()
                connection.setblocking(False)
                if is_own_peer(connection):
                    tasks.start_soon(background.serve, await SocketStream.from_socket(connection))
                else:
                    connection.close()


async def _end_by_signal(background: Background) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            background.is_over.set()


def main() -> None:
    """Serve until there is nothing to do: `LISTENER LOCK PATH IDLE_SECONDS`."""
    listener, lock, path, idle_seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    os.set_inheritable(listener, False)
    os.set_inheritable(lock, False)  # a server that outlives this process must not hold the lock
    os.chdir("/")
    configure_logging("critical", os.environ)  # a server that causes errors must not fill the disk
    with socket.socket(fileno=listener) as listening:
        anyio.run(_run, listening, read_secret(path), idle_seconds)
        for left in (path, f"{path}.secret"):
            with suppress(OSError):
                os.unlink(left)


if __name__ == "__main__":
    main()
