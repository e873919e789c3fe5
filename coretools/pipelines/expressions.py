"""JSONPath expressions about results, evaluated by `expression_worker` within limits of time and memory.

An expression comes from a script, the document from a server: neither can make the caller wait or run out of memory.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from coretools.errors import CoreError, InvalidArguments

WORKER = Path(__file__).with_name("expression_worker.py")

SECONDS = 10.0
"""For one request, waiting included."""

CPU_SECONDS = 2
"""Processor time for one request; the worker may take up to a second more."""

MAX_EXPRESSION = 4096
"""Characters."""

MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of an answer: a document whose characters are all escaped."""

Part = tuple[str, ...]
"""The path of a part in the document."""


class BadExpression(InvalidArguments):
    """An expression is wrong, selects not exactly one value, or takes too long."""

    kind = "bad-expression"


class AssertionFailed(CoreError):
    """A result does not satisfy an assertion; the message shows the values of its queries."""

    kind = "assertion-failed"
    exit_code = 3


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether an expression holds, and if not, the values of its queries as text."""

    holds: bool
    actual: Sequence[tuple[str, str]]

    @property
    def description(self) -> str:
        """The values as a message shows them."""
        return "; ".join(f"{query} is {shown}" for query, shown in self.actual) or "it is not so"


class Expressions:
    """Evaluates expressions about parts of one document. The process is started with the first expression."""

    def __init__(self, cpu_seconds: int = CPU_SECONDS) -> None:
        self._cpu_seconds = cpu_seconds
        self._parts: dict[Part, Any] = {}
        self._process: Process | None = None
        self._answers: BufferedByteReceiveStream | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def put(self, path: Part, document: Any) -> None:
        """Set a part of the document."""
        self._parts[path] = document
        if self._process is not None:
            await self._ask({"do": "put", "path": path, "document": document}, "the result")

    async def check(self, text: str, path: Part = ()) -> Checked:
        """Evaluate an expression that holds or not for a part of the document.

        Raises:
            BadExpression: it is wrong, or takes too long.
        """
        answer = await self._ask({"do": "check", "text": _bounded(text), "path": path}, text)
        return Checked(answer["holds"], [(query, shown) for query, shown in answer["actual"]])

    async def select(self, text: str) -> Any:
        """Return the only value that a query selects; `$.` may be left out.

        Raises:
            BadExpression: it is wrong, takes too long, or selects nothing or several values.
        """
        values = await self._ask({"do": "select", "text": _query(text), "path": ()}, text)
        if len(values) != 1:
            raise BadExpression(f"{text[:200]!r} selects {'several values' if values else 'nothing'}")
        return values[0]

    async def compile(self, text: str, *, is_predicate: bool) -> None:
        """Check the form of an expression, or of a query.

        Raises:
            BadExpression: it is wrong.
        """
        form = _bounded(text) if is_predicate else _query(text)
        await self._ask({"do": "compile", "text": form, "is_predicate": is_predicate}, text)

    async def masked(self, document: Any, paths: Sequence[str]) -> Any:
        """Return a document in which everything that the paths select has the same value.

        Raises:
            BadExpression: a path is wrong, or takes too long.
        """
        if not paths:
            return document
        return await self._ask({"do": "mask", "paths": list(map(_bounded, paths)), "document": document}, "--ignore")

    async def _ask(self, request: dict[str, Any], text: str) -> Any:
        line = json.dumps(request).encode() + b"\n"
        try:
            with anyio.fail_after(SECONDS):
                process, answers = await self._started()
                await process.stdin.send(line)  # type: ignore[union-attr]  # a pipe
                answer = json.loads(await answers.receive_until(b"\n", MAX_ANSWER))
        except (TimeoutError, anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError) as error:
            await self._end()
            raise BadExpression(f"{text[:200]!r} takes too much time or memory") from error
        if "error" in answer:
            raise BadExpression(f"{text[:200]!r} is no usable expression: {answer['error']}")
        return answer["value"]

    async def _started(self) -> tuple[Process, BufferedByteReceiveStream]:
        if self._process is None or self._answers is None:
            environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
            self._process = await anyio.open_process(
                [sys.executable, "-P", str(WORKER), str(self._cpu_seconds)],
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environment,
                start_new_session=True,  # Ctrl-C ends us, and we end it
            )
            assert self._process.stdout is not None
            self._answers = BufferedByteReceiveStream(self._process.stdout)
            for path, document in self._parts.items():
                put = {"do": "put", "path": path, "document": document}
                await self._process.stdin.send(json.dumps(put).encode() + b"\n")  # type: ignore[union-attr]  # a pipe
                await self._answers.receive_until(b"\n", MAX_ANSWER)
        return self._process, self._answers

    async def _end(self) -> None:
        process, self._process, self._answers = self._process, None, None
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


def _query(text: str) -> str:
    return _bounded(text if text.startswith("$") else f"$.{text}")


def _bounded(text: str) -> str:
    if len(text) > MAX_EXPRESSION:
        raise BadExpression(f"{text[:80]!r}...: an expression may have {MAX_EXPRESSION} characters")
    return text
