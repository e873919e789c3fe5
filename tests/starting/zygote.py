"""A process that has imported what our entry points need, and forks one of them for every request.

Python takes 1.5 s to import the SDK; a fork of a process that has it takes milliseconds. What is forked becomes a child
of whoever started this process, not of this one (clone(2), CLONE_PARENT), so that it is waited for and signalled like
any other child. ADR 0025 says what is the same about it and what is not.
"""

import atexit
import ctypes
import gc
import importlib
import inspect
import marshal
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from coretools.operations.command import Command
from coretools.operations.declare import declaration_of
from coretools.redaction.redactor import Redactor
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules

PRELOADED = (
    "anyio._backends._asyncio",
    "coretools.app.stdio_service",
    "coretools.app.upstreams",
    "coretools.cli.common.call",
    "coretools.cli.command_line",
    "coretools.cli.confine",
    "coretools.cli.docs",
    "coretools.cli.doctor",
    "coretools.cli.init",
    "coretools.cli.mcp.completion",
    "coretools.cli.mcp.main",
    "coretools.cli.mcp.run",
    "coretools.cli.policy",
    "coretools.cli.repl_servers",
    "coretools.cli.serve",
    "coretools.client.authorization.credentials",
    "coretools.client.upstream.upstreams",
    "coretools.hosting.asgi_app",
    "coretools.protocol.tasks.extension",
    "jsonschema",
    "coretools.web.service",
    "uvicorn.lifespan.off",
)
"""Never an entry point itself: it is run anew in every child."""
CREDENTIALS = """https://user:c4n4ry@host/ ghp_c4n4ry Authorization: Bearer c4n4ry
password=c4n4ry --api-key 5.0s tokenKind=~/c4n4ry secret='a b' pwd: none"""
"""Most expressions of the redaction are applied to it."""

HANDLES = 4
"""Sent with a request: a file that contains it, and the three standard descriptors."""

_CLONE_PARENT = 0x8000
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
REQUEST_BYTES = 16


def is_possible() -> bool:
    """Whether a sibling process can be created here."""
    return sys.platform == "linux" and os.uname().machine in _SYS_CLONE


def fork_sibling() -> int:
    """Like `os.fork`, but the child's parent is the parent of this process."""
    python = ctypes.PyDLL(None, use_errno=True)
    number = ctypes.c_long(_SYS_CLONE[os.uname().machine])
    flags = ctypes.c_long(_CLONE_PARENT | signal.SIGCHLD)
    python.syscall.restype = ctypes.c_long
    python.PyOS_BeforeFork()
    pid: int = python.syscall(number, flags, *[ctypes.c_long(0)] * 4)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return pid


def serve(control: socket.socket) -> None:
    """Fork for every request until the other end is closed. Returns in a child too, when its program has ended."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, HANDLES)
        if not message:
            return
        pid = fork_sibling()
        if pid == 0:
            control.close()
            become(descriptors)
            return
        for handle in descriptors:
            os.close(handle)
        control.send(marshal.dumps(pid))


def become(descriptors: list[int]) -> None:
    """Run `python [-P] -m MODULE WORDS...` in this process, with the directory and environment of the request."""
    letter, *standard = descriptors
    with open(letter, "rb") as file:
        file.seek(0)
        words, is_safe, directory, environment, session = marshal.load(file)
    for number, handle in enumerate(standard):
        os.dup2(handle, number)
        os.close(handle)
    if session:
        os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    own = [] if is_safe or environment.get("PYTHONSAFEPATH") else [os.getcwd()]
    sys.path[:] = [*own, *paths, *sys.path]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
    module, *rest = words
    sys.argv[:] = ["-m", *rest]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _exit(ended.code or 0)
        raise
    _exit(0)


def _exit(code: int) -> None:
    """Exit as Python does, but leave the modules to the kernel: to free them one by one would first copy every page of
    memory that is shared with the zygote, which costs more than most commands."""
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # which reports it
    os._exit(code)


def compile_expressions() -> None:
    """Use once what compiles regular expressions at its first use: a fifth of the processor time of a forked server."""
    DenyRules(DEFAULT_DENY)
    Redactor().text(CREDENTIALS)


def build_schemas() -> None:
    """Build what is kept of every built-in tool: to list them takes a server 0.1 s. No tool set is opened: the threads
    of an open one would hold locks in what is forked."""
    for method in _tool_methods():
        command = Command(method.__name__, method, declaration_of(method), "")
        command.arguments.schema()
        command.return_type.validate()


def _tool_methods() -> Iterator[Callable[..., Any]]:
    """The methods of every class of `coretools.tools`, each bound to an object without attributes."""
    for name in [name for name in sys.modules if name.startswith("coretools.tools.")]:
        for _, kind in inspect.getmembers(sys.modules[name], inspect.isclass):
            for function in filter(inspect.isfunction, vars(kind).values() if kind.__module__ == name else ()):
                if declaration_of(function) is not None:
                    yield function.__get__(object.__new__(kind))


def main() -> None:
    """Import, then serve on the socket with the given descriptor."""
    control = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for name in PRELOADED:
        importlib.import_module(name)
    compile_expressions()
    build_schemas()
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("what was imported or used before the fork has started a thread")
    gc.freeze()
    gc.enable()
    serve(control)


if __name__ == "__main__":
    main()
