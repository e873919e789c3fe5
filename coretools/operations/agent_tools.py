"""Agents as tools: an async callable with a typed input and its own context for each call.

The arguments of the tool are the fields of a model or dataclass, or a JSON Schema as given. Each step that the agent
reports is one progress notification; a cancelled call cancels the agent where it waits.
"""

import dataclasses
import inspect
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

import anyio
from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

from coretools.config.call_context import current_call
from coretools.errors import BadSetting, CoreError, InputNeeded, InvalidArguments
from coretools.operations.annotations import RETURN, resolve_hints
from coretools.operations.call import Call
from coretools.operations.declare import Effect, raw_schema, tool
from coretools.questions.kinds import Question
from coretools.services.interface import Services

T = TypeVar("T")

STEP_SECONDS = 0.06
"""Minimum time between two steps: a surface drops more than 20 messages a second, and no step must be lost."""


MAX_STEPS = 100
"""Steps in the metadata of a result."""

_DEPTH: ContextVar[int] = ContextVar("coretools_agent_depth", default=0)
"""Steps around the current one; of each task of an agent."""


@dataclass(slots=True)
class AgentStep:
    """What an agent did: a question to a model, a call of a tool, a plan."""

    kind: str
    """`model`, `tool` or another word of the agent's."""
    name: str
    depth: int
    """Number of steps that it is part of."""
    seconds: float = 0.0
    tokens: int = 0
    """Tokens used; the agent sets them."""
    error: str = ""
    """Why it failed; of an unexpected exception only the type."""

    def text(self) -> str:
        """The step as a line, indented by its depth."""
        used = f", {self.tokens} tokens" if self.tokens else ""
        failed = f": {self.error}" if self.error else ""
        return f"{'  ' * self.depth}{self.kind} {self.name} ({self.seconds:.1f} s{used}){failed}"


class AgentContext:
    """The context of one call of an agent. New for each call, and for each repetition of a call with answers."""

    def __init__(self, call: Call, services: Services) -> None:
        self.call_id = uuid.uuid4().hex
        self.services = services
        self.trace: list[AgentStep] = []
        """The steps made with `doing`, in the order in which they began."""
        self._entries: list[dict[str, Any]] = []
        self._call = call
        self._steps = 0
        self._next = 0.0

    @property
    def principal(self) -> str:
        """The identity of the caller."""
        return self._call.principal

    @property
    def steps(self) -> int:
        """Number of steps reported so far."""
        return self._steps

    async def step(self, message: str) -> None:
        """Report a step to the client as one progress notification. Waits if steps come too fast."""
        await anyio.sleep(max(0.0, self._next - anyio.current_time()))
        self._steps += 1
        await self._call.progress(self._steps, None, message)
        self._next = anyio.current_time() + STEP_SECONDS

    @asynccontextmanager
    async def doing(self, kind: str, name: str) -> AsyncIterator[AgentStep]:
        """Report a step when it begins, and with time, tokens and error when it ends; steps within it are indented.

        The metadata of the result has the steps too. Set `tokens` on what this yields.
        """
        depth = _DEPTH.get()
        step = AgentStep(kind, name, depth)
        entry = self._record(step)
        await self.step(f"{'  ' * depth}{kind} {name}")
        token, began = _DEPTH.set(depth + 1), time.monotonic()
        try:
            yield step
        except InputNeeded:  # no failure: the call is repeated with the answers
            raise
        except Exception as error:
            step.error = str(error) if isinstance(error, CoreError) else type(error).__name__
            raise
        finally:
            _DEPTH.reset(token)
            step.seconds = round(time.monotonic() - began, 3)
            entry.update(asdict(step))
            await self.step(step.text())

    def _record(self, step: AgentStep) -> dict[str, Any]:
        """Keep a step; return its entry in the metadata of the result, which is filled in when it ends."""
        self.trace.append(step)
        entry = asdict(step)
        context = current_call()
        if context is not None and len(self.trace) <= MAX_STEPS:
            self._entries.append(entry)
            context.facts["steps"] = self._entries
        return entry

    async def ask(self, question: Question[T]) -> T:
        """Ask the user, the client's model (`AskModel`) or the client (`AskRoots`), as `Call.ask` does.

        Declare the key with `@asks`. In the stateless era the agent restarts with the answer: ask before any effect.

        Raises:
            As `Call.ask`.
        """
        return await self._call.ask(question)


