"""`coretools token`, as an operator types it (docs/specs/authentication.md)."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coretools.cli.main import main
from coretools.cli.tokens import FILE_VARIABLE, expiry
from coretools.config.commit_author import Author
from coretools.errors import BadSetting, InvalidArguments
from coretools.web.auth.hashed_tokens import find_record, read_tokens
from tests.checkout import TREE
from tests.starting import warm
from tests.variables import variables

Captured = pytest.CaptureFixture[str]
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    with variables(**{FILE_VARIABLE: None}):
        yield str(tmp_path / "tokens.json")


def typed(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(("token", *words))
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_create_prints_the_token_alone(file: str, capsys: Captured) -> None:
    """auth-8: scripts can use it as it is; everything else is on standard error."""
    assert typed("create", "--name", "ci", "--role", "dev", "--expires", "90d", "--file", file) == 0
    captured = capsys.readouterr()
    assert re.fullmatch(r"ct_[A-Za-z0-9_-]{43}\n", captured.out)
    found = find_record(read_tokens(file)[0], captured.out.strip())
    assert found is not None
    assert (found.name, found.role, (found.expires or NOW) - found.created) == ("ci", "dev", expiry("90d", NOW) - NOW)
    assert captured.err.startswith(f"coretools: token {found.id} of ci, role dev, until ")
    assert captured.out.strip() not in captured.err


def test_a_token_may_name_the_commit_author(file: str, capsys: Captured) -> None:
    """auth-31."""
    assert typed("create", "--name", "ci", "--author", " CI <ci@example.com>", "--file", file) == 0
    (entry,), _ = read_tokens(file)
    assert entry.commits_as == Author("CI", "ci@example.com")
    assert typed("list", "--file", file) == 0
    assert capsys.readouterr().out.endswith(" CI <ci@example.com>\n")
    assert typed("create", "--name", "ci", "--author", "CI", "--file", file) == 78
    assert "--author: write a name and an address as git does" in capsys.readouterr().err
    text = Path(file).read_text().replace("CI <ci", "C\\nI <ci")
    Path(file).write_text(text)
    with pytest.raises(BadSetting, match=r"tokens\.0\.author"):
        read_tokens(file)


def test_list_shows_owners_and_no_token(file: str, capsys: Captured) -> None:
    """auth-8: nor their hashes."""
    tokens = []
    for name in ("ci", "bob"):
        assert typed("create", "--name", name, "--file", file) == 0
        tokens.append(capsys.readouterr().out.strip())
    entries, _ = read_tokens(file)
    assert typed("list", "--file", file) == 0
    table = capsys.readouterr().out
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [[one.id, one.name, "default"] for one in entries]
    assert table.count("never") == 2
    assert typed("list", "--json", "--file", file) == 0
    listed = capsys.readouterr().out
    assert [one["name"] for one in json.loads(listed)] == ["ci", "bob"]
    hidden = [*tokens, *(entry.sha256 for entry in entries)]
    assert [one for one in hidden if one in table or one in listed] == []


def test_revoke_takes_an_id_or_a_name(file: str, capsys: Captured) -> None:
    """auth-8: 66 if there is none."""
    for name in ("ci", "ci", "bob"):
        typed("create", "--name", name, "--file", file)
    first = read_tokens(file)[0][0]
    assert typed("revoke", first.id, "--file", file) == 0
    assert f"revoked {first.id} of ci\n" in capsys.readouterr().err
    assert typed("revoke", "ci", "--file", file) == 0
    assert [entry.name for entry in read_tokens(file)[0]] == ["bob"]
    assert typed("revoke", "ci", "--file", file) == 66
    assert "no token has this id" in capsys.readouterr().err
    assert typed("revoke", "bob", "--file", file) == 0
    assert typed("list", "--file", file) == 0
    assert capsys.readouterr().out == ""


def test_the_variable_of_the_server_names_the_file(file: str, capsys: Captured) -> None:
    """auth-8: the flag overrides it; one of the two is required."""
    assert typed("list") == 78
    assert f"--file FILE or {FILE_VARIABLE}" in capsys.readouterr().err
    with variables(**{FILE_VARIABLE: file}):
        assert typed("create", "--name", "ci") == 0
        assert typed("create", "--name", "ci", "--file", f"{file}.other") == 0
    assert len(read_tokens(file)[0]) == len(read_tokens(f"{file}.other")[0]) == 1


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("create",), 64, "the following arguments are required: --name"),
        (("create", "--name", "a b"), 64, "name: at most 64 of letters"),
        (("create", "--name", "ci", "--role", ""), 64, "role: at most 64 of letters"),
        (("create", "--name", "ci", "--expires", "soon"), 64, "such as 90d"),
        (("create", "--name", "ci", "--expires", "0d"), 64, "such as 90d"),
        (("create", "--name", "ci", "--expires", "999999w"), 64, "beyond the last date"),
        (("list",), 78, "there is no token file"),
        (("revoke", "ci"), 78, "can't be written"),
        ((), 64, "the following arguments are required: ACTION"),
    ],
)
def test_errors_are_reported_in_one_sentence(
    file: str, capsys: Captured, words: tuple[str, ...], code: int, expected: str
) -> None:
    """auth-8: nothing is printed that a script could take for a token, and no token is created."""
    assert typed(*words, *(("--file", file) if words else ())) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert not os.path.exists(file)


def test_a_token_that_could_not_be_printed_is_revoked(file: str) -> None:
    """auth-8: if standard output is closed or full."""
    command = [sys.executable, "-m", "coretools.cli.main", "token", "create", "--name", "ci", "--file", file]
    with open("/dev/full", "w") as full:
        done = warm.run(command, cwd=TREE, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 74
    assert "is revoked, because it could not be printed" in done.stderr
    assert read_tokens(file)[0] == ()


def test_a_duration_has_a_unit() -> None:
    """auth-8: minutes, hours, days, weeks."""
    assert expiry("5m", NOW).isoformat() == "2026-01-31T12:05:00+00:00"
    assert expiry("12h", NOW).isoformat() == "2026-02-01T00:00:00+00:00"
    assert expiry("1d", NOW).isoformat() == "2026-02-01T12:00:00+00:00"
    assert expiry("2w", NOW).isoformat() == "2026-02-14T12:00:00+00:00"
    for wrong in ("", "d", "1", "-1d", "1.5d", "1y", " 1d", "1d "):
        with pytest.raises(InvalidArguments):
            expiry(wrong, NOW)
