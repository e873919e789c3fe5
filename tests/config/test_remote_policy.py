"""docs/specs/git-remotes.md: URLs of remotes, and the rules about them."""

import random
from pathlib import Path

import pytest

from coretools.config.policy_schema import parse_policy
from coretools.config.remote_policy import RemoteRule, matching_rule
from coretools.config.remote_urls import InvalidUrl, RemotePattern, RemoteUrl
from coretools.errors import BadSetting

ACCEPTED = {
    "https://github.com/acme/x.git": "https://github.com/acme/x.git",
    "https://GitHub.com./acme/x/": "https://github.com/acme/x",
    "https://ada:token@github.com:443/acme/x": "https://github.com/acme/x",
    "http://10.0.0.5:8080/x": "http://10.0.0.5:8080/x",
    "https://[fd00::1]/x": "https://[fd00::1]/x",
    "https://dev.azure.com/a/My%20Project/_git/r": "https://dev.azure.com/a/My%20Project/_git/r",
    "ssh://git@host:2222/srv/x": "ssh://git@host:2222/srv/x",
    "git@github.com:acme/x.git": "git@github.com:acme/x.git",
    "git://host/x": "git://host/x",
    "/srv/git/x.git": "/srv/git/x.git",
    "file:///srv/git/x.git": "/srv/git/x.git",
}

REFUSED = (
    *("", " ", "origin", "../x", "ext::sh -c x", "fd::3", "ext::https://host/x", "ftp://host/x", "git+ssh://h/x"),
    *("https://host", "https://host/", "https://host/a/../b", "https://host/a//b", "https://host/./a"),
    *("https://host/a%2e%2e/b", "https://host/a%2Fb", "https://host/a%5cb", "https://host/%zz", "https://host/a%"),
    *("https://host/a?b", "https://host/a#b", "https://host/a\\b", "https://ho st/a", "https://0x7f.1/a"),
    *("https://127.1/a", "https://localhost/a", "https://host:0/a", "https://host:99999/a", "https://-x/a"),
    *("ssh://-oProxyCommand=x/a", "ssh://a:b@host/a", "ssh://-x@host/a", "-oProxyCommand=x:a", "host:-x", "host::x"),
    *("git://user@host/x", "file://host/x", "/", "/srv/../etc", "/srv/./x", "https://host/a*", "https://host/a\nb"),
    *("https://host/\u202ex", "x" * 2000, "https://host/a\x00", "user@host:/../x", "host:~x/../y"),
)


def test_a_url_has_one_spelling() -> None:
    """git-remotes-2, git-remotes-3: and contains no password."""
    assert {text: RemoteUrl.parse(text).text for text in ACCEPTED} == ACCEPTED
    for text in ACCEPTED.values():
        assert RemoteUrl.parse(text).text == text
    for text in REFUSED:
        with pytest.raises(InvalidUrl):
            RemoteUrl.parse(text)


def test_what_is_accepted_keeps_its_meaning() -> None:
    """git-remotes-2: parsing what was shown gives the same remote."""
    rng = random.Random(36)
    parts = [*"ab@:/.%*~-?#[] é", "https://", "ssh://", "git://", "file://", "..", "%2e", "%20", ":22", "::"]
    starts = ("https://h", "ssh://a@h", "a@h:", "/", "")
    accepted = 0
    for _ in range(20_000):
        text = rng.choice(starts) + "".join(rng.choices(parts, k=rng.randint(1, 8)))
        try:
            url = RemoteUrl.parse(text)
        except InvalidUrl:
            continue
        accepted += 1
        assert RemoteUrl.parse(url.text) == url, text
        assert ".." not in url.path.split("/")
        assert url.text.isprintable()
    assert accepted > 100


MATCHES = (
    ("https://github.com", "https://github.com/a/b/c", True),
    ("https://github.com/acme/*", "https://github.com/acme/x.git", True),
    ("https://github.com/acme/*", "https://github.com/acme/x/y", False),
    ("https://github.com/acme/**", "https://github.com/acme/x/y", True),
    ("https://github.com/acme/*", "https://github.com/acme", False),
    ("https://github.com/acme/*", "https://github.com.evil.org/acme/x", False),
    ("https://github.com/acme/*", "http://github.com/acme/x", False),
    ("https://github.com/acme/*", "https://github.com:8443/acme/x", False),
    ("https://*.example.com/**", "https://git.example.com/x", True),
    ("https://*.example.com/**", "https://example.com/x", False),
    ("https://*.example.com/**", "https://badexample.com/x", False),
    ("git@host:acme/*", "git@host:acme/x", True),
    ("git@host:acme/*", "ssh://git@host/acme/x", False),
    ("git@host:acme/*", "root@host:acme/x", False),
    ("ssh://host/**", "ssh://root@host/x", True),
    ("/srv/git/*.git", "/srv/git/x.git", True),
    ("/srv/git/*.git", "/srv/git/a/x.git", False),
    ("/srv/git/*.git", "/srv/gitx.git", False),
)


def test_a_rule_matches_what_it_says() -> None:
    """git-remotes-1, git-remotes-2"""
    found = [(rule, url, RemotePattern.parse(rule).matches(RemoteUrl.parse(url))) for rule, url, _ in MATCHES]
    assert found == list(MATCHES)
    first, second = RemoteRule(url="https://host/a/*"), RemoteRule(url="https://host", push=True)
    assert matching_rule((first, second), RemoteUrl.parse("https://host/a/b")) is first
    assert matching_rule((first, second), RemoteUrl.parse("https://host/c/b")) is second


FAULTS = (
    ('url = "relative"', "remote #1: url"),
    ('url = "https://*.com/x"', "two labels"),
    ('url = "https://h/x"\ncredentials = "agent"', "goes with ssh only"),
    ('url = "ssh://h/x"\ncredentials = "token"\ntoken_env = "T"', "goes with https and http only"),
    ('url = "http://h/x"\ncredentials = "helper"', "unencrypted"),
    ('url = "https://h/x"\ncredentials = "token"', "token_env or token_file"),
    ('url = "https://h/x"\ntoken_env = "T"', "token_env or token_file"),
    ('url = "https://h/x"\ncredentials = "helper"\nprincipals = true', "that of one user"),
    ('url = "https://h/x"\nusername = "a:b"\n', "no colon"),
    ('url = "https://h/x"\naddresses = ["x/y"]', "not a network"),
    ('url = "https://h/x"\npsuh = true', "did you mean remote #1.push"),
    ('url = "https://h/x"\ntoken_file = "x"\ncredentials = "token"', "absolute paths"),
    ('url = "https://h/x"\nask = ["clone"]', "ask"),
)


def test_a_rule_that_cannot_work_ends_the_start(tmp_path: Path) -> None:
    """git-remotes-2, git-remotes-3: with the key and what would be valid."""
    for text, message in FAULTS:
        with pytest.raises(BadSetting) as caught:
            parse_policy(f"[[remote]]\n{text}\n".encode(), "policy.toml", {"HOME": str(tmp_path)})
        assert message in str(caught.value), (text, str(caught.value))
    policy = parse_policy(b'[[remote]]\nurl = "https://h/x"\nca_file = "~/ca"\n', "p", {"HOME": "/home/ada"})
    assert policy.remote[0].ca_file == "/home/ada/ca"
