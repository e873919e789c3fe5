"""Whether a local server of the user may run what tools or commands can change.

An entry that names a place of agents counts, whatever for: which word of which launcher stands for code, and which for
data, no list can tell. So each word and variable is read as a path in every way that is known, and looked up where the
server starts, in the home, and in each directory that the entry names (docs/specs/client.md, "Confinement").
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import unquote

from coretools.client.configuration.launch import LocalLaunch
from coretools.confinement.command_path import without_links_into
from coretools.reach import Place, Reach, is_beneath

MAX_DIRECTORIES = 32
"""Directories that an entry may name; every word is looked up in all of them."""

FIRST_LINE_BYTES = 256
"""Of a script, for the programs that its first line names (execve(2))."""

OUTSIDE = "/usr"
"""Where a server starts when a place of agents lies in the home. Every system has it, and only root writes there."""

_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts")
"""Endings of scripts that are named to an interpreter."""

_USER_CODE = (
    *(".local/bin", ".local/lib", ".local/share/uv", ".local/share/pipx", ".config/uv", ".config/pip", ".config/git"),
    *(".npm", ".npmrc", ".cache/uv", ".cache/deno", ".cache/ms-playwright", ".bun", ".bunfig.toml", ".deno", ".nvm"),
    *(".volta", ".yarnrc", ".yarnrc.yml", ".pyenv", ".rbenv", ".asdf", ".cargo/bin", ".cargo/config.toml", ".rustup"),
    *(".gem", ".m2", ".gradle", ".nuget", ".dotnet", "go/bin", "node_modules", "package.json", "bin"),
)
"""Where launchers keep what they run, and their settings, in the home."""

_QUOTES = str.maketrans("", "", "\\'\"")
_QUOTED = re.compile(r"['\"`]")
_SEPARATORS = re.compile(r"[\s!;|&()<>{}\[\]'\"`=:,@]+")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True, slots=True)
class CodeCheck:
    """Examines what is started outside the sandbox."""

    reaches: tuple[Reach, ...]

    @property
    def _places(self) -> list[Place]:
        return [place for reach in self.reaches for place in reach.places]

    def reason(self, path: str) -> str:
        """Return why tools or commands can change what a path leads to; empty if they can't."""
        return next(filter(None, (reach.reason(path) for reach in self.reaches)), "")

    def holds(self, directory: str) -> str:
        """Return why tools or commands can change an entry of a directory, from which Python imports by name."""
        try:
            with os.scandir(directory) as entries:
                inner = (entry.path for entry in entries if entry.is_symlink() or entry.is_dir())
                return next(filter(None, map(self.reason, inner)), "")
        except OSError:
            return ""

    def outside(self, launch: LocalLaunch) -> LocalLaunch:
        """Start elsewhere what would start in a directory that holds a place of agents, or a link to one."""
        return replace(launch, cwd=OUTSIDE) if self.holds(launch.cwd) else launch

    def without_reachable(self, launch: LocalLaunch) -> LocalLaunch:
        """Leave out what only the surroundings contribute: places of agents in PATH and in inherited variables."""
        kept = {name: self._kept(name, value, launch) for name, value in launch.environment.items()}
        variables = {name: value for name, value in kept.items() if value or name in launch.own_variables}
        return replace(launch, environment=variables)

    def why(self, launch: LocalLaunch) -> str:
        """Return why tools or commands may change what a launch runs; empty if they can't."""
        environment = launch.environment
        own = [environment.get(name, "") for name in sorted(launch.own_variables - {"PATH"})]
        named = [program_of(launch) or "", launch.cwd, *launch.argv[1:], launch.environment_file or "", *own]
        return self._why_named(named, launch) or self.holds(launch.cwd) or self._why_home(environment.get("HOME", ""))

    def why_passed_over(self, safe: LocalLaunch, launch: LocalLaunch) -> str:
        """Return why the program of a launch is in none of the directories that its PATH has kept."""
        program = None if program_of(safe) else program_of(launch)
        if program is None:
            return ""
        return self.reason(os.path.abspath(program)) or self.holds(os.path.dirname(os.path.abspath(program)))

    def _kept(self, name: str, value: str, launch: LocalLaunch) -> str:
        if name == "HOME" or (name in launch.own_variables and name != "PATH"):
            return value
        kept = [part for part in value.split(os.pathsep) if not self._why_named([part], launch)]
        if name != "PATH":
            return os.pathsep.join(kept)
        path = os.pathsep.join(filter(os.path.isabs, kept))
        for reach in self.reaches:
            path = without_links_into(path, reach)
        return path

    def _why_named(self, texts: Iterable[str], launch: LocalLaunch) -> str:
        """Return why something that texts name, or the scripts among it, is within reach; empty if nothing is."""
        words = {word for text in texts for word in self._words(text, launch.environment)}
        directories = [launch.cwd, launch.environment.get("HOME") or "/"]
        looked_up = set[str]()
        while paths := {path for word in words for path in _paths(word, directories)} - looked_up:
            looked_up |= paths
            for path in sorted(paths):
                if reason := self.reason(path) or self._why_beside(path):
                    return reason
                words.update(self._words(_first_line(path), launch.environment))
                real = os.path.realpath(path)
                if os.path.isdir(real) and real not in directories:
                    directories.append(real)
            if len(directories) > MAX_DIRECTORIES:
                return f"it names more than {MAX_DIRECTORIES} directories, too many to examine"
        return ""

    def _why_beside(self, path: str) -> str:
        """Return why what a script may load from its directory is within reach; empty if it is not."""
        real = os.path.realpath(path)
        is_script = os.path.isfile(real) and (real.endswith(_SCRIPTS) or _first_line(real))
        reason = self.holds(os.path.dirname(real)) if is_script else ""
        return f"{path} may load what lies beside it: {reason}" if reason else ""

    def _words(self, text: str, environment: Mapping[str, str]) -> Iterator[str]:
        """Yield each part of a text that may be a path or a program on PATH."""
        text = _VARIABLE.sub(lambda match: environment.get(match[1] or match[2], ""), text)
        parts = {text, *_SEPARATORS.split(text), *_QUOTED.split(text), *_shell_words(text)}
        for place in self._places:  # anywhere in a word, and with spaces
            parts.update(re.findall(rf"{re.escape(place.path)}[^\s;|&()<>,]*", text.translate(_QUOTES)))
        parts |= {part.partition("=")[2] for part in parts}
        # -CPATH, -sCPATH, and ${NAME:-PATH}
        parts |= {part[letters:] for part in parts if part.startswith("-") for letters in (1, 2, 3)}
        home = environment.get("HOME", "")
        for part in {*parts, *map(unquote, parts)}:
            word = home + part[1:] if part == "~" or part.startswith("~/") else os.path.expanduser(part)
            if _is_path(word):
                program = None if "/" in word else shutil.which(word, path=environment.get("PATH", os.defpath))
                yield from filter(None, [word, program])

    def _why_home(self, home: str) -> str:
        """Return why the home, or what launchers run from it, is within reach."""
        if not os.path.isabs(home):
            return ""
        paths = [home, *(os.path.join(home, name) for name in _USER_CODE)]
        inside = (
            f"{place.path} can be changed by tools or commands ({place.kind}), and programs load code there"
            for path in paths[1:]
            for place in self._places
            if is_beneath(place.path, os.path.realpath(path))
        )
        return next(filter(None, map(self.reason, paths)), "") or next(inside, "")


