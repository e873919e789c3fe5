"""The reference page of the HTTP server's configuration, made of its declaration. Pure."""

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from coretools.reference import WRITTEN_BY, cell
from coretools.serving.web.config import VARIABLES, Config

NAME = "http-configuration.md"

_INTRODUCTION = (
    "Keys of the TOML file of `coretools-http --config FILE`. Each is a variable too:\n"
    f"`[server] port` is `{VARIABLES}SERVER__PORT`, `[roles.dev] roots` is `{VARIABLES}ROLES__DEV__ROOTS`.\n"
    "A list has commas between its items. A flag wins over a variable, a variable over the file; unknown keys end the\n"
    "start. Relative paths begin where the server is started, wherever the file lies."
)


def config_page() -> str:
    """The page: a table for each section."""
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
    """The model of a table, and what its title has behind its name; any other type as it is."""
    if get_origin(annotation) is dict and issubclass(get_args(annotation)[1], BaseModel):
        return get_args(annotation)[1], ".NAME"
    models = [one for one in get_args(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    found = models[0] if models else annotation
    return (found if isinstance(found, type) and get_origin(found) is None else object), ""


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value in ("", (), {}):
        return ""
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
