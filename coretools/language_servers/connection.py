"""JSON-RPC with a language server: questions of ours, and what is answered to questions of the server.

The types of the protocol are those of lsprotocol. Messages are read and bounded here (docs/adr/0071). A server is a
program of a stranger: it gets no edit applied and no command run, and what it sends is structured before it is used.

Imported with the first question about code: lsprotocol takes half a second.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cattrs import BaseValidationError, StructureHandlerNotFoundError
from lsprotocol import types
from lsprotocol.converters import get_converter

from coretools.escapes import escape_controls
from coretools.language_servers.failure import NoAnswer
from coretools.language_servers.framing import MessageReader, framed
from coretools.process.children.streams import InputBuffer

MAX_UNREAD_BYTES = 1024 * 1024
"""Of answers to questions of a server that does not read, beside the message that fills its input."""

MAX_UNASKED_BYTES = 64 * 1024 * 1024
"""Most that a server may send after a question besides its answer."""

MAX_WORDS = 300
"""Characters that are repeated of what a server says in its own words."""

METHOD_NOT_FOUND = -32601

ROOM_SECONDS = 0.01
"""Between two looks whether a server has read what it was told."""

_MISFITS = (BaseValidationError, StructureHandlerNotFoundError, LookupError, TypeError, ValueError, AttributeError)
"""What the converter raises where a value has the wrong shape: lsprotocol's own functions look into it unasked."""

Notice = Callable[[str, Mapping[str, Any]], None]

_CONVERTER = get_converter()

_CONSENTS = frozenset(
    {
        "client/registerCapability",
        "client/unregisterCapability",
        "window/workDoneProgress/create",
        "window/showMessageRequest",
        "workspace/codeLens/refresh",
        "workspace/diagnostic/refresh",
        "workspace/inlayHint/refresh",
        "workspace/semanticTokens/refresh",
    }
)
"""Questions that are answered with null: nothing follows from them."""

_REFUSALS: Mapping[str, object] = {
    "workspace/applyEdit": {"applied": False, "failureReason": "a language server changes no files here"},
    "window/showDocument": {"success": False},
}


class Connection:
    """The conversation with one server process."""

    def __init__(self, stdin: InputBuffer, settings: Mapping[str, object], notice: Notice) -> None:
        """`settings` answer the server's configuration requests; `notice` receives its notifications."""
        self._stdin = stdin
        self._settings = settings
        self._notice = notice
        self._reader = MessageReader()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._unasked = 0
        self._unread = 0
        """Bytes of answers to its questions since its input had room."""
        self.failure: NoAnswer | None = None
        """Why there is no conversation any more."""
        self.refused: set[str] = set()
        """What the server asked for and did not get."""

    def feed(self, data: bytes) -> bool:
        """Take output of the server; True if the server has to be stopped."""
        self._unasked += len(data)
        if self._unasked > MAX_UNASKED_BYTES:
            self.end(NoAnswer(f"it sent more than {MAX_UNASKED_BYTES} bytes that nobody asked for"))
            return True
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except NoAnswer as failure:
            self.end(failure)
        return self.failure is not None

    def end(self, failure: NoAnswer) -> None:
        """End the conversation; every question gets this failure. The first one is kept."""
        self.failure = self.failure or failure
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NoAnswer(str(self.failure)))
        self._waiting.clear()

    def notify(self, method: str, params: object) -> None:
        """Send a notification; `params` is of lsprotocol."""
        self._send({"method": method, "params": _CONVERTER.unstructure(params)})

    async def request(self, method: str, params: object, *, seconds: float) -> Any:
        """Ask a question, and return the result as lsprotocol has it.

        Raises:
            NoAnswer: an error, none in time, none that can be understood, or the server is gone.
        """
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._unasked = 0
        try:
            await asyncio.wait_for(self._wait_for_room(), seconds)
            self._send({"id": number, "method": method, "params": _CONVERTER.unstructure(params)})
            message = await asyncio.wait_for(future, seconds)
        except TimeoutError:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        finally:
            # Without an answer in time, and if the call was cancelled.
            if self._waiting.pop(number, None) is not None and (future.cancelled() or not future.done()):
                with suppress(NoAnswer):
                    self.notify("$/cancelRequest", types.CancelParams(number))
        if error := message.get("error"):
            text = error.get("message") if isinstance(error, dict) else error
            raise NoAnswer(f"it answers: {plain(text)}")
        return _structured(method, message)

    def _send(self, message: dict[str, object]) -> None:
        if self.failure is not None:
            raise NoAnswer(str(self.failure))
        if self._stdin.is_closed:
            self.end(NoAnswer("it ended"))
            raise NoAnswer(str(self.failure))
        self._stdin.write(framed({"jsonrpc": "2.0", **message}))

    def _take(self, message: Mapping[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            future = self._waiting.get(number) if isinstance(number, int) else None
            if future is not None and not future.done():
                future.set_result(dict(message))
        elif number is None:
            params = message.get("params")
            self._notice(method, params if isinstance(params, dict) else {})
        else:
            reply: dict[str, object] = {"id": number, **self._reply(method, message.get("params"))}
            # It may ask while it still reads a large file; but without end, more would only stay in memory.
            self._unread = 0 if self._stdin.room else self._unread + len(framed(reply))
            if self._unread > MAX_UNREAD_BYTES:
                raise NoAnswer("it does not read what it is told")
            self._send(reply)

    async def _wait_for_room(self) -> None:
        """Wait until the server has read most of what it was told: a large file takes a moment."""
        while self._stdin.is_open and not self._stdin.room:  # noqa: ASYNC110  # the buffer has no event for it
            await asyncio.sleep(ROOM_SECONDS)

    def _reply(self, method: str, params: object) -> dict[str, object]:
        """Answer a question of the server."""
        if method in _CONSENTS:
            return {"result": None}
        if method == "workspace/configuration":
            items = params.get("items") if isinstance(params, dict) else None
            return {"result": [self._setting(item) for item in items[:100]] if isinstance(items, list) else []}
        self.refused.add(method[:80])
        if method in _REFUSALS:
            return {"result": _REFUSALS[method]}
        return {"error": {"code": METHOD_NOT_FOUND, "message": "not supported"}}

    def _setting(self, item: object) -> object:
        section = item.get("section") if isinstance(item, dict) else None
        return self._settings.get(section) if isinstance(section, str) else dict(self._settings)


def _structured(method: str, message: Mapping[str, Any]) -> Any:
    """The result of an answer as lsprotocol has it; that of `initialize` as it came.

    lsprotocol 2025.0.0 with cattrs 26 can't read the options of notebooks, and servers are careless with theirs.
    """
    if method == "initialize":
        return message.get("result")
    response: Any = types.METHOD_TO_TYPES[method][1]
    try:
        return _CONVERTER.structure({"jsonrpc": "2.0", **message}, response).result
    except _MISFITS as error:
        raise NoAnswer("its answer does not fit the protocol") from error


def plain(words: object) -> str:
    """What a server says in its own words, on one line and short."""
    return escape_controls(" ".join(str(words)[:MAX_WORDS].split()))


def structured_diagnostics(values: object) -> list[types.Diagnostic]:
    """Read the diagnostics of a notification.

    Raises:
        NoAnswer: they do not fit the protocol.
    """
    try:
        return _CONVERTER.structure(values, list[types.Diagnostic])
    except _MISFITS as error:
        raise NoAnswer("its diagnostics do not fit the protocol") from error
