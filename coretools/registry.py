"""The tools there are, by name, in a fixed order, and which of them a caller is offered.

Imports neither `mcp` nor git. Schemas are built on first use: a server that is only started pays for none.
"""

import difflib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_type_hints

from coretools.declare import Declaration, declaration_of
from coretools.errors import BadSetting, UnknownTool
from coretools.result import Result
from coretools.schema import Arguments, output_schema
from coretools.settings import PROFILES

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""Names every client takes: some refuse anything but letters, digits and underscores, or more than 64 of them."""


@dataclass(frozen=True)
class Command:
    """One tool: what was declared, and what follows from it."""

    name: str
    function: Callable[..., Any]
    declaration: Declaration
    tool_set: str

    @property
    def source(self) -> str:
        """Where the function stands, for messages."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def description(self) -> str:
        """The docstring, which is written for the model."""
        return " ".join((inspect.getdoc(self.function) or "").split())

    @property
    def is_async(self) -> bool:
        """Whether the function waits on the event loop; the others run in a worker thread."""
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def arguments(self) -> Arguments:
        """The parameters and their check."""
        return Arguments(self.name, self.function)

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """Schema of the structured result, or None when the result goes out as text."""
        if not self.declaration.structured:
            return None
        returned = get_type_hints(self.function)["return"]
        if not (isinstance(returned, type) and issubclass(returned, Result)):
            raise BadSetting(f"{self.source}: a structured tool returns a Result, not {returned}")
        return output_schema(returned)


@dataclass
class Registry:
    """Every tool, in the order in which it was added."""

    _commands: dict[str, Command] = field(default_factory=dict)

    def add(self, function: Callable[..., Any], tool_set: str) -> Command:
        """Add one declared function.

        Raises:
            BadSetting: not declared, a name that clients refuse, no docstring, or a name that is taken.
        """
        declaration = declaration_of(function)
        name = getattr(function, "__name__", "")
        if declaration is None:
            raise BadSetting(f"{name or function}: not declared with @tool")
        command = Command(name=name, function=function, declaration=declaration, tool_set=tool_set)
        if not NAME.fullmatch(name):
            raise BadSetting(f"{command.source}: {name!r} is no tool name; use a to z, 0 to 9 and _, 64 at most")
        if not command.description:
            raise BadSetting(f"{command.source}: a tool needs a docstring, it is what the model reads")
        taken = self._commands.get(name)
        if taken is not None:
            raise BadSetting(f"two tools are named {name}: {taken.source} and {command.source}")
        self._commands[name] = command
        return command

    def add_set(self, tool_set: str, holder: object) -> None:
        """Add every declared method of an object, in the order in which its class defines them."""
        for name in vars(type(holder)):
            method = getattr(holder, name)
            if declaration_of(method) is not None:
                self.add(method, tool_set)

    def __iter__(self) -> Iterator[Command]:
        """Every command, hidden ones too."""
        return iter(self._commands.values())

    def offer(self, profile: str, *, read_only: bool = False) -> "Offer":
        """What a caller of this profile sees and may call. `read_only` wins over the profile.

        Raises:
            BadSetting: no such profile.
        """
        if profile not in PROFILES:
            raise BadSetting(f"profile {profile!r}: there are {', '.join(PROFILES)}")
        offered: dict[str, Command] = {}
        withheld: dict[str, str] = {}
        for command in self:
            declared = command.declaration
            if declared.hidden:
                continue
            if read_only and not declared.read_only:
                withheld[command.name] = "the server is read-only"
            elif profile != "all" and profile not in declared.profiles:
                withheld[command.name] = f"profile {profile} does not include it"
            else:
                offered[command.name] = command
        return Offer(offered, withheld, shows_outputs=profile != "dev")


class Offer:
    """The commands of one profile. Lists and calls both go through it, so what is not listed can't be called."""

    def __init__(self, offered: dict[str, Command], withheld: dict[str, str], *, shows_outputs: bool) -> None:
        self._offered = offered
        self._withheld = withheld
        self.shows_outputs = shows_outputs
        """Whether the list has output schemas. `dev` is for models, which don't read them; programs use the others."""

    def __iter__(self) -> Iterator[Command]:
        """The commands, in listing order."""
        return iter(self._offered.values())

    def find(self, name: str) -> Command | None:
        """The command of this name, or None when it is not offered."""
        return self._offered.get(name)

    def get(self, name: str) -> Command:
        """The command of this name.

        Raises:
            UnknownTool: not offered; says why, or which name comes close.
        """
        command = self._offered.get(name)
        if command is not None:
            return command
        if name in self._withheld:
            raise UnknownTool(f"{name} is not offered here: {self._withheld[name]}")
        close = difflib.get_close_matches(name, self._offered, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise UnknownTool(f"unknown tool: {name[:80]!r}{meant}")
