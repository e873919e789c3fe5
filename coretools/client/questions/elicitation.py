"""Forms that servers ask a person to fill in (elicitation): their fields, typed and checked values, defaults. Pure.

A form is a flat JSON Schema: text, numbers, booleans, choices, and lists of choices.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

from coretools.client.common.arguments import check_arguments, parse_arguments
from coretools.client.common.errors import ProtocolViolation, SchemaMismatch
from coretools.errors import InvalidArguments
from coretools.operations.argument_words import split_word
from coretools.questions.kinds import NO, YES
from coretools.redaction.names import is_credential_name

MAX_FIELDS = 100
"""Fields of one form."""

Values = dict[str, str | int | float | bool | list[str] | None]
"""What the protocol accepts as the content of a form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a form."""

    name: str
    shape: Mapping[str, Any]
    is_required: bool

    @property
    def choices(self) -> dict[str, str]:
        """The choices of this field or of its items, with a label each; empty if any value is possible."""
        items = self.shape.get("items")
        holder = items if self.is_list and isinstance(items, dict) else self.shape
        for key in ("oneOf", "anyOf"):
            titled = [one for one in _listed(holder.get(key)) if isinstance(one, dict) and "const" in one]
            if titled:
                return {str(one["const"]): str(one.get("title", one["const"])) for one in titled}
        values = list(map(str, _listed(holder.get("enum"))))
        labels = list(map(str, _listed(holder.get("enumNames"))))
        return dict(zip(values, labels if len(labels) == len(values) else values, strict=True))

    @property
    def is_list(self) -> bool:
        """Whether it takes several choices."""
        return self.shape.get("type") == "array"

    @property
    def is_secret(self) -> bool:
        """Whether what is typed must not be shown: a password by its format or its name."""
        return self.shape.get("format") == "password" or is_credential_name(self.name)

    @property
    def label(self) -> str:
        """What a person reads before the value."""
        texts = [self.shape.get("title"), self.shape.get("description")]
        return ": ".join(text for text in texts if isinstance(text, str) and text) or self.name

    @property
    def has_default(self) -> bool:
        """Whether the schema has a default."""
        return self.shape.get("default") is not None

    def parse(self, text: str) -> Any:
        """Turn typed text into a value of this field.

        Raises:
            InvalidArguments: it is not valid; the text of a secret is not repeated.
        """
        value = self._typed(text)
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Check one value.

        Raises:
            InvalidArguments: it does not fit the schema.
        """
        try:
            check_arguments({self.name: value}, {"type": "object", "properties": {self.name: dict(self.shape)}})
        except SchemaMismatch as error:
            fault = "is not valid" if self.is_secret else str(error).removeprefix(f"{self.name}: ")
            raise InvalidArguments(f"{self.name}: {fault}") from error
        problem_of = _FORMATS.get(str(self.shape.get("format")))
        if problem_of is not None and isinstance(value, str) and (problem := problem_of(value)):
            raise InvalidArguments(f"{self.name}: must be {problem}")

    def _typed(self, text: str) -> Any:
        if self.is_list:
            return [self._chosen(part.strip()) for part in text.split(",") if part.strip()]
        if self.choices:
            return self._chosen(text.strip())
        if self.shape.get("type") == "boolean" and text.strip().lower() in (*YES, *NO):
            return text.strip().lower() in YES
        return parse_arguments([f"{self.name}={text}"], {"properties": {self.name: self.shape}}, None)[self.name]

    def _chosen(self, text: str) -> str:
        """Return the choice with this number, value or label."""
        choices = list(self.choices)
        if text in choices:
            return text
        if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= len(choices):
            return choices[int(text) - 1]
        return next((value for value, label in self.choices.items() if label.lower() == text.lower()), text)


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a server."""

    schema: Mapping[str, Any]
    fields: tuple[FormField, ...]

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> "Form":
        """Read a schema.

        Raises:
            ProtocolViolation: it is not a flat form.
        """
        properties = schema.get("properties", {})
        required = _listed(schema.get("required"))
        if not isinstance(properties, dict) or not all(isinstance(shape, dict) for shape in properties.values()):
            raise ProtocolViolation("asks with a form that the protocol does not allow: properties")
        if len(properties) > MAX_FIELDS:
            raise ProtocolViolation(f"asks with a form of {len(properties)} fields; {MAX_FIELDS} at most")
        for name, shape in properties.items():
            kind = shape.get("type")
            if kind not in ("string", "number", "integer", "boolean", "array") and "enum" not in shape:
                raise ProtocolViolation(f"asks with a form that the protocol does not allow: {name}: {str(kind)[:40]}")
        fields = [FormField(name=one, shape=shape, is_required=one in required) for one, shape in properties.items()]
        return cls(schema, tuple(fields))

    def answered(self, words: Iterable[str]) -> Values:
        """Return the values that `name=value` and `name:=JSON` give to fields of this form; other names are ignored.

        Raises:
            InvalidArguments: a value does not fit its field.
        """
        values: Values = {}
        for field in self.fields:
            texts = [word for word in words if split_word(word).name == field.name]
            if not texts:
                continue
            if len(texts) == 1 and not texts[0].startswith(f"{field.name}:="):
                values[field.name] = field.parse(texts[0].partition("=")[2])
                continue
            value = parse_arguments(texts, {"properties": {field.name: field.shape}}, None)[field.name]
            field.check(value)
            values[field.name] = value
        return values

    def defaults(self) -> Values:
        """Return the defaults of the schema that are valid."""
        values: Values = {}
        for field in self.fields:
            if field.has_default:
                try:
                    field.check(field.shape["default"])
                except InvalidArguments:
                    continue
                values[field.name] = field.shape["default"]
        return values

    def missing(self, values: Mapping[str, Any]) -> list[str]:
        """Return the required fields without a value."""
        return [field.name for field in self.fields if field.is_required and field.name not in values]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _email(text: str) -> str:
    name, at, host = text.rpartition("@")
    return "" if at and name and host and not set(text) & set(" \t\r\n") else "an e-mail address"


def _uri(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError:
        return "a URI"
    return "" if parts.scheme and (parts.netloc or parts.path) else "a URI"


def _date(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        return "a date, such as 2026-01-31"
    return ""


def _date_time(text: str) -> str:
    try:
        has_zone = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        has_zone = False
    return "" if has_zone and "T" in text.upper() else "a date and time, such as 2026-01-31T12:00:00Z"


_FORMATS: dict[str, Callable[[str], str]] = {"email": _email, "uri": _uri, "date": _date, "date-time": _date_time}
