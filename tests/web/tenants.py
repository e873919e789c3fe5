"""Tenants of one server: each does everything that a client can, and looks through every byte it gets for the others'.

What is a tenant's own and nobody else's has a canary in it: files and their names, output of commands, progress, the
texts of questions. Ids are put on a common table, from which others take them to try what they lead to.
"""

import json
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2

from coretools.operations.call import Call, require_confirmation
from coretools.operations.declare import Effect, asks, tool
from coretools.operations.registry import Registry
from coretools.protocol.tasks.extension import IDENTIFIER
from coretools.questions.kinds import AskConfirmation
from coretools.web.auth.hashed_tokens import create_token
from coretools.web.service import ServerConfig
from tests.web.http_mcp_client import ACCEPT, LATEST, STATELESS
from tests.web.plans import plan_of

SECONDS = 50

WHO = {"ann": "red", "bob": "blue", "cat": "red"}
"""Two roles, and two principals of one of them."""

TOKEN = 7
"""Progress token of every call, and id of every stateless request; those of sessions all count from 1. What is kept by
these alone is mixed up here."""

CONFIGURATION = """
[auth]
tokens = "{tokens}"

[roles.red]
roots = ["{folder}/red"]
requests_per_second = 0

[roles.blue]
roots = ["{folder}/blue"]
requests_per_second = 0
"""

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "extensions": {IDENTIFIER: {}}},
}


class EchoingTools:
    """Tools whose progress, questions and results contain their argument."""

    @tool(Effect.READ)
    async def tell(self, word: str, call: Call) -> str:
        """Say it on the way, and at the end."""
        for step in range(3):
            await call.progress(step, 3, word)
            await anyio.lowlevel.checkpoint()
        return word

    @tool(Effect.CHANGE)
    @asks("sure")
    async def sure(self, word: str, call: Call) -> str:
        """Ask about it."""
        await require_confirmation(call, AskConfirmation(key="sure", message=f"{word}?"))
        return f"sure of {word}"


