"""Whether tools or commands can change what a local server runs, as far as its words and variables name it.

Interpreters look for code in the working directory and above it, in search paths and in the user's settings. These are
examined or kept away; what a program outside loads by its own configuration is not known here
(docs/specs/client.md, "Confinement").
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from coretools.client.configuration.launch import LocalLaunch
from coretools.client.containment.launcher_words import launcher_words
from coretools.confinement.command_path import without_links_into
from coretools.reach import Reach, is_beneath

MAX_INTERPRETERS = 4
"""Scripts that are interpreters of each other (execve(2))."""

_SEARCHED = frozenset(
    {
        *("PATH", "PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "DYLD_LIBRARY_PATH"),
        *("DYLD_INSERT_LIBRARIES", "PERL5LIB", "PERLLIB", "RUBYLIB", "GEM_PATH", "CLASSPATH", "GOPATH", "LUA_PATH"),
        *("LUA_CPATH", "PHP_INI_SCAN_DIR", "XDG_DATA_DIRS", "XDG_CONFIG_DIRS", "GCONV_PATH"),
    }
)
"""Lists of places, in which an empty or relative one means the working directory."""

_NAMES_CODE = re.compile(
    r"HOME|ENV|PREFIX|SHELL|CLASSPATH|GCONV_PATH|"
    r"(?:XDG|LD|DYLD|PYTHON|PIP|UV|VIRTUAL_ENV|CONDA|PIPX|POETRY|PYENV|NODE|NPM|npm_config|YARN|PNPM|BUN|DENO|NVM|VOLTA"
    r"|PERL|PERL5|RUBY|GEM|BUNDLE|JAVA|JDK|_JAVA|MAVEN|GRADLE|GO|CARGO|RUST|RUSTUP|DOTNET|PHP|COMPOSER|LUA|BASH|ZDOTDIR"
    r"|MISE|ASDF|PATH|GIT_SSH|GIT_EXEC|GIT_CONFIG|GIT_TEMPLATE|GIT_ASKPASS)(?:_?[A-Za-z].*|[0-9].*)?",
    re.IGNORECASE,
)
"""Variables by which programs find code, or settings that name some; here a directory counts too."""

_USER_CODE = (
    *(".local/bin", ".local/lib", ".local/share/uv", ".local/share/pipx", ".config/uv", ".config/pip", ".config/git"),
    *(".npm", ".npmrc", ".cache/uv", ".cache/deno", ".bun", ".bunfig.toml", ".deno", ".nvm", ".volta", ".yarnrc"),
    *(".yarnrc.yml", ".pyenv", ".rbenv", ".asdf", ".cargo/bin", ".cargo/config.toml", ".rustup", ".gem", ".m2"),
    *(".gradle", ".nuget", ".dotnet", "go/bin", "node_modules", "package.json", "bin"),
)
"""Where launchers keep what they run, and their settings, in the home."""

_SEPARATORS = re.compile(r"[\s;|&()<>'\"`=:,@]+")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")

Reason = Callable[[str], str]
"""Why tools or commands can change what a path leads to; empty if they can't."""


