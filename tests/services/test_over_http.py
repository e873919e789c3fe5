"""Services of `coretools-http` in a store, and what operators see of them (docs/specs/services.md)."""

from pathlib import Path

import anyio
import httpx2
from prometheus_client.parser import text_string_to_metric_families

from coretools import App, Effect, Services, dead_letters
from tests.web.mcp_peer import StatelessPeer, messages_in
from tests.web.mcp_peer import call as calling
from tests.web.plans import at_work, plan_of
from tests.web.replicas.redis_server import RedisServer

SECONDS = 30

app = App("worker")


@app.tool(Effect.CHANGE)
async def put(services: Services) -> str:
    """Put an item."""
    await services.queues.put("q", b"x")
    return "put"


@app.tool(Effect.CHANGE)
async def reject(services: Services) -> str:
    """Take an item and reject it."""
    await services.queues.reject(await services.queues.get("q"))
    return dead_letters("q")


async def metrics_of(http: httpx2.AsyncClient, url: str) -> dict[str, float]:
    """The metrics of services, by name and labels."""
    text = (await http.get(url.replace("/mcp", "/metrics"))).text
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("coretools_services_")
    }


async def test_a_server_serves_and_reports_a_store_that_goes_away_and_comes_back(
    durable_redis: RedisServer, tmp_path: Path
) -> None:
    """services-7, services-8: the call is refused with `unreachable`; /readyz and the metrics say it; no restart."""
    flags = {"auth.anonymous": "user", "services.url": durable_redis.url}
    plan = plan_of("--root", str(tmp_path), others=(app.registry,), flags=flags)
    async with at_work(plan) as url, httpx2.AsyncClient(timeout=SECONDS) as http:
        peer, ready = StatelessPeer(http, url), url.replace("/mcp", "/readyz")
        for tool in ("put", "put", "reject"):
            await peer.say(tool)
        assert (await http.get(ready)).status_code == 200
        seen = await metrics_of(http, url)
        items = [seen[f"coretools_services_items {state}"] for state in ("waiting", "leased", "dead")]
        assert (seen["coretools_services_up"], items) == (1, [1, 0, 1])
        assert seen["coretools_services_operations_total queues.put ok"] == 2
        durable_redis.kill()
        (message,) = messages_in(await peer.post(calling("put")))
        assert message["result"]["isError"]
        assert message["result"]["_meta"]["coretools/error"] == "unreachable"
        with anyio.fail_after(SECONDS):
            while (answer := await http.get(ready)).status_code == 200:  # looked at once a second
                pass
        assert answer.json()["failing"] == ["services"]
        seen = await metrics_of(http, url)
        assert seen["coretools_services_up"] == 0
        assert seen["coretools_services_operations_total queues.put unreachable"] == 1
        assert "coretools_services_items waiting" not in seen
        durable_redis.start()
        with anyio.fail_after(SECONDS):
            while (await http.get(ready)).status_code != 200:
                pass
        assert await peer.say("put") == "put"
        assert (await metrics_of(http, url))["coretools_services_items waiting"] == 2
