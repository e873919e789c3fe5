"""Read the operator's configuration file, and refuse one that anybody else could have written.

TOML by the standard library. Every key, its type and its table are checked here; a typing error in a file that grants
and denies must not pass as a wish. Values that hold without a file stand in `coretools.operator_policy`.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from coretools.errors import BadSetting
from coretools.operator_policy import (
    ACCESSES,
    TIERS,
    VERDICTS,
    CommandPolicy,
    CommandRule,
    ConfinementPolicy,
    OfferPolicy,
    OperatorPolicy,
    ToolPolicy,
)

VARIABLE = "CORETOOLS_POLICY"
LONGEST = 1024 * 1024
"""Bytes of a policy file; a longer one is none that a person wrote."""

MOST_LINKS = 40
"""Links followed to the file, as Linux has it (path_resolution(7))."""

Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=str)


def policy_path(flag: str | None, environment: Mapping[str, str]) -> str | None:
    """Where the operator's file is: the flag, the variable, or the usual place if something stands there."""
    named = flag or environment.get(VARIABLE)
    if named:
        return os.path.abspath(_at_home(named, environment))
    home = environment.get("HOME", "")
    above = environment.get("XDG_CONFIG_HOME") or (home and os.path.join(home, ".config"))
    usual = os.path.join(above, "coretools", "policy.toml") if above else ""
    # A relative XDG_CONFIG_HOME is to be ignored (XDG Base Directory Specification 0.8).
    return usual if os.path.isabs(usual) and os.path.lexists(usual) else None


def read_policy(path: str, environment: Mapping[str, str], *, writable: Sequence[str] = ()) -> OperatorPolicy:
    """The policy in the file `path`; `writable` are the directories that tools may change.

    Raises:
        BadSetting: missing, open to others, beneath a directory that tools or commands may write, no TOML, or it holds
            what is not known.
    """
    places = _places(path)
    for directory in writable:
        _require_apart(path, places, directory, "a writable root")
    for place in places:
        _require_own_directory(path, os.path.dirname(place))
    policy = parse_policy(_text(path, places[-1]), path, environment)
    for directory in policy.confinement.writable:
        _require_apart(path, places, directory, "[confinement] writable")
    return policy


def require_out_of_reach(path: str, roots: Sequence[str]) -> None:
    """Refuse a file of the operator's that lies beneath a root, or is reached through one: tools read what is there.

    Raises:
        BadSetting: it does, or it can't be found.
    """
    at = os.path.abspath(path)
    places = _places(at)
    for directory in roots:
        above = os.path.realpath(directory)
        for place in places:
            if os.path.commonpath((above, os.path.realpath(os.path.dirname(place)))) == above:
                raise BadSetting(f"{path}: lies beneath the root {directory}, so tools could reach it; move it out")


def parse_policy(text: str, path: str, environment: Mapping[str, str]) -> OperatorPolicy:
    """The policy in the text of a file; `path` is for the sentences.

    Raises:
        BadSetting: no TOML, or something in it that is not known or of the wrong type.
    """
    import tomllib  # off the start path of a server without a file

    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadSetting(f"{path}: no TOML: {error or 'nested too deeply'}") from error
    top = _Table(path, "the top of the file", found)
    top.require_known("commands", "tools", "offer", "confinement", "environment", "output")
    environment_table = top.table("environment")
    environment_table.require_known("pass")
    output = top.table("output")
    output.require_known("redact")
    return OperatorPolicy(
        commands=_commands(top.table("commands")),
        tools=_tools(top.table("tools")),
        offer=_offer(top.table("offer")),
        confinement=_confinement(top.table("confinement"), environment),
        environment_pass=environment_table.texts("pass") or (),
        redact_output=output.switch("redact", default=False),
        source=path,
    )


def _commands(table: "_Table") -> CommandPolicy:
    table.require_known("default", "opaque", "rule")
    return CommandPolicy(
        default=table.choice("default", VERDICTS) or "allow",
        opaque=table.choice("opaque", VERDICTS),
        rules=tuple(_rule(rule) for rule in table.tables("rule")),
    )


def _tools(table: "_Table") -> ToolPolicy:
    table.require_known("ask", "trusts_answers")
    return ToolPolicy(ask=table.texts("ask") or (), trusts_answers=table.switch("trusts_answers", default=False))


