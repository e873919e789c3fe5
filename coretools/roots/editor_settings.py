"""Settings at the top of a root that editors and agents act on when they open it.

Such a file can start programs outside the sandbox (`tasks.json` on opening a folder, servers of `.mcp.json`, hooks).
Existing files are not changed; new ones can be created, and the result names them. The same holds for commands, where
the mount namespace enforces it.
"""

import os

from coretools.errors import DeniedPath
from coretools.roots.path_text import printable
from coretools.roots.root import ResolvedPath

NAMES = frozenset(
    (
        *(".vscode", ".idea", ".cursor", ".claude", ".codex", ".gemini", ".zed", ".windsurf", ".kiro", ".mcp.json"),
        ".devcontainer",
    )
)


def is_setting(relative: str) -> bool:
    """Whether a path beneath a root is one of them or lies in one, regardless of case."""
    return relative.partition("/")[0].casefold() in NAMES


def require_no_existing_settings(resolved: ResolvedPath) -> None:
    """Refuse to change existing settings.

    Raises:
        DeniedPath.
    """
    top = resolved.place.relative.partition("/")[0]
    if not is_setting(top):
        return
    try:
        os.stat(top, dir_fd=resolved.root.fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    raise DeniedPath(
        f"{resolved.display_path}: editors and agents act on {printable(top)} when they open the root, and file tools "
        "change nothing that is there; ask the user to change it, or to delete it if it may be replaced",
        path=resolved.display_path,
    )
