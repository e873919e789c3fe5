"""Caches of package managers for commands: kept for each root, and bounded (docs/specs/toolchains.md)."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from coretools.config.operator_policy import CacheName
from coretools.confinement.cache_limit import MAX_DEPTH, limit_cache
from coretools.confinement.caches import CACHES, CommandCaches, root_id
from coretools.errors import BadSetting
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root_set import Roots, RootSpec
from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer

TIERS = {"full": (), "landlock": tuple(under_profile())}

NAMES: tuple[CacheName, ...] = ("pip", "npm", "uv", "cargo", "go", "maven", "gradle")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two roots, a cache of the user's, and a policy with caches."""
    for name in ("one", "two", "cache/pip"):
        (tmp_path / "home" / name).mkdir(parents=True)
    (tmp_path / "home/cache/pip/wheel").write_text("of the user")
    listed = ", ".join(f'"{name}"' for name in NAMES)
    (tmp_path / "home/policy.toml").write_text(f"[confinement]\ncaches = [{listed}]\ncache_bytes = 100000\n")
    return tmp_path / "home"


@contextmanager
def served(home: Path, *roots: str, tier: str, before: Sequence[str] = ()) -> Iterator[Peer]:
    variables = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    words = ("--no-login-path", "--policy", str(home / "policy.toml"))
    with peer(*roots, *words, environment=variables, before=(*before, *TIERS[tier])) as client:
        client.start_session()
        yield client


def text_of(client: Peer, command: str, **arguments: str) -> str:
    found: str = client.call("run_command", command=command, timeout_seconds=60, **arguments)["content"][0]["text"]
    return found


@pytest.mark.parametrize("tier", TIERS)
def test_a_cache_is_kept_for_its_root_and_closed_to_others(home: Path, tier: str) -> None:
    """toolchains-10, toolchains-11, toolchains-12: two servers, one after the other, and the second for two roots."""
    one, two = str(home / "one"), str(home / "two")
    write = "sh -c 'echo poison > $PIP_CACHE_DIR/a; echo x > $CARGO_HOME/config.toml; mkdir $CARGO_HOME/registry;"
    write += " mkdir $GRADLE_USER_HOME/init.d $GRADLE_USER_HOME/caches'"
    with served(home, one, f"{two}:ro", tier=tier) as client:
        variables = dict(line.split("=", 1) for line in text_of(client, "env").splitlines() if "=" in line)
        place = variables["PIP_CACHE_DIR"]
        top = os.path.dirname(place)
        assert variables["GOCACHE"] == f"{top}/go/build"
        assert variables["MAVEN_ARGS"] == f"-Dmaven.repo.local={top}/maven"
        text_of(client, write)
        assert "of the user" not in text_of(client, f"sh -c 'cat {home}/cache/pip/wheel; ls {home}/cache/pip'")
        assert f"{home}/cache/coretools" not in text_of(client, "env", directory=two)
        assert text_of(client, f"{sys.executable} -m pip cache dir").splitlines()[0] == f"{top}/pip"
        if shutil.which("npm"):
            assert text_of(client, "npm config get cache").splitlines()[0] == f"{top}/npm"
        moved = text_of(client, f"sh -c 'mv {place} {place}2; touch {top}/new {top}/.lock; rmdir {top}/uv; ls {top}/'")
        client.end()
    assert Path(place, "a").read_text() == "poison\n", moved
    assert not place.startswith((one, two))
    assert os.stat(home / "cache/coretools").st_mode & 0o077 == 0
    assert sorted(os.listdir(top)) == sorted([".lock", *NAMES])
    Path(top, "uv", "old").write_bytes(b"x" * 200_000)
    with served(home, one, two, tier=tier) as client:
        said = text_of(client, "sh -c 'cat $PIP_CACHE_DIR/a; ls $CARGO_HOME $UV_CACHE_DIR/ $GRADLE_USER_HOME'")
        assert "poison\n" in said
        assert "caches" in said
        assert "init.d" not in said
        assert "config.toml" not in said  # no configuration of cargo from the last server
        assert "old" not in said  # beyond the limit
        assert text_of(client, "printenv PIP_CACHE_DIR", directory=two).strip() != place
        client.end()
    with served(home, two, tier=tier) if tier == "full" else nullcontext() as other:
        if other is not None:
            said = text_of(other, f"sh -c 'cat {place}/a; ls $PIP_CACHE_DIR/; echo x > {place}/b'")
            assert "poison" not in said
            other.end()
    assert sorted(os.listdir(place)) == ["a"]


