"""The return annotation of an author's function: what is sent of its values, and with which schema.

It has one of three kinds (docs/specs/declarations.md). A `Result` formats itself as text. Content is text, bytes,
images, audio, links and messages. Every other type must be serializable as JSON; its values are sent as structured
content and as text.
"""

import inspect
import json
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from coretools.errors import BadSetting
from coretools.operations.annotations import RETURN, TYPE_FAULTS, first_sentence, resolve_hints, type_text
from coretools.operations.content import Audio, Blocks, Embedded, Image, Link, Message, Result, Text
from coretools.operations.declare import source_of
from coretools.operations.output_schema import has_custom_serialization, output_schema, serialization_schema
from coretools.operations.short_schema import compact, hoisted

WRAPPER = "result"
"""Key for a value that is not an object: structured content is an object in every revision up to 2025-11-25."""

MAX_QUOTED = 200
"""Characters shown of the place of a fault."""

ACCEPTED_TYPES = (
    "Return text, a number, a boolean, None, a list, a dict, a dataclass, a TypedDict, a pydantic model, a Result or "
    "content (coretools.operations.content)"
)

Kind = Literal["result", "content", "json"]

_CONTENT = (Text, Image, Audio, Embedded, Link)

_LISTS = (list, tuple, Sequence)


class ReturnType:
    """The return annotation of one function."""

    def __init__(self, function: Callable[..., Any], *, structured: bool | None) -> None:
        """`structured` comes from the declaration; None leaves it to the type.

        Raises:
            BadSetting: the annotation is missing, can't be resolved, or values of it can't be sent.
        """
        self._source = source_of(function)
        hints = resolve_hints(function)
        if RETURN not in hints:
            raise BadSetting(f"{self._source}: has no return annotation, such as -> str. {ACCEPTED_TYPES}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadSetting(f"{self._source}: is a generator; return a list, and report progress with `Call.progress`")
        self._hint = hints[RETURN]
        foreign = next((arm for arm in _all_arms(self._hint) if _is_of_sdk(arm)), None)
        if foreign is not None:
            raise self._refused(f"{foreign.__name__} is a type of the protocol, which the server makes itself")
        self.kind: Kind = self._kind(tuple(map(_kind_of, _union_members(self._hint))))
        self.is_structured = self.kind == "json" if structured is None else structured
        """Whether results are sent as structured content."""
        if structured and self.kind == "content":
            raise BadSetting(f"{self._source}: content is never structured; remove structured=True")
        if structured and self.kind == "result" and not _is_a(self._hint, (Result,)):
            raise BadSetting(f"{self._source}: a structured tool returns one Result or a JSON value, not {self.text}")

    @property
    def is_json(self) -> bool:
        """Whether values are JSON other than plain text."""
        return self.kind == "json" and str not in _union_members(self._hint)

    @cached_property
    def schema(self) -> dict[str, Any] | None:
        """JSON Schema of the structured content; None without structured content."""
        if not self.is_structured:
            return None
        if self.kind == "result":
            return output_schema(self._hint)
        if self._is_object:
            return self._value_schema
        return hoisted(self._value_schema, WRAPPER)

    def validate(self) -> None:
        """Build everything that sending a result needs.

        Raises:
            BadSetting: the type can't be serialized as JSON.
        """
        if self.kind == "json":
            _ = self._value_schema
            if self._has_custom_serialization:
                self._require_schema(self._value_schema)
        elif self.kind == "result":
            for arm in _union_members(self._hint):
                if _is_a(arm, (Result,)) and (self.is_structured or arm.text is Result.text):
                    self._of(arm)

    def value(self, result: object) -> Any:
        """A result as a JSON value.

        Raises:
            TypeError: it is not of the annotated type. ValueError: it can't be serialized as JSON.
        """
        try:
            checked = self._adapter.validate_python(result)
        except ValidationError as error:
            raise TypeError(f"{self._source} returned {type(result).__name__}, not {self.text}") from error
        try:
            written, is_certain = self._dumped(checked, warnings="error"), not self._has_custom_serialization
        except PydanticSerializationError:  # a value in it is not of its declared type, or is a member of a union
            written, is_certain = self._dumped(checked, warnings="none"), False
        if self.schema is not None and not is_certain:
            self._require_described(written)
        return written

    def data(self, value: Any) -> dict[str, Any]:
        """A JSON value as structured content."""
        return value if self._is_object else {WRAPPER: value}

    @property
    def text(self) -> str:
        """The annotation as text, for messages."""
        return type_text(self._hint)

    def _dumped(self, value: object, *, warnings: Literal["none", "error"]) -> Any:
        return self._adapter.dump_python(value, mode="json", by_alias=True, warnings=warnings)

    def _require_schema(self, schema: dict[str, Any]) -> None:
        from jsonschema import Draft202012Validator, SchemaError  # imported late, as below

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise self._refused(f"its schema is invalid: {error.message[:MAX_QUOTED]}") from None

    def _require_described(self, written: Any) -> None:
        """Refuse a value that does not match its schema: a client that validates it would fail, after the command ran.

        Raises:
            TypeError: names the place.
        """
        from jsonschema import Draft202012Validator  # imported late: it takes 60 ms, and few results need it

        fault = next(Draft202012Validator(self.schema).iter_errors(self.data(written)), None)
        if fault is not None:
            where = ".".join(map(str, fault.absolute_path)) or "the top level"
            raise TypeError(
                f"{self._source} returned a {self.text} that does not match its schema at {where[:MAX_QUOTED]}"
            )

    @cached_property
    def _has_custom_serialization(self) -> bool:
        return has_custom_serialization(self._adapter)

    @property
    def _is_object(self) -> bool:
        return self._value_schema.get("type") == "object"

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self._hint)

    @cached_property
    def _value_schema(self) -> dict[str, Any]:
        return self._of(self._hint)

    def _of(self, hint: Any) -> dict[str, Any]:
        """The schema of a type that JSON can represent."""
        try:
            schema = compact(serialization_schema(TypeAdapter(hint)), keeps_null=True)
        except TYPE_FAULTS as error:
            raise self._refused(first_sentence(error)) from error
        except BadSetting as error:
            raise self._refused(str(error)) from error
        if not schema:
            raise self._refused("it may be anything (a custom serializer needs a return annotation, such as -> str)")
        if '"format": "binary"' in json.dumps(schema):
            raise self._refused("JSON has no bytes; return them alone, or set ser_json_bytes='base64' in the model")
        return schema

    def _refused(self, why: str) -> BadSetting:
        return BadSetting(f"{self._source}: its result ({self.text}) can't be sent: {why}. {ACCEPTED_TYPES}")

    def _kind(self, kinds: Collection[str]) -> Kind:
        if "content" in kinds or "mixed" in kinds:
            if "mixed" in kinds or "json" in kinds:
                raise self._refused(
                    "content is mixed with other values; use coretools.operations.content.Text for text"
                )
            return "content"
        if "result" in kinds and not {"json", "none"} & set(kinds):
            return "result"
        return "json"