@dataclass
class Tenant:
    """One principal."""

    name: str
    role: str
    url: str
    token: str
    root: str
    """The canary of the role's root."""
    http: httpx2.AsyncClient
    canary: str = field(default_factory=lambda: f"canary{secrets.token_hex(12)}")
    forbidden: list[bytes] = field(default_factory=list)
    """Canaries that it must never see."""
    ids: dict[str, str] = field(default_factory=dict)
    """The last id of each kind that was its own."""
    done: Counter[str] = field(default_factory=Counter)
    bytes_seen: int = 0
    asked: Counter[str | None] = field(default_factory=Counter)
    """Requests by session."""

    def looked_at(self, answer: httpx2.Response) -> httpx2.Response:
        """Return a response after checking that it contains nothing of others."""
        self.look(answer.content)
        self.look(json.dumps(list(answer.headers.multi_items())).encode())
        return answer

    def look(self, data: bytes) -> None:
        self.bytes_seen += len(data)
        for canary in self.forbidden:
            assert canary not in data, f"{self.name} sees what is another's: {data[:2000]!r}"

    async def stateless(self, method: str, *, called: str = "", **params: Any) -> httpx2.Response:
        headers = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": method}
        if called:
            headers["Mcp-Name"] = called
        meta = {"_meta": {**ENVELOPE, "progressToken": TOKEN}}
        return await self.post(method, {**params, **meta}, headers)

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the result of a call of the stateless era, or its error."""
        return last(await self.stateless("tools/call", called=name, name=name, arguments=arguments))

    async def in_session(self, session: str, method: str, **params: Any) -> httpx2.Response:
        """Send one request of a session."""
        return await self.post(method, params, self.of_session(session))

    async def post(self, method: str, params: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        session = headers.get("Mcp-Session-Id")
        if not method.startswith("notifications/"):
            self.asked[session] += 1
            body["id"] = TOKEN if session is None else self.asked[session]
        with anyio.fail_after(SECONDS):
            return self.looked_at(await self.http.post(self.url, json=body, headers={**self.headers, **headers}))

    async def opened(self) -> str:
        """Open a session."""
        params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": self.canary, "version": "1"}}
        answer = await self.post("initialize", params, {})
        assert answer.status_code == 200, answer.text
        session = str(answer.headers["mcp-session-id"])
        await self.in_session(session, "notifications/initialized")
        self.ids["session"] = session
        return session

    async def ended(self, session: str) -> int:
        """DELETE it, and return the status."""
        with anyio.fail_after(SECONDS):
            return self.looked_at(await self.http.delete(self.url, headers=self.of_session(session))).status_code

    async def missed(self, session: str, event: str) -> tuple[int, bytes]:
        """The status of a GET with an event id, and what arrives before it waits."""
        headers = {**self.of_session(session), "Last-Event-ID": event}
        data = b""
        with anyio.fail_after(SECONDS):
            async with self.http.stream("GET", self.url, headers=headers) as answer:
                with anyio.move_on_after(0.2):
                    async for part in answer.aiter_bytes():
                        data += part
        self.look(data)
        return answer.status_code, data

    @property
    def headers(self) -> dict[str, str]:
        return {**ACCEPT, "Authorization": f"Bearer {self.token}"}

    def of_session(self, session: str) -> dict[str, str]:
        return {**self.headers, "Mcp-Session-Id": session, "MCP-Protocol-Version": LATEST}


class TenantActivity:
    """What a tenant does, one thing after the other, in random order."""

    def __init__(self, tenant: Tenant, others: Sequence[Tenant], source: random.Random) -> None:
        self._tenant = tenant
        self._others = others
        self._random = source
        self._things: list[Callable[[], Awaitable[None]]] = [
            self.reads,
            self.lists,
            self.completes,
            self.commands,
            self.runs,
            self.tells,
            self.asks,
            self.has_tasks,
            self.has_session,
            self.listens,
            self.steals,
            self.steals,
        ]

    async def round(self) -> None:
        """Do everything once, in any order."""
        self._random.shuffle(self._things)
        for thing in self._things:
            await thing()
            self._tenant.done[thing.__name__] += 1

    async def reads(self) -> None:
        """Read its role's file; the other role's must not be readable by any name."""
        mine = await self._tenant.call("read_file", path=f"{self._tenant.role}.txt")
        assert self._tenant.root in json.dumps(mine), mine
        for path in ("../blue/blue.txt", "../red/red.txt", "blue.txt", "red.txt"):
            await self._tenant.call("read_file", path=path)

    async def lists(self) -> None:
        """Tools, resources, templates, prompts, files, runs."""
        for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
            await self._tenant.stateless(method)
        listed = await self._tenant.call("list_directory", path=".")
        assert self._tenant.root in json.dumps(listed), listed
        await self._tenant.call("list_runs")

    async def completes(self) -> None:
        """Paths and runs."""
        for uri, name, typed in (
            ("coretools://files/{+path}", "path", ""),
            ("coretools://runs/{run}/output{?offset}", "run", ""),
        ):
            found = await self._tenant.stateless(
                "completion/complete", ref={"type": "ref/resource", "uri": uri}, argument={"name": name, "value": typed}
            )
            assert "result" in last(found), found.text

    async def commands(self) -> None:
        """Run a command that prints the canary."""
        answer = await self._tenant.call("run_command", command=f"echo {self._tenant.canary}")
        task = answer["result"].get("taskId")
        while task is not None and answer["result"]["status"] == "working":
            answer = last(await self._tenant.stateless("tasks/get", called=task, taskId=task))
        assert self._tenant.canary in json.dumps(answer), answer

    async def runs(self) -> None:
        """A run, its output as a resource, and its end."""
        session = await self._tenant.opened()
        command = f"sh -c 'echo {self._tenant.canary}; sleep 60'"
        begun = last(
            await self._tenant.in_session(
                session, "tools/call", name="run_command", arguments={"command": command, "wait_seconds": 0}
            )
        )
        run = begun["result"]["_meta"]["coretools/facts"]["run"]
        await self._tenant.call("wait_run", run=run, pattern=self._tenant.canary)
        listed = last(await self._tenant.in_session(session, "resources/list"))
        uris = [one["uri"] for one in listed["result"]["resources"] if one["name"] == run]
        assert uris, listed
        self._tenant.ids["resource"] = uris[-1]
        ended = self._tenant.ids.get("run")
        self._tenant.ids["run"] = run
        if ended is not None:
            await self._tenant.call("stop_run", run=ended)
        read = await self._tenant.in_session(session, "resources/read", uri=uris[-1])
        assert self._tenant.canary in read.text, read.text
        await self._tenant.in_session(session, "resources/subscribe", uri=uris[-1])
        assert await self._tenant.ended(session) == 200

    async def tells(self) -> None:
        """Progress in both eras, all with the same token."""
        response = await self._tenant.stateless("tools/call", called="tell", name="tell", arguments=self._word)
        assert response.text.count(self._tenant.canary) > 1, response.text
        session = await self._tenant.opened()
        params = {"name": "tell", "arguments": self._word, "_meta": {"progressToken": TOKEN}}
        response = await self._tenant.in_session(session, "tools/call", **params)
        assert response.text.count(self._tenant.canary) > 1, response.text
        self._tenant.ids["event"] = response.text.partition("id: ")[2].partition("\r\n")[0].strip()
        self._tenant.ids["session"] = session  # stays open: somebody may try it

    async def asks(self) -> None:
        """Ask a question, and use the state that belongs to its answer."""
        asked = await self._tenant.call("sure", **self._word)
        assert asked["result"]["resultType"] == "input_required", asked
        state = asked["result"]["requestState"]
        self._tenant.ids["state"] = state
        (key,) = asked["result"]["inputRequests"]
        answers = {key: {"action": "accept", "content": {"confirmed": True}}}
        self._tenant.ids["answers"] = json.dumps(answers)

    async def has_tasks(self) -> None:
        """Start a task."""
        begun = await self._tenant.call("run_command", command=f"sh -c 'echo {self._tenant.canary}; sleep 60'")
        task = begun["result"]["taskId"]
        ended = self._tenant.ids.get("task")
        self._tenant.ids["task"] = task
        got = last(await self._tenant.stateless("tasks/get", called=task, taskId=task))
        assert got["result"]["taskId"] == task, got
        if ended is not None:
            await self._tenant.stateless("tasks/cancel", called=ended, taskId=ended)

    async def has_session(self) -> None:
        """A session from its beginning to its end, with a stream of its own."""
        session = await self._tenant.opened()
        with anyio.move_on_after(0.05):
            async with self._tenant.http.stream(
                "GET", self._tenant.url, headers=self._tenant.of_session(session)
            ) as stream:
                async for part in stream.aiter_bytes():
                    self._tenant.look(part)
        assert await self._tenant.ended(session) == 200

    async def listens(self) -> None:
        """Listen for changes while others change their own."""
        wanted = {"toolsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": []}
        mine = self._tenant.ids.get("resource")
        if mine:
            wanted["resourceSubscriptions"] = [mine]
        with anyio.move_on_after(0.1):
            await self._tenant.stateless("subscriptions/listen", notifications=wanted)

    async def steals(self) -> None:
        """Use ids from the table of another tenant: the response must be that for an unknown id."""
        other = self._random.choice(self._others)
        for kind, stolen in list(other.ids.items()):
            if kind != "answers":
                await STEALING[kind](self._tenant, stolen, other)
                self._tenant.done[f"stole {kind}"] += 1

    @property
    def _word(self) -> dict[str, str]:
        return {"word": self._tenant.canary}


def last(answer: httpx2.Response) -> dict[str, Any]:
    """The last message in a response."""
    if answer.headers["content-type"].startswith("application/json"):
        found: dict[str, Any] = answer.json()
        return found
    data = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    message: dict[str, Any] = json.loads(data[-1])
    return message


async def _same(tenant: Tenant, stolen: str, invented: str, ask: Callable[[str], Awaitable[Any]]) -> None:
    """A stolen id gets what an invented one of the same form gets, apart from the id itself."""
    got, expected = await ask(stolen), await ask(invented)
    assert got == expected, f"{tenant.name}: {got} for another's id, {expected} for one that there is not"


def _invented(stolen: str) -> str:
    """Another id of the same form."""
    return "".join(random.choice("0123456789abcdef") if one in "0123456789abcdef" else one for one in stolen)


def _without(answer: httpx2.Response, given: str) -> tuple[int, str]:
    """A response without the id that was given and the request id, in either form: a late one streams."""
    message = last(answer)
    text = json.dumps({key: value for key, value in message.items() if key != "id"})
    return answer.status_code, text.replace(json.dumps(given)[1:-1], "...").replace(given, "...")


async def steal_session(tenant: Tenant, stolen: str, other: Tenant) -> None:
    invented = secrets.token_hex(16)

    async def ask(session: str) -> Any:
        read = await tenant.in_session(session, "tools/call", name="list_runs", arguments={})
        gone = await tenant.ended(session)
        _, missed = await tenant.missed(session, other.ids.get("event", "none-0"))
        return _without(read, session), gone, missed.replace(session.encode(), b"")

    await _same(tenant, stolen, invented, ask)


async def steal_event(tenant: Tenant, stolen: str, other: Tenant) -> None:
    """In a session of its own."""
    session = await tenant.opened()

    async def ask(event: str) -> Any:
        return await tenant.missed(session, event)

    await _same(tenant, stolen, f"{secrets.token_hex(8)}-0", ask)
    assert await tenant.ended(session) == 200


async def steal_run(tenant: Tenant, stolen: str, other: Tenant) -> None:
    for name, more in (
        ("read_run", {}),
        ("wait_run", {"seconds": 0}),
        ("stop_run", {}),
        ("write_run", {"text": "x"}),
    ):

        async def ask(run: str, name: str = name, more: dict[str, Any] = more) -> Any:
            answer = await tenant.stateless("tools/call", called=name, name=name, arguments={"run": run, **more})
            return _without(answer, run)

        await _same(tenant, stolen, _invented(stolen), ask)


async def steal_resource(tenant: Tenant, stolen: str, other: Tenant) -> None:
    session = await tenant.opened()
    run = stolen.split("/")[3]

    async def ask(uri: str) -> Any:
        found = [await tenant.stateless("resources/read", called=uri, uri=uri)]
        found.append(await tenant.in_session(session, "resources/read", uri=uri))
        found.append(await tenant.in_session(session, "resources/subscribe", uri=uri))
        return [_without(one, uri)[1].replace(uri.split("/")[3], "...") for one in found]

    await _same(tenant, stolen, stolen.replace(run, _invented(run)), ask)
    assert await tenant.ended(session) == 200


async def steal_task(tenant: Tenant, stolen: str, other: Tenant) -> None:
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):

        async def ask(task: str, method: str = method) -> Any:
            return _without(await tenant.stateless(method, called=task, taskId=task), task)

        await _same(tenant, stolen, _invented(stolen), ask)


async def steal_state(tenant: Tenant, stolen: str, other: Tenant) -> None:
    """With the answers that belong to it, for the same call: only the principal differs."""
    answers = json.loads(other.ids["answers"])

    async def ask(state: str) -> Any:
        answer = await tenant.stateless(
            "tools/call",
            called="sure",
            name="sure",
            arguments={"word": other.canary},
            requestState=state,
            inputResponses=answers,
        )
        assert "sure of" not in answer.text, answer.text
        return _without(answer, state)

    await _same(tenant, stolen, stolen[:-8] + secrets.token_urlsafe(6), ask)


STEALING: dict[str, Callable[[Tenant, str, Tenant], Awaitable[None]]] = {
    "session": steal_session,
    "event": steal_event,
    "run": steal_run,
    "resource": steal_resource,
    "task": steal_task,
    "state": steal_state,
}


def plan_for_tenants(folder: Path) -> tuple[ServerConfig, dict[str, str], dict[str, str]]:
    """The server configuration, the tokens by name, and the canary of each role's root."""
    tokens = {name: create_token(str(folder / "tokens.json"), name=name, role=role)[1] for name, role in WHO.items()}
    roots = {}
    for role in set(WHO.values()):
        roots[role] = f"root{secrets.token_hex(12)}"
        (folder / role).mkdir()
        (folder / role / f"{role}.txt").write_text(f"{roots[role]}\n")
        (folder / role / f"{roots[role]}.txt").write_text("by its name\n")
    configuration = folder / "http.toml"
    configuration.write_text(CONFIGURATION.format(tokens=folder / "tokens.json", folder=folder))
    registry = Registry()
    registry.add_set("echoing", EchoingTools())
    return plan_of("--config", str(configuration), others=[registry]), tokens, roots


@asynccontextmanager
async def tenants_of(url: str, tokens: dict[str, str], roots: dict[str, str]) -> AsyncIterator[list[Tenant]]:
    """All tenants, each with the table of ids."""
    # A connection is given up before the server does: one closed while a request is being sent fails that request.
    async with httpx2.AsyncClient(timeout=SECONDS, limits=httpx2.Limits(keepalive_expiry=1)) as http:
        found = [
            Tenant(name=name, role=role, url=url, token=tokens[name], root=roots[role], http=http)
            for name, role in WHO.items()
        ]
        for one in found:
            others = [other for other in found if other is not one]
            one.forbidden = [other.canary.encode() for other in others]
            one.forbidden += [other.root.encode() for other in others if other.role != one.role]
        yield found
