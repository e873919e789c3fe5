"""Accept arguments as models send them: under the names of other tools, and with lists and objects as JSON text.

Works on the faults of a failed validation, so a call that is right at once pays nothing. The names that a parameter
has elsewhere are declared beside it (`Aliases`) and are not in the schema.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError

from coretools.errors import BadSetting, InvalidArguments
from coretools.operations.declare import Aliases

Path = tuple[str | int, ...]

MAX_QUOTED_NAME = 100
"""Characters shown of a name that the caller chose."""

_SIMILARITY = 0.3
"""Lowest ratio (`difflib`) of a name that is suggested; `pth` and `path` have 0.86."""

MANY_FAULTS = 10_000
"""More faults of arguments are not repaired: that would delay other calls by seconds."""

_SHORTEST_WORD = 3
"""Characters of a name that is understood in another style."""

_CONTAINER_FAULTS = frozenset(
    {"list_type", "dict_type", "model_type", "tuple_type", "set_type", "frozen_set_type", "dataclass_type"}
)
"""pydantic's error types for a value that should be a list or an object. A union that accepts text has others too."""


class _Meaning(NamedTuple):
    """What a name that is not in the schema stands for."""

    own: str
    """The parameter, or the list whose items have a field of this name."""
    aliases: Aliases
    kind: Literal["alias", "item field", "ignored", "switch"] = "alias"
    alias: str = ""
    """The name as declared; a caller may write it in another style."""


class _Names(NamedTuple):
    """The names that a set of parameters accepts and does not list."""

    exact: Mapping[str, _Meaning]
    plain: Mapping[str, _Meaning]
    """By `_plain` spelling; without those that two parameters share."""

    def find(self, name: object) -> _Meaning | None:
        """The meaning of a name, in the style of its declaration or in another one."""
        if not isinstance(name, str) or len(name) > MAX_QUOTED_NAME:
            return None
        return self.exact.get(name) or self.plain.get(_plain(name))


_NO_NAMES = _Names({}, {})
_NO_ALIASES = Aliases()


def check_aliases(source: str, model: type[BaseModel]) -> None:
    """Refuse aliases that are ambiguous.

    Raises:
        BadSetting: two parameters have one name.
    """
    taken = {name: name for name in model.model_fields}
    for name, aliases in declared_aliases(model):
        for alias in aliases.names:
            other = taken.setdefault(alias, name)
            if other != name or alias == name:
                raise BadSetting(f"{source}: the alias {alias!r} of parameter {name!r} is already that of {other!r}")


def repaired(model: type[BaseModel], given: Mapping[str, Any], error: ValidationError) -> dict[str, Any] | None:
    """The arguments with known aliases renamed and JSON text parsed; None if the faults leave nothing to do.

    Raises:
        InvalidArguments: a parameter is given under two names.
    """
    if error.error_count() > MANY_FAULTS:
        return None
    arguments: dict[str, Any] = dict(given)
    repair = _Repair(model, arguments)
    for where, kinds in _faults_by_place(arguments, error).items():
        if kinds == {"extra_forbidden"}:
            repair.rename(where)
        elif kinds == {"missing"}:
            continue
        elif repair.is_null(where):
            repair.omit(where)
        elif kinds <= _CONTAINER_FAULTS:
            repair.parse(where)
    return arguments if repair.count else None


