"""The SDK's client on an open byte stream: one line of JSON for each message."""

import contextlib
import os
import subprocess
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
from anyio.abc import ByteStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage


class Over:
    """The two streams that the SDK's client needs, over a byte stream with one line of JSON for each message."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> TransportStreams:
        received, read = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        write, to_send = anyio.create_memory_object_stream[SessionMessage](16)
        for stream in (received, read, write, to_send):
            self._stack.push_async_callback(stream.aclose)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(self._receive, received)
        tasks.start_soon(self._send, to_send)
        self._stack.callback(tasks.cancel_scope.cancel)
        return read, write

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()
        await self._stack.aclose()

    async def _receive(self, received: Any) -> None:
        buffered = b""
        with contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                *lines, buffered = (buffered + await self._stream.receive()).split(b"\n")
                for line in lines:
                    await received.send(SessionMessage(types.jsonrpc_message_adapter.validate_json(line)))

    async def _send(self, to_send: Any) -> None:
        async for item in to_send:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            await self._stream.send(text.encode() + b"\n")


class Pipes(ByteStream):
    """The two pipes of a process; it ends with them."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.wait_readable(self._stdout)
        data = b"" if self._stdout.closed else os.read(self._stdout.fileno(), max_bytes)
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        await anyio.wait_writable(self._stdin)
        self._stdin.write(item)
        self._stdin.flush()

    async def send_eof(self) -> None:
        self._stdin.close()

    async def aclose(self) -> None:
        """Close its input, and wait for its end."""
        with anyio.CancelScope(shield=True):
            self._stdin.close()
            await anyio.to_thread.run_sync(self._process.wait)
            anyio.notify_closing(self._stdout)
            await anyio.lowlevel.checkpoint()  # the reader has left by then
            self._stdout.close()
