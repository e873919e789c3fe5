"""Changes files at random beneath a root, until it is killed: `python -m tests.undo.random_changes DIRECTORY SEED`."""

import random
import sys
from contextlib import suppress
from pathlib import Path

from coretools.errors import CoreError
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.multi_file_tools import FileEdits
from tests.undo.world import World


def main() -> None:
    world, draw = World(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
    print("ready", flush=True)
    while True:
        names = [f"d{draw.randrange(3)}/f{draw.randrange(4)}", f"f{draw.randrange(4)}"]
        with suppress(CoreError):
            change_at_random(world, draw, names)


def change_at_random(world: World, draw: random.Random, names: list[str]) -> None:
    """Do one of six changes."""
    edits = [Edit(old="0", new="1", all=True)]
    draw.choice((
        lambda: world.files.write_file(names[0], str(draw.random()) * 50, create_parents=True, overwrite=True),
        lambda: world.files.delete_directory(names[0][:2]),
        lambda: world.files.move_path(names[1], names[0], overwrite=True),
        lambda: world.files.copy_path(names[0], names[1]),
        lambda: world.files.edit_files([FileEdits(path=name, edits=edits) for name in names]),
        lambda: world.undo.undo(change=draw.randrange(1, 1000)),
    ))()  # fmt: skip


if __name__ == "__main__":
    main()
