"""Reference pages about settings, limits and exit codes, written from the options, the limits and the errors."""

import argparse
import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from itertools import groupby, pairwise

from coretools import errors
from coretools.config.limits import Limits
from coretools.config.options import VARIABLES, add_login_path_option, add_options, add_upstream_option
from coretools.operations.documentation import WRITTEN_BY, cell

SETTINGS_PAGE = "settings.md"
EXIT_CODES_PAGE = "exit-codes.md"

_SPECIFIED = {
    "--profile": "catalog.md",
    "--deny": "secret-files.md",
    "--no-default-deny": "secret-files.md",
    "--no-undo": "undo.md",
    "--author": "git-user.md",
    "--redact-output": "redaction.md",
    "--ask": "questions.md",
    "--policy": "policy.md",
    "--own-container": "containers.md",
    "--network": "network.md",
    "--require-tier": "confinement.md",
    "--allow-unconfined": "confinement.md",
    "--allow-git-credentials": "confinement.md",
    "--allow-editor-settings": "editor-settings.md",
    "--refuse-syntax-errors": "filesystem.md",
    "--git-above": "git.md",
    "--trust": "trust.md",
    "--no-login-path": "toolchains.md",
    "--upstream": "upstream.md",
    "--confine": "upstream.md",
    "--unconfined": "upstream.md",
}
"""The specification of an option, where it says more than the help."""

_SETTINGS = """\
The options of `coretools-workstation`, which clients start. `coretools` has them too, but for the last four, with the
defaults `all` of `--profile` and `warning` of `--log-level`. Each is a variable too. The items of a list have commas
between them, as in `CORETOOLS_ROOTS=/work,/reference:ro`; those of `CORETOOLS_UPSTREAM`, `CORETOOLS_CONFINE` and
`CORETOOLS_UNCONFINED` semicolons. A switch is set by `1` and unset by `0`. An option wins over its variable, a variable
over the [policy file](../specs/policy.md#the-file), that over the default. Lists of an option and its variable add
up."""

_LIMITS = """\
`--limit NAME=VALUE` (repeatable), or `CORETOOLS_LIMITS=NAME=VALUE,...`; `get_diagnostics` shows those in force. Sizes
are in bytes, times in seconds. The limits of HTTP are [keys of its configuration](http-configuration.md)."""

_EXIT_CODES = """\
Of `coretools`, by the kind of error. Numbers from 64 to 78 are those of sysexits.h, and `--json` prints the kind as
`error`. [`coretools mcp`](../specs/client.md#calls) has some more."""

_OTHER_CODES = (
    ("0", "", "Success."),
    ("1", "", "The call succeeded, and what it ran failed: a test, a command."),
    ("70", "", "A bug in coretools; the log has its traceback."),
    ("128 + N", "", "Ended by signal N: 130 by Ctrl-C, 143 by SIGTERM."),
)


def settings_page() -> str:
    """Return the page of options, variables and limits."""
    parser = argparse.ArgumentParser(add_help=False)
    add_options(parser, profile="dev", log_level="info")
    add_login_path_option(parser)
    add_upstream_option(parser)
    lines = [WRITTEN_BY, "", "# Settings", "", _SETTINGS, "", "| option | variable | meaning |", "|---|---|---|"]
    lines.append("| `ROOT ...` | `CORETOOLS_ROOTS` | directories that tools may access; `DIRECTORY:ro` is read-only |")
    for action in parser._actions:  # noqa: SLF001  # argparse has no public list of options
        name = action.option_strings[-1]
        usage = f"{name} {_metavar(action)}" if action.nargs != 0 else name
        more = f" ([rules](../specs/{_SPECIFIED[name]}))" if name in _SPECIFIED else ""
        lines.append(f"| `{cell(usage)}` | `{_variable(name)}` | {cell(action.help or '')}{more} |")
    lines += ["", "## Limits", "", _LIMITS, "", "| limit | default | meaning |", "|---|---|---|"]
    meanings = _attribute_docstrings(Limits)
    for field in fields(Limits):
        lines.append(f"| `{field.name}` | {field.default:,} | {cell(meanings[field.name])} |")
    return "\n".join(lines) + "\n"


def exit_codes_page() -> str:
    """Return the page of exit codes."""
    rows = [(str(error.exit_code), f"`{error.kind}`", _first_sentence(error)) for error in _kinds()]
    rows = sorted([*rows, *_OTHER_CODES], key=lambda row: int(row[0].split()[0]))
    lines = [WRITTEN_BY, "", "# Exit codes", "", _EXIT_CODES, "", "| code | kind | meaning |", "|---|---|---|"]
    for _, alike in groupby(rows, key=lambda row: row[0]):
        for at, (code, kind, meaning) in enumerate(alike):
            lines.append(f"| {code if at == 0 else ''} | {kind} | {cell(meaning)} |")
    return "\n".join(lines) + "\n"


def _metavar(action: argparse.Action) -> str:
    if action.choices is not None:
        return "{" + ",".join(action.choices) + "}"
    return str(action.metavar)


def _variable(name: str) -> str:
    """Return the variable of an option.

    Raises:
        StopIteration: no variable has its name.
    """
    plain = f"CORETOOLS_{name.removeprefix('--').upper().replace('-', '_')}"
    names = (plain, f"{plain}S", plain.replace("_NO_", "_"))
    found = next(one for one in names if one in VARIABLES)
    return f"{found}=0" if found == "CORETOOLS_LOGIN_PATH" else found


def _kinds() -> Iterator[type[errors.CoreError]]:
    """The errors that have a kind of their own, which other modules do not extend by one."""
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, errors.CoreError) and value is not errors.CoreError:
            yield value


def _first_sentence(error: type[errors.CoreError]) -> str:
    return (inspect.getdoc(error) or "").split("\n\n")[0].replace("\n", " ")


def _attribute_docstrings(of: type) -> dict[str, str]:
    """The strings that stand below the attributes of a class."""
    body = next(node.body for node in ast.parse(inspect.getsource(of)).body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: text.value.value
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
