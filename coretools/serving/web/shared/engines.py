"""Which stores a server has: those of its memory, or an engine that its replicas share."""

from coretools.errors import BadSetting
from coretools.serving.web.config import LimitsSection, RedisSection
from coretools.serving.web.shared.memory_stores import MemoryStores
from coretools.serving.web.shared.stores import Stores


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
        raise BadSetting("redis.url: needs the package redis, which the extra `redis` of coretools installs") from error
    return RedisStores(section, limits)
