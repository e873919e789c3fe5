"""A program of its own that serves commands on stdio: `-m tests.hosting.own_program DIRECTORY [configured]`."""

import logging
import os
import sys
from pathlib import Path

import anyio

from coretools.hosting.serve import serve_stdio
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry

registry = Registry()
place = Path(sys.argv[1])


@registry.tool(Effect.READ)
def fail() -> str:
    "Fail with a secret."
    logging.getLogger("own").warning("PASSWORD=%s", os.environ["CORETOOLS_DB_PASSWORD"])
    raise RuntimeError("refused: ghp_" + "a1B2" * 9)


@registry.tool(Effect.READ)
async def wait() -> str:
    "Wait for ever."
    try:
        print("waiting", file=sys.stderr, flush=True)
        print("not for the wire", flush=True)
        await anyio.sleep_forever()
    finally:
        (place / "cleaned").write_text("up")


if "configured" in sys.argv:
    logging.basicConfig(format="mine: %(message)s")
exit_code = serve_stdio(registry)
(place / "after").write_text(str(exit_code))
print("printed after the end")
raise SystemExit(exit_code)