Agent = Callable[[Any, AgentContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """Input of an agent: a model or dataclass whose fields are the arguments, or a JSON Schema, published as given."""

    model: type | None = None
    schema: Mapping[str, Any] | None = None


def agent_tool(
    agent: Agent,
    effect: Effect,
    *,
    name: str | None = None,
    description: str | None = None,
    takes: Takes | None = None,
) -> Callable[..., Awaitable[Any]]:
    """Make a declared function that runs the agent, for `Registry.add`. More decorators can be applied to it.

    `name` and `description` are by default those of the agent; the input is by default the annotation of its first
    parameter. An agent can return what any command can. It is declared `long_running` and `open_world`.

    Raises:
        BadSetting: the input type, the name or the description is missing.
    """
    name = name or getattr(agent, "__name__", "")
    description = description or inspect.getdoc(agent)
    if not name or not description:
        raise BadSetting(f"agent {name or agent!r}: needs a name and a description, which the model reads")
    if inspect.isroutine(agent) and not inspect.iscoroutinefunction(agent):
        raise BadSetting(
            f"agent {name}: must be async; declare a plain function with coretools.operations.declare.tool"
        )
    hints = _agent_hints(agent)
    if takes is None:
        takes = Takes(model=hints.get(next(iter(inspect.signature(agent).parameters), "")))
    run = _with_schema(agent, takes.schema) if takes.schema is not None else _with_model(agent, name, takes.model)
    run.__name__, run.__qualname__ = name, name
    run.__module__ = getattr(agent, "__module__", __name__)
    run.__doc__ = description
    # An agent without a return annotation is refused when it is registered.
    returned = {RETURN: hints[RETURN]} if RETURN in hints else {}
    run.__annotations__ = {key: hint for key, hint in run.__annotations__.items() if key != RETURN} | returned
    return tool(effect, long_running=True, open_world=True)(run)


def _with_schema(agent: Agent, schema: Mapping[str, Any]) -> Callable[..., Awaitable[Any]]:
    async def run(given: dict[str, Any], call: Call, services: Services) -> Any:
        return await agent(given, AgentContext(call, services))

    return raw_schema(schema)(run)


def _with_model(agent: Agent, name: str, model: type | None) -> Callable[..., Awaitable[Any]]:
    fields = _fields(model, name)

    async def _run(*, _call: Call, _services: Services, **given: Any) -> Any:
        return await agent(_build_input(model, name, given), AgentContext(_call, _services))

    keyword = inspect.Parameter.KEYWORD_ONLY
    taken = [
        inspect.Parameter(field, keyword, default=default, annotation=hint) for field, (hint, default) in fields.items()
    ]
    injected = [inspect.Parameter("_call", keyword), inspect.Parameter("_services", keyword)]
    signature = inspect.Signature([*taken, *injected])
    _run.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect.signature (PEP 362)
    hints: dict[str, Any] = {field: hint for field, (hint, _) in fields.items()}
    _run.__annotations__ = {**hints, "_call": Call, "_services": Services}
    return _run


def _fields(model: type | None, name: str) -> dict[str, tuple[Any, Any]]:
    """The type and default of each field; `Parameter.empty` without a default."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        return {field: _pydantic_field(info) for field, info in model.model_fields.items()}
    if isinstance(model, type) and dataclasses.is_dataclass(model):
        hints = get_type_hints(model, include_extras=True)
        return {field.name: (hints[field.name], _default(field)) for field in dataclasses.fields(model) if field.init}
    raise BadSetting(
        f"agent {name}: annotate its first parameter with a pydantic model or a dataclass, or pass takes=Takes(...)"
    )


def _pydantic_field(info: FieldInfo) -> tuple[Any, Any]:
    description = Field(description=info.description)
    hint = Annotated[info.annotation, *info.metadata, description]  # type: ignore[name-defined]  # a type made at run time
    if info.is_required():
        return hint, inspect.Parameter.empty
    factory: Any = info.default_factory
    return hint, Field(default_factory=factory) if factory is not None else info.default


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return Field(default_factory=field.default_factory)
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _build_input(model: Any, name: str, given: dict[str, Any]) -> Any:
    try:
        if issubclass(model, BaseModel):
            return model.model_validate(given, by_alias=False, by_name=True)
        return model(**given)
    except ValidationError as error:
        messages = "; ".join(fault["msg"] for fault in error.errors(include_url=False, include_input=False))
        raise InvalidArguments(f"{name}: {messages}") from None
    except ValueError as error:
        raise InvalidArguments(f"{name}: {error}") from None


def _agent_hints(agent: Agent) -> dict[str, Any]:
    """The annotations of a function, or of an object's `__call__`."""
    return resolve_hints(agent if inspect.isroutine(agent) else type(agent).__call__)