def json_text(value: Any) -> str:
    """A JSON value as text: text unchanged, everything else as JSON.

    Raises:
        ValueError: a number that JSON does not have (NaN, an infinity).
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


def _union_members(hint: Any) -> tuple[Any, ...]:
    """The members of a union, however it is written; for any other type the type itself."""
    hint = getattr(hint, "__value__", hint)  # `type X = ...` of Python 3.12
    origin = get_origin(hint)
    if origin is Annotated:
        return _union_members(get_args(hint)[0])
    if origin in (Union, UnionType):
        return tuple(arm for member in get_args(hint) for arm in _union_members(member))
    return (hint,)


def _all_arms(hint: Any) -> list[Any]:
    """The members of a union, and those of the items of lists."""
    members = _union_members(hint)
    items = [item for arm in members if get_origin(arm) in _LISTS for item in get_args(arm) if item is not ...]
    return [*members, *(arm for item in items for arm in _all_arms(item))]


def _is_of_sdk(arm: Any) -> bool:
    return isinstance(arm, type) and arm.__module__.partition(".")[0] in ("mcp", "mcp_types")


def _kind_of(arm: Any) -> str:
    if _is_a(arm, (Result,)):
        return "result"
    if _is_a(arm, (*_CONTENT, bytes, Message, Blocks)):
        return "content"
    if arm is str:
        return "text"
    if arm in (None, NoneType):
        return "none"
    if get_origin(arm) in _LISTS:
        return _kind_of_items(get_args(arm))
    return "json"


def _kind_of_items(items: tuple[Any, ...]) -> str:
    arms = [arm for item in items if item is not ... for arm in _union_members(item)]
    content, messages = (any(_is_a(arm, kinds) for arm in arms) for kinds in (_CONTENT, (Message,)))
    if not (content or messages):
        return "json"
    return "content" if all(_is_a(arm, (Message,) if messages else _CONTENT) for arm in arms) else "mixed"


def _is_a(arm: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(arm, type) and get_origin(arm) is None and issubclass(arm, kinds)
