"""Changes files at random beneath a root, until it is killed: `python -m tests.undo.random_changes DIRECTORY SEED`."""

import random
import sys
from contextlib import suppress
from pathlib import Path

from coretools.errors import CoreError
from tests.undo.world import World


def main() -> None:
    world, draw = World(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
    print("ready", flush=True)
    while True:
        names = [f"d{draw.randrange(3)}/f{draw.randrange(4)}", f"f{draw.randrange(4)}"]
        with suppress(CoreError):
            change_at_random(world, draw, names)


def change_at_random(world: World, draw: random.Random, names: list[str]) -> None:
    """Do one of five changes."""
    draw.choice((
        lambda: world.files.write_file(names[0], str(draw.random()) * 50, create_parents=True, overwrite=True),
        lambda: world.files.delete_directory(names[0][:2]),
        lambda: world.files.move_path(names[1], names[0], overwrite=True),
        lambda: world.files.copy_path(names[0], names[1]),
        lambda: world.undo.undo(change=draw.randrange(1, 1000)),
    ))()  # fmt: skip


if __name__ == "__main__":
    main()