def test_caches_in_a_root_are_a_start_error(home: Path) -> None:
    """toolchains-13: a command could replace them, or a root in them is no root."""
    for root in (home, home / "cache" / "coretools" / "x"):
        root.mkdir(parents=True, exist_ok=True)
        with Roots([RootSpec(str(root))], deny=DenyRules(())) as roots, pytest.raises(BadSetting, match="lie in each"):
            CommandCaches(NAMES, roots=roots, base=str(home / "cache" / "coretools"))
    for place in (home / "cache", home / "cache" / "coretools" / "x"):
        with pytest.raises(BadSetting, match="lie in each"):
            CommandCaches(NAMES, base=str(home / "cache" / "coretools"), writable=[str(place)])
    assert CommandCaches((), base=str(home), writable=[str(home)]).paths == ()


def test_another_directory_at_the_path_of_a_root_is_another_root(tmp_path: Path) -> None:
    """toolchains-11: after a project was deleted and cloned again, nothing of the old one is left."""
    found = set()
    for _ in range(3):
        (tmp_path / "root").mkdir()
        with Roots([RootSpec(str(tmp_path / "root"))], deny=DenyRules(())) as roots:
            found.add(root_id(next(iter(roots))))
            found.add(root_id(next(iter(roots))))
        (tmp_path / "root").rmdir()
    assert len(found) == 3


def filled(top: Path, seed: int) -> dict[str, int]:
    """A cache with files of known ages; their sizes by path."""
    chance = random.Random(seed)
    sizes = {}
    for number in range(40):
        path = top / "/".join(chance.choice("abc") for _ in range(chance.randrange(1, 5))) / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * chance.randrange(1, 20_000))
        os.utime(path, (number, number))
        sizes[str(path)] = path.stat().st_blocks * 512
    return sizes


@pytest.mark.parametrize("seed", range(12))
def test_the_oldest_files_go_first_and_no_more_than_needed(tmp_path: Path, seed: int) -> None:
    """toolchains-14: whatever was written, what is left is within the limit, and newer than what is gone."""
    sizes = filled(tmp_path / "cache", seed)
    limit = random.Random(seed).randrange(sum(sizes.values()))
    handle = os.open(tmp_path, os.O_RDONLY)
    removed = limit_cache(handle, "cache", unit=None, limit_bytes=limit)
    os.close(handle)
    left = [path for path in sizes if os.path.exists(path)]
    gone = [path for path in sizes if path not in left]
    assert removed == sum(sizes[path] for path in gone)
    assert sum(sizes[path] for path in left) <= limit
    assert left == list(sizes)[len(gone) :]
    assert not gone or sum(sizes[path] for path in [*left, gone[-1]]) > limit


@pytest.mark.parametrize("unit", [0, 1, 2])
def test_what_is_unpacked_goes_as_a_whole(tmp_path: Path, unit: int) -> None:
    """toolchains-14: half of an unpacked package would break builds."""
    for number, name in enumerate(("a/x/1", "a/x/2", "a/y/1", "b/x/1", "b/x/2")):
        path = tmp_path / "cache" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 4096)
        os.utime(path, (number, number))
        os.utime(path.parent, (number, number))
        os.utime(path.parent.parent, (number, number))
    (tmp_path / "cache/a/x").chmod(0o500)
    handle = os.open(tmp_path, os.O_RDONLY)
    limit_cache(handle, "cache", unit=unit, limit_bytes=24 * 1024)
    os.close(handle)
    left = {path.relative_to(tmp_path / "cache").as_posix() for path in (tmp_path / "cache").rglob("*/*/*")}
    assert left == {0: set(), 1: {"b/x/1", "b/x/2"}, 2: {"a/y/1", "b/x/1", "b/x/2"}}[unit]


