"""One language server from its start to its end: its process in the sandbox, its state, its questions."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Protocol

import anyio
from anyio import to_thread
from lsprotocol import types

from coretools.config.limits import Limits
from coretools.errors import CoreError
from coretools.language_servers.changed_files import MAX_SECONDS, ChangedFiles, FileChange
from coretools.language_servers.connection import Connection, plain, structured_diagnostics
from coretools.language_servers.failure import NoAnswer
from coretools.language_servers.find import FoundServer, file_uri
from coretools.language_servers.open_documents import OpenDocuments
from coretools.language_servers.positions import Encoding
from coretools.process.children.streams import InputBuffer
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.read import open_directory
from coretools.roots.root_set import Roots

KEPT_BYTES = 4096
"""Kept of what a server writes to its error output."""

MAX_PROGRESS = 1_000
"""Tasks that a server may report at once."""

FAILED = "Error"
"""How the title of a task begins that is none: gopls reports so, without an end, why it can't load a project."""

MAX_COMPILED = 1_000
"""Files whose diagnostics of a compiler are kept."""

MAX_TIMEOUTS = 2
"""Questions in a row without an answer in time, after which a server is ended: the first may have been too large."""

_CHANGES = {
    "created": types.FileChangeType.Created,
    "changed": types.FileChangeType.Changed,
    "deleted": types.FileChangeType.Deleted,
}


class ServerSandbox(Protocol):
    """Where the servers of one root run: they read this root, and can write to `cache` alone."""

    @property
    def roots(self) -> Roots:
        """The root, and nothing else."""
        ...

    @property
    def runner(self) -> Runner:
        """Starts them."""
        ...

    @property
    def cache(self) -> str:
        """A directory that is kept; empty where there is none."""
        ...

    async def close(self) -> None:
        """End everything in it."""
        ...


