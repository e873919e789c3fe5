"""The documents that a language server has open, and the diagnostics that it publishes for them."""

from collections.abc import Collection, Mapping

from lsprotocol import types

from coretools.language_servers.connection import Connection
from coretools.language_servers.find import file_uri
from coretools.language_servers.kinds import ending_of

MAX_BESIDE = 50
"""Maximum number of documents that stay open in addition to those of the current question."""


class OpenDocuments:
    """Opens, changes and closes documents. The server reads every other file from disk."""

    def __init__(self, connection: Connection, languages: Mapping[str, str]) -> None:
        """`languages` maps the ending of a file name to its language id."""
        self._connection = connection
        self._languages = languages
        self._open: dict[str, tuple[int, str]] = {}
        """Version and text by URI."""
        self._beside: dict[str, None] = {}
        """URIs of documents that stay open until they change, oldest first."""
        self._version = 0
        self._sends_versions = False
        self.diagnostics: dict[str, object] = {}
        """Published diagnostics of open documents by URI, each for the current version."""

    def show(self, path: str, text: str, *, anew: bool = False) -> str:
        """Open one file, close those of the last question, and return its URI.

        `anew` makes the server publish diagnostics again, based on the current state of the other files.
        """
        uri = file_uri(path)
        if anew and uri in self._open:
            if self._sends_versions:  # it can be closed: the empty diagnostics of what is closed have no version
                self._close(uri)
            else:
                self._show_text(uri, path, text)
        self.show_only({path: text})
        return uri

    def show_only(self, texts: Mapping[str, str]) -> None:
        """Open files with these texts, by absolute path, and close those of the last question."""
        named = {file_uri(path): (path, text) for path, text in texts.items()}
        for uri in self._open.keys() - named.keys() - self._beside.keys():
            self._close(uri)
        for uri, (path, text) in named.items():
            if uri not in self._open or self._open[uri][1] != text:
                self._show_text(uri, path, text)

    def show_beside(self, path: str, text: str) -> None:
        """Open a file until it changes, so that its project is searched too; close the oldest if there are many."""
        uri = file_uri(path)
        if uri not in self._beside and len(self._beside) >= MAX_BESIDE:
            self._close(next(iter(self._beside)))
        self._beside[uri] = None
        if uri not in self._open or self._open[uri][1] != text:
            self._show_text(uri, path, text)

    def close_changed(self, changed: Collection[str], *, top: str) -> None:
        """Close kept documents that have changed, or that lie outside of `top`, where changes go unnoticed."""
        for uri in [one for one in self._beside if one in changed or not one.startswith(f"{top}/")]:
            self._close(uri)

    def take_diagnostics(self, uri: str, version: object, diagnostics: object) -> None:
        """Keep published diagnostics if they are for the current version of an open document."""
        self._sends_versions |= version is not None
        expected = (self._open[uri][0],) if uri in self._open else ()
        if version in expected or (expected and version is None and not self._sends_versions):
            self.diagnostics[uri] = diagnostics

    def _close(self, uri: str) -> None:
        self._beside.pop(uri, None)
        if self._open.pop(uri, None) is not None:
            closed = types.TextDocumentIdentifier(uri)
            self._connection.notify("textDocument/didClose", types.DidCloseTextDocumentParams(closed))

    def _show_text(self, uri: str, path: str, text: str) -> None:
        self._version += 1
        self.diagnostics.pop(uri, None)
        if uri in self._open:  # not closed and opened again: some servers send empty diagnostics of what was closed
            changed = types.VersionedTextDocumentIdentifier(self._version, uri)
            whole = types.TextDocumentContentChangeWholeDocument(text)
            self._connection.notify("textDocument/didChange", types.DidChangeTextDocumentParams(changed, [whole]))
        else:
            language = self._languages.get(ending_of(path), "plaintext")
            document = types.TextDocumentItem(uri, language, self._version, text)
            self._connection.notify("textDocument/didOpen", types.DidOpenTextDocumentParams(document))
        self._open[uri] = (self._version, text)
