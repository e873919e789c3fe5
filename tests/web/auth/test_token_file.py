"""Bearer tokens from a file of hashes (docs/specs/authentication.md)."""

import json
import logging
import os
import re
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coretools.errors import BadSetting, InvalidArguments, NotFound, Unreachable
from coretools.web.auth.hashed_tokens import PREFIX, create_token, find_record, read_tokens, revoke_tokens, token_digest
from coretools.web.auth.verifiers import TokenFileVerifier
from coretools.web.common.principals import NotEntitled, Principal
from tests.checkout import TREE

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
WRITERS = 3
EACH = 10


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def created(file: Path, name: str = "ci", **more: Any) -> str:
    return create_token(str(file), name=name, **{"role": "dev", **more})[1]


def content_of(file: Path) -> bytes:
    return file.read_bytes()


def mend(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    file.chmod(0o600)


def harm(file: Path, fault: str) -> None:
    if fault == "missing":
        file.rename(file.parent / "elsewhere")
    elif fault == "broken":
        file.write_bytes(file.read_bytes()[:-5])
    else:
        file.chmod(0o666)


async def test_a_token_is_random_and_only_its_hash_is_kept(file: Path) -> None:
    """auth-1: 256 bits behind a prefix; a token belongs to its principal, anything else to nobody."""
    token = created(file)
    assert re.fullmatch(r"ct_[A-Za-z0-9_-]{43}", token)
    text = content_of(file).decode()
    assert token not in text
    assert token.removeprefix(PREFIX) not in text
    assert token_digest(token) in text
    tokens = TokenFileVerifier(str(file))
    assert await tokens.verify(token) == Principal(name="ci", role="dev")
    wrong = [
        token[:-1],
        token + "x",
        token.swapcase(),
        token_digest(token),
        "",
        PREFIX,
        " " + token,
        "\ud800",
        "é" * 40,
    ]
    assert [one for one in wrong if await tokens.verify(one) is not None] == []


def test_every_entry_is_compared(file: Path) -> None:
    """auth-1: the first and the last are found alike, and each names its own principal."""
    made = [create_token(str(file), name=f"user{number}", role="dev") for number in range(5)]
    entries, _ = read_tokens(str(file))
    assert [find_record(entries, token) for _, token in made] == [entry for entry, _ in made]
    assert find_record(entries, "ct_nobody") is None


def test_a_missing_file_and_one_without_tokens_are_reported(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """auth-4: with the command that creates a token; a server that nobody can call should not be a surprise."""
    with pytest.raises(BadSetting, match=r"there is no token file; coretools token create --file .* makes it"):
        TokenFileVerifier(str(file))
    create_token(str(file), name="ci", role="dev")
    TokenFileVerifier(str(file))
    assert "nobody can call" not in caplog.text
    revoke_tokens(str(file), "ci")
    TokenFileVerifier(str(file))
    assert "has no token: nobody can call; create one with coretools token create" in caplog.text


async def test_several_tokens_belong_to_one_principal(file: Path) -> None:
    """auth-2: so that one can replace another; all have one role."""
    old, new = created(file), created(file)
    tokens = TokenFileVerifier(str(file))
    assert await tokens.verify(old) == await tokens.verify(new)
    with pytest.raises(InvalidArguments, match="has the role dev already"):
        created(file, role="admin")
    assert len(revoke_tokens(str(file), "ci")) == 2
    assert created(file, role="admin")


@pytest.mark.parametrize("name", ["local", "", "a b", "-x", "x" * 65, "issuer#sub:ada", "a\nb", "é", "deadbeef"])
def test_a_name_that_could_be_taken_for_another_is_refused(file: Path, name: str) -> None:
    """auth-2: no name is `local`, or looks like a principal of an authorization server or like an id."""
    with pytest.raises(InvalidArguments):
        created(file, name)
    assert not file.exists()


def test_the_file_is_private_to_its_owner(file: Path) -> None:
    """auth-3: whatever the umask; no temporary file is left beside it."""
    before = os.umask(0)
    try:
        created(file)
        created(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in file.parent.iterdir()] == [file.name]


WRITER = """
import sys
from coretools.web.auth.hashed_tokens import create_token
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    create_token(sys.argv[1], name=sys.argv[2], role="dev")
"""


def test_concurrent_changes_lose_nothing(file: Path) -> None:
    """auth-3: from several processes, on a file that does not exist yet; readers see whole files only."""
    names = [f"user{number}" for number in range(WRITERS)]
    pipe = subprocess.PIPE
    commands = [[sys.executable, "-c", WRITER, str(file), name, str(EACH)] for name in names]
    writers = [subprocess.Popen(command, cwd=TREE, stdin=pipe, stdout=pipe, text=True) for command in commands]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    counts = [0]
    while any(writer.poll() is None for writer in writers):
        if file.exists():
            counts.append(len(read_tokens(str(file))[0]))
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert counts == sorted(counts)
    entries, _ = read_tokens(str(file))
    assert sorted({entry.name for entry in entries}) == names
    assert len({entry.id for entry in entries}) == WRITERS * EACH


def test_a_change_that_fails_leaves_the_file_as_it_was(file: Path) -> None:
    """auth-3: and no temporary file beside it."""
    created(file)
    before = file.read_bytes()
    with pytest.raises(NotFound, match="no token has this id"):
        revoke_tokens(str(file), "somebody")
    with pytest.raises(BadSetting, match="can't be written"):
        revoke_tokens(str(file.parent / "missing"), "somebody")
    file.chmod(0o640 | stat.S_IWOTH)
    with pytest.raises(BadSetting, match="others may"):
        created(file)
    assert file.read_bytes() == before
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_link_to_the_file_stays_a_link(file: Path) -> None:
    """auth-3: container secrets are links."""
    created(file)
    link = file.parent / "link"
    link.symlink_to(file)
    token = created(link)
    assert link.is_symlink()
    assert find_record(read_tokens(str(link))[0], token) is not None


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o606, 0o604, 0o666, 0o777])
def test_a_file_that_others_may_access_is_refused(file: Path, mode: int) -> None:
    """auth-4: at start, with the command that fixes it."""
    created(file)
    file.chmod(mode)
    with pytest.raises(BadSetting, match="run chmod 600"):
        TokenFileVerifier(str(file))