class Session:
    """A running server. Its owner asks one question at a time, within `lock`."""

    def __init__(self, found: FoundServer, sandbox: ServerSandbox, limits: Limits) -> None:
        self.found = found
        self.sandbox = sandbox
        self.lock = asyncio.Lock()
        self.last_used = anyio.current_time()
        self._capabilities: Mapping[str, object] = {}
        self.encoding: Encoding = "utf-16"
        self.ended_by_us = False
        self.is_late = False
        """Whether it did not answer in time after an edit, and has answered no question since."""
        self._limits = limits
        self._stdin = InputBuffer()
        self._halt = anyio.Event()
        self.connection = Connection(self._stdin, found.kind.settings, self._take_notice)
        self._files = ChangedFiles(found.project.path, found.kind.languages, found.kind.watched_names)
        self.documents = OpenDocuments(self.connection, found.kind.languages)
        self._progress: dict[str, str] = {}
        """The title of each task that it reports, and of one that failed its message."""
        self._is_quiescent: bool | None = None
        self._compiled: dict[str, object] | None = None
        """Diagnostics of the compiler by URI; None if it has not run since files changed."""
        self._compiler_runs = 0
        self._shown_error = ""
        self._health = ""
        """What it says is wrong with the project; empty if it says that nothing is."""
        self._news = asyncio.Event()
        self._timeouts = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self.connection.failure is None

    @property
    def is_ready(self) -> bool:
        """Whether it can be asked and has read the project, as far as it says."""
        return self.is_alive and bool(self._capabilities) and not self.is_busy

    def can(self, provider: str) -> bool:
        """Whether it has a capability, by its name in the protocol: `renameProvider`."""
        return self._capabilities.get(provider) not in (None, False)

    @property
    def sees_every_file(self) -> bool:
        """Whether changes of all files are noticed."""
        return self._files.is_complete

    async def start(self) -> None:
        """Start the process and introduce each to the other.

        Raises:
            NoAnswer: it can't be started, or is no language server.
        """
        await to_thread.run_sync(self._files.look)  # before it reads them: later changes are noticed
        self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            result = await self.ask("initialize", self._introduction())
        except NoAnswer as failure:
            self.connection.end(failure)  # it counts as a crash
            self._halt.set()
            raise
        capabilities = result.get("capabilities") if isinstance(result, dict) else None
        self._capabilities = capabilities if isinstance(capabilities, dict) else {}
        self.encoding = "utf-32" if self._capabilities.get("positionEncoding") == "utf-32" else "utf-16"
        self.connection.notify("initialized", types.InitializedParams())

    async def stop(self) -> None:
        """End the process and what it started, and wait for it."""
        self.ended_by_us = True
        self.connection.end(NoAnswer("it was ended"))
        self._halt.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def ask(self, method: str, params: object) -> Any:
        """Ask a question, and return the result as lsprotocol has it.

        Raises:
            NoAnswer: an error, none in time, none that can be understood, or the server is gone.
        """
        try:
            result = await self.connection.request(method, params, seconds=self._limits.language_answer_seconds)
        except TimeoutError as error:
            self._timeouts += 1
            if self._timeouts >= MAX_TIMEOUTS:
                self.connection.end(NoAnswer(f"{error}, again; it was ended"))
                self._halt.set()
            raise NoAnswer(str(error)) from error
        self._timeouts = 0
        return result

    async def catch_up(self, seconds: float = MAX_SECONDS) -> list[FileChange]:
        """Tell it which files changed since the last time; return them. Looks for so long at most."""
        changes = await to_thread.run_sync(self._files.look, seconds)
        self.documents.close_changed({file_uri(one.path) for one in changes}, top=file_uri(self.found.project.path))
        if changes:
            self._compiled = None
            events = [types.FileEvent(file_uri(one.path), _CHANGES[one.change]) for one in changes]
            self.connection.notify("workspace/didChangeWatchedFiles", types.DidChangeWatchedFilesParams(events))
            if any(os.path.basename(one.path) in self.found.kind.project_files for one in changes):
                self._shown_error = ""  # it reads them again, and complains again
        return changes

    async def settle(self) -> None:
        """Wait until it has read the project.

        Raises:
            NoAnswer: it has not within the time of an answer.
        """
        with anyio.move_on_after(self._limits.language_answer_seconds):
            while self.is_busy and self.is_alive:
                await self._wait_for_news()
        if self.is_alive and self.is_busy:
            title = next(filter(None, self._progress.values()), "reading the project")
            raise NoAnswer(f"still indexing ({title[:80]}); ask again later")

    @property
    def is_busy(self) -> bool:
        """Whether it says that it has not read the project yet."""
        unready = self.found.kind.reports_readiness and not self._is_quiescent
        is_at_work = any(not title.startswith(FAILED) for title in self._progress.values())
        return is_at_work or unready or self._is_quiescent is False

    @property
    def complaint(self) -> str:
        """The last error that it had shown to a user: usually, that it can't read the project or its settings."""
        failed = (title for title in self._progress.values() if title.startswith(FAILED))
        return next(failed, self._shown_error or self._health)

    async def published_diagnostics(self, uri: str) -> list[types.Diagnostic]:
        """Wait for the diagnostics of an open document that a server sends by itself.

        Raises:
            NoAnswer: none came in time.
        """
        with anyio.move_on_after(self._limits.language_answer_seconds):
            while uri not in self.documents.diagnostics and self.is_alive:
                await self._wait_for_news()
        if uri not in self.documents.diagnostics:
            raise self.connection.failure or NoAnswer("it sent no diagnostics in time")
        return structured_diagnostics(self.documents.diagnostics[uri])

    async def compile(self) -> None:
        """Let it run the compiler, if files changed since the last run.

        Raises:
            NoAnswer: the compiler did not end in time.
        """
        if self._compiled is not None:
            return
        self._compiled, runs = {}, self._compiler_runs
        self.connection.notify(self.found.kind.check_by_compiler, {"textDocument": None})
        with anyio.move_on_after(self._limits.language_answer_seconds):
            while self._compiler_runs == runs and self.is_alive:
                await self._wait_for_news()
        if self._compiler_runs == runs:
            self._compiled = None
            raise self.connection.failure or NoAnswer("the compiler has not ended; ask again later")

    def compiler_diagnostics(self, uri: str) -> list[types.Diagnostic]:
        """What the compiler said of a file. It is complete after the next answer to a question.

        Raises:
            NoAnswer: it does not fit the protocol.
        """
        return structured_diagnostics((self._compiled or {}).get(uri, []))

    async def _wait_for_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def _run(self) -> None:
        sandbox, kind = self.sandbox, self.found.kind
        cache = sandbox.cache or "/tmp"  # noqa: S108  # its own, in the sandbox
        argv = (self.found.program, *(word.format(cache) for word in kind.argv[1:]))
        kept = {name: text.format(cache) for name, text in kind.environment.items()}
        options = RunOptions(
            is_command=True,
            input=self._stdin,
            on_stdout=self.connection.feed,
            halt=self._halt,
            timeout_seconds=float("inf"),
            keep_bytes=KEPT_BYTES,
            environment={**kept, **self.found.variables},
        )
        try:
            with open_directory(sandbox.roots, self.found.project.path) as directory:
                completed = await sandbox.runner.run(argv, cwd=directory, options=options)
            failure = NoAnswer(_ending(completed))
        except CoreError as error:
            failure = NoAnswer(str(error))
        self.connection.end(failure)
        self._news.set()

    def _take_notice(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "$/progress":
            self._take_progress(str(params.get("token")), params.get("value"))
        elif method == "experimental/serverStatus":
            self._is_quiescent = params.get("quiescent") is True
            self._health = "" if params.get("health") == "ok" else plain(params.get("message") or params.get("health"))
        elif method in ("indexingStarted", "indexingEnded"):
            self._is_quiescent = method == "indexingEnded"
        elif method == "window/showMessage" and params.get("type") == types.MessageType.Error.value:
            self._shown_error = plain(params.get("message"))
        elif method == "textDocument/publishDiagnostics":
            uri, diagnostics = str(params.get("uri")), params.get("diagnostics")
            self.documents.take_diagnostics(uri, params.get("version"), diagnostics)
            if self._compiled is not None and len(self._compiled) < MAX_COMPILED:
                self._compiled[uri] = diagnostics
        else:
            return
        self._news.set()

    def _take_progress(self, token: str, value: object) -> None:
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind == "end":
            self._progress.pop(token, None)
            self._compiler_runs += "flycheck" in token
        elif kind == "begin" and isinstance(value, dict) and len(self._progress) < MAX_PROGRESS:
            title = str(value.get("title", ""))
            self._progress[token] = plain(f"{title}: {value.get('message')}") if title.startswith(FAILED) else title

    def _introduction(self) -> types.InitializeParams:
        uri = file_uri(self.found.project.path)
        return types.InitializeParams(
            capabilities=_CAPABILITIES,
            process_id=None,  # it is not in the same namespace
            client_info=types.ClientInfo("coretools"),
            root_uri=uri,
            initialization_options=dict(self.found.kind.settings),
            workspace_folders=[types.WorkspaceFolder(uri, os.path.basename(self.found.project.path))],
        )


def _ending(completed: Completed) -> str:
    """How a server ended."""
    if completed.stopped_for:
        return f"it was ended: {completed.stopped_for}"
    how = f"signal {completed.signal}" if completed.exit_code is None else f"exit code {completed.exit_code}"
    words = completed.stderr.text().strip().splitlines()
    return f"it ended with {how}" + (f": {plain(words[-1])}" if words else "")


_CAPABILITIES = types.ClientCapabilities(
    general=types.GeneralClientCapabilities(
        position_encodings=[types.PositionEncodingKind.Utf32, types.PositionEncodingKind.Utf16]
    ),
    workspace=types.WorkspaceClientCapabilities(
        apply_edit=False,
        configuration=True,
        workspace_folders=True,
        workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
        did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True),
    ),
    text_document=types.TextDocumentClientCapabilities(
        definition=types.DefinitionClientCapabilities(link_support=False),
        references=types.ReferenceClientCapabilities(),
        implementation=types.ImplementationClientCapabilities(link_support=False),
        type_definition=types.TypeDefinitionClientCapabilities(link_support=False),
        call_hierarchy=types.CallHierarchyClientCapabilities(),
        rename=types.RenameClientCapabilities(prepare_support=True),
        diagnostic=types.DiagnosticClientCapabilities(),
        publish_diagnostics=types.PublishDiagnosticsClientCapabilities(version_support=True),
    ),
    window=types.WindowClientCapabilities(work_done_progress=True),
    experimental={"serverStatusNotification": True},
)
