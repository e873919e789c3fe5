"""What the word at the end of a line could be: for shells and for the REPL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coretools.cli.arguments import is_flag, is_list, option_of
from coretools.cli.command_line import Bench
from coretools.cli.completion_scripts import SHELLS
from coretools.cli.own_options import LINE_OPTIONS
from coretools.cli.routes import Found, Routes, leading, plain
from coretools.operations.completion import with_prefix
from coretools.operations.documentation import CommandPage, ParameterPage, document_command
from coretools.operations.registry import Command
from coretools.operations.route import VARIABLE

_BUILT_IN: dict[tuple[str, ...], tuple[str, ...]] = {
    ("completion",): SHELLS,
    ("policy",): ("explain", "check"),
    ("token",): ("create", "list", "revoke"),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word, and what is said of it."""

    text: str
    said: str = ""


async def candidates(bench: Bench, before: Sequence[str], current: str) -> list[Candidate]:
    """What `current`, which stands behind the words of `before`, could become."""
    routes = Routes(bench.catalog.registry, bench.selection)
    words = leading(before)
    found = routes.at(words)
    following = []
    if len(words) == len(before) and not current.startswith("-"):
        within = found.command.route if found is not None and found.count == len(words) else ()
        following = await _words(bench, routes.below(words, within=within), words, current)
    if found is None:
        return following
    return [*following, *await _of_command(bench, found, before[found.count :], current)]


def of_built_in(before: Sequence[str], current: str) -> list[Candidate]:
    """The same for coretools' own commands, as far as there is little to choose from."""
    return [Candidate(word) for word in with_prefix(current, _BUILT_IN.get(tuple(before), ()))]


@dataclass(slots=True)
class _Typed:
    """What is there already."""

    given: dict[str, str] = field(default_factory=dict)
    loose: list[str] = field(default_factory=list)
    waiting: ParameterPage | None = None
    """The option whose value comes next."""
    only_values: bool = False


async def _words(bench: Bench, below: Sequence[Command], words: Sequence[str], current: str) -> list[Candidate]:
    """The next word of a route."""
    routes = Routes(bench.catalog.registry, bench.selection)
    found: dict[str, str] = {}
    for command in below:
        expected = command.route[len(words)]
        variable = VARIABLE.fullmatch(expected)
        if variable:
            page = document_command(command)
            parameter = next(one for one in page.parameters if one.name == variable[1])
            values = await _values(bench, command, parameter, current, {})
            found |= dict.fromkeys(values, f"{parameter.name} of {command.name}")
        elif plain(expected).startswith(plain(current)):
            is_last = len(command.route) == len(words) + 1
            context = routes.context((*words, expected))
            found.setdefault(expected, command.summary if is_last else context.summary if context else "")
    return [Candidate(text, said) for text, said in found.items()]


async def _of_command(bench: Bench, found: Found, words: Sequence[str], current: str) -> list[Candidate]:
    page = document_command(found.command)
    typed = _typed(page, words)
    typed.given |= found.in_route
    parameter, before, text = typed.waiting, "", current
    if parameter is None and current.startswith("-") and not typed.only_values:
        option, equals, text = current.partition("=")
        parameter, before = _parameter(page, option), f"{option}="
        if not equals or parameter is None:
            return _options(page, typed, current)
    parameter = parameter or _slot(page, typed)
    if parameter is None:
        return [] if current else _options(page, typed, "--")
    return [Candidate(before + value) for value in await _values(bench, found.command, parameter, text, typed.given)]


async def _values(
    bench: Bench, command: Command, parameter: ParameterPage, text: str, given: Mapping[str, str]
) -> list[str]:
    others = {name: value for name, value in given.items() if name != parameter.name}
    return await bench.dispatcher.complete(command, parameter.name, text, others)


def _options(page: CommandPage, typed: _Typed, current: str) -> list[Candidate]:
    found = []
    for parameter in page.parameters:
        if parameter.name in typed.given and not is_list(parameter):
            continue
        option = option_of(parameter)
        is_off = is_flag(parameter) and parameter.default is True
        found.append(Candidate(f"--no-{option[2:]}" if is_off else option, parameter.description))
    said = {"--json": "print the result as JSON", "--help": "say how it is typed", "--answer": "answer beforehand"}
    found += [Candidate(option, said[option]) for option in sorted(LINE_OPTIONS.keys() & said.keys())]
    known = {plain(one.text): one for one in found}
    return [known[name] for name in with_prefix(plain(current), known)]


def _typed(page: CommandPage, words: Sequence[str]) -> _Typed:
    typed = _Typed()
    for word in words:
        if typed.waiting is not None:
            typed.given[typed.waiting.name] = word
            typed.waiting = None
        elif typed.only_values or not word.startswith("--"):
            typed.loose.append(word)
        elif word == "--":
            typed.only_values = True
        else:
            option, equals, text = word.partition("=")
            parameter = _parameter(page, option)
            if parameter is not None and not is_flag(parameter) and not equals:
                typed.waiting = parameter
            elif parameter is not None:
                typed.given[parameter.name] = text
    _place(page, typed)
    return typed


def _place(page: CommandPage, typed: _Typed) -> None:
    """Give loose words to what must be there; a list keeps the rest."""
    for word in typed.loose:
        slot = _slot(page, typed)
        if slot is None or is_list(slot):
            return
        typed.given[slot.name] = word


def _slot(page: CommandPage, typed: _Typed) -> ParameterPage | None:
    """The parameter that the next loose word is for."""
    return next((one for one in page.parameters if one.is_required and one.name not in typed.given), None)


def _parameter(page: CommandPage, option: str) -> ParameterPage | None:
    name = plain(option[2:])
    names = {plain(one.name): one for one in page.parameters}
    return names.get(name) or names.get(name.removeprefix("no_"))
