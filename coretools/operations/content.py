"""What a command can return besides plain values: content blocks, prompt messages, and `Result`.

Content is plain data; `coretools.protocol` converts it to content blocks, and the command line prints it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import not_
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError, to_json


@dataclass(frozen=True, slots=True)
class Text:
    """A block of text."""

    text: str

    def __post_init__(self) -> None:
        _require(self, "text", str)


@dataclass(frozen=True, slots=True)
class Image:
    """An image."""

    data: bytes
    mime_type: str

    def __post_init__(self) -> None:
        _require(self, "data", bytes)


@dataclass(frozen=True, slots=True)
class Audio:
    """An audio clip."""

    data: bytes
    mime_type: str

    def __post_init__(self) -> None:
        _require(self, "data", bytes)


@dataclass(frozen=True, slots=True)
class Embedded:
    """An embedded resource with its content: text or bytes."""

    uri: str
    content: str | bytes
    mime_type: str = "text/plain"

    def __post_init__(self) -> None:
        _require(self, "content", str, bytes)


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a resource."""

    uri: str
    name: str
    description: str = ""
    mime_type: str = "text/plain"


Content = Text | Image | Audio | Embedded | Link


@dataclass(frozen=True, slots=True)
class Blocks:
    """Several content blocks and their structured form, as another server returned them."""

    blocks: tuple[Content, ...]
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a prompt."""

    content: Content
    role: Literal["user", "assistant"] = "user"


def _require(content: object, name: str, *kinds: type) -> None:
    """Check the type of a field at construction: later, the origin of a wrong value is unknown."""
    value = getattr(content, name)
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{type(content).__name__}.{name} must be {wanted}, not {type(value).__name__}")


def content_text(content: Content) -> str:
    """Content as text."""
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
    """Several content blocks as text, one per line."""
    return "\n".join(map(content_text, contents))


def compact_json(value: Any) -> bytes:
    """A JSON value as text without spaces, in UTF-8, with lone surrogates escaped."""
    try:
        return to_json(value)
    except PydanticSerializationError:
        return to_json(_escaped(value))


def escape_surrogates(value: Any) -> Any:
    """A JSON value with lone surrogates escaped: UTF-8 can't represent them, and file names may contain them."""
    try:
        to_json(value)  # a fifth of the time of a copy
    except PydanticSerializationError:
        return _escaped(value)
    return value


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return value


# The text of a `Result` is for models, its fields are for programs. A surface sends one of the two, never the same
# payload twice.


_Value = TypeVar("_Value")

UnlessEmpty = Annotated[_Value, Field(exclude_if=not_)]
"""A field of a result that is sent only if it is not empty, zero or false: what is missing has that value."""


class Result(BaseModel):
    """Base class of tool results. Frozen; subclasses override `text`, which by default is the fields as JSON."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    def text(self) -> str:
        """The result as plain text; by default its fields as JSON."""
        return self.model_dump_json()

    def media(self) -> tuple[Image | Audio, ...]:
        """What follows the text in the answer; usually nothing."""
        return ()

    @property
    def failed(self) -> bool:
        """Whether the program that was run failed (a test, a build, a command). The call itself succeeded."""
        return False

    def facts(self) -> dict[str, object]:
        """Small JSON values for programs (exit code, duration), sent as metadata without a schema."""
        return {}