@needs_root
def test_the_owner_of_the_file_decides_what_its_group_may(file: Path) -> None:
    """auth-4: a group may read a file of root, which is how containers get secrets; another user's file is refused."""
    created(file)
    file.chmod(0o640)
    TokenFileVerifier(str(file))
    os.chown(file, 12345, 12345)
    file.chmod(0o600)
    with pytest.raises(BadSetting, match="belongs to another user"):
        TokenFileVerifier(str(file))
    token = created(file)  # root changes it for the user that the server runs as
    assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (12345, 0o600)
    os.chown(file, 0, 0)
    assert find_record(read_tokens(str(file))[0], token) is not None


def test_a_directory_in_which_others_could_put_another_file_is_refused(file: Path) -> None:
    """auth-4: unless the sticky bit is set, as on /tmp."""
    created(file)
    file.parent.chmod(0o777)
    with pytest.raises(BadSetting, match="run chmod go-w"):
        TokenFileVerifier(str(file))
    file.parent.chmod(0o1777)
    TokenFileVerifier(str(file))


ENTRY: dict[str, Any] = {
    "id": "0123abcd",
    "name": "ci",
    "role": "dev",
    "sha256": "0" * 64,
    "created": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("not JSON", "no token file: JSON"),
        ("[]", "no token file"),
        ("[" * 200_000, "no token file"),
        ('{"version": 2}', "version"),
        ('{"tokens": [], "more": 1}', "more"),
        ({**ENTRY, "sha256": "A" * 64}, "sha256"),
        ({**ENTRY, "sha256": "0" * 63}, "sha256"),
        ({**ENTRY, "token": "ct_x"}, "token"),
        ({**ENTRY, "name": "local"}, "local is whoever"),
        ({**ENTRY, "name": "https://as#sub:x"}, "name"),
        ({**ENTRY, "created": "2026-01-01T00:00:00"}, "created"),
        ({**ENTRY, "expires": "soon"}, "expires"),
        ([ENTRY, ENTRY], "one id"),
        ([ENTRY, {**ENTRY, "id": "00000000", "role": "admin"}], "two roles"),
        (" " * (1024 * 1024 + 1), "larger than 1048576 bytes"),
    ],
    ids=lambda value: str(value)[:30] if not isinstance(value, str) else value[:20],
)
def test_a_malformed_token_file_is_refused(file: Path, content: Any, expected: str) -> None:
    """auth-4: with the reason."""
    if not isinstance(content, str):
        content = json.dumps({"tokens": content if isinstance(content, list) else [content]})
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(BadSetting, match=expected):
        TokenFileVerifier(str(file))


