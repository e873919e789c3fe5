"""Answer requests for a model (sampling) by a command of the user: the request on its input, the answer on its output.

The command is started without a shell and never sees text of a server in its arguments. It starts in the home: an agent
program reads instructions and settings, which may name servers and hooks, where it starts.
"""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio
import mcp_types as types
from pydantic import ValidationError

from coretools.client.common.failures import first_leaf
from coretools.client.connection.stdio import LINGER_SECONDS, ChildTracker, read_output, spawn_tracked
from coretools.errors import CannotStart, CoreError, DeadlinePassed, TooLarge
from coretools.process.children.spawn import ChildProcess

SECONDS = 120.0
"""For one answer."""

MAX_ANSWER_BYTES = 1024 * 1024
"""Of the command's standard output."""

MAX_ERROR_BYTES = 4096
"""Kept of its standard error."""


@dataclass(frozen=True, slots=True)
class SamplingCommand:
    """The command that answers for a model."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    tracker: ChildTracker
    """Ends the command if this process is killed."""
    directory: str = "/"
    """Where it starts."""
    seconds: float = SECONDS

    async def answer(self, server: str, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        """Run the command for one request.

        Raises:
            CannotStart: it can't be started, or ended with an error. DeadlinePassed: no answer in time.
            TooLarge: its answer is too long.
        """
        request = {
            "server": server,
            "method": "sampling/createMessage",
            "params": params.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        with anyio.move_on_after(self.seconds):
            output = await self._run(json.dumps(request).encode() + b"\n")
            return _result(output.decode("utf-8", "replace"), os.path.basename(self.argv[0]))
        raise DeadlinePassed(f"the sampling command {self.argv[0]}: no answer within {self.seconds:g} s")

    async def _run(self, data: bytes) -> bytes:
        child = spawn_tracked(self.argv, self.environment, self.directory, self.tracker)
        slot = self.tracker.watchdog.register(child.pid)
        output, errors = bytearray(), bytearray()
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_write, child, data)
                tasks.start_soon(_read, child.stderr, errors, None)
                await _read(child.stdout, output, MAX_ANSWER_BYTES)
                await child.wait()
                child.reap()
                # Its last words may still be in the pipe; a process that it left may hold the pipe for ever.
                tasks.cancel_scope.deadline = anyio.current_time() + LINGER_SECONDS
        except* CoreError as group:
            failure = first_leaf(group)
        finally:
            child.signal_group(signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await child.wait()
            child.reap()
            self.tracker.watchdog.unregister(slot)
            child.close()
        if failure is not None:
            raise failure
        if child.exit_code != 0:
            end = f"exit code {child.exit_code}" if child.signal_name is None else child.signal_name
            words = errors[-MAX_ERROR_BYTES:].decode("utf-8", "replace").strip().splitlines()[-1:]
            raise CannotStart(f"the sampling command {self.argv[0]} ended with {': '.join([end, *words])}")
        return bytes(output)


def shown_messages(params: types.CreateMessageRequestParams) -> Sequence[str]:
    """Return what a person sees before a model is asked: the system prompt and each message."""
    lines = [f"system: {params.system_prompt}"] if params.system_prompt else []
    for message in params.messages:
        for block in message.content_as_list:
            text = block.text if isinstance(block, types.TextContent) else f"[{block.type}]"
            lines.append(f"{message.role}: {text}")
    return lines


def _result(text: str, program: str) -> types.CreateMessageResult:
    """Return the answer: the JSON of a result, or else plain text."""
    try:
        answer = json.loads(text)
        if isinstance(answer, dict) and "content" in answer:
            return types.CreateMessageResult.model_validate({"role": "assistant", "model": program, **answer})
    except (ValidationError, ValueError, RecursionError):
        pass  # text that looks like JSON is an answer too
    content = types.TextContent(type="text", text=text.strip())
    return types.CreateMessageResult(role="assistant", content=content, model=program, stop_reason="endTurn")


async def _write(child: ChildProcess, data: bytes) -> None:
    left = memoryview(data)
    try:
        while left and child.stdin is not None:
            try:
                left = left[os.write(child.stdin, left) :]
            except BlockingIOError:
                await anyio.wait_writable(child.stdin)
    except BrokenPipeError:
        pass  # the command need not read the whole request
    child.close_stdin()


async def _read(descriptor: int, into: bytearray, most: int | None) -> None:
    """Read to the end. Beyond `most` bytes raise an error; without it keep the end only."""
    while data := await read_output(descriptor):
        into += data
        if most is None:
            del into[:-MAX_ERROR_BYTES]
        elif len(into) > most:
            raise TooLarge(f"the answer of the sampling command has more than {most} bytes")
