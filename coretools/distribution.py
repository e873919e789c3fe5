"""What was installed: the version, which the build took from the tag of the release, and the extras.

Not in the package's own `__init__`, which every confined child imports too: reading the metadata takes 10 ms.
"""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from coretools.errors import MissingExtra

DISTRIBUTION = "coretools-workstation"
"""The name by which indexes have it: `pip install coretools-workstation`."""

EXTRAS = {
    "http": ("the HTTP server", ("prometheus_client", "jwt", "starlette", "uvicorn")),
    "otel": ("traces of the HTTP server", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),
    "redis": ("replicas of the HTTP server, and services in Redis", ("redis",)),
    "nats": ("services in NATS", ("nats",)),
    "code": (
        "symbols and syntax errors in further languages, and language servers",
        (
            *("cattrs", "lsprotocol", "ty"),
            *(
                f"tree_sitter_{name}"
                for name in ("c", "c_sharp", "cpp", "css", "kotlin", "lua", "php", "ruby", "scala", "swift")
            ),
        ),
    ),
    "files": ("pictures and PDF in read_file", ("PIL", "pypdfium2")),
}
"""Each extra: what needs it, and the modules that it installs."""


def needs_extra(extra: str) -> str:
    """Return the end of a sentence about what an extra installs."""
    return f"needs the extra {extra!r}: pip install '{DISTRIBUTION}[{extra}]'"


def is_installed(extra: str) -> bool:
    """Whether all modules of an extra are here; imports none of them."""
    return all(is_module_here(module) for module in EXTRAS[extra][1])


def require_extra(extra: str) -> None:
    """Refuse to go on without an extra.

    Raises:
        MissingExtra: one of its modules is not installed.
    """
    if not is_installed(extra):
        raise MissingExtra(f"{EXTRAS[extra][0]} {needs_extra(extra)}")


def is_module_here(module: str) -> bool:
    """Whether a module is installed; imports nothing but packages around it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


def _installed_version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"  # a copy of the source on PYTHONPATH


VERSION = _installed_version()
