"""Services in a NATS that is killed, silent, has forgotten something, or refuses (docs/specs/services.md)."""

import asyncio
import json
import logging
import re
import shutil
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import nats
import pytest

from coretools.errors import TooLarge, Unreachable
from coretools.services.connect import open_services
from coretools.services.interface import QueueCounts, QueueTotals, ServiceEngine
from coretools.services.limits import ServiceLimits
from coretools.services.nats_connection import token
from coretools.services.nats_services import open_nats_services
from tests.checkout import TREE
from tests.services.nats_server import NatsServer
from tests.web.certificates import write_certificate

SECONDS = 20
SECRET = "s3cr-t"
LOGIN = f'authorization {{user: app, password: "{SECRET}/"}}'


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("connection", "queues"):
        monkeypatch.setattr(f"coretools.services.nats_{module}.TRY_SECONDS", 0.25)
    monkeypatch.setattr("coretools.services.nats_connection.TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr("coretools.services.nats_connection.AGAIN_SECONDS", 0.05)


async def reached(services: ServiceEngine) -> None:
    """Wait until the store is used again."""
    await until(services, services.check)


async def until(services: ServiceEngine, condition: Callable[[], Awaitable[object]]) -> None:
    with anyio.fail_after(SECONDS):
        while True:
            with suppress(Unreachable):
                if await condition():
                    return


async def as_long_as(condition: Callable[[], Awaitable[object]]) -> None:
    while await condition():
        pass


async def test_a_store_that_is_killed_loses_nothing_and_is_used_again(own_nats: NatsServer, short_waits: None) -> None:
    """services-10, services-13, services-14: values and items are as before; a getter and a subscriber go on."""
    got: list[bytes] = []
    async with open_services(own_nats.url) as services, services.topics.subscribe("news") as messages:

        async def wait() -> None:
            while not got:
                with suppress(Unreachable):
                    got.append((await services.queues.get("idle")).data)

        await services.values.set("key", b"value")
        for data in (b"leased", b"waiting"):
            await services.queues.put("q", data)
        assert (await services.queues.get("q")).data == b"leased"
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                own_nats.kill()
                for asked in (services.values.set("key", b""), services.topics.publish("t", b"")):
                    with pytest.raises(Unreachable, match="may have happened"):
                        await asked
                own_nats.start()
                await reached(services)
                await services.queues.put("idle", b"late")
        assert got == [b"late"]
        assert messages.dropped > 0
        assert await services.values.get("key") == b"value"
        counts = await services.queues.counts("q")
        assert counts.waiting + counts.leased == 2


async def test_what_a_killed_store_has_forgotten_loses_no_item_and_takes_no_room(
    own_nats: NatsServer, short_waits: None
) -> None:
    """services-10: it can have forgotten removals, or its newest items, and not what it has delivered. One that was
    ended forgets nothing, no lease either.
    """
    messages = own_nats.folder / "jetstream" / "$G" / "streams" / "coretools_queues" / "msgs"

    def forget(earlier: Path | None) -> None:
        shutil.rmtree(messages)
        if earlier is not None:
            shutil.copytree(earlier, messages)

    async with open_services(own_nats.url) as services:
        for number in range(3):
            await services.queues.put("q", b"%d" % number)
        assert await services.queues.release(await services.queues.get("q"))
        item = await services.queues.get("q")
        own_nats.end()
        earlier = shutil.copytree(messages, own_nats.folder / "earlier")
        own_nats.start()
        await reached(services)
        assert (item.data, item.attempt) == (b"0", 2)
        assert await services.queues.acknowledge(item)
        for number in (1, 2):
            item = await services.queues.get("q")
            assert item.data == b"%d" % number
            assert await services.queues.acknowledge(item)
        own_nats.end()
        forget(earlier)
        own_nats.start()
        await reached(services)
        assert (await services.totals()).waiting == 3
        assert await services.queues.counts("q") == QueueCounts(waiting=0, leased=0)  # nobody gets them
        await services.queues.put("q", b"new")
        item = await services.queues.get("q")
        assert item.data == b"new"
        assert await services.queues.acknowledge(item)
        assert await services.totals() == QueueTotals(waiting=0, leased=0, dead=0)
        own_nats.end()
        forget(None)
        own_nats.start()
        await reached(services)
        await services.queues.put("q", b"after")
        with anyio.fail_after(SECONDS):
            assert (await services.queues.get("q")).data == b"after"


async def test_a_store_that_does_not_answer_at_the_start_is_used_when_it_does(
    own_nats: NatsServer, short_waits: None, caplog: pytest.LogCaptureFixture
) -> None:
    """services-7: the start goes on with a warning."""
    own_nats.kill()
    async with open_services(own_nats.url) as services:
        assert "NATS can't be used now" in caplog.text
        with pytest.raises(Unreachable):
            await services.queues.put("q", b"x")
        own_nats.start()
        await reached(services)
        await services.queues.put("q", b"x")
        assert (await services.queues.get("q")).data == b"x"


async def test_a_put_whose_answer_was_lost_may_have_happened_and_once_at_most(
    own_nats: NatsServer, short_waits: None
) -> None:
    """services-6, services-14: it is an error, never a silent loss; what was repeated meanwhile is one item."""
    async with open_services(own_nats.url) as services:
        await services.queues.put("q", b"w")
        own_nats.hold()
        with pytest.raises(Unreachable, match="may have happened"):
            await services.queues.put("q", b"x")
        own_nats.resume()
        await reached(services)

        async def is_there() -> bool:
            return (await services.totals()).waiting == 2

        await until(services, is_there)
        await services.queues.put("q", b"y")
        assert (await services.totals()).waiting == 3


async def test_cancelled_getters_lose_no_item(shared_nats: NatsServer) -> None:
    """services-3: at whatever moment they are cancelled, the item is theirs or still there, and soon."""
    limits = ServiceLimits(attempts=1_000)
    async with open_nats_services(shared_nats.url, limits, prefix="cancelled") as services:
        await services.queues.put("q", b"x")
        for step in range(40):
            item = None
            with anyio.move_on_after(step / 10_000):
                item = await services.queues.get("q")
            if item is not None:
                assert await services.queues.release(item)
        with anyio.fail_after(SECONDS):
            assert await services.queues.acknowledge(await services.queues.get("q"))


async def test_names_are_any_text(shared_nats: NatsServer) -> None:
    """services-2: also what means something in a subject."""
    names = ["", ".", "*", ">", " ", "a.b", "a%2Eb", "%", "é", "\udcff", "x" * 1024, "é" * 512, "\r\n", "a", "A"]
    assert len({token(name) for name in names}) == len(names)
    async with open_nats_services(shared_nats.url, prefix="names") as services:
        for number, name in enumerate(names):
            await services.values.set(name, b"%d" % number)
            await services.queues.put(name, b"%d" % number)
        for number, name in enumerate(names):
            assert await services.values.get(name) == b"%d" % number
            assert (await services.queues.get(name)).data == b"%d" % number
            async with services.topics.subscribe(name) as messages:
                await services.topics.publish(name, b"%d" % number)
                assert await anext(messages) == b"%d" % number


async def test_streams_grow_with_the_limits_and_never_shrink(
    shared_nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """services-12: smaller limits would make NATS drop what it has. A stream of somebody else is left alone."""
    for items, refused in ((1, False), (3, False), (2, False)):
        limits = ServiceLimits(work_items=items, keys=items)
        async with open_nats_services(shared_nats.url, limits, prefix="grows") as services:
            assert not refused
            await services.queues.put("q", b"x")
            await services.values.set(str(items), b"x")
    async with open_nats_services(shared_nats.url, prefix="grows") as services:
        assert await services.queues.counts("q") == QueueCounts(waiting=3, leased=0)
        assert [await services.values.get(key) for key in "132"] == [b"x"] * 3
    client = await nats.connect(shared_nats.url)
    await client.jetstream().add_stream(name="foreign_queues", subjects=["else"])
    await client.close()
    with anyio.move_on_after(0.5):
        async with open_nats_services(shared_nats.url, prefix="foreign"):
            pass
    assert "the stream foreign_queues exists, with subjects ['else']" in caplog.text


async def test_a_value_over_the_largest_message_of_the_server_is_refused(shared_nats: NatsServer) -> None:
    """services-4: NATS would close the connection."""
    async with open_nats_services(shared_nats.url, ServiceLimits(value_bytes=8_000_000), prefix="large") as services:
        most = 1024 * 1024 - 512
        for size, is_taken in ((most, True), (most + 1, False)):
            for asked in (
                services.values.set("k" * 1024, bytes(size), ttl_seconds=100),
                services.queues.put("k" * 1024, bytes(size)),
                services.topics.publish("k" * 1024, bytes(size)),
            ):
                if is_taken:
                    await asked
                else:
                    with pytest.raises(TooLarge, match="max_payload"):
                        await asked
        assert await services.values.get("k" * 1024) == bytes(most)
        assert (await services.queues.get("k" * 1024)).data == bytes(most)


async def test_an_id_of_somebody_else_ends_nothing(shared_nats: NatsServer) -> None:
    """services-3: an id may come from a caller; it is a subject of NATS only in part."""
    async with open_nats_services(shared_nats.url, prefix="forged") as services:
        await services.queues.put("q", b"x")
        await services.queues.put("p", b"x")
        item = await services.queues.get("q")
        for forged in (
            replace(item, queue="p"),
            replace(item, id=item.id + " "),
            replace(item, id="9999999999.0 $JS.API.STREAM.DELETE.forged_queues"),
            replace(item, id=item.id.replace("$JS.ACK", "$JS.ACK.x")),
            replace(item, id="0.0 " + item.id.split()[1]),
        ):
            assert not await services.queues.acknowledge(forged)
        assert await services.queues.acknowledge(item)


async def test_a_password_is_used_not_disclosed_and_may_be_changed_meanwhile(
    short_waits: None, caplog: pytest.LogCaptureFixture
) -> None:
    """services-7, services-9: calls fail while NATS refuses it; then it is used again, with what was subscribed."""
    caplog.set_level(logging.DEBUG)
    with closing(NatsServer(LOGIN)) as server:
        async with (
            open_services(f"nats://app:{SECRET}%2F@{server.address}") as services,
            services.topics.subscribe("news") as messages,
        ):
            await services.queues.put("q", b"x")
            server.reload(LOGIN.replace("app", "other"))
            with pytest.raises(Unreachable), anyio.fail_after(SECONDS):
                await as_long_as(services.check)
            server.reload(LOGIN)
            await reached(services)
            await services.topics.publish("news", b"m")
            with anyio.fail_after(SECONDS):
                assert await anext(messages) == b"m"
            assert (await services.queues.get("q")).data == b"x"
    assert SECRET not in caplog.text


async def test_a_user_of_nats_with_the_rights_of_the_docs_is_enough(short_waits: None) -> None:
    """services-15: those of docs/deploy/replicas.md; also to find what another process let expire."""
    page = (TREE / "docs/deploy/replicas.md").read_text()
    rights = re.search(r"may publish to (`[^.]+.*?), and subscribe to (`.*?)\.\n", page)
    assert rights is not None
    may = {
        do: {"allow": re.findall(r"`([^`]+)`", rights[index])} for index, do in enumerate(("publish", "subscribe"), 1)
    }
    user = {"user": "app", "password": SECRET, "permissions": may}
    with closing(NatsServer(f"authorization {{users: [{json.dumps(user)}]}}")) as server:
        url = f"nats://app:{SECRET}@{server.address}"
        async with (
            open_services(url, ServiceLimits(keys=1)) as one,
            open_services(url, ServiceLimits(keys=1)) as other,
            one.topics.subscribe("t") as messages,
        ):
            await other.topics.publish("t", b"m")
            assert await anext(messages) == b"m"
            await one.values.set("k", b"v", ttl_seconds=0)
            await other.values.set("other", b"v")
            assert await one.values.compare_and_set("other", b"v", None)
            await one.queues.put("q", b"x")
            with anyio.move_on_after(0.05):
                await other.queues.get("idle")
            assert await other.queues.reject(await other.queues.get("q"))
            assert (await one.totals()).dead == 1


async def test_tls_is_verified_and_never_left_out(
    short_waits: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """services-15: nothing of the password is sent to a server without TLS, or with a strange certificate."""
    heard: list[bytes] = []

    async def strip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"INFO " + json.dumps({"version": "2.9.10", "max_payload": 1, "tls_available": True}).encode() + b"\r\n"
        )
        heard.append(await reader.read())
        writer.close()

    stripping = await asyncio.start_server(strip, "127.0.0.1", 0)
    port = stripping.sockets[0].getsockname()[1]
    async with stripping, open_services(f"tls://app:{SECRET}@127.0.0.1:{port}"):
        assert "SecureConnRequiredError" in caplog.text
    assert set(heard) == {b""}
    certificate = write_certificate(tmp_path)
    with closing(
        NatsServer(f'{LOGIN}\ntls {{cert_file: "{certificate.path}", key_file: "{certificate.key}"}}')
    ) as server:
        url = f"tls://app:{SECRET}%2F@{server.address}"
        async with open_services(url):
            assert "SSLCertVerificationError" in caplog.text
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
        async with open_services(url) as services:
            assert await services.check()
        caplog.clear()
        async with open_services(url.replace("127.0.0.1", "localhost")):
            assert "SSLCertVerificationError" in caplog.text