@dataclass(frozen=True, slots=True)
class CodeCheck:
    """Examines the programs of servers."""

    reaches: tuple[Reach, ...]

    def reason(self, path: str) -> str:
        """Return why tools or commands can change what a path leads to; empty if they can't."""
        return next(filter(None, (reach.reason(path) for reach in self.reaches)), "")

    def without_reachable(self, launch: LocalLaunch) -> LocalLaunch:
        """Leave out what only the surroundings contribute: places of search paths, inherited directories in reach.

        Python searches the directory of its script, if there is one, and no other.
        """
        kept = {name: self._kept(name, value, launch) for name, value in launch.environment.items()}
        variables = {name: value for name, value in kept.items() if value or name in launch.own_variables}
        script = _script_of(launch)
        # The directory of a script is searched for its modules. So would be the working directory, without this.
        if script is None or self._holds_place(os.path.dirname(script)):
            variables = {"PYTHONSAFEPATH": "1", **variables}
        return replace(launch, environment=variables)

    def _kept(self, name: str, value: str, launch: LocalLaunch) -> str:
        is_own = name in launch.own_variables
        if name in _SEARCHED:
            found = self._searched(value, keeps_reachable=is_own and name != "PATH")
            return self._without_links(found) if name == "PATH" else found
        if is_own or name == "HOME" or not self._names_reachable(name, value, launch):
            return value
        return ""

    def _searched(self, value: str, *, keeps_reachable: bool) -> str:
        kept = (one for one in value.split(os.pathsep) if os.path.isabs(one))
        return os.pathsep.join(one for one in kept if keeps_reachable or not self.reason(one))

    def _without_links(self, path: str) -> str:
        for reach in self.reaches:
            path = without_links_into(path, reach)
        return path

    def why(self, launch: LocalLaunch) -> str:
        """Return why agents can change what a launch runs; empty if they can't, as far as is known here."""
        return next(filter(None, self._reasons(launch)), "")

    def _reasons(self, launch: LocalLaunch) -> Iterator[str]:
        yield from self._of_program(program_of(launch), launch)
        yield _prefixed("its working directory", self.reason(launch.cwd))
        if launch.environment_file:
            yield _prefixed("its envFile", self.reason(launch.environment_file))
        of_launcher = launcher_words(launch.argv)
        for at, word in enumerate(launch.argv[1:], 1):
            yield self._of_text(word, launch, counts_directories=at < of_launcher)
        for name in launch.own_variables & launch.environment.keys():
            counts = _NAMES_CODE.fullmatch(name) is not None
            yield _prefixed(name, self._of_text(launch.environment[name], launch, counts_directories=counts))
        yield from self._of_home(launch.environment.get("HOME", ""))

    def _of_program(self, program: str | None, launch: LocalLaunch) -> Iterator[str]:
        for _ in range(MAX_INTERPRETERS):
            if program is None:
                return
            yield self.reason(program)
            program = _interpreter(program, launch.environment)

    def _of_text(self, text: str, launch: LocalLaunch, *, counts_directories: bool) -> str:
        for path in _paths_in(text, launch):
            if (counts_directories or not os.path.isdir(path)) and (reason := self.reason(path)):
                return reason
        return ""

    def _of_home(self, home: str) -> Iterator[str]:
        if not os.path.isabs(home):
            return
        yield self.reason(home)
        places = [place for reach in self.reaches for place in reach.places]
        for name in _USER_CODE:
            path = os.path.join(home, name)
            yield self.reason(path)
            inside = next((one for one in places if is_beneath(one.path, os.path.realpath(path))), None)
            if inside is not None:
                yield f"{inside.path} can be changed by tools or commands ({inside.kind}), and programs load code there"

    def _names_reachable(self, name: str, value: str, launch: LocalLaunch) -> bool:
        return _NAMES_CODE.fullmatch(name) is not None and bool(self._of_text(value, launch, counts_directories=True))

    def _holds_place(self, path: str) -> bool:
        """Whether an entry of a directory is a place of agents, which Python would import under its name."""
        real = os.path.realpath(path)
        return any(os.path.dirname(place.path) == real for reach in self.reaches for place in reach.places)


def program_of(launch: LocalLaunch) -> str | None:
    """Return the absolute path of the program, found as the kernel and execvp(3) do; None if there is none."""
    if "/" in launch.argv[0]:
        return os.path.join(launch.cwd, launch.argv[0])
    return shutil.which(launch.argv[0], path=launch.environment.get("PATH", os.defpath))


def _script_of(launch: LocalLaunch) -> str | None:
    """Return the Python file that a launch runs, if it names one."""
    for word in launch.argv[: launcher_words(launch.argv)]:
        path = os.path.join(launch.cwd, word)
        if word in ("-m", "-c"):  # which search the working directory
            return None
        if word.endswith(".py") and os.path.isfile(path):
            return path
    return None


def _interpreter(program: str, environment: Mapping[str, str]) -> str | None:
    """Return what the first line of a script starts; None for another program."""
    try:
        with open(program, "rb") as file:
            line = file.readline(256)
    except OSError:
        return None
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        named = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        return shutil.which(named, path=environment.get("PATH", os.defpath)) if named else None
    return words[0] if words and os.path.isabs(words[0]) else None


def _paths_in(text: str, launch: LocalLaunch) -> Iterator[str]:
    """Yield every path that a text may name: the whole, after an option's `=`, and each piece of code or of a list."""
    text = _VARIABLE.sub(lambda found: launch.environment.get(found[1] or found[2], ""), text)
    pieces = {text, text.partition("=")[2], *_SEPARATORS.split(text)}
    pieces |= {piece[2:] for piece in pieces if re.match(r"-[A-Za-z][/~.]", piece)}
    home = launch.environment.get("HOME", "")
    for piece in sorted(pieces):
        path = home + piece[1:] if piece == "~" or piece.startswith("~/") else piece
        path = path.removeprefix("file://")
        at = os.path.join(launch.cwd, path)
        # Most words are no paths. A missing name counts only if it is written as one: somebody may create it.
        if _is_path(path) and ("/" in path or os.path.lexists(at)):
            yield at


def _is_path(text: str) -> bool:
    """Whether a file system could have a path of this text (limits.h)."""
    return 0 < len(text) < 4096 and "\0" not in text and max(map(len, text.split("/"))) <= 255


def _prefixed(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else ""
