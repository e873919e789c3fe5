"""`coretools docs`: the documentation of every command, as pages, as a table in a page, or as JSON."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coretools.client.output import put
from coretools.documentation import Documentation, documentation_of
from coretools.errors import InputOutput
from coretools.offer import for_people
from coretools.reference import WRITTEN_BY, pages, tool_table, with_table
from coretools.registry import Registry
from coretools.serving.assembly import assembled
from coretools.serving.web.config_page import NAME, config_page
from coretools.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be written: pages, a table, or neither, which prints."""

    directory: str | None
    page: str | None
    as_json: bool


async def docs(settings: Settings, others: Sequence[Registry], wanted: Wanted) -> int:
    """Write the pages to a directory and the table into a page, or print what there is.

    Raises:
        BadSetting: the page has no place for the table. InputOutput: a file can't be read or written.
    """
    async with assembled(settings, dict(os.environ), others) as assembly:
        registry = assembly.graph.registry
        found = documentation_of(for_people(registry, assembly.selection), registry.contexts)
        # Built while the tool sets are open: a signature may name what they hold.
        text = json.dumps(found.as_json(), ensure_ascii=False, indent=2) if wanted.as_json else tool_table(found)
        written = {**pages(found), NAME: config_page()} if wanted.directory else {}
    try:
        if wanted.directory:
            _write(Path(wanted.directory), written)
        if wanted.page:
            _put_table(Path(wanted.page), found)
    except OSError as error:
        raise InputOutput(f"{error.filename}: {error.strerror}") from None
    return 0 if wanted.directory or wanted.page else put(text)


def _write(directory: Path, written: dict[str, str]) -> None:
    """Write every page; one that an earlier run wrote and that is no more is taken away."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob("*.md"):
        if path.name not in written and path.read_text(encoding="utf-8").startswith(WRITTEN_BY):
            path.unlink()
    for name, text in written.items():
        (directory / name).write_text(text, encoding="utf-8")


def _put_table(page: Path, found: Documentation) -> None:
    page.write_text(with_table(page.read_text(encoding="utf-8"), tool_table(found)), encoding="utf-8")
