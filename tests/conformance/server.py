"""The fixture behind a real socket: `python -m tests.conformance.server [--port N]` prints its URL and serves.

`--journal FILE` has a line for each command that was run: its name and how it ended. `--tasks` serves the fixture of
the tasks extension instead.
"""

import argparse
import logging
import socket

import anyio
import uvicorn
from starlette.types import ASGIApp

from coretools.dispatch import Dispatcher
from coretools.graph import Graph
from coretools.offer import Selection
from coretools.serving.serve import HttpOptions, ServeOptions, http_app
from coretools.serving.server import Identity, build_server
from coretools.serving.task_extension import TaskExtension
from coretools.serving.tasks import TaskLimits, Tasks
from coretools.settings import Asking, Limits
from tests.conformance import fixture, task_fixture

OPTIONS = ServeOptions(name="conformance", asking=Asking(mode="sampling"))
HTTP = HttpOptions(sessions=1_000)
"""The suite ends few of the sessions that it opens."""

AT_ONCE = TaskLimits(answer_seconds=0.001, poll_seconds=0.1)
"""What is not through at once is a task."""


def app(tasks: Tasks | None) -> ASGIApp:
    """The fixture's app, or that of the tasks."""
    if tasks is None:
        return http_app(fixture.registry(), options=OPTIONS, http=HTTP)
    graph = Graph(task_fixture.registry(), lambda _: Selection(profile="all"))
    dispatcher = Dispatcher(threads=2)
    extension = TaskExtension(graph, dispatcher, tasks, limits=Limits())
    return http_app(build_server(graph, dispatcher, Identity(name="tasks"), extensions=(extension,)), http=HTTP)


async def serve(listening: socket.socket, with_tasks: bool) -> None:
    async with Tasks(AT_ONCE) as tasks:
        config = uvicorn.Config(app(tasks if with_tasks else None), log_level="warning", timeout_graceful_shutdown=2)
        await uvicorn.Server(config).serve(sockets=[listening])


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--port", type=int, default=0, help="0: any that is free")
    words.add_argument("--journal")
    words.add_argument("--tasks", action="store_true")
    given = words.parse_args()
    if given.journal:
        journal = logging.getLogger("coretools.dispatch")
        journal.setLevel(logging.DEBUG)
        journal.addHandler(logging.FileHandler(given.journal))
    listening = socket.create_server(("127.0.0.1", given.port))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    anyio.run(serve, listening, given.tasks)


if __name__ == "__main__":
    main()
