"""Hostile repositories that include configuration outside the roots: see `traps`."""

import os
from collections.abc import Callable

from tests.tools.git.traps import Trap, hooks, signed
from tests.tools.git.world import SECRET, World

EXTERNAL = "configuration outside the roots"


def _external_file(text: str, *, attributes: str = "", key: str = "include.path") -> Callable[[World], None]:
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


def _external_hooks(world: World) -> None:
    hooks("elsewhere")(world)
    world.git("config", "--unset", "core.hooksPath")
    _external_file(f"[core]\nhooksPath = {world.outside}/hooks\n")(world)


def _external_signed(world: World) -> None:
    signed(world)
    world.git("config", "--unset", "log.showSignature")
    _external_file("[log]\nshowSignature\n")(world)


def _external_by_own_file(world: World) -> None:
    _external_file("[core]\nfsmonitor = PROGRAM\n")(world)
    (world.git_dir / "more").write_text(f"[include]\npath = {world.outside}/settings\n")
    world.git("config", "include.path", "more")


def _external_place(kind: str) -> Callable[[World], None]:
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


EXTERNAL_PROGRAMS = (
    Trap("file outside: fsmonitor", _external_file("[core]\nfsmonitor = PROGRAM\n"), (("status",),), EXTERNAL),
    Trap("file outside: hooks", _external_hooks, (("status",), ("commit", "-m", "x")), EXTERNAL),
    Trap("file outside: external diff", _external_file("[diff]\nexternal = PROGRAM\n"), (("diff",),), EXTERNAL),
    Trap(
        "file outside: diff command",
        _external_file('[diff "evil"]\ncommand = PROGRAM\n', attributes="* diff=evil\n"),
        (("diff",),),
        EXTERNAL,
    ),
    Trap(
        "file outside: text conversion",
        _external_file('[diff "evil"]\ntextconv = PROGRAM\n', attributes="* diff=evil\n"),
        (("diff",), ("log", "-p")),
        EXTERNAL,
    ),
    Trap(
        "file outside: clean filter",
        _external_file('[filter "evil"]\nclean = PROGRAM\nrequired\n', attributes="* filter=evil\n"),
        (("status",), ("diff",)),
        EXTERNAL,
    ),
    Trap(
        "file outside: filter process",
        _external_file('[filter "evil"]\nprocess = PROGRAM\n', attributes="* filter=evil\n"),
        (("add", "."),),
        EXTERNAL,
    ),
    Trap(
        "file outside: signing program",
        _external_file("[gpg]\nprogram = PROGRAM\n[commit]\ngpgSign\n"),
        (("commit", "-m", "x"),),
        EXTERNAL,
    ),
    Trap("file outside: signature of a commit", _external_signed, (("log", "-1"),), EXTERNAL),
    Trap(
        "file outside: by a condition",
        _external_file("[core]\nfsmonitor = PROGRAM\n", key="includeIf.gitdir:**.path"),
        (("status",),),
        EXTERNAL,
    ),
    Trap(
        "file outside: by a file of the repository",
        _external_by_own_file,
        (("status",),),
        EXTERNAL,
    ),
)
"""The file configures programs. They are switched off, and the repository is used."""

EXTERNAL_REDIRECTIONS = (
    Trap("the canary as configuration", _external_file("SECRET\n"), (("config", "--list"),), "include.path"),
    Trap("a line that is no configuration", _external_file("[x]\nSECRET SECRET\n"), (), "include.path"),
    Trap("a value that git quotes", _external_file("[core]\ncompression = SECRET\n"), (("status",),), "include.path"),
    Trap(
        "a name for commits", _external_file("[user]\nname = SECRET\n"), (("var", "GIT_AUTHOR_IDENT"),), "include.path"
    ),
    Trap(
        "an upstream",
        _external_file('[branch "main"]\nremote = .\nmerge = refs/heads/SECRET\n'),
        (("status", "--porcelain=v2", "--branch"),),
        "include.path",
    ),
    Trap(
        "a key that can't be switched off",
        _external_file('[filter "SECRET=x"]\nclean = PROGRAM\n', attributes="* filter=SECRET=x\n"),
        (("config", "--list"),),
        "include.path",
    ),
    Trap(
        "a file outside that includes others",
        _external_file("[include]\npath = canary\n"),
        (("config", "--list"),),
        "include.path",
    ),
    Trap("a FIFO as configuration", _external_place("FIFO"), (), "include.path"),
    Trap("a directory as configuration", _external_place("directory"), (), "include.path"),
    Trap("a large file as configuration", _external_place("large"), (), "include.path"),
    Trap("a link to itself as configuration", _external_place("link to itself"), (), "include.path"),
    Trap("standard input as configuration", _external_place("/dev/stdin"), (), "include.path"),
    Trap("a missing file of the kernel", _external_place("/proc/self/nothing"), (), "include.path"),
    Trap("standard input by another name", _external_place("//proc/self/./fd/0"), (), "include.path"),
)
"""The file is invalid, or contains what git would act on or quote. No tool uses such a repository."""
