"""What a restore needs besides its commands: variables, and which entries of the project it may change. Pure."""

from collections.abc import Sequence

from coretools.roots.undo import SavedEntries
from coretools.tools.ci.build_system import Argv, Steps

RESTORE_ENVIRONMENT = {"NODE_ENV": "development", "npm_config_include": "dev"}
"""Installs development dependencies too, whatever other variables or configuration say: tests need them."""

_FOLDERS = (".venv", "node_modules")

_FILES = (
    *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml"),
    *("bun.lock", "bun.lockb"),
    *("uv.lock", "poetry.lock", "pdm.lock", "Cargo.lock", "go.mod", "go.sum", "packages.lock.json"),
)
"""Manifests and lock files that an installation may modify."""

ALL_ENTRIES = SavedEntries(moved=_FOLDERS, copied=_FILES)
"""All entries that a restore may have saved."""


def is_new_environment(argv: Argv) -> bool:
    """Whether this command creates the virtual environment of a project."""
    return argv[1:] == ("-m", "venv", ".venv")


def entries_of(alternatives: Sequence[Steps]) -> SavedEntries:
    """What these commands may change. `npm ci` and a new virtual environment replace what is there."""
    steps = [argv for steps in alternatives for argv in steps]
    moved = []
    if any(argv[:2] == ("npm", "ci") for argv in steps):
        moved.append("node_modules")
    if any(is_new_environment(argv) for argv in steps):
        moved.append(".venv")
    return SavedEntries(
        moved=tuple(moved), created=tuple(name for name in _FOLDERS if name not in moved), copied=_FILES
    )
