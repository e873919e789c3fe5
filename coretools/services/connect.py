"""Open the services at a URL: its scheme chooses the engine, and without a URL they are in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module

from coretools.distribution import needs_extra
from coretools.errors import BadSetting
from coretools.services.interface import ServiceEngine
from coretools.services.limits import ServiceLimits
from coretools.services.memory import MemoryServices

Opener = Callable[[str, ServiceLimits], AbstractAsyncContextManager[ServiceEngine]]

_REDIS = ("redis", "coretools.services.redis_services", "open_redis_services")
_NATS = ("nats", "coretools.services.nats_services", "open_nats_services")

_ENGINES = {"redis": _REDIS, "rediss": _REDIS, "unix": _REDIS, "nats": _NATS, "tls": _NATS}
"""By scheme: the extra that brings its client, the module, and its function, an `Opener`."""


@asynccontextmanager
async def open_services(url: str = "", limits: ServiceLimits | None = None) -> AsyncIterator[ServiceEngine]:
    """Open services until the end of the block; without a URL in memory.

    `redis://`, `rediss://` (with TLS) and `unix://` lead to a Redis, `nats://` and `tls://` to NATS JetStream. A store
    that does not answer now is used as soon as it does.

    Raises:
        BadSetting: the URL can't be used; it is not repeated, because it may contain a password.
    """
    limits = limits or ServiceLimits()
    if not url:
        yield MemoryServices(limits)
        return
    async with _opener(url)(url, limits) as services:
        yield services


def _opener(url: str) -> Opener:
    scheme = url.partition("://")[0]
    if scheme not in _ENGINES:
        raise BadSetting(f"services.url: must begin with one of {', '.join(f'{one}://' for one in _ENGINES)}")
    extra, module, name = _ENGINES[scheme]
    try:
        # Imported late: services in memory need no client of a store.
        opener: Opener = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise BadSetting(f"services.url: {needs_extra(extra)}") from error
    return opener
