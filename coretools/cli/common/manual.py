"""Render help pages from the documentation model: overviews, contexts, commands. Pure."""

import json
import textwrap
from collections.abc import Sequence

from coretools.cli.common.arguments import is_flag, is_list, option_of
from coretools.cli.common.routes import Routes, route_word
from coretools.cli.common.terminal import truncate
from coretools.operations.docstring import is_laid_out
from coretools.operations.documentation import CommandPage, ParameterPage, describe_parameter, usage

WIDTH = 100

_EFFECTS = {"read": "only reads", "add": "adds", "change": "changes"}


def overview(routes: Routes, words: Sequence[str], width: int) -> str:
    """Return the commands below a route, one line each: contexts first, then commands."""
    below = routes.below(words)
    nested: dict[str, list[str]] = {}
    direct: list[tuple[str, str]] = []
    for command in below:
        if len(command.route) > len(words) + 1:
            nested.setdefault(route_word(command.route[len(words)]), []).append(
                " ".join(map(route_word, command.route[len(words) + 1 :]))
            )
        else:
            direct.append((route_word(command.route[len(words)]), command.summary))
    rows = [(word, routes.summary((*words, word)) or ", ".join(inner)) for word, inner in nested.items()]
    return table([*rows, *direct], width)


def context_page(routes: Routes, words: Sequence[str], width: int, *, program: str = "coretools") -> str:
    """Return the page of a context: its description and its commands with their summaries."""
    context = routes.context(words)
    line = " ".join((program, *words)) if program else " ".join(words)
    texts = [context.summary or " ".join(words), context.details] if context else [" ".join(words)]
    parts = [f"usage: {line} COMMAND [options]", *(text for text in texts if text), overview(routes, words, width)]
    return "\n\n".join((*parts, f"`{line} COMMAND --help` shows one of them."))


def command_page(page: CommandPage, *, program: str = "coretools") -> str:
    """Return the page of a command with its parameters."""
    line = " ".join(filter(None, (program, usage(page))))
    flags = {"may take long": page.hints["long_running"], "is for people only": not page.for_agents}
    notes = [_EFFECTS[page.effect], *(note for note, holds in flags.items() if holds)]
    parts = [f"usage: {line}", textwrap.fill(page.summary, WIDTH)]
    parts += [_filled(text) for text in page.details.split("\n\n") if text]
    parts.append(f"It {', '.join(notes)}.")
    for title, is_required in (("required, in order:", True), ("options:", False)):
        rows = [(_label(one), _describe(one)) for one in page.parameters if one.is_required is is_required]
        parts += [f"{title}\n{table(rows, WIDTH)}"] if rows else []
    if page.asks:
        parts.append("asks (--answer KEY=VALUE or KEY:=JSON answers in advance): " + ", ".join(page.asks))
    parts.append("also: --json prints the result as JSON, --help prints this page")
    return "\n\n".join(parts)


def _filled(paragraph: str) -> str:
    """Return a paragraph in lines of the width; lists, code and other indented lines as they are."""
    return paragraph if is_laid_out(paragraph) else textwrap.fill(paragraph, WIDTH)


def table(rows: Sequence[tuple[str, str]], width: int) -> str:
    """Return two columns; lines are truncated at the width."""
    if not rows:
        return ""
    longest = min(max(len(left) for left, _ in rows), 34)
    lines = []
    for left, right in rows:
        line = f"  {left:<{longest}}  {' '.join(right.split())}".rstrip()
        lines.append(truncate(line, width))
    return "\n".join(lines)


def _label(parameter: ParameterPage) -> str:
    if parameter.is_required:
        return parameter.name.upper() + (" ..." if is_list(parameter) else "")
    option = option_of(parameter)
    if is_flag(parameter) and option != "--help":
        return option if not parameter.default else f"--no-{option[2:]}"
    # `--help` alone shows this page.
    between = "=" if option == "--help" else " "
    kind = str(parameter.schema.get("format") or parameter.type.removeprefix("list of ")).upper()
    return f"{option}{between}{kind}" + (" ..." if is_list(parameter) else "")


def _describe(parameter: ParameterPage) -> str:
    texts = describe_parameter(parameter)
    kind = parameter.type if parameter.is_required and parameter.type != "string" else ""
    has_default = not parameter.is_required and parameter.default not in (None, False, "", [])
    default = f"[{json.dumps(parameter.default, ensure_ascii=False)}]" if has_default else ""
    field_names = "{" + ", ".join(field.name for field in parameter.fields) + "}" if parameter.fields else ""
    about = "; ".join(part for part in (kind, field_names, texts) if part)
    return f"{about} {default}".strip()
