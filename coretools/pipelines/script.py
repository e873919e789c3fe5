"""Scripts: YAML files with steps, each a call of a tool (docs/specs/pipelines.md)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from coretools.config.toml_file import MAX_FAULTS, problem_of
from coretools.errors import BadSetting
from coretools.pipelines.outcome import STATUSES
from coretools.pipelines.templates import queries_in
from coretools.pipelines.yaml_file import YamlDocument, parse_yaml
from coretools.truncation import and_more

MAX_STEPS = 1_000

MAX_RETRIES = 100

IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
"""Names that a query can write without quotes."""

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Retries = Annotated[int, Field(ge=0, le=MAX_RETRIES)]
Name = Annotated[str, Field(pattern=IDENTIFIER)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=False)


class ScriptStep(_Table):
    """One step of a script file."""

    server: str
    tool: str
    id: Name | None = None
    name: str = ""
    arguments: dict[str, Any] = {}
    condition: str | bool = Field(default=True, alias="if")
    when: Literal["success", "failure", "always"] = "success"
    timeout: Seconds | None = None
    retry: Retries | None = None
    retry_any: bool | None = Field(default=None, alias="retry-any")
    continue_on_error: bool = Field(default=False, alias="continue-on-error")
    assertions: str | list[str] = Field(default=[], alias="assert")
    expect: Literal["success", "error"] = "success"

    @property
    def expressions(self) -> Sequence[str]:
        """The assertions, as a list."""
        return [self.assertions] if isinstance(self.assertions, str) else self.assertions

    @property
    def conditions(self) -> Sequence[str]:
        """The condition, if it is an expression."""
        return [self.condition] if isinstance(self.condition, str) else []

    @property
    def predicates(self) -> Sequence[str]:
        """The condition and the assertions."""
        return [*self.conditions, *self.expressions]

    @property
    def queries(self) -> Sequence[str]:
        """The queries of all templates."""
        return [query for text in _texts([self.arguments, *self.predicates]) for query in queries_in(text)]


class Script(_Table):
    """A script file."""

    steps: Annotated[list[ScriptStep], Field(min_length=1, max_length=MAX_STEPS)]
    name: str = ""
    vars: dict[Name, Any] = {}
    timeout: Seconds | None = None
    retry: Retries = 0
    retry_any: bool = Field(default=False, alias="retry-any")


@dataclass(frozen=True, slots=True)
class LoadedScript:
    """A script with its place."""

    file: str
    script: Script
    document: YamlDocument

    @property
    def name(self) -> str:
        """The name for people."""
        return self.script.name or self.file

    def line_of(self, index: int) -> int:
        """Return the line on which a step begins."""
        return self.document.line_of(("steps", index))

    def step_id(self, index: int) -> str:
        """Return the id of a step; one without gets `step1`, `step2`, ... by its position."""
        return self.script.steps[index].id or f"step{index + 1}"

    def environment_names(self) -> set[str]:
        """Return the environment variables that templates and conditions name."""
        texts = _texts([step.model_dump() for step in self.script.steps])
        return {name for text in texts for name in re.findall(r"\benv\.([A-Za-z_][A-Za-z0-9_]*)", text)}


def load_script(data: bytes, file: str) -> LoadedScript:
    """Read a script.

    Raises:
        BadSetting: not YAML, or not valid by the schema; names each fault with its line.
    """
    document = parse_yaml(data, file)
    if not isinstance(document.value, dict):
        raise BadSetting(f"{file}:1: a script is a mapping with `steps`")
    try:
        script = Script.model_validate(document.value)
    except ValidationError as error:
        faults = error.errors()
        shown = (_fault(fault, file, document) for fault in faults[:MAX_FAULTS])
        raise BadSetting(and_more(shown, len(faults), separator="; ")) from error
    loaded = LoadedScript(file, script, document)
    if problems := list(_problems(loaded)):
        raise BadSetting("; ".join(problems[:MAX_FAULTS]))
    return loaded


def _fault(error: ErrorDetails, file: str, document: YamlDocument) -> str:
    # pydantic names the branch of a union at the end of the path.
    path = tuple(key for key in error["loc"] if key not in ("str", "bool", "list[str]"))
    where = "".join(f"[{key + 1}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")
    reason = _LIMITS.get(error["type"]) or problem_of(error | {"loc": error["loc"]}, Script)
    return f"{file}:{document.line_of(path)}: {where}: {reason.format(**error.get('ctx', {}))}"


_LIMITS = {
    "too_short": "needs at least one step",
    "too_long": "has too many steps; at most {max_length}",
    "string_pattern_mismatch": "must be letters, digits and _, at most 64, and begin with no digit",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "float_type": "must be a number",
}


def _problems(loaded: LoadedScript) -> Iterator[str]:
    """Find duplicate ids, and templates that refer to what is unknown when their step runs."""
    known: set[str] = set()
    for index, step in enumerate(loaded.script.steps):
        where = f"{loaded.file}:{loaded.line_of(index)}: steps[{index + 1}]"
        for reason in dict.fromkeys(_unknown([*step.queries, *step.conditions], known, loaded.script)):
            yield f"{where}: {reason}"
        if loaded.step_id(index) in known:
            yield f"{where}: id {loaded.step_id(index)!r} is there twice"
        known.add(loaded.step_id(index))


def _unknown(queries: Sequence[str], known: set[str], script: Script) -> Iterator[str]:
    for query in queries:
        for name in re.findall(r"(?<![\w.])(?:\$\.)?steps\.([A-Za-z_][A-Za-z0-9_]*)", query):
            if name not in known:
                yield f"{query.strip()[:80]!r}: no earlier step has the id {name!r}"
        for name in re.findall(r"(?<![\w.])(?:\$\.)?vars\.([A-Za-z_][A-Za-z0-9_]*)", query):
            if name not in script.vars:
                yield f"{query.strip()[:80]!r}: no variable {name!r}; `vars` declares them"
        for name in re.findall(r"\.outcome\s*[=!]=\s*[\"']([^\"']*)", query):
            if name not in STATUSES:
                yield f"{query.strip()[:80]!r}: no outcome {name[:80]!r}; there are {', '.join(STATUSES)}"


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