def _offer(table: "_Table") -> OfferPolicy:
    table.require_known("sets", "only", "without", "promote_read_only", "resources_as_tools", "prompts_as_tools")
    only = table.texts("only")
    if only == ():
        table.refuse("only", "= []: nothing would be offered; name a command, or leave it out")
    return OfferPolicy(
        sets=table.texts("sets") or (),
        only=only or ("*",),
        without=table.texts("without") or (),
        promote_read_only=table.switch("promote_read_only", default=False),
        resources_as_tools=table.switch("resources_as_tools", default=False),
        prompts_as_tools=table.switch("prompts_as_tools", default=False),
    )


def _rule(table: "_Table") -> CommandRule:
    table.require_known("program", "arguments", "verdict", "reason")
    program, verdict = table.text("program"), table.choice("verdict", VERDICTS)
    if not program:
        table.refuse("program", 'is missing; name one: program = "git"')
    if verdict is None:
        table.refuse("verdict", 'is missing; write verdict = "allow", "ask" or "deny"')
    if "/" not in program and program.split() != [program]:
        table.refuse("program", f"= {program!r}: one word; the words after it belong in arguments")
    if "/" in program and program != os.path.normpath(os.path.join("/", program)):
        table.refuse("program", f"= {program!r}: write a name, or an absolute path without `..`")
    arguments = table.texts("arguments")
    if arguments is not None and "**" in arguments[:-1]:
        table.refuse("arguments", 'has "**" before its end; it stands for all words that remain')
    return CommandRule(program=program, verdict=verdict, arguments=arguments, reason=table.text("reason") or "")


