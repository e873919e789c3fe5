"""A workspace: run programs and use files beneath the roots, for the code of authors.

A thin face of what the built-in tools are made of, without the protocol. The runner confines what it runs and ends
every process that it started; files are reached from handles of the roots.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from coretools.config.limits import Limits
from coretools.errors import CommandSyntax, InvalidArguments
from coretools.process.run import Completed
from coretools.process.runner import Runner
from coretools.roots.directory_listing import DirectoryEntry, list_directory
from coretools.roots.file_version import Kind
from coretools.roots.read import kind_at, open_directory, read_bytes
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.roots.write import delete_file, write_bytes
from coretools.tools.commands.prepare import prepare_command

NO_VARIABLES: Mapping[str, str] = {}

_MOST_ENTRIES = 1_000_000

logger = logging.getLogger(__name__)


class Workspace:
    """Root directories, and programs that run in them. `open_workspace` opens one; a command gets its server's.

    Paths are relative to the first root, or absolute. None leads out of the roots, also not through links.
    """

    __coretools_given__ = "it comes from App(roots=...), or from a server that has roots"

    def __init__(self, roots: Roots, runner: Runner, limits: Limits) -> None:
        self._roots = roots
        self._runner = runner
        self._limits = limits
        self._is_logged = False
        self._is_closed = False

    @property
    def _open_roots(self) -> Roots:
        if self._is_closed:
            raise RuntimeError("this workspace is closed: use it within `async with open_workspace(...)`")
        return self._roots

    def close(self) -> None:
        """Refuse what follows; called at the end of `open_workspace`."""
        self._is_closed = True

    @property
    def roots(self) -> tuple[str, ...]:
        """The absolute paths of the roots."""
        return tuple(root.path for root in self._roots)

    async def confinement(self) -> str:
        """Return how strictly the system confines programs here: `full`, `landlock` or `none`.

        The first answer that is not `full` is logged as a warning, with its reasons.
        """
        status = await self._runner.prepare()
        if status.tier != "full" and not self._is_logged:
            why = "; ".join(f"not {tier}: {reason}" for tier, reason in status.missing.items())
            logger.warning("programs are confined in tier: %s; %s", status.tier, why)
        self._is_logged = True
        return status.tier

    async def run(
        self,
        argv: Sequence[str],
        *,
        directory: str = ".",
        stdin: str | bytes | None = None,
        environment: Mapping[str, str] = NO_VARIABLES,
        timeout_seconds: float | None = None,
        keep_bytes: int | None = None,
    ) -> Completed:
        """Run a program until it ends, and end every process that it started; also when the caller is cancelled.

        Both outputs are drained while it runs; the start and the end of each are kept, up to `keep_bytes` (64 KiB by
        default). An exit code is a result, and so is `timed_out` after `timeout_seconds` (120 by default). Without
        `stdin` it reads nothing. `environment` is added to the variables that programs get here.

        Raises:
            CannotStart: not found or not executable. DeniedCommand: the operator's policy refuses it, or wants a person
                to be asked. Unconfined: the system can't confine programs, and nobody has allowed that.
            CommandSyntax: no word, or a NUL in one.
            InvalidArguments: a timeout of 0. OutsideRoot, NotFound: the directory. Busy: too many run already.
        """
        if isinstance(argv, str):
            raise CommandSyntax("argv is a list of words; split_command_line makes one of a command line", 0)
        if timeout_seconds is not None and not timeout_seconds > 0:
            raise InvalidArguments(f"timeout_seconds: must be more than 0, got {timeout_seconds:g}")
        roots = self._open_roots
        prepared = await prepare_command(list(argv), env=environment, terminal="", runner=self._runner)
        options = replace(
            prepared.options,
            stdin=stdin.encode() if isinstance(stdin, str) else stdin,
            timeout_seconds=timeout_seconds,
            keep_bytes=keep_bytes,
        )
        if not self._is_logged:
            await self.confinement()
        with open_directory(roots, directory) as cwd:
            return await self._runner.run(prepared.argv, cwd=cwd, options=options)

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            OutsideRoot, NotFound, WrongType. DeniedPath: hidden, as a secret. TooLarge: above 64 MiB.
        """
        return read_bytes(self._open_roots, path, limit_bytes=self._limits.file_bytes).data

    def read_text(self, path: str) -> str:
        """Return the text of a file: UTF-8, or another encoding that is certain.

        Raises:
            NotText, and what `read_bytes` raises.
        """
        return decode(self.read_bytes(path), path).text

    def write(self, path: str, content: str | bytes, *, overwrite: bool = True, parents: bool = False) -> None:
        """Write a file as a whole: readers see the old or the new content. Text is written as UTF-8.

        Raises:
            AlreadyExists: without `overwrite`. NotFound: no parent directory, without `parents`. ReadOnly: a read-only
                root. OutsideRoot, DeniedPath, WrongType.
        """
        data = content.encode() if isinstance(content, str) else content
        write_bytes(self._open_roots, path, data, overwrite=overwrite, parents=parents)

    def delete_file(self, path: str) -> None:
        """Delete a file or a link.

        Raises:
            OutsideRoot, NotFound, ReadOnly, DeniedPath. WrongType: a directory.
        """
        delete_file(self._open_roots, path)

    def list_directory(self, path: str = ".") -> tuple[DirectoryEntry, ...]:
        """Return what is in a directory, sorted by name.

        Raises:
            OutsideRoot, NotFound. WrongType: not a directory.
        """
        return list_directory(self._open_roots, path, limit=_MOST_ENTRIES).entries

    def kind_of(self, path: str) -> Kind | None:
        """Return `file`, `directory`, `device`, or `link` for one that leads nowhere; None if nothing is there.

        Raises:
            OutsideRoot: also for a link that leads out of the roots. DeniedPath.
        """
        return kind_at(self._open_roots, path)