def test_nothing_outside_a_cache_is_touched_whatever_a_command_left_there(tmp_path: Path) -> None:
    """toolchains-15: links, closed directories, endless nesting, and names that look like ours."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"x" * 100_000)
    os.utime(outside / "kept", (1, 1))
    handle = os.open(tmp_path, os.O_RDONLY)
    for unit in (None, 0, 1):
        cache = tmp_path / "cache"
        cache.mkdir()
        (cache / "to-directory").symlink_to(outside)
        (cache / "to-file").symlink_to(outside / "kept")
        os.link(outside / "kept", cache / "hard")
        (cache / f".removed-{os.getpid()}-0").mkdir()
        (cache / "closed" / "inner").mkdir(parents=True)
        (cache / "closed" / "inner" / "to").symlink_to(outside)
        (cache / "closed").chmod(0)
        nest(cache, 3 * MAX_DEPTH)
        limit_cache(handle, "cache", unit=unit, limit_bytes=0)
        assert not [path for path in cache.rglob("*") if path.is_file()]
        assert (outside / "kept").stat().st_size == 100_000
        shutil.rmtree(cache)
    (tmp_path / "cache").symlink_to(outside)
    with pytest.raises(OSError, match="cache"):
        limit_cache(handle, "cache", unit=None, limit_bytes=0)
    os.close(handle)
    assert (outside / "kept").exists()


def nest(top: Path, depth: int) -> None:
    """Directories in one another, deeper than a path may be long."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_a_cache_in_use_by_another_server_is_left_alone(tmp_path: Path) -> None:
    """toolchains-14: its commands may be reading it."""
    (tmp_path / "root").mkdir()
    with Roots([RootSpec(str(tmp_path / "root"))], deny=DenyRules(())) as roots:
        known = list(roots)
        first, second = (CommandCaches(("pip",), roots=known, base=str(tmp_path / "c"), limit_bytes=1) for _ in "ab")
        first.prepare()
        file = Path(first.paths[0], "file")
        file.write_bytes(b"x" * 10_000)
        second.prepare()
        assert file.exists()
        assert second.variables(known[0]) == {"PIP_CACHE_DIR": first.paths[0]}
        first.close()
        second.close()
        third = CommandCaches(("pip",), roots=known, base=str(tmp_path / "c"), limit_bytes=1)
        third.prepare()
        third.close()
        assert not file.exists()


def test_without_a_place_for_them_commands_have_no_caches(tmp_path: Path) -> None:
    """toolchains-13: which is no start error, and no directory of somebody else is used."""
    (tmp_path / "root").mkdir()
    (tmp_path / "file").touch()
    with Roots([RootSpec(str(tmp_path / "root"))], deny=DenyRules(())) as roots:
        caches = CommandCaches(("pip",), roots=roots, base=str(tmp_path / "file" / "x"))
        caches.prepare()
        assert caches.variables(next(iter(roots))) == {}
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / root_id(next(iter(roots)))).symlink_to(tmp_path / "root")
        linked = CommandCaches(("pip",), roots=roots, base=str(tmp_path / "c"))
        linked.prepare()
        assert linked.variables(next(iter(roots))) == {}
        assert os.listdir(tmp_path / "root") == []
        caches.close()
        linked.close()


