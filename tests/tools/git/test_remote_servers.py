"""docs/specs/git-remotes.md: remotes of other machines, by real servers on loopback."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from coretools.config.limits import Limits
from coretools.git_remotes.smart_http import ADVERTISED_BYTES
from tests.tools.git.git_servers import GitHttpServer, git_daemon, git_http_server, self_signed
from tests.tools.git.remote_world import RemoteWorld, error_of
from tests.tools.git.world import World

pytestmark = pytest.mark.anyio

TOKEN = "token-that-nobody-else-sees"


@pytest.fixture
def remote(tmp_path: Path) -> RemoteWorld:
    return RemoteWorld(World(tmp_path).filled()).created()


@pytest.fixture
def server(remote: RemoteWorld) -> Iterator[GitHttpServer]:
    with git_http_server(remote.bare.parent, TOKEN) as found:
        yield found


async def test_smart_http_with_a_token(remote: RemoteWorld, server: GitHttpServer) -> None:
    """git-remotes-17, git-remotes-18: fetch, push (a large one in chunks), clone; the token is shown nowhere."""
    world = remote.world
    rule = remote.rule(url=f"{server.url}/*", credentials="token", token_env="ACME")
    async with remote.tools(rule, environment={"ACME": TOKEN}) as (tools, _):
        added = (await tools.git_remote("add", "origin", "work", url=f"{server.url}/origin.git")).text()
        assert "(fetch and push allowed)" in added
        assert [one["kind"] for one in (await tools.git_fetch("work")).updates] == ["new"]
        world.write("large.bin", "")
        (world.repository / "large.bin").write_bytes(random.Random(1).randbytes(3_000_000))
        world.git("add", "large.bin")
        world.git("commit", "-q", "-m", "large")
        pushed = await tools.git_push("work", set_upstream=True)
        assert [one["kind"] for one in pushed.updates] == ["fast-forward"]
        assert [one["kind"] for one in (await tools.git_push("work", to="topic")).updates] == ["new"]
        assert [one["kind"] for one in (await tools.git_push("work", delete="topic")).updates] == ["deleted"]
        assert (await tools.git_push("work")).updates == []
        cloned = (await tools.git_clone(f"{server.url}/origin.git", "copy", depth=1)).text()
        (world.root / "copy" / "n").write_text("n")
        world.git("add", "n", cwd=world.root / "copy")
        world.git("commit", "-q", "-m", "n", cwd=world.root / "copy")
        await tools.git_push("copy")
        pulled = (await tools.git_pull("work")).text()
        assert "merged by fast-forward" in pulled
        assert world.git("fsck", cwd=world.root / "copy") == ""
        shown = f"{added}{pushed.text()}{cloned}{pulled}{(world.git_dir / 'config').read_text()}"
        assert TOKEN not in shown


async def test_a_server_that_refuses_or_lies(remote: RemoteWorld, server: GitHttpServer) -> None:
    """git-remotes-17, git-remotes-19: one sentence each, nothing kept, and no host but the permitted one."""
    world = remote.world
    world.git("remote", "add", "origin", f"{server.url}/origin.git")
    rule = remote.rule(url=f"{server.url}/**", credentials="token", token_env="ACME")
    plain = remote.rule(url=f"{server.url}/**")
    refs = "/origin.git/info/refs"
    with git_http_server(remote.bare.parent) as other:
        async with remote.tools(plain) as (tools, _):
            refused = await error_of(tools.git_fetch("work"))
            assert (refused.kind, "without credentials" in str(refused)) == ("permission-refused", True)
        async with remote.tools(rule, environment={"ACME": "wrong"}) as (tools, _):
            assert "with credentials" in str(await error_of(tools.git_push("work")))
        async with remote.tools(rule, environment={}) as (tools, _):
            assert "ACME" in str(await error_of(tools.git_fetch("work")))
        async with remote.tools(rule, environment={"ACME": TOKEN}, limits=Limits(transfer_bytes=150)) as (tools, _):
            assert (await error_of(tools.git_clone(f"{server.url}/origin.git", "copy"))).kind == "too-large"
        async with remote.tools(rule, environment={"ACME": TOKEN}) as (tools, _):
            query = "?service=git-upload-pack"
            kind = {"Content-Type": "application/x-git-upload-pack-advertisement"}
            lies: dict[str, tuple[int, dict[str, str], bytes]] = {
                "redirects to": (302, {"Location": f"{other.url}{refs}{query}"}, b""),
                "is no repository": (302, {"Location": "file:///etc/passwd"}, b""),
                "no repository there": (404, {}, b""),
                "status 500": (500, {}, b"\x1b[31m"),
                "not a git repository": (200, {"Content-Type": "text/html"}, b"<html>"),
                "version 2": (200, kind, b"001e# service=git-upload-pack\n00000000"),
                "git's protocol": (200, kind, b"zzzz" * 100),
                "more than 3 times": (301, {"Location": f"{refs}{query}"}, b""),
            }
            for sentence, answer in lies.items():
                server.answers[refs] = answer
                assert sentence in str(await error_of(tools.git_fetch("work"))), sentence
            server.answers[refs] = (301, {"Location": f"/moved/origin.git/info/refs{query}"}, b"")
            server.answers["/moved/origin.git/info/refs"] = (200, {**kind}, b"000eversion 2\n0000")
            server.answers["/moved/origin.git/git-upload-pack"] = (
                200,
                {"Content-Type": "application/x-git-upload-pack-result"},
                b"0045" + b"1" * 40 + b" refs/heads/a\x1b[31mb/../../c\n" + b"0000",
            )
            assert "[31m" not in str(await error_of(tools.git_fetch("work")))
        assert other.requests == []
    assert list((world.git_dir / "objects").glob("tmp_*")) == []


async def test_a_list_of_references_without_end(remote: RemoteWorld, server: GitHttpServer) -> None:
    """git-remotes-17: it is cut off while it comes, and nothing has changed."""
    world = remote.world
    world.git("remote", "add", "origin", f"{server.url}/origin.git")
    line = f"{'1' * 40} refs/heads/b\n".encode()
    packet = f"{len(line) + 4:04x}".encode() + line
    listed = packet * (ADVERTISED_BYTES // len(packet) + 2)
    kind = {"Content-Type": "application/x-git-upload-pack-result"}
    server.answers["/origin.git/git-upload-pack"] = (200, kind, listed)
    before = world.git("for-each-ref")
    rule = remote.rule(url=f"{server.url}/*", credentials="token", token_env="ACME")
    async with remote.tools(rule, environment={"ACME": TOKEN}) as (tools, _):
        assert "too many references" in str(await error_of(tools.git_fetch("work")))
    assert world.git("for-each-ref") == before


async def test_an_answer_that_is_empty_cut_or_silent_ends_the_call(remote: RemoteWorld, server: GitHttpServer) -> None:
    """git-remotes-29: at once if nothing more can come, else after the limit; one sentence, nothing kept."""
    world = remote.world
    world.git("remote", "add", "origin", f"{server.url}/origin.git")
    world.git("commit", "-q", "-a", "-m", "third")
    rule = remote.rule(url=f"{server.url}/*", credentials="token", token_env="ACME")
    before = world.git("for-each-ref"), world.git("for-each-ref", cwd=remote.bare)
    outcomes = []
    limits = Limits(transfer_idle_seconds=0.3)
    async with (
        remote.tools(rule, environment={"ACME": TOKEN}) as (tools, _),
        remote.tools(rule, environment={"ACME": TOKEN}, limits=limits) as (impatient, _),
    ):
        for service, name in (("git-upload-pack", "git_fetch"), ("git-receive-pack", "git_push")):
            refs, post = "/origin.git/info/refs", f"/origin.git/{service}"
            heads = {refs: f"application/x-{service}-advertisement", post: f"application/x-{service}-result"}
            packet = f"# service={service}\n".encode()
            named = f"{len(packet) + 4:04x}".encode() + packet + b"0000"
            bodies = {b"": "is empty", b"000aERR no": "", b"00": "", b"0032" + b"1" * 20: "", b"0008abcd": ""}
            cases = [(path, body, sentence) for path in heads for body, sentence in bodies.items()]
            for path, body, sentence in (*cases, (refs, named, "is empty"), (refs, named + b"000eversion 2\n", "")):
                server.answers = {path: (200, {"Content-Type": heads[path]}, body)}
                with anyio.fail_after(60):
                    error = await error_of(getattr(tools, name)("work"))
                    outcomes.append((service, path, body, sentence, error))
            for path, kind in heads.items():
                for status, length in ((0, 0), (200, 100)):
                    server.answers = {path: (status, {"Content-Type": kind, "Content-Length": str(length)}, b"003e")}
                    with anyio.fail_after(60):
                        error = await error_of(getattr(impatient, name)("work"))
                        outcomes.append((service, path, b"", "was silent for 0.3 s", error))
    assert [one for one in outcomes if one[3] not in str(one[4]) or "internal" in one[4].kind] == []
    assert (world.git("for-each-ref"), world.git("for-each-ref", cwd=remote.bare)) == before


async def test_git_daemon(remote: RemoteWorld) -> None:
    """git-remotes-20: fetch and push; an address that is not public must be listed by the operator."""
    world = remote.world
    with git_daemon(remote.bare.parent) as port:
        url = f"git://127.0.0.1:{port}/origin.git"
        async with remote.tools(remote.rule(url=url)) as (tools, _):
            await tools.git_clone(url, "copy")
            (world.root / "copy" / "n").write_text("n")
            world.git("add", "n", cwd=world.root / "copy")
            world.git("commit", "-q", "-m", "n", cwd=world.root / "copy")
            assert [one["kind"] for one in (await tools.git_push("copy")).updates] == ["fast-forward"]
            await tools.git_remote("add", "origin", "work", url=url)
            await tools.git_fetch("work")
            missing = await error_of(tools.git_clone(url.replace("origin", "missing"), "other"))
            assert missing.kind == "denied-remote"
        assert world.git("rev-parse", "HEAD", cwd=world.root / "copy") == world.git("rev-parse", "origin/main")
    async with remote.tools(remote.rule(url=url)) as (tools, _):
        assert (await error_of(tools.git_fetch("work"))).kind == "unreachable"


async def test_credentials_come_from_where_the_operator_says(remote: RemoteWorld, server: GitHttpServer) -> None:
    """git-remotes-18: a file that only its user may read, and the credential helper of the user."""
    world, url = remote.world, f"{server.url}/origin.git"
    file = world.top / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o644)
    by_file = remote.rule(url=url, credentials="token", token_file=str(file))
    async with remote.tools(by_file) as (tools, _):
        assert "chmod 600" in str(await error_of(tools.git_clone(url, "copy")))
        file.chmod(0o600)
        await tools.git_clone(url, "copy")
    helper = world.outside / "helper"
    helper.write_text(f'#!/bin/sh\necho "$1" >> {world.marker}\necho username=git\necho password={TOKEN}\n')
    helper.chmod(0o755)
    (world.home / ".gitconfig").write_text(f"{world.home_config}[credential]\n\thelper = {helper}\n")
    # A helper of the repository is never asked.
    world.git("config", "credential.helper", f"!echo password=x; touch {world.outside}/repository-helper")
    world.git("remote", "add", "origin", url)
    world.marker.touch()  # nothing new can be created directly in a directory above a root
    environment = {"HOME": str(world.home), "PATH": os.environ["PATH"]}
    async with remote.tools(remote.rule(url=url, credentials="helper"), environment=environment) as (tools, _):
        await tools.git_fetch("work")
        assert (await tools.git_push("work", to="new")).updates != []
    assert set(world.marker.read_text().split()) == {"get"}
    assert not (world.outside / "repository-helper").exists()


async def test_https_needs_a_certificate_that_the_operator_trusts(remote: RemoteWorld) -> None:
    """git-remotes-17, git-remotes-18: `ca_file` names the authority; without it the token is not sent."""
    certificate, authority = self_signed(remote.world.top)
    with git_http_server(remote.bare.parent, TOKEN, certificate) as server:
        url = f"https://127.0.0.1:{server.port}/origin.git"
        keys = {"url": url, "credentials": "token", "token_env": "ACME"}
        async with remote.tools(remote.rule(**keys), environment={"ACME": TOKEN}) as (tools, _):
            refused = await error_of(tools.git_clone(url, "copy"))
            assert (refused.kind, "self-signed certificate" in str(refused)) == ("unreachable", True)
        assert server.requests == []
        trusted = remote.rule(**keys, ca_file=str(authority))
        async with remote.tools(trusted, environment={"ACME": TOKEN}) as (tools, _):
            assert "on branch main" in (await tools.git_clone(url, "copy")).text()
