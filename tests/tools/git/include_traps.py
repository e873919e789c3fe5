"""Hostile repositories that include configuration outside the roots: see `traps`."""

import os
from collections.abc import Callable

from tests.tools.git.traps import Trap, hooks, signed
from tests.tools.git.world import SECRET, World

OUTER = "configuration outside the roots"


def _outer(text: str, *, attributes: str = "", key: str = "include.path") -> Callable[[World], None]:
    """Create a file outside the roots that the repository includes; `PROGRAM` and `SECRET` in it are replaced."""

    def lay(world: World) -> None:
        program = str(world.program(then="cat"))
        settings = world.outside / "settings"
        settings.write_text(text.replace("PROGRAM", program).replace("SECRET", SECRET))
        world.git("config", key, str(settings), check=False)
        if attributes:
            world.write(".gitattributes", attributes)
        os.utime(world.repository / "b.txt", (1, 1))

    return lay


def _outer_hooks(world: World) -> None:
    hooks("elsewhere")(world)
    world.git("config", "--unset", "core.hooksPath")
    _outer(f"[core]\nhooksPath = {world.outside}/hooks\n")(world)


def _outer_signed(world: World) -> None:
    signed(world)
    world.git("config", "--unset", "log.showSignature")
    _outer("[log]\nshowSignature\n")(world)


def _outer_by_own_file(world: World) -> None:
    _outer("[core]\nfsmonitor = PROGRAM\n")(world)
    (world.git_dir / "more").write_text(f"[include]\npath = {world.outside}/settings\n")
    world.git("config", "include.path", "more")


def _outer_place(kind: str) -> Callable[[World], None]:
    """Include something outside that is no small regular file."""

    def lay(world: World) -> None:
        place = world.outside / "place"
        if kind == "FIFO":
            os.mkfifo(place)
        elif kind == "directory":
            place.mkdir()
        elif kind == "large":
            place.write_text("# a comment\n" * 100_000)
        elif kind == "link to itself":
            place.symlink_to(place)
        target = kind if kind.startswith("/") else str(place)
        with (world.git_dir / "config").open("a") as file:
            file.write(f"[include]\npath = {target}\n")

    return lay


OUTER_PROGRAMS = (
    Trap("file outside: fsmonitor", _outer("[core]\nfsmonitor = PROGRAM\n"), (("status",),), OUTER),
    Trap("file outside: hooks", _outer_hooks, (("status",), ("commit", "-m", "x")), OUTER),
    Trap("file outside: external diff", _outer("[diff]\nexternal = PROGRAM\n"), (("diff",),), OUTER),
    Trap(
        "file outside: diff command",
        _outer('[diff "evil"]\ncommand = PROGRAM\n', attributes="* diff=evil\n"),
        (("diff",),),
        OUTER,
    ),
    Trap(
        "file outside: text conversion",
        _outer('[diff "evil"]\ntextconv = PROGRAM\n', attributes="* diff=evil\n"),
        (("diff",), ("log", "-p")),
        OUTER,
    ),
    Trap(
        "file outside: clean filter",
        _outer('[filter "evil"]\nclean = PROGRAM\nrequired\n', attributes="* filter=evil\n"),
        (("status",), ("diff",)),
        OUTER,
    ),
    Trap(
        "file outside: filter process",
        _outer('[filter "evil"]\nprocess = PROGRAM\n', attributes="* filter=evil\n"),
        (("add", "."),),
        OUTER,
    ),
    Trap(
        "file outside: signing program",
        _outer("[gpg]\nprogram = PROGRAM\n[commit]\ngpgSign\n"),
        (("commit", "-m", "x"),),
        OUTER,
    ),
    Trap("file outside: signature of a commit", _outer_signed, (("log", "-1"),), OUTER),
    Trap(
        "file outside: by a condition",
        _outer("[core]\nfsmonitor = PROGRAM\n", key="includeIf.gitdir:**.path"),
        (("status",),),
        OUTER,
    ),
    Trap(
        "file outside: by a file of the repository",
        _outer_by_own_file,
        (("status",),),
        OUTER,
    ),
)
"""The file configures programs. They are switched off, and the repository is used."""

OUTER_REDIRECTIONS = (
    Trap("the canary as configuration", _outer("SECRET\n"), (("config", "--list"),), "include.path"),
    Trap("a line that is no configuration", _outer("[x]\nSECRET SECRET\n"), (), "include.path"),
    Trap("a value that git quotes", _outer("[core]\ncompression = SECRET\n"), (("status",),), "include.path"),
    Trap("a name for commits", _outer("[user]\nname = SECRET\n"), (("var", "GIT_AUTHOR_IDENT"),), "include.path"),
    Trap(
        "an upstream",
        _outer('[branch "main"]\nremote = .\nmerge = refs/heads/SECRET\n'),
        (("status", "--porcelain=v2", "--branch"),),
        "include.path",
    ),
    Trap(
        "a key that can't be switched off",
        _outer('[filter "SECRET=x"]\nclean = PROGRAM\n', attributes="* filter=SECRET=x\n"),
        (("config", "--list"),),
        "include.path",
    ),
    Trap(
        "a file outside that includes others",
        _outer("[include]\npath = canary\n"),
        (("config", "--list"),),
        "include.path",
    ),
    Trap("a FIFO as configuration", _outer_place("FIFO"), (), "include.path"),
    Trap("a directory as configuration", _outer_place("directory"), (), "include.path"),
    Trap("a large file as configuration", _outer_place("large"), (), "include.path"),
    Trap("a link to itself as configuration", _outer_place("link to itself"), (), "include.path"),
    Trap("standard input as configuration", _outer_place("/dev/stdin"), (), "include.path"),
    Trap("a missing file of the kernel", _outer_place("/proc/self/nothing"), (), "include.path"),
    Trap("standard input by another name", _outer_place("//proc/self/./fd/0"), (), "include.path"),
)
"""The file is invalid, or contains what git would act on or quote. No tool uses such a repository."""
