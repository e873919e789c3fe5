"""Which stores a server has: those of its memory, or an engine that its replicas share."""

from coretools.errors import BadSetting
from coretools.serving.web.config import LimitsSection, RedisSection
from coretools.serving.web.shared.memory_stores import MemoryStores
from coretools.serving.web.shared.stores import Stores

NO_PACKAGE = "redis.url: needs the package redis, which the extra `redis` of coretools installs"


async def require_engine(section: RedisSection) -> str:
    """Connect to the engine and ask it; its version. Nothing is written there.

    Raises:
        BadSetting: it does not answer, or can't be used.
    """
    try:
        # Imported late: as below.
        from coretools.serving.web.shared.redis_engine import Engine
    except ModuleNotFoundError as error:
        raise BadSetting(NO_PACKAGE) from error
    engine = Engine(section)
    try:
        return await engine.require_usable()
    finally:
        await engine.close()


def stores_of(section: RedisSection, limits: LimitsSection) -> Stores:
    """What is configured. Not opened yet.

    Raises:
        BadSetting: what is configured can't be used.
    """
    if not section.url:
        return MemoryStores(most_events=limits.events, most_bytes=limits.event_bytes)
    try:
        # Imported late: a server that stands alone needs none.
        from coretools.serving.web.shared.redis_stores import RedisStores
    except ModuleNotFoundError as error:
        raise BadSetting(NO_PACKAGE) from error
    return RedisStores(section, limits)