class _Repair:
    """Changes to one set of arguments. Nested values are copied before they are changed."""

    def __init__(self, model: type[BaseModel], arguments: dict[str, Any]) -> None:
        self._model = model
        self._arguments = arguments
        self._names: dict[Path, _Names] = {}
        self._copied: set[str | int] = set()
        self._given_as: dict[Path, str] = {}
        self.count = 0

    def rename(self, where: Path) -> None:
        """Give an argument its own name, if its name is an alias; drop it if it says nothing that matters."""
        *above, name = where
        meaning = self._names_at(above).find(name)
        if meaning is None:
            return
        holder, given_as = self._holder(above), str(name)
        value = holder.pop(given_as)
        place = (*above, meaning.own)
        if meaning.kind == "item field":
            self._gather(holder, place, value, given_as=given_as)
        elif meaning.kind == "switch":
            self._switch(holder, place, value, meaning.aliases.switches[meaning.alias], given_as=given_as)
        elif meaning.kind == "alias":
            self._put(holder, place, meaning.aliases.converted(meaning.alias, value), given_as=given_as)
        self.count += 1

    def is_null(self, where: Path) -> bool:
        """Whether a parameter or field that has a default is null."""
        *above, name = where
        fields = _model_at(self._model, above)
        field = fields.model_fields.get(str(name)) if fields is not None else None
        return field is not None and not field.is_required() and self._holder(above)[name] is None

    def omit(self, where: Path) -> None:
        """Leave an argument out, so that it has its default."""
        *above, name = where
        del self._holder(above)[name]
        self.count += 1

    def parse(self, where: Path) -> None:
        """Replace JSON text by the list or object that it holds."""
        *above, name = where
        holder = self._holder(above)
        value = holder[name]
        with suppress(ValueError, RecursionError):
            parsed = json.loads(value) if isinstance(value, str) else None
            if isinstance(parsed, list | dict):
                holder[name] = parsed
                self.count += 1

    def _names_at(self, above: Sequence[str | int]) -> _Names:
        """The names of the parameters, or of the fields of every item of a list."""
        shape = tuple(0 if isinstance(step, int) else step for step in above)
        if shape not in self._names:
            fields = _model_at(self._model, shape)
            self._names[shape] = _NO_NAMES if fields is None else _names_of(fields)
        return self._names[shape]

    def _gather(self, holder: dict[str, Any], where: Path, value: Any, *, given_as: str) -> None:
        """Put a field of an item, given beside the list, into the only item of that list."""
        own = str(where[-1])
        if self._given_as.get(where) is None and own in holder:
            raise _given_twice(own, given_as)
        self._given_as.setdefault(where, given_as)
        holder.setdefault(own, [{}])[0][given_as] = value

    def _switch(
        self, holder: dict[str, Any], where: Path, value: Any, values: Mapping[bool, Any], *, given_as: str
    ) -> None:
        """Put the value that a boolean stands for, if it stands for one."""
        if not isinstance(value, bool | None):
            raise InvalidArguments(f"{given_as}: must be true or false")
        if value is not None and value in values:
            self._put(holder, where, values[value], given_as=given_as)

    def _put(self, holder: dict[str, Any], where: Path, value: Any, *, given_as: str) -> None:
        own = str(where[-1])
        if own in holder:
            raise _given_twice(self._given_as.get(where, own), given_as)
        self._given_as[where] = given_as
        holder[own] = value

    def _holder(self, above: Sequence[str | int]) -> Any:
        if above and above[0] not in self._copied:
            self._copied.add(above[0])
            self._arguments[str(above[0])] = copy.deepcopy(self._arguments[str(above[0])])
        node: Any = self._arguments
        for step in above:
            node = node[step]
        return node


def _given_twice(first: str, second: str) -> InvalidArguments:
    first, second = first[:MAX_QUOTED_NAME], second[:MAX_QUOTED_NAME]
    return InvalidArguments(f"{first!r} and {second!r} are two names of one argument; give one")


def _faults_by_place(given: Mapping[str, Any], error: ValidationError) -> dict[Path, set[str]]:
    """The kinds of the faults, by the innermost value that they are about."""
    kinds_at: dict[Path, set[str]] = {}
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        kinds_at.setdefault(_place(given, fault["loc"]), set()).add(fault["type"])
    return {where: kinds for where, kinds in kinds_at.items() if where}


def _place(given: Any, location: Sequence[str | int]) -> Path:
    """The part of a fault's location that leads to a value: pydantic appends the names of a union's members."""
    node, path = given, list[str | int]()
    for step in location:
        if not has_step(node, step):
            break
        node = node[step]
        path.append(step)
    return tuple(path)


def has_step(node: Any, step: str | int) -> bool:
    """Whether a step of a location leads on from a value."""
    if isinstance(node, list):
        return isinstance(step, int) and step < len(node)
    return isinstance(node, dict) and step in node


