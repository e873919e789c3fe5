"""`coretools docs`: write the reference of all commands and of the configuration, as pages, a table or JSON."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from coretools.app.assembly import open_assembly
from coretools.cli.authors_page import AUTHORS_PAGE, authors_page
from coretools.cli.common.terminal import print_text
from coretools.cli.reference_pages import EXIT_CODES_PAGE, SETTINGS_PAGE, exit_codes_page, settings_page
from coretools.config.settings import Settings
from coretools.errors import InputOutput
from coretools.operations.catalog import commands_for_people
from coretools.operations.documentation import (
    WRITTEN_BY,
    Documentation,
    cell,
    documentation_of,
    insert_table,
    pages,
    tool_table,
)
from coretools.operations.registry import Registry
from coretools.web.common.config import VARIABLES, Config

CONFIG_PAGE = "http-configuration.md"

_INTRODUCTION = (
    "Keys of the TOML file of `coretools-http --config FILE`. Each is a variable too:\n"
    f"`[server] port` is `{VARIABLES}SERVER__PORT`, `[roles.dev] roots` is `{VARIABLES}ROLES__DEV__ROOTS`.\n"
    "A list has commas between its items. A flag wins over a variable, a variable over the file; unknown keys end the\n"
    "start. Relative paths begin where the server is started, wherever the file lies."
)


def reference(documentation: Documentation) -> dict[str, str]:
    """Return all pages by file name."""
    others = {CONFIG_PAGE: config_page(), SETTINGS_PAGE: settings_page(), EXIT_CODES_PAGE: exit_codes_page()}
    others[AUTHORS_PAGE] = authors_page()
    return {**pages(documentation), **others}


def config_page() -> str:
    """Return the reference page of the HTTP configuration: a table for each section."""
    lines = [WRITTEN_BY, "", "# Configuration of `coretools-http`", "", _INTRODUCTION]
    for name, field in Config.model_fields.items():
        section, title = _section_of(field.annotation)
        lines += ["", f"## `[{name}{title}]`", ""]
        lines += _table(section, name)
    return "\n".join(lines) + "\n"


def _table(section: type[BaseModel], name: str) -> Iterator[str]:
    if section.__doc__:
        yield cell(section.__doc__)
        yield ""
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for key, field in section.model_fields.items():
        inner, title = _section_of(field.annotation)
        if issubclass(inner, BaseModel):
            continue
        yield f"| `{key}` | {_default(field)} | {cell(field.description or '')} |"
    for key, field in section.model_fields.items():
        inner, title = _section_of(field.annotation)
        if issubclass(inner, BaseModel):
            yield ""
            yield f"### `[{name}.{key}{title}]`"
            yield ""
            yield from _table(inner, f"{name}.{key}")


def _section_of(annotation: Any) -> tuple[Any, str]:
    """Return the model of a section and the suffix of its title; other types are returned unchanged."""
    if get_origin(annotation) is dict and issubclass(get_args(annotation)[1], BaseModel):
        return get_args(annotation)[1], ".NAME"
    models = [one for one in get_args(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    section = models[0] if models else annotation
    return (section if isinstance(section, type) and get_origin(section) is None else object), ""


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value in ("", (), {}):
        return ""
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocsOptions:
    """What to write: pages, a table in a page, or neither, which prints."""

    directory: str | None
    page: str | None
    as_json: bool


async def docs(settings: Settings, registries: Sequence[Registry], options: DocsOptions) -> int:
    """Write the pages to a directory and the table into a page, or print the reference.

    Raises:
        BadSetting: the page has no marker for the table. InputOutput: a file can't be read or written.
    """
    async with open_assembly(settings, dict(os.environ), registries) as assembly:
        registry = assembly.catalog.registry
        documentation = documentation_of(commands_for_people(registry, assembly.selection), registry.contexts)
        # Built while the tool sets are open: a signature may refer to what they contain.
        text = (
            json.dumps(documentation.as_json(), ensure_ascii=False, indent=2)
            if options.as_json
            else tool_table(documentation)
        )
        written = reference(documentation) if options.directory else {}
    try:
        if options.directory:
            _write(Path(options.directory), written)
        if options.page:
            _put_table(Path(options.page), documentation)
    except OSError as error:
        raise InputOutput(f"{error.filename}: {error.strerror}") from None
    return 0 if options.directory or options.page else print_text(text)


def _write(directory: Path, written: dict[str, str]) -> None:
    """Write every page and delete generated pages that no longer exist."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob("*.md"):
        if path.name not in written and path.read_text(encoding="utf-8").startswith(WRITTEN_BY):
            path.unlink()
    for name, text in written.items():
        (directory / name).write_text(text, encoding="utf-8")


def _put_table(page: Path, documentation: Documentation) -> None:
    page.write_text(insert_table(page.read_text(encoding="utf-8"), tool_table(documentation)), encoding="utf-8")
