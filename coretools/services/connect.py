"""Open the services at a URL: its scheme chooses the engine, and without a URL they are in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from coretools.distribution import needs_extra
from coretools.errors import BadSetting
from coretools.services.interface import ServiceEngine
from coretools.services.limits import ServiceLimits
from coretools.services.memory import MemoryServices

Opener = Callable[[str, ServiceLimits], AbstractAsyncContextManager[ServiceEngine]]

_EXTRAS = {"redis": "redis", "rediss": "redis", "unix": "redis", "nats": "nats", "tls": "nats"}
"""The extra that brings the client of a store, by scheme."""


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
    extra = _EXTRAS.get(url.partition("://")[0])
    try:
        # Imported late: services in memory need no client of a store.
        if extra == "redis":
            from coretools.services.redis_services import open_redis_services

            return open_redis_services
        if extra == "nats":
            from coretools.services.nats_services import open_nats_services

            return open_nats_services
    except ModuleNotFoundError as error:
        raise BadSetting(f"services.url: {needs_extra(str(extra))}") from error
    raise BadSetting(f"services.url: must begin with one of {', '.join(f'{one}://' for one in _EXTRAS)}")