def program_of(launch: LocalLaunch) -> str | None:
    """Return the absolute path of the program, found as the kernel and execvp(3) do; None if there is none."""
    if "/" in launch.argv[0]:
        return os.path.join(launch.cwd, launch.argv[0])
    return shutil.which(launch.argv[0], path=launch.environment.get("PATH", os.defpath))


def _shell_words(text: str) -> Iterator[str]:
    """Yield the words of shell text, also of text in the quotes of another."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    with suppress(ValueError):  # a quote is not closed
        for word in lexer:
            yield word
            if word != text and re.search(r"[\s'\"\\]", word):
                yield from _shell_words(word)


def _paths(word: str, directories: Iterable[str]) -> Iterator[str]:
    """Yield where a word leads from each directory, if it leads anywhere; an absolute one also if nothing is there."""
    if os.path.isabs(word):
        yield word
    name = word.lstrip("/")  # it may be the end of a path: process.env.HOME + "/x"
    for directory in directories:
        if os.path.lexists(os.path.join(directory, name.partition("/")[0])):
            yield os.path.join(directory, name)


def _first_line(path: str) -> str:
    """Return what follows `#!` in a script: its interpreter, with arguments; empty for another file."""
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            line = file.readline(FIRST_LINE_BYTES)
    except OSError:
        return ""
    return os.fsdecode(line[2:]).strip() if line.startswith(b"#!") else ""


def _is_path(text: str) -> bool:
    """Whether a file system could have a path of this text (limits.h)."""
    return 0 < len(text) < 4096 and "\0" not in text and max(map(len, text.split("/"))) <= 255
