"""Content that is more than text: what a command may return beside `Result` and text.

Plain data; `coretools.protocol` turns it into blocks of the protocol, the command line shows it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True, slots=True)
class Text:
    """A block of text."""

    text: str

    def __post_init__(self) -> None:
        _require(self, "text", str)


@dataclass(frozen=True, slots=True)
class Image:
    """A picture."""

    data: bytes
    mime_type: str

    def __post_init__(self) -> None:
        _require(self, "data", bytes)


@dataclass(frozen=True, slots=True)
class Audio:
    """A sound."""

    data: bytes
    mime_type: str

    def __post_init__(self) -> None:
        _require(self, "data", bytes)


@dataclass(frozen=True, slots=True)
class Embedded:
    """A resource with its content: text, or bytes."""

    uri: str
    content: str | bytes
    mime_type: str = "text/plain"

    def __post_init__(self) -> None:
        _require(self, "content", str, bytes)


@dataclass(frozen=True, slots=True)
class Link:
    """A resource that can be read elsewhere."""

    uri: str
    name: str
    description: str = ""
    mime_type: str = "text/plain"


Content = Text | Image | Audio | Embedded | Link


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a prompt."""

    content: Content
    role: Literal["user", "assistant"] = "user"


def _require(content: object, name: str, *kinds: type) -> None:
    """Refuse what could not be sent where it is made: later nobody could say where it came from."""
    value = getattr(content, name)
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{type(content).__name__}.{name} is {wanted}, not {type(value).__name__}")


def content_text(content: Content) -> str:
    """Content for a reader of text."""
    match content:
        case Text(text):
            return text
        case Embedded(uri, inside, mime_type):
            return f"[{uri}]\n{inside}" if isinstance(inside, str) else f"[{uri}: {mime_type}, {len(inside)} bytes]"
        case Link(uri, name):
            return f"[{name}: {uri}]"
        case Image(data, mime_type) | Audio(data, mime_type):
            return f"[{mime_type}, {len(data)} bytes]"


def joined_text(contents: Sequence[Content]) -> str:
    """All of it for a reader of text."""
    return "\n".join(map(content_text, contents))


def escape_surrogates(value: Any) -> Any:
    """A JSON value without lone surrogates, which UTF-8 can't carry; a name with one is shown in escaped form."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [escape_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {escape_surrogates(key): escape_surrogates(item) for key, item in value.items()}
    return value


# What a tool returns: a model that can say itself in compact text.
#
# The text is for the model behind the client; the fields are for programs. A surface decides which of the two goes out,
# and never sends the same payload twice.


class Result(BaseModel):
    """Base of every tool result. Subclasses are frozen and say themselves through `text`; without it as JSON."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    def text(self) -> str:
        """The result for a reader, without decoration: its fields as JSON, unless a subclass knows better."""
        return self.model_dump_json()

    @property
    def failed(self) -> bool:
        """Whether the thing that was run failed (a test, a build, a command). The call itself worked."""
        return False

    def facts(self) -> dict[str, object]:
        """Small JSON values for programs that are not worth a schema (exit code, duration); sent as metadata."""
        return {}