def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    """auth-4: nothing there, a directory, a FIFO that nobody writes."""
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "directory").mkdir(mode=0o700)
    for name in ("missing", "fifo", "directory", "missing/file"):
        with pytest.raises(BadSetting, match=name):
            TokenFileVerifier(str(tmp_path / name))


async def test_a_change_takes_effect_with_the_next_request(file: Path) -> None:
    """auth-5: created, revoked, and created again, by other programs."""
    first = created(file)
    tokens = TokenFileVerifier(str(file))
    second = created(file, "bob")
    assert await tokens.verify(second) == Principal(name="bob", role="dev")
    (gone,) = revoke_tokens(str(file), "bob")
    assert await tokens.verify(second) is None
    assert await tokens.verify(first) is not None
    assert gone.name == "bob"
    revoke_tokens(str(file), read_tokens(str(file))[0][0].id)
    assert await tokens.verify(first) is None
    third = created(file)
    assert await tokens.verify(third) is not None


@pytest.mark.parametrize("fault", ["missing", "broken", "open to others"])
async def test_a_broken_file_lets_nobody_in_until_it_is_repaired(
    file: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """auth-6: the change may have been a revocation; logged once, and not reported to callers."""
    token = created(file)
    tokens = TokenFileVerifier(str(file))
    good = content_of(file)
    assert await tokens.verify(token) is not None
    harm(file, fault)
    for _ in range(3):
        with pytest.raises(Unreachable) as refused:
            await tokens.verify(token)
        assert str(file.parent) not in str(refused.value)
    assert caplog.text.count("nobody has access by the token file") == 1
    mend(file, good)
    assert await tokens.verify(token) is not None


async def test_a_token_expires(file: Path) -> None:
    """auth-7: and lists its expiry beforehand."""
    now = datetime.now(UTC)
    late = created(file, expires=now - timedelta(seconds=1))
    good = created(file, expires=now + timedelta(days=1))
    tokens = TokenFileVerifier(str(file))
    assert await tokens.verify(late) is None
    found = await tokens.verify(good)
    assert found is not None
    assert found.expires_at == pytest.approx((now + timedelta(days=1)).timestamp(), abs=1)


async def test_an_unknown_role_lets_nobody_in(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """auth-7: logged at start; the owner of the token is asked to contact the operator."""
    token = created(file, role="admin")
    tokens = TokenFileVerifier(str(file), roles=("default", "dev"))
    assert "no role admin here" in caplog.text
    with pytest.raises(NotEntitled, match="ask the operator"):
        await tokens.verify(token)
    assert await tokens.verify("ct_nobody") is None


async def test_no_token_is_logged(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """auth-29: valid or invalid, nor its hash."""
    caplog.set_level(logging.DEBUG)
    token = created(file)
    tokens = TokenFileVerifier(str(file), roles=())
    created(file)
    with pytest.raises(NotEntitled):
        await tokens.verify(token)
    await tokens.verify("ct_wrong-one")
    harm(file, "broken")
    with pytest.raises(Unreachable):
        await tokens.verify(token)
    assert caplog.text
    assert [one for one in (token, token_digest(token), "ct_wrong-one") if one in caplog.text] == []


def test_the_file_is_read_without_the_protocol() -> None:
    """auth-8: `coretools token` starts without the modules that only a server needs."""
    code = (
        "import sys, coretools.cli.tokens\n"
        "print([one for one in ('mcp', 'mcp_types', 'starlette', 'httpx2', 'jwt') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=TREE, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
