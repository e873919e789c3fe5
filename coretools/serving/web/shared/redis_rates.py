"""How often somebody came, over all replicas: GCRA, in one step and by the clock of Redis.

GCRA keeps one number for each caller: when he would have come last, had he come at his rate ("theoretical arrival
time", ITU-T I.371). No counter has to be reset, and no edge of a window lets twice the rate through.
"""

from coretools.serving.web.shared.redis_engine import Engine, Script, hashed

MICROSECONDS = 1_000_000

_TAKE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval = tonumber(ARGV[1])
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local early = due - now - interval * (tonumber(ARGV[2]) - 1)
if early >= 1 then
  return math.ceil(early)
end
due = due + interval
redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.ceil((due - now) / 1000))
return 0
""")


class RedisRateLimiter:
    """The rates of all replicas."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def take(self, key: str, *, per_second: float, burst: int) -> float:
        """Count one request. 0.0 when it is within the limit, otherwise the seconds until one would be.

        Raises:
            Unreachable: it can't be counted.
        """
        if per_second <= 0:
            return 0.0
        interval = MICROSECONDS / per_second
        wait: int = await self._engine.run(_TAKE, (self._engine.key("rate", hashed(key)),), interval, burst)
        return wait / MICROSECONDS
