"""Variables and inputs in the texts of an entry: which it names, and what they stand for.

Values are replaced once and never searched again, so there are no cycles, and a value can't bring in another variable.
"""

import os
import re
from collections.abc import Mapping

from coretools.client.configuration.server_entries import ServerEntry, ServerInput
from coretools.client.configuration.settings_schema import texts_in
from coretools.errors import BadSetting
from coretools.process.environment import NAME

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_GEMINI_REFERENCE = re.compile(r"\$\{([^{}]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")

_FIXED = frozenset({"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "/"})
"""Variables without secrets, which every entry has."""

INPUT_VARIABLE = "CORETOOLS_INPUT_"
"""Begin of the variables that answer inputs."""


def input_variable(name: str) -> str:
    """Return the environment variable that answers an input."""
    return INPUT_VARIABLE + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def names_in(entry: ServerEntry) -> list[str]:
    """Return the variables and inputs that an entry names, but for those that every entry has; never their defaults."""
    pattern = _GEMINI_REFERENCE if entry.place.client == "Gemini" else _REFERENCE
    references = [match[match.lastindex or 1] for text in texts_in(entry.raw) for match in pattern.finditer(text)]
    return sorted({one.partition(":-")[0] for one in references} - _FIXED)


class Values:
    """What variables stand for, for one entry."""

    def __init__(self, entry: ServerEntry, environment: Mapping[str, str], inputs: Mapping[str, str]) -> None:
        """`inputs` are values that the user gave, by the id of the input."""
        self._entry = entry
        self._environment = environment
        self._inputs = inputs
        self.secrets: list[str] = []
        """Values of inputs that were used."""

    def replace(self, text: str, key: str) -> str:
        """Return `text` with its variables replaced; `key` names it in errors.

        Raises:
            BadSetting: a variable has no value, or is of an unknown kind.
        """
        pattern = _GEMINI_REFERENCE if self._entry.place.client == "Gemini" else _REFERENCE
        if "${" in pattern.sub("", text):
            raise BadSetting(f"{key}: a variable within a variable, or an open ${{, is not supported")
        return pattern.sub(lambda match: self._value(match[match.lastindex or 1], key), text)

    def _value(self, reference: str, key: str) -> str:
        project = self._entry.project
        fixed = {
            "workspaceFolder": project,
            "workspaceFolderBasename": os.path.basename(project),
            "userHome": self._environment.get("HOME", ""),
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        if reference in fixed:
            return fixed[reference]
        kind, colon, name = reference.partition(":")
        if kind == "input" and colon:
            return self._input(name, key)
        name, has_default, default = (name if kind == "env" and colon else reference).partition(":-")
        if not NAME.fullmatch(name):
            raise _unsupported(reference, key)
        if has_default:
            return self._environment.get(name) or default  # as in a shell: also for an empty value
        if name in self._environment:
            return self._environment[name]
        raise BadSetting(f"{key}: the environment variable {name} is not set; set it, or write ${{{name}:-default}}")

    def _input(self, name: str, key: str) -> str:
        declared = self._entry.inputs.get(name, ServerInput(id=name))
        value = given_input(declared, self._environment, self._inputs)
        value = declared.default if value is None else value
        if value is None:
            raise BadSetting(
                f"{key}: the input {name!r} has no value; give --input {name}=VALUE or set {input_variable(name)}"
            )
        if declared.options and value not in declared.options:
            raise BadSetting(f"{key}: the input {name!r} must be one of {', '.join(declared.options)}")
        self.secrets.append(value)
        return value


def _unsupported(reference: str, key: str) -> BadSetting:
    if reference.startswith("command:"):
        instead = "write the value, or ${input:ID} with --input ID=VALUE"
        return BadSetting(f"{key}: ${{{reference[:80]}}}: commands can't be run; {instead}")
    return BadSetting(f"{key}: ${{{reference[:80]}}} is no variable that is supported here")


def given_input(one: ServerInput, environment: Mapping[str, str], inputs: Mapping[str, str]) -> str | None:
    """Return the value of an input that the user gave: by option, else by variable."""
    return inputs.get(one.id, environment.get(input_variable(one.id)))


def inputs_of(entry: ServerEntry) -> list[ServerInput]:
    """Return the inputs that the values of an entry refer to."""
    names = re.findall(r"\$\{input:([^{}]*)\}", " ".join(texts_in(entry.raw)))
    return [entry.inputs.get(name, ServerInput(id=name)) for name in dict.fromkeys(names)]
