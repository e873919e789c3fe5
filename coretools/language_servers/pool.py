"""The language servers of this server: started on first need, a few at a time, ended when idle, restarted once."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread

from coretools.config.limits import Limits
from coretools.distribution import is_module_here, needs_extra
from coretools.errors import CoreError
from coretools.language_servers.failure import NoAnswer
from coretools.language_servers.find import FoundServer, find_server, missing_server
from coretools.language_servers.kinds import kinds_for
from coretools.roots.root import Root, RootedPath

if TYPE_CHECKING:
    from coretools.language_servers.session import ServerSandbox, Session

IDLE_CHECK_SECONDS = 15.0
"""Most between two looks for idle servers."""

CRASH_SECONDS = 600.0
"""A server that crashes twice within this time is not started again until it has passed."""

Answer = TypeVar("Answer")
Work = Callable[["Session"], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What a server answered, and what a reader of it must know."""

    server: FoundServer
    remarks: tuple[str, ...]


class LanguageServers:
    """The language servers of all roots. `close` must be called."""

    def __init__(
        self, limits: Limits, open_sandbox: "Callable[[Root], ServerSandbox]", search_path: Callable[[], str]
    ) -> None:
        """`open_sandbox` makes that of a root; `search_path` returns PATH of commands."""
        self._limits = limits
        self._open_sandbox = open_sandbox
        self._search_path = search_path
        self._sessions: dict[tuple[str, str], Session] = {}
        self._sandboxes: dict[Root, ServerSandbox] = {}
        self._crashes: dict[tuple[str, str], list[float]] = {}
        self._starting: asyncio.Lock | None = None
        self._idle_check: asyncio.Task[None] | None = None
        self._limiter = CapacityLimiter(2)
        self._is_closed = False

    def find(self, place: RootedPath) -> FoundServer:
        """Return the server for a file.

        Raises:
            NoAnswer: none is known or installed.
        """
        found = find_server(place, self._search_path())
        if found is None:
            raise NoAnswer(missing_server(place) or "no language server knows files of this kind")
        return found

    async def answer(self, place: RootedPath, work: Work[Answer]) -> tuple[Answer, ServerAnswer]:
        """Run `work` with the server of a file; again if the server crashes, or if files change meanwhile.

        Raises:
            NoAnswer: there is no server, or none that answers. CoreError: of `work`.
        """
        found = await to_thread.run_sync(self.find, place, limiter=self._limiter)
        try:
            try:
                return await self.ask(found, work)
            except NoAnswer:
                session = self._sessions.get(found.key)
                if session is None or session.is_alive or session.ended_by_us:
                    raise
                return await self.ask(found, work)  # it crashed: once more, with a new one
        except NoAnswer as error:
            session = self._sessions.get(found.key)
            says = f"; it says: {session.complaint}" if session is not None and session.complaint else ""
            why = f"; {found.limitation}" if found.limitation else ""
            raise NoAnswer(f"{found.kind.name}: {error}{why}{says}") from error

    def ready(self, place: RootedPath) -> FoundServer | None:
        """Return the server of a file if one runs and has read the project; costs nothing if none runs."""
        if not self._sessions or not kinds_for(place.relative):
            return None
        found = find_server(place, self._search_path())
        session = None if found is None else self._sessions.get(found.key)
        return found if session is not None and session.is_ready and not session.is_late else None

    async def ask_in_time(self, found: FoundServer, work: Work[Answer], seconds: float) -> Answer | None:
        """Run `work` with a server that is ready; None if it is not, does not answer in time, or may be outdated.

        One that was late is not asked again until it has answered a question without this limit.
        """
        session = self._sessions.get(found.key)
        if session is None or not (session.is_ready and session.sees_every_file):
            return None
        result = None
        with suppress(NoAnswer), anyio.move_on_after(seconds) as scope:
            async with session.lock:
                await session.catch_up(scope.deadline - anyio.current_time())
                answer = await work(session) if session.is_ready and session.sees_every_file else None
                changed = answer and await session.catch_up(scope.deadline - anyio.current_time())
                result = answer if session.is_ready and session.sees_every_file and not changed else None
                session.last_used = anyio.current_time()
        session.is_late = scope.cancelled_caught
        return result

    async def close(self) -> None:
        """End all servers."""
        self._is_closed = True
        if self._idle_check is not None:
            self._idle_check.cancel()
        with anyio.CancelScope(shield=True):
            for key in list(self._sessions):
                await self._end(key)

    async def ask(self, found: FoundServer, work: Work[Answer]) -> tuple[Answer, ServerAnswer]:
        """Run `work` with this server after telling it what changed; again if something changes meanwhile.

        Raises:
            NoAnswer: it does not answer. CoreError: of `work`.
        """
        session = await self._session(found)
        async with session.lock:
            remarks: list[str] = []
            try:
                await session.catch_up()
                await session.settle()
                result = await self._settled(session, work)
                if await session.catch_up():
                    result = await self._settled(session, work)
                    if await session.catch_up():
                        remarks.append("files change meanwhile, so this may be incomplete; ask again")
                session.is_late = False
            finally:
                session.last_used = anyio.current_time()
            if not session.sees_every_file:
                remarks.append("too many files to notice every change of them; this may be outdated")
            if found.limitation:
                remarks.append(found.limitation)
            if session.complaint:
                remarks.append(f"{found.kind.name} says: {session.complaint}")
            if session.connection.refused:
                remarks.append(f"{found.kind.name} asked for what it may not do: {sorted(session.connection.refused)}")
            return result, ServerAnswer(found, tuple(remarks))

    async def _settled(self, session: "Session", work: Work[Answer]) -> Answer:
        """Run `work`, and once more if the server was still indexing."""
        try:
            result = await work(session)
        except NoAnswer:
            if not session.is_busy:
                raise
        else:
            if not session.is_busy:
                return result
        await session.settle()
        return await work(session)

    async def _session(self, found: FoundServer) -> "Session":
        """Return the running session of a server, started if need be."""
        if self._starting is None:
            self._starting = asyncio.Lock()
        async with self._starting:
            session = self._sessions.get(found.key)
            if session is not None and session.is_alive:
                session.last_used = anyio.current_time()
                return session
            if self._is_closed:
                raise NoAnswer("the server shuts down")
            if session is not None:
                await self._note_crash(found, session)
            await self._make_room()
            return await self._start(found)

    async def _note_crash(self, found: FoundServer, session: "Session") -> None:
        now = time.monotonic()
        crashes = [when for when in self._crashes.get(found.key, []) if now - when < CRASH_SECONDS]
        if not session.ended_by_us:
            crashes.append(now)
        self._crashes[found.key] = crashes
        if len(crashes) > 1:
            raise NoAnswer(f"{session.connection.failure}; that happened twice, so it is not started again for a while")
        await self._end(found.key)

    async def _start(self, found: FoundServer) -> "Session":
        new_session = await to_thread.run_sync(_load_session, limiter=self._limiter)
        root = found.project.root
        try:
            if root not in self._sandboxes:
                self._sandboxes[root] = self._open_sandbox(root)
            sandbox = self._sandboxes[root]
            status = await sandbox.runner.prepare()
        except CoreError as error:
            raise NoAnswer(str(error)) from error
        if status.tier == "none":
            raise NoAnswer("a language server runs confined only, and the kernel can confine nothing here")
        session = new_session(found, sandbox, self._limits)
        self._sessions[found.key] = session
        self._start_idle_check()
        async with session.lock:  # else it is idle meanwhile
            await session.start()
            session.last_used = anyio.current_time()
        return session

    async def _make_room(self) -> None:
        """End the server that was used longest ago, if there are as many as there may be."""
        while len(self._sessions) >= self._limits.language_servers:
            free = [(one.last_used, key) for key, one in self._sessions.items() if not one.lock.locked()]
            if not free:
                raise NoAnswer(f"{len(self._sessions)} language servers are busy, the most at once")
            await self._end(min(free)[1])

    async def _end(self, key: tuple[str, str]) -> None:
        session = self._sessions.pop(key)
        await session.stop()
        root = session.found.project.root
        if not any(one.found.project.root == root for one in self._sessions.values()):
            await self._sandboxes.pop(root).close()

    def _start_idle_check(self) -> None:
        if self._idle_check is None or self._idle_check.done():
            self._idle_check = asyncio.get_running_loop().create_task(self._check_idle())

    async def _check_idle(self) -> None:
        # Ends with the last server; the next one starts it again.
        while self._sessions:
            await asyncio.sleep(min(IDLE_CHECK_SECONDS, self._limits.language_server_idle_seconds))
            await self.end_idle(anyio.current_time() - self._limits.language_server_idle_seconds)

    async def end_idle(self, latest: float) -> None:
        """End the servers that were not used after this time of the event loop."""
        for key, session in list(self._sessions.items()):
            if session.last_used <= latest and not session.lock.locked() and self._sessions.get(key) is session:
                await self._end(key)


def _load_session() -> "type[Session]":
    """Import what needs lsprotocol, which takes half a second.

    Raises:
        NoAnswer: it is not installed.
    """
    if not is_module_here("lsprotocol"):
        raise NoAnswer(f"asking a language server {needs_extra('code')}")
    from coretools.language_servers.session import Session

    return Session