def _confinement(table: "_Table", environment: Mapping[str, str]) -> ConfinementPolicy:
    numbers = ("memory_bytes", "file_bytes", "processes")
    table.require_known("require", "allow_unconfined", "network", "readable", "writable", "own_container", *numbers)
    return ConfinementPolicy(
        require=table.choice("require", TIERS),
        allow_unconfined=table.switch("allow_unconfined", default=False),
        network=table.choice("network", ACCESSES) or "deny",
        readable=table.paths("readable", environment),
        writable=table.paths("writable", environment),
        own_container=table.switch("own_container", default=False),
        memory_bytes=table.number("memory_bytes"),
        file_bytes=table.number("file_bytes"),
        processes=table.number("processes"),
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of the file, and the words to speak of it."""

    path: str
    name: str
    values: Mapping[str, object]

    def refuse(self, key: str, why: str) -> NoReturn:
        raise BadSetting(f"{self.path}: {self.name}: {key} {why}")

    def require_known(self, *known: str) -> None:
        for key in self.values:
            if key not in known:
                import difflib  # off the start path of a server with a good file

                close = difflib.get_close_matches(key, known, n=1)
                meant = f"did you mean {close[0]}? " if close else ""
                self.refuse(key, f"is not known; {meant}there are {', '.join(known)}")

    def table(self, key: str) -> "_Table":
        return _Table(self.path, f"[{key}]", self._of_type(key, dict, "a table") or {})

    def tables(self, key: str) -> list["_Table"]:
        found = self._of_type(key, list, f"[[{self.name[1:-1]}.{key}]] tables") or []
        if not all(isinstance(item, dict) for item in found):
            self.refuse(key, f"must be [[{self.name[1:-1]}.{key}]] tables")
        return [_Table(self.path, f"[[{self.name[1:-1]}.{key}]] {at}", item) for at, item in enumerate(found, 1)]

    def text(self, key: str) -> str | None:
        found = self._of_type(key, str, "text")
        if found is not None and "\0" in found:
            self.refuse(key, "holds a NUL character")
        return found

    def texts(self, key: str) -> tuple[str, ...] | None:
        found = self._of_type(key, list, "a list of texts")
        if found is None:
            return None
        if not all(isinstance(item, str) and "\0" not in item for item in found):
            self.refuse(key, "must be a list of texts without NUL")
        return tuple(found)

    def paths(self, key: str, environment: Mapping[str, str]) -> tuple[str, ...]:
        paths = tuple(_at_home(path, environment) for path in self.texts(key) or ())
        for path in paths:
            if not os.path.isabs(path):
                self.refuse(key, f"holds {path!r}; write absolute paths, or ~/ for the home directory")
        return tuple(os.path.normpath(path) for path in paths)

    def switch(self, key: str, *, default: bool) -> bool:
        found = self._of_type(key, bool, "true or false")
        return default if found is None else found

    def number(self, key: str) -> int | None:
        found = self._of_type(key, int, "a whole number above 0")
        if found is not None and (isinstance(found, bool) or found <= 0):
            self.refuse(key, "must be a whole number above 0")
        return found

    def choice(self, key: str, choices: tuple[Choice, ...]) -> Choice | None:
        found = self.text(key)
        for choice in choices:
            if found == choice:
                return choice
        if found is None:
            return None
        return self.refuse(key, f"= {found!r}: there are {', '.join(choices)}")

    def _of_type(self, key: str, kind: type[Value], what: str) -> Value | None:
        found = self.values.get(key)
        if found is not None and not isinstance(found, kind):
            self.refuse(key, f"must be {what}")
        return found


def _places(path: str) -> list[str]:
    """Every path that is looked up on the way to a file, links followed one by one; the file itself comes last.

    Raises:
        BadSetting: something on the way is missing, is no directory, or the links go round.
    """
    places: list[str] = []
    waiting = path.split("/")[::-1]
    at, links = "/", 0
    while waiting:
        name = waiting.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        place = os.path.join(at, name)
        places.append(place)
        try:
            is_link = stat.S_ISLNK(os.lstat(place).st_mode)
            target = os.readlink(place) if is_link else ""
        except OSError as error:
            raise BadSetting(f"{path}: can't be read: {error.strerror} ({place})") from error
        if not is_link:
            at = place
            continue
        links += 1
        if links > MOST_LINKS:
            raise BadSetting(f"{path}: can't be read: its links go round")
        at = "/" if target.startswith("/") else at
        waiting += target.split("/")[::-1]
    return places


def _require_apart(path: str, places: Sequence[str], directory: str, what: str) -> None:
    """Refuse a file that lies beneath a directory which tools or commands may change, or is reached through one."""
    above = os.path.realpath(directory)
    for place in places:
        if os.path.commonpath((above, os.path.realpath(os.path.dirname(place)))) == above:
            raise BadSetting(
                f"{path}: the policy file lies beneath {directory}, {what}, so tools could change it; move it out,"
                " for instance to ~/.config/coretools/policy.toml"
            )


def _require_own_directory(path: str, directory: str) -> None:
    """Refuse a directory in which another user could put another file in the place of the policy."""
    found = os.stat(directory)
    is_sticky = bool(found.st_mode & stat.S_ISVTX)  # like /tmp: only its owner may rename a file (inode(7))
    if found.st_mode & 0o022 and not is_sticky:
        raise BadSetting(f"{path}: others may change its directory {directory}; run chmod go-w {directory}")
    if found.st_uid not in (0, os.geteuid()):
        raise BadSetting(f"{path}: its directory {directory} belongs to another user; move the file to one of your own")


def _text(path: str, place: str) -> str:
    """The text of the file at `place`, which is no link.

    Raises:
        BadSetting: it is no regular file, others may write it, it belongs to another user, or it is no text.
    """
    try:
        with open(place, "rb", opener=_opened) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise BadSetting(f"{path}: the policy file is no regular file")
            if found.st_mode & 0o022:
                raise BadSetting(f"{path}: others may write the policy file; run chmod go-w {path}")
            if found.st_uid not in (0, os.geteuid()):
                raise BadSetting(f"{path}: the policy file belongs to another user; copy it to a file of your own")
            data = file.read(LONGEST + 1)
    except OSError as error:
        raise BadSetting(f"{path}: can't be read: {error.strerror}") from error
    if len(data) > LONGEST:
        raise BadSetting(f"{path}: the policy file has more than {LONGEST} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadSetting(f"{path}: the policy file is no UTF-8 text, at byte {error.start}") from error


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # a FIFO opens at once and is refused after


def _at_home(path: str, environment: Mapping[str, str]) -> str:
    home = environment.get("HOME", "")
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path
