"""Flags and variables as settings; invalid ones are refused by name (docs/specs/workstation.md)."""

import argparse
import re
import sys
from typing import Any

import pytest

from coretools.config.commit_author import Author
from coretools.config.limits import Limits
from coretools.config.options import VARIABLES, add_options, settings_from, with_login_path, with_upstreams
from coretools.config.settings import Asking, Settings
from coretools.errors import BadSetting
from tests.checkout import TREE
from tests.starting import warm


def read(*flags: str, roots: tuple[str, ...] = ("/r",), directory: str = "/work", **environment: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_options(parser, profile="dev", log_level="info")
    return settings_from(parser.parse_args(flags), roots, environment, directory)


def test_a_flag_overrides_its_variable_and_a_variable_the_default() -> None:
    """workstation-13: one precedence for every setting."""
    assert read().profile == "dev"
    assert read(CORETOOLS_PROFILE="read").profile == "read"
    assert read("--profile", "ci", CORETOOLS_PROFILE="read").profile == "ci"
    assert read(CORETOOLS_LOG_LEVEL="error").log_level == "error"
    assert read(CORETOOLS_READ_ONLY="1").read_only
    assert read("--read-only", CORETOOLS_READ_ONLY="0").read_only
    assert not read().read_only
    assert (read().ask, read(CORETOOLS_ASK="defaults").ask) == ("elicitation", "defaults")
    asking = read("--ask", "sampling", "--limit", "ask_seconds=5", CORETOOLS_ASK="prefilled").asking
    assert asking == Asking(mode="sampling", seconds=5.0, trusts_answers=False)


class _RecordedEnvironment(dict[str, str]):
    """An environment that remembers which of its variables were read."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    __getitem__ = __contains__ = get


def test_the_help_lists_every_variable_that_is_read() -> None:
    """workstation-13: none is left out, and none is listed that has no effect."""
    parser, environment = argparse.ArgumentParser(), _RecordedEnvironment()
    add_options(parser, profile="dev", log_level="info")
    settings = settings_from(parser.parse_args([]), (), environment, "/work")
    with_upstreams(with_login_path(settings, environment), environment, None)
    read_names = {name for name in environment.names if name.startswith("CORETOOLS_")}
    words = [sys.executable, "-m", "coretools.servers.workstation", "--help"]
    ended = warm.run(words, cwd=TREE, capture_output=True, text=True, timeout=60)
    # argparse breaks long lines, at hyphens too, of which these names have none.
    assert set(re.findall(r"CORETOOLS_[A-Z_]+", ended.stdout)) == read_names
    assert len(read_names) == len(VARIABLES)


def test_roots_come_from_arguments_then_the_variable_then_the_directory() -> None:
    """workstation-13: the current directory is used only if no root is named."""
    assert read(roots=("/a", "/b:ro")).roots == ("/a", "/b:ro")
    assert read(roots=(), CORETOOLS_ROOTS="/a:ro, /b").roots == ("/a:ro", "/b")
    assert read(roots=()).roots == ("/work",)


def test_lists_and_limits_add_up() -> None:
    """workstation-13: repeatable options add to the variable's items."""
    settings = read("--deny", "*.key", CORETOOLS_DENY="a, b,")
    assert settings.deny == ("a", "b", "*.key")
    assert settings.default_deny
    assert not read("--no-default-deny").default_deny
    assert read("--limit", "run_seconds=5", "--limit", "processes=3").limits == Limits(run_seconds=5.0, processes=3)


@pytest.mark.parametrize(
    ("flags", "environment", "sentence"),
    [
        (["--limit", "run_seconds"], {}, "NAME=VALUE"),
        (["--limit", "run_seconds=0"], {}, "above 0"),
        (["--limit", "run_seconds=nan"], {}, "above 0"),
        (["--limit", "processes=1.5"], {}, "not a number"),
        ([], {"CORETOOLS_LIMITS": "nothing=1"}, "limit nothing"),
        ([], {"CORETOOLS_READ_ONLY": "maybe"}, "CORETOOLS_READ_ONLY=maybe"),
        ([], {"CORETOOLS_LOG_LEVEL": "loud"}, "CORETOOLS_LOG_LEVEL=loud"),
        ([], {"CORETOOLS_ASK": "nobody"}, "CORETOOLS_ASK=nobody"),
        ([], {"CORETOOLS_AUTHOR": "Ada"}, r"CORETOOLS_AUTHOR\): write a name and an address as git does"),
        (["--umask", "8"], {}, "CORETOOLS_UMASK.*octal"),
        ([], {"CORETOOLS_UMASK": "700"}, "CORETOOLS_UMASK.*up to 077"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(flags: list[str], environment: dict[str, str], sentence: str) -> None:
    """workstation-13: at start, never later."""
    with pytest.raises(BadSetting, match=sentence):
        read(*flags, **environment)


@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("CORETOOLS_ROOTS", "/a:/b:ro:/c", "/a,/b:ro,/c"),
        ("CORETOOLS_DENY", "a:*.b", "a,*.b"),
        ("CORETOOLS_LIMITS", "processes=3:run_seconds=5", "processes=3,run_seconds=5"),
        ("CORETOOLS_PASS_ENV", "CI:GOPROXY", "CI,GOPROXY"),
    ],
)
def test_a_list_has_commas_and_one_with_colons_is_refused(name: str, before: str, now: str) -> None:
    """workstation-17: the separator of older versions is refused; the error has a valid form."""
    with pytest.raises(BadSetting, match=re.escape(f"commas between them: {name}={now}")):
        read(roots=(), **{name: before})
    found = read(roots=(), **{name: now})
    chosen = {
        "CORETOOLS_ROOTS": found.roots,
        "CORETOOLS_DENY": found.deny,
        "CORETOOLS_PASS_ENV": found.pass_environment,
    }
    assert chosen.get(name, ()) == tuple(now.split(",")) or name == "CORETOOLS_LIMITS"
    assert (found.limits != Limits()) == (name == "CORETOOLS_LIMITS")


def test_an_author_and_a_umask_come_from_a_flag_or_a_variable() -> None:
    """workstation-13, workstation-18."""
    assert read().author is None
    assert read().umask is None
    assert read(CORETOOLS_AUTHOR="Ada <a@x>").author == Author("Ada", "a@x")
    assert read("--author", "Bob <b@x>", CORETOOLS_AUTHOR="Ada <a@x>").author == Author("Bob", "b@x")
    assert read("--umask", "007", CORETOOLS_UMASK="022").umask == 0o007


@pytest.mark.parametrize(
    ("directory", "home"), [("/", "/root"), ("/home/ada", "/home/ada"), ("/home/ada/", "/home/ada")]
)
def test_the_whole_file_system_and_the_home_directory_need_to_be_named(directory: str, home: str) -> None:
    """workstation-13: a client that starts servers there must name a root."""
    with pytest.raises(BadSetting, match="no root named"):
        read(roots=(), directory=directory, HOME=home)
    assert read(roots=("/home/ada",), HOME="/home/ada").roots == ("/home/ada",)