def suggestion(model: type[BaseModel], above: Sequence[str | int], name: str, names: Sequence[str]) -> str:
    """A hint at the argument that an unknown name probably means: by its aliases and hints, else the most similar."""
    fields = _model_at(model, above)
    meant = {own: own for own in names}
    for own, aliases in declared_aliases(fields) if fields is not None else ():
        others = (*aliases.accepted, *aliases.switches, *aliases.hints)
        meant = {**dict.fromkeys(others, own), **meant}
    if name in meant:
        return f"; did you mean {meant[name]!r}?"
    close = get_close_matches(name.lower()[:MAX_QUOTED_NAME], meant, n=1, cutoff=_SIMILARITY)
    return f"; did you mean {meant[close[0]]!r}?" if close else ""


def declared_aliases(model: type[BaseModel]) -> Iterator[tuple[str, Aliases]]:
    """The parameters that have aliases."""
    for name, field in model.model_fields.items():
        for one in field.metadata:
            if isinstance(one, Aliases):
                yield name, one


def _names_of(model: type[BaseModel]) -> _Names:
    exact: dict[str, _Meaning] = {}
    for own, aliases in declared_aliases(model):
        exact |= {name: _Meaning(own, aliases, "ignored") for name in aliases.ignored}
        exact |= {name: _Meaning(own, aliases, "switch", alias=name) for name in aliases.switches}
        exact |= {name: _Meaning(own, aliases, "item field") for name in _item_names(model, own, aliases)}
        exact |= {name: _Meaning(own, aliases, alias=name) for name in aliases.accepted}
    listed = {name: _Meaning(name, _NO_ALIASES) for name in _accepted_fields(model)}
    return _Names(exact, _by_plain_name(listed | exact))


def _by_plain_name(names: Mapping[str, _Meaning]) -> dict[str, _Meaning]:
    plain: dict[str, _Meaning] = {}
    shared: set[str] = set()
    for name, meaning in names.items():
        key = _plain(name)
        if plain.setdefault(key, meaning).own != meaning.own:
            shared.add(key)
    return {key: meaning for key, meaning in plain.items() if key not in shared and _is_word(key)}


def _item_names(model: type[BaseModel], own: str, aliases: Aliases) -> frozenset[str]:
    """Every name of the fields of a list's items, if they are accepted beside the list."""
    item = _model_at(model, (own, 0)) if aliases.item_fields else None
    if item is None:
        return frozenset()
    others = (alias for _, declared in declared_aliases(item) for alias in declared.accepted)
    return frozenset((*_accepted_fields(item), *others))


def _accepted_fields(model: type[BaseModel]) -> Iterator[str]:
    """The fields that go by their own name."""
    return (name for name, field in model.model_fields.items() if field.validation_alias is None)


def _plain(name: str) -> str:
    """A name without what differs between styles: `filePath`, `file-path` and `FILE_PATH` are one."""
    return name.replace("_", "").replace("-", "").lower()


def _is_word(name: str) -> bool:
    """Whether it is long enough to mean the same in another style; options such as `-C` are not."""
    return len(name) >= _SHORTEST_WORD


def _model_at(model: type[BaseModel], steps: Sequence[str | int]) -> type[BaseModel] | None:
    """The model at a place in the arguments; None where there is another type."""
    hint: Any = model
    for step in steps:
        members = list(_members(hint))
        if isinstance(step, int):
            hint = next((get_args(one)[0] for one in members if get_origin(one) is list), None)
        else:
            models = (one for one in members if isinstance(one, type) and issubclass(one, BaseModel))
            hint = next((one.model_fields[step].annotation for one in models if step in one.model_fields), None)
    return next((one for one in _members(hint) if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _members(hint: Any) -> Iterator[Any]:
    """The members of a union without None; for any other type the type itself."""
    if get_origin(hint) is Annotated:
        yield from _members(get_args(hint)[0])
    elif get_origin(hint) is None or isinstance(hint, type) or get_origin(hint) in (list, dict):
        yield hint
    else:
        yield from (one for one in get_args(hint) if one is not NoneType)
