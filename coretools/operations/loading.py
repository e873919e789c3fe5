"""Load registries that an operator names on a command line: `MODULE:NAME` or `FILE.py:NAME`.

The module is code that runs in the server process, unconfined and with the rights of the user who started it. A server
first makes sure that its agents can't change it (`config.agent_reach.files_of_plugins`).
"""

import contextlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from coretools.errors import AUTHOR_FAULTS, BadSetting
from coretools.standard_fds import divert_standard_streams

if TYPE_CHECKING:
    from coretools.operations.registry import Registry


def load(text: str) -> "Registry":
    """Load the registry, or that of the `App`, named by `MODULE:NAME` or `FILE.py:NAME`.

    Raises:
        BadSetting: names the problem.
    """
    from coretools.operations.registry import Registry  # imported late: it takes half a second

    place, colon, name = text.rpartition(":")
    if not (colon and place and name):
        raise BadSetting(f"--with {text}: write MODULE:NAME or FILE.py:NAME, such as mytools.server:registry")
    try:
        module = _module(place)
    except (*AUTHOR_FAULTS, SystemExit) as error:
        why = f"{place} can't be imported: {type(error).__name__}: {error}{_line(error)}{_hint(error, place, name)}"
        raise BadSetting(f"--with {text}: {why}") from error
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    value = getattr(value, "registry", value)  # of an `App`
    if isinstance(value, Registry):
        try:
            value.validate(is_alone=False)
        except BadSetting as error:
            raise BadSetting(f"--with {text}: {error}") from error
        return value
    registries = [name for name, one in vars(module).items() if isinstance(getattr(one, "registry", one), Registry)]
    what = f"there is no {name}" if value is None else f"{name} is a {type(value).__name__}, not a coretools Registry"
    raise BadSetting(f"--with {text}: {what}; registries of {place}: {', '.join(registries) or 'none'}")


def _module(place: str) -> ModuleType:
    # Importing must neither write to the protocol's stream nor read from it, and nor must a child process. A stream
    # that the module keeps for later is standard error.
    with divert_standard_streams(), contextlib.redirect_stdout(sys.stderr):
        return _from_file(place) if place.endswith(".py") else importlib.import_module(place)


def _line(error: BaseException) -> str:
    """The line of the module, or of what it imports, that failed; that of a syntax error is in its text."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<frozen")]
    frames = [one for one in frames if one.filename not in (__file__, importlib.__file__)]
    return f" ({Path(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""


def _hint(error: BaseException, place: str, name: str) -> str:
    """A hint where what is missing is in a directory that Python does not search."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    file = f"./{place.replace('.', '/')}.py"
    if error.name == place.partition(".")[0] and Path(file).is_file():
        return f"; Python does not search this directory: write {file}:{name}, or set PYTHONPATH=."
    directory, missing = Path(place).parent, (error.name or "").partition(".")[0]
    if place.endswith(".py") and ((directory / f"{missing}.py").is_file() or (directory / missing).is_dir()):
        return f"; Python does not search the directory of {place}: set PYTHONPATH={directory}"
    return ""


def _from_file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"not a Python file: {path}")
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and type hints look up their module.
    sys.modules.setdefault(spec.name, module)
    spec.loader.exec_module(module)
    return module
