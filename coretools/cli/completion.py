"""Complete the last word of a line, for shells and for the REPL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coretools.cli.command_runner import CommandContext
from coretools.cli.common.arguments import is_flag, is_list, option_of
from coretools.cli.common.candidates import Candidate
from coretools.cli.common.global_options import LINE_OPTIONS
from coretools.cli.common.routes import RouteMatch, Routes, leading_words, normalize
from coretools.cli.completion_scripts import SHELLS
from coretools.operations.command import Command
from coretools.operations.completion import with_prefix
from coretools.operations.documentation import CommandPage, ParameterPage, document_command
from coretools.operations.route import VARIABLE

_BUILT_IN: dict[tuple[str, ...], tuple[str, ...]] = {
    ("completion",): SHELLS,
    ("policy",): ("explain", "check"),
    ("token",): ("create", "list", "revoke"),
}


async def candidates(context: CommandContext, before: Sequence[str], current: str) -> list[Candidate]:
    """Return the completions of `current`, which follows the words of `before`."""
    routes = Routes(context.catalog.registry, context.selection, context.channel)
    words = leading_words(before)
    match = routes.at(words)
    following = []
    if len(words) == len(before) and not current.startswith("-"):
        within = match.command.route[: match.count] if match is not None and match.count == len(words) else ()
        following = await _word_candidates(context, routes, words, current, within)
    if match is None:
        return following
    return [*following, *await _command_candidates(context, match, before[match.count :], current)]


def built_in_candidates(before: Sequence[str], current: str) -> list[Candidate]:
    """Return the completions for coretools' own commands, where there are few choices."""
    return [Candidate(word) for word in with_prefix(current, _BUILT_IN.get(tuple(before), ()))]


@dataclass(slots=True)
class _TypedWords:
    """The arguments typed so far."""

    given: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    awaiting_value: ParameterPage | None = None
    """The option whose value is the next word."""
    only_values: bool = False


async def _word_candidates(
    context: CommandContext, routes: Routes, words: Sequence[str], current: str, within: Sequence[str]
) -> list[Candidate]:
    """Return the completions of the next word of a route, of those that begin with `within`."""
    descriptions: dict[str, str] = {}
    for command in routes.below(words, within=within):
        expected = command.route[len(words)]
        variable = VARIABLE.fullmatch(expected)
        if variable:
            page = document_command(command)
            parameter = next(one for one in page.parameters if one.name == variable[1])
            values = await _values(context, command, parameter, current, {})
            descriptions |= dict.fromkeys(values, f"{parameter.name} of {command.name}")
        elif normalize(expected).startswith(normalize(current)):
            is_last = len(command.route) == len(words) + 1
            descriptions.setdefault(expected, command.summary if is_last else routes.summary((*words, expected)))
    return [Candidate(text, description) for text, description in descriptions.items()]


async def _command_candidates(
    context: CommandContext, match: RouteMatch, words: Sequence[str], current: str
) -> list[Candidate]:
    page = document_command(match.command)
    typed = _parse_typed(page, words)
    typed.given |= match.route_values
    parameter, before, text = typed.awaiting_value, "", current
    if parameter is None and current.startswith("-") and not typed.only_values:
        option, equals, text = current.partition("=")
        parameter, before = _parameter(page, option), f"{option}="
        if not equals or parameter is None:
            return _options(page, typed, current)
    parameter = parameter or _next_positional(page, typed)
    if parameter is None:
        return [] if current else _options(page, typed, "--")
    return [Candidate(before + value) for value in await _values(context, match.command, parameter, text, typed.given)]


async def _values(
    context: CommandContext, command: Command, parameter: ParameterPage, text: str, given: Mapping[str, str]
) -> list[str]:
    other_values = {name: value for name, value in given.items() if name != parameter.name}
    return await context.dispatcher.complete(command, parameter.name, text, other_values)


def _options(page: CommandPage, typed: _TypedWords, current: str) -> list[Candidate]:
    options = []
    for parameter in page.parameters:
        if parameter.name in typed.given and not is_list(parameter):
            continue
        option = option_of(parameter)
        is_off = is_flag(parameter) and parameter.default is True
        options.append(Candidate(f"--no-{option[2:]}" if is_off else option, parameter.description))
    description = {
        "--json": "print the result as JSON",
        "--help": "show its usage",
        "--answer": "answer a question in advance",
    }
    options += [Candidate(option, description[option]) for option in sorted(LINE_OPTIONS.keys() & description.keys())]
    known = {normalize(one.text): one for one in options}
    return [known[name] for name in with_prefix(normalize(current), known)]


def _parse_typed(page: CommandPage, words: Sequence[str]) -> _TypedWords:
    typed = _TypedWords()
    for word in words:
        if typed.awaiting_value is not None:
            typed.given[typed.awaiting_value.name] = word
            typed.awaiting_value = None
        elif typed.only_values or not word.startswith("--"):
            typed.positional.append(word)
        elif word == "--":
            typed.only_values = True
        else:
            option, equals, text = word.partition("=")
            parameter = _parameter(page, option)
            if parameter is not None and not is_flag(parameter) and not equals:
                typed.awaiting_value = parameter
            elif parameter is not None:
                typed.given[parameter.name] = text
    _assign_positionals(page, typed)
    return typed


def _assign_positionals(page: CommandPage, typed: _TypedWords) -> None:
    """Assign positional words to required parameters; a list takes the rest."""
    for word in typed.positional:
        expected = _next_positional(page, typed)
        if expected is None or is_list(expected):
            return
        typed.given[expected.name] = word


def _next_positional(page: CommandPage, typed: _TypedWords) -> ParameterPage | None:
    """Return the parameter that the next positional word is for."""
    return next((one for one in page.parameters if one.is_required and one.name not in typed.given), None)


def _parameter(page: CommandPage, option: str) -> ParameterPage | None:
    name = normalize(option[2:])
    names = {normalize(one.name): one for one in page.parameters}
    return names.get(name) or names.get(name.removeprefix("no_"))
