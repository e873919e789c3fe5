"""Deny globs as text. test_escapes tests that they hold for every path to a file."""

import random

import pytest

from coretools.errors import BadSetting
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules


def test_a_glob_covers_the_paths_it_matches() -> None:
    """roots-7: at any depth unless the glob begins with a slash, also beneath a covered directory; the last match
    decides."""
    for globs, path, covering in (
        ([".env"], ".env", ".env"),
        ([".env"], "deep/down/.env", ".env"),
        ([".env"], ".env/below", ".env"),
        ([".env"], ".envy", None),
        ([".env"], "x.env", None),
        (["/secret"], "secret/x", "/secret"),
        (["/secret"], "a/secret", None),
        (["*.pem"], "a/b.pem", "*.pem"),
        (["*.pem"], "a.pem/b", "*.pem"),
        (["a?c"], "abc", "a?c"),
        (["a?c"], "a/c", None),
        (["a*c"], "a/c", None),
        (["a[bx]c"], "axc", "a[bx]c"),
        (["a[!b]c"], "abc", None),
        (["a[!b]c"], "a/c", None),
        (["a[b-d]c"], "acc", "a[b-d]c"),
        (["a[]c"], "a[]c", "a[]c"),
        (["a+(b)"], "a+(b)", "a+(b)"),
        ([".git/hooks/**"], ".git/hooks", None),
        ([".git/hooks/**"], ".git/hooks/a/b", ".git/hooks/**"),
        ([".git/hooks/**"], "module/.git/hooks/a", ".git/hooks/**"),
        (["a/**/z"], "a/z", "a/**/z"),
        (["a/**/z"], "a/b/c/z", "a/**/z"),
        (["a/**/z"], "a/b/zz", None),
        (["**/z"], "z", "**/z"),
        (["*"], "anything", "*"),
        (["**"], "anything/else", "**"),
        ([".env.*", "!.env.example"], ".env.example", None),
        ([".env.*", "!.env.example"], ".env.local", ".env.*"),
        (["!.env.example", ".env.*"], ".env.example", ".env.*"),
        ([".ssh", "!*.pub"], ".ssh/id.pub", ".ssh"),
        ([".env"], ".ENV", ".env"),
        ([".git/config"], ".Git/CONFIG", ".git/config"),
        (["a\nb"], "a\nb", "a\nb"),
        ([], "anything", None),
        (["x"], ".", None),
    ):
        assert DenyRules(globs).denying_glob(path) == covering, (globs, path, covering)


@pytest.mark.parametrize(
    ("path", "is_closed"),
    [
        (".env", True),
        ("app/.env.production", True),
        (".env.example", False),
        ("certs/server.pem", True),
        (".aws/credentials", True),
        (".docker/config.json", True),
        (".npmrc", True),
        ("home/.ssh/config", True),
        ("id_rsa", True),
        ("id_ed25519.pub", False),
        ("id_generator.py", False),
        (".git/config", True),
        (".git/hooks/pre-commit", True),
        (".git/modules/sub/config", True),
        (".git/HEAD", False),
        (".gitignore", False),
        (".github/workflows/ci.yml", False),
        ("src/environment.py", False),
        ("keys.py", False),
        ("tests/hooks/config", False),
    ],
)
def test_the_default_closes_secrets_and_leaves_code_alone(path: str, is_closed: bool) -> None:
    """roots-7: by name, or by content."""
    rules = DenyRules(DEFAULT_DENY)
    assert (rules.denying_glob(path) is not None or bool(rules.secret_format(path))) is is_closed


@pytest.mark.parametrize(
    ("globs", "path", "kind", "covering"),
    [
        ([], ".env", "environment", None),
        (["!.env"], ".env", "", None),
        (["!.env"], "a/.env", "", None),
        (["!/.env"], "a/.env", "environment", None),
        (["!*.pem"], "a/cert.pem", "", None),
        (["!*.pem", "/a/*"], "a/cert.pem", "key", "/a/*"),
        (["*.pem", "!*.pem"], "a/cert.pem", "", None),
        (["*.pem"], "a/cert.pem", "key", "*.pem"),
        (["!a"], "a/cert.pem", "key", None),
    ],
)
def test_a_glob_decides_before_the_content_does(globs: list[str], path: str, kind: str, covering: str | None) -> None:
    """roots-7: `--deny GLOB` closes by name, `!GLOB` opens whatever the content."""
    rules = DenyRules(globs)
    assert rules.secret_format(path) == kind
    assert rules.denying_glob(path) == covering


def test_without_the_default_no_content_closes_anything() -> None:
    """roots-7, secret-files-7: with `--no-default-deny`."""
    rules = DenyRules([".secret"], by_content=False)
    assert rules.secret_format(".env") == ""
    assert rules.name_dependent_glob(".docker") is None
    assert rules.denying_glob(".secret") == ".secret"


@pytest.mark.parametrize(
    ("glob", "directory", "hangs"),
    [
        (".git/config", ".git", True),
        (".git/config", "module/.git", True),
        (".git/config", "dir", False),
        (".git/hooks/**", ".git/hooks", True),
        ("/top/secret", "top", True),
        ("/top/secret", "a/top", False),
        ("a/**/z", "a/b/c", True),
        (".env", "dir", False),
        ("!.git/config", ".git", False),
    ],
)
def test_a_glob_depends_on_the_directories_it_names(glob: str, directory: str, hangs: bool) -> None:
    """roots-8: renaming one of these directories would open what the glob denies."""
    assert (DenyRules([glob]).name_dependent_glob(directory) is not None) is hangs


@pytest.mark.parametrize("glob", ["", "/", "!", "../x", "a/../b", "[z-a]"])
def test_a_glob_that_names_nothing_fails_at_start(glob: str) -> None:
    """roots-7"""
    with pytest.raises(BadSetting):
        DenyRules([glob])


def test_whatever_lies_beneath_a_closed_path_is_closed() -> None:
    """roots-7: random globs, random paths."""
    for seed in range(100):
        chance = random.Random(seed)
        parts = ["a", "b", "*", "**", "?", "a*", "[ab]", "[!a]"]
        globs = ["/".join(chance.choice(parts) for _ in range(chance.randint(1, 3))) for _ in range(3)]
        rules = DenyRules([*globs, f"!{globs[0]}"] if chance.random() < 0.3 else globs)
        for _ in range(50):
            path = "/".join(chance.choice(["a", "b", "ab", "c"]) for _ in range(chance.randint(1, 5)))
            if rules.denying_glob(path) is not None:
                assert rules.denying_glob(f"{path}/c") is not None, (globs, path)
                assert rules.denying_glob(path.upper()) is not None, (globs, path)