MOUNTED = 'mount -t tmpfs -o "$1" none "$0" && shift && exec "$@"'
HAS_MOUNTS = subprocess.run(["unshare", "-Urm", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="root's directories belong to somebody else in a user's namespace")
@pytest.mark.skipif(not HAS_MOUNTS, reason="no mount namespace for this user")
@pytest.mark.parametrize("options", ["size=128k", "nr_inodes=2"], ids=["content", "directories"])
def test_a_full_disk_costs_the_caches_and_nothing_else(home: Path, options: str) -> None:
    """toolchains-13: without room for the directories there are none; without room in them only writes there fail."""
    (home / "cache/coretools").mkdir()
    before = ["unshare", "-Urm", "sh", "-c", MOUNTED, str(home / "cache/coretools"), options]
    with served(home, str(home / "one"), tier="full", before=before) as client:
        said = text_of(client, "sh -c 'echo at $PIP_CACHE_DIR.; head -c 1000000 /dev/zero > $PIP_CACHE_DIR/a; df /'")
        assert ("at .\n" in said) == (options == "nr_inodes=2")
        assert ("No space left" in said) == (options == "size=128k")
        text_of(client, "sh -c 'echo kept > here'")
        assert (home / "one/here").read_text() == "kept\n"
        assert text_of(client, f"{sys.executable} -m pip cache dir").startswith(str(home)) or options == "nr_inodes=2"
        assert client.end() == 0


def test_two_servers_that_start_at_once_share_the_caches_of_a_root(home: Path) -> None:
    """toolchains-14: whichever limits them first, nothing of what the other's commands write is lost."""
    one = str(home / "one")
    with served(home, one, tier="full") as first, served(home, one, tier="full") as second:
        asked = [
            (client, client.send("tools/call", {"name": "run_command", "arguments": {"command": command}}))
            for client, command in (
                (first, "sh -c 'head -c 90000 /dev/zero > $PIP_CACHE_DIR/a; echo $PIP_CACHE_DIR'"),
                (second, "sh -c 'head -c 90000 /dev/zero > $PIP_CACHE_DIR/b; echo $PIP_CACHE_DIR'"),
            )
        ]
        places = {client.answer(number)["result"]["content"][0]["text"].splitlines()[0] for client, number in asked}
        (place,) = places
        assert sorted(os.listdir(place)) == ["a", "b"]
        assert first.end() == 0
        assert second.end() == 0
    assert sorted(os.listdir(place)) == ["a", "b"]
    with served(home, one, tier="full") as third:
        assert len(text_of(third, "sh -c 'ls $PIP_CACHE_DIR/; echo x > $PIP_CACHE_DIR/c'")) > 0
        assert third.end() == 0
    assert len({"a", "b"} & set(os.listdir(place))) == 1  # both are beyond the limit


@pytest.mark.parametrize("tier", TIERS)
def test_no_link_takes_the_place_of_a_cache(home: Path, tier: str) -> None:
    """toolchains-12, toolchains-15: no command swaps a cache, or has the next server write or remove elsewhere."""
    one, outside = home / "one", home / "outside"
    outside.mkdir()
    (outside / "config.toml").write_bytes(b"x" * 300_000)
    with served(home, str(one), tier=tier) as client:
        place = text_of(client, "printenv PIP_CACHE_DIR").splitlines()[0]
        top = os.path.dirname(place)
        swap = f"rm -rf {top}/*; rmdir {top}/cargo; ln -sfn {outside} {top}/cargo; ln -s {outside} {top}/{{}}/registry;"
        swap += f" ln -sfn {outside} {top}; mkdir -p {top}; ln -s {outside}/config.toml {top}/cargo/registry;"
        text_of(client, f"sh -c '{swap} ln -s {outside} {top}/cargo/git; ln -s {outside} {place}/d'")
        assert client.end() == 0
    assert not os.path.islink(top)
    assert not any(os.path.islink(f"{top}/{name}") for name in NAMES)
    with served(home, str(one), tier=tier) as client:
        said = text_of(client, "sh -c 'cat $CARGO_HOME/registry $PIP_CACHE_DIR/d/config.toml | wc -c'")
        assert "300000" not in said
        assert client.end() == 0
    assert (outside / "config.toml").stat().st_size == 300_000


def test_every_cache_has_variables_of_its_own() -> None:
    """toolchains-10: one variable, one cache; each value names the directory."""
    names = [name for cache in CACHES.values() for name in cache.variables]
    assert len(names) == len(set(names))
    assert all(any("{}" in text for text in cache.variables.values()) for cache in CACHES.values())
