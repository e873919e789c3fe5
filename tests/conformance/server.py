"""The fixture of the tasks extension behind a real socket: prints its URL and serves.

Not by `coretools-http`, which makes a task of what takes half a second: the suite wants tasks sooner than that.
"""

import argparse
import socket

import anyio
import uvicorn

from coretools.dispatch import Dispatcher
from coretools.graph import Graph
from coretools.offer import Selection
from coretools.serving.serve import HttpOptions, http_app
from coretools.serving.server import Identity, build_server
from coretools.serving.task_extension import TaskExtension
from coretools.serving.tasks import TaskLimits, Tasks
from coretools.settings import Limits
from tests.conformance import task_fixture

HTTP = HttpOptions(sessions=1_000)
"""The suite ends few of the sessions that it opens."""

AT_ONCE = TaskLimits(answer_seconds=0.001, poll_seconds=0.1)
"""What is not through at once is a task."""


async def serve(listening: socket.socket) -> None:
    graph = Graph(task_fixture.registry(), lambda _: Selection(profile="all"))
    dispatcher = Dispatcher(threads=2)
    async with Tasks(AT_ONCE) as tasks:
        extension = TaskExtension(graph, dispatcher, tasks, limits=Limits())
        app = http_app(build_server(graph, dispatcher, Identity(name="tasks"), extensions=(extension,)), http=HTTP)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
        await uvicorn.Server(config).serve(sockets=[listening])


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--port", type=int, default=0, help="0: any that is free")
    given = words.parse_args()
    listening = socket.create_server(("127.0.0.1", given.port))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    anyio.run(serve, listening)


if __name__ == "__main__":
    main()
