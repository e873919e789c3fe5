"""git's configuration grammar, and which settings are not applied."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from coretools.errors import GitRefused
from coretools.roots.git_config import Setting, parse
from coretools.tools.git.repository.policy import FIXED_SETTINGS, external_overrides, git_policy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("[a]\nb = c\n", [("a.b", "c")], id="plain"),
        pytest.param("[a]\nb", [("a.b", None)], id="no value, no newline at the end"),
        pytest.param("[A]B=C", [("a.b", "C")], id="case, and a key on the header's line"),
        pytest.param('[a "B.c d"]\nE = f', [("a.B.c d.e", "f")], id="subsection keeps its case"),
        pytest.param("[a.B]\nc = d", [("a.b.c", "d")], id="old spelling of a subsection"),
        pytest.param('[a "x\\"y\\\\z"]\nb = c', [('a.x"y\\z.b', "c")], id="escapes in a subsection"),
        pytest.param("[a]\nb = c ; no\n# no\n; no\n", [("a.b", "c")], id="comments"),
        pytest.param('[a]\nb = " c ; d "  \n', [("a.b", " c ; d ")], id="quotes keep blanks"),
        pytest.param("[a]\nb = c\\\n d\n", [("a.b", "c d")], id="a line goes on"),
        pytest.param('[a]\nb = x\\ty\\nz\\\\\\"\n', [("a.b", 'x\ty\nz\\"')], id="escapes in a value"),
        pytest.param("\ufeff[a]\r\nb = c\r\n", [("a.b", "c")], id="byte order mark and carriage returns"),
        pytest.param("[a]\nb = 1\nb = 2\n", [("a.b", "1"), ("a.b", "2")], id="twice"),
        pytest.param("", [], id="empty"),
    ],
)
def test_a_configuration_reads_as_git_reads_it(text: str, expected: list[tuple[str, str | None]]) -> None:
    """git-17: the reader agrees with git."""
    assert parse(text.encode(), "config") == [Setting(key, value) for key, value in expected]


@pytest.mark.parametrize(
    "text",
    [
        "[a\nb=c",
        "b = c",
        "[a]\nb c",
        "[a]\n1 = 2",
        '[a]\nb = "c',
        "[a]\nb = \\q",
        '[a "b\n"]',
        "[a b]",
        "[]\nb=c",
        "[a]\0",
    ],
)
def test_what_git_can_not_read_is_refused(text: str) -> None:
    """git-17: a file that git rejects is rejected here."""
    with pytest.raises(GitRefused, match="line"):
        parse(text.encode(), "config")


def any_configuration(chosen: random.Random) -> bytes:
    """A file that is mostly in the grammar, with random faults."""
    headers = ["[a]", '[filter "X y"]', "[c.D]", '[d "\\\\\\"z"]', "[Diff] external = x"]
    values = ["v", " ", "\t", '"q ; #"', ";", "#c", "\\\n ", "\\n", '\\"', "é", "=", "\x0b", "]", "[a]", "\r", '"']
    lines = [chosen.choice(headers)]
    for _ in range(chosen.randrange(1, 6)):
        value = "".join(chosen.choice(values) for _ in range(chosen.randrange(0, 5)))
        key = chosen.choice(["clean", "B-2", "process"]) + chosen.choice(["=", " = ", "\t=", ""])
        lines.append(chosen.choice([key + value, key, "# " + value, "  " + key + value, chosen.choice(headers)]))
    return chosen.choice(["\n", "\r\n"]).join(lines).encode() + chosen.choice([b"", b"\n"])


def test_random_configurations_read_as_git_reads_them(tmp_path: Path) -> None:
    """git-17: either both read the same settings, or both reject the file."""
    for seed in range(200):
        file = tmp_path / "config"
        file.write_bytes(any_configuration(random.Random(seed)))
        command = ["git", "config", "--file", str(file), "--list", "-z"]
        listed = subprocess.run(command, capture_output=True, env={"PATH": os.environ["PATH"]})
        if listed.returncode != 0:
            with pytest.raises(GitRefused):
                parse(file.read_bytes(), "config")
            return
        records = [
            record.partition("\n") for record in listed.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]
        ]
        expected = [Setting(key, value if newline else None) for key, newline, value in records]
        assert parse(file.read_bytes(), "config") == expected, seed


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("filter.x.clean", "filter.x.clean="),
        ("filter.X y.process", "filter.X y.process="),
        ("filter.x.required", "filter.x.required=false"),
        ("diff.x.textconv", "diff.x.textconv="),
        ("diff.x.command", "diff.x.command="),
        ("merge.x.driver", "merge.x.driver=false"),
        ("gpg.x.program", "gpg.x.program=false"),
        ("submodule.x.update", "submodule.x.update=none"),
        ("remote.x.uploadpack", "remote.x.uploadpack=false"),
        ("remote.x.vcs", "remote.x.vcs="),
        ("credential.https://x.helper", "credential.https://x.helper="),
        ("hook.x.command", "hook.x.enabled=false"),
        ("hook.x.event", "hook.x.enabled=false"),
        ("section-of-tomorrow.x.command", "section-of-tomorrow.x.command="),
    ],
)
def test_a_key_with_a_free_name_is_overridden_by_its_exact_name(key: str, word: str) -> None:
    """git-12: keys that cannot be listed in advance are found and switched off."""
    assert git_policy([Setting(key, "program")], "config").overrides == ("-c", word)


@pytest.mark.parametrize("key", ["filter.a=b.clean", "filter.a\x1bb.clean", "filter..clean", "filter.\udcff.clean"])
def test_a_key_that_can_not_be_overridden_exactly_closes_the_repository(key: str) -> None:
    """git-12: git does not start if a key cannot be switched off."""
    with pytest.raises(GitRefused, match="can't be overridden"):
        git_policy([Setting(key, "program")], "config")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], (), id="nothing"),
        pytest.param(["http.https://x/.extraheader", "url.https://t@x/.insteadof"], (), id="credentials"),
        pytest.param(["core.worktree", "safe.directory", "alias.clean"], (), id="without effect"),
        pytest.param(["core.fsmonitor", "gpg.program"], ("-c", "gpg.program=false"), id="fixed"),
        pytest.param(["filter.X y.clean"], ("-c", "filter.X y.clean="), id="free name"),
        pytest.param(["hook.h.command", "hook.h.event"], ("-c", "hook.h.enabled=false"), id="hook"),
        pytest.param(["filter.a=b.clean"], None, id="not exact"),
        pytest.param(["include.path"], None, id="include"),
        pytest.param(["includeif.gitdir:x.path"], None, id="conditional include"),
        pytest.param(["user.email"], None, id="shown in a commit"),
        pytest.param(["branch.main.merge"], None, id="shown in a status"),
        pytest.param(["core.autocrlf"], None, id="with effect"),
        pytest.param(["coretools.stdin"], None, id="standard input"),
        pytest.param(["section-of-tomorrow.key"], None, id="unknown"),
        pytest.param(["http"], None, id="no section"),
        pytest.param(["clean"], None, id="no section, a word for programs"),
        pytest.param(["hook"], None, id="no section, hook"),
        pytest.param([f"filter.{number}.clean" for number in range(1001)], None, id="too many"),
    ],
)
def test_keys_outside_the_roots_come_to_nothing_or_close_the_repository(
    names: list[str], expected: tuple[str, ...] | None
) -> None:
    """git-26: judged by their names alone."""
    assert external_overrides(names) == expected


def test_ordinary_settings_are_left_alone() -> None:
    """git-15: nothing is reported for an honest repository."""
    ordinary = [
        ("core.bare", "false"),
        ("remote.origin.url", "https://example.org/x"),
        ("branch.main.remote", "origin"),
    ]
    ordinary += [("core.fsmonitor", "false"), ("alias.clean", "!rm"), ("user.name", "Ada")]
    policy = git_policy([Setting(key, value) for key, value in ordinary], "config")
    assert (policy.overrides, policy.not_used) == ((), ())


def test_settings_that_configure_a_program_are_named() -> None:
    """git-15: the answer reports what a repository tried."""
    tried = [("core.fsmonitor", "x"), ("filter.f.clean", "x"), ("core.hookspath", "x"), ("submodule.s.update", "!x")]
    policy = git_policy([Setting(key, value) for key, value in tried], "config")
    assert policy.not_used == ("core.fsmonitor", "core.hookspath", "filter.f.clean", "submodule.s.update")


def test_no_fixed_setting_is_written_twice() -> None:
    """git-12: each is one argument of the command."""
    assert len({key.lower() for key in FIXED_SETTINGS}) == len(FIXED_SETTINGS)


def test_names_that_a_repository_made_up_do_not_fill_the_answer() -> None:
    """git-27: ignored names are reported, with a limit for each name and for the list."""
    made_up = [(f"filter.f{number}{'x' * 6_000}.clean", "y") for number in range(200)]
    not_used = git_policy([Setting(key, value) for key, value in made_up], ".git/config").not_used
    assert len(not_used) == 50
    assert all(len(name) <= 123 for name in not_used)
