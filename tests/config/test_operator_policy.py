"""The policy file: where it is found, what it may contain, and who could have written it (docs/specs/policy.md)."""

import argparse
import os
from pathlib import Path

import pytest

from coretools.config.operator_policy import (
    CatalogPolicy,
    CommandPolicy,
    CommandRule,
    ConfinementPolicy,
    FilePolicy,
    GitOptions,
    OperatorPolicy,
    ToolPolicy,
    network_text,
)
from coretools.config.options import add_options, settings_from
from coretools.config.policy_file import policy_path, read_policy
from coretools.config.policy_schema import parse_policy
from coretools.config.settings import Settings
from coretools.errors import BadSetting

WHOLE = """
[commands]
default = "deny"
opaque = "ask"
[[commands.rule]]
program = "git"
arguments = ["status", "**"]
verdict = "allow"
reason = "reads only"
[[commands.rule]]
program = "/usr/bin/rm"
verdict = "deny"
[tools]
ask = ["delete_file", "git_*"]
trusts_answers = true
[catalog]
sets = ["git", "search"]
only = ["git_*", "search_text"]
without = ["git_commit"]
promote_read_only = true
resources_as_tools = true
prompts_as_tools = true
[confinement]
require = "landlock"
allow_unconfined = true
network = "allow"
readable = ["/opt/sdk", "~/.cache/x/"]
writable = ["~/out"]
memory_bytes = 1_000_000_000
file_bytes = 5
processes = 64
[files]
editor_settings = "allow"
syntax_errors = "deny"
[git]
above = true
[environment]
pass = ["CI", "GOFLAGS"]
[output]
redact = true
"""


def parsed(text: str) -> OperatorPolicy:
    return parse_policy(text.encode(), "policy.toml", {"HOME": "/home/ada"})


def settings(*flags: str, roots: tuple[str, ...] = ("/r",), **environment: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_options(parser, profile="dev", log_level="info")
    return settings_from(parser.parse_args(flags), roots, environment, "/work")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    directory = tmp_path / "etc"
    directory.mkdir(mode=0o755)
    path = directory / "policy.toml"
    path.write_text('[commands]\ndefault = "deny"\n')
    path.chmod(0o644)
    return path


def test_every_key_of_the_file_is_used() -> None:
    """policy-13: none is ignored."""
    assert parsed(WHOLE) == OperatorPolicy(
        commands=CommandPolicy(
            default="deny",
            opaque="ask",
            rule=(
                CommandRule(program="git", arguments=("status", "**"), verdict="allow", reason="reads only"),
                CommandRule(program="/usr/bin/rm", verdict="deny"),
            ),
        ),
        tools=ToolPolicy(ask=("delete_file", "git_*"), trusts_answers=True),
        catalog=CatalogPolicy(
            sets=("git", "search"),
            only=("git_*", "search_text"),
            without=("git_commit",),
            promote_read_only=True,
            resources_as_tools=True,
            prompts_as_tools=True,
        ),
        confinement=ConfinementPolicy(
            require="landlock",
            allow_unconfined=True,
            network="allow",
            readable=("/opt/sdk", "/home/ada/.cache/x"),
            writable=("/home/ada/out",),
            memory_bytes=1_000_000_000,
            file_bytes=5,
            processes=64,
        ),
        files=FilePolicy(editor_settings="allow", syntax_errors="deny"),
        git=GitOptions(above=True),
        environment_pass=("CI", "GOFLAGS"),
        redact_output=True,
        source="policy.toml",
    )


def test_an_empty_file_means_the_defaults() -> None:
    """policy-13: they are defined once."""
    assert parsed("") == OperatorPolicy(source="policy.toml")
    assert settings().policy == OperatorPolicy()


def test_unknown_keys_and_wrong_types_are_errors_by_name() -> None:
    """policy-14: the table, the key, and a valid value."""
    rule = '[[commands.rule]]\nprogram = "x"\nverdict = "deny"\n'
    for text, sentence in (
        ("[comands]", r" comands: unknown key; did you mean commands\? \(known here: "),
        ('[commands]\ndefalt = "deny"', r" commands.defalt: unknown key; did you mean commands.default\?"),
        ("[commands]\nqqq = 1", r" commands.qqq: unknown key \(known here: default, opaque, rule\)$"),
        ('[[commands.rules]]\nprogram = "x"', r" commands.rules: unknown key; did you mean commands.rule\?"),
        (f"{rule}{rule}args = []", r" commands.rule #2.args: unknown key; did you mean commands.rule #2.arguments\?"),
        ("default = 'deny'", r" default: unknown key; did you mean commands.default\?"),
        ("[tool]", r" tool: unknown key; did you mean tools\?"),
        ('[tools]\nasks = ["x"]', r" tools.asks: unknown key; did you mean tools.ask\?"),
        ('[tools]\nask = "x"', r" tools.ask: must be a list, such as"),
        ('[tools]\ntrusts_answers = "yes"', r" tools.trusts_answers: must be true or false"),
        ("[tools]\nask = [1979-05-27]", r" tools.ask #1: must be text"),
        ("[offer]\nwithout = []", r" offer: unknown key; the table \[offer\] is now \[catalog\]$"),
        ("[catalog]\npromote = true", r" catalog.promote: unknown key"),
        ('[catalog]\nwithout = "x"', r" catalog.without: must be a list"),
        ("[catalog]\nonly = []", r" catalog: only = \[\] would offer nothing"),
        ("[confinement]\nnet = true", r" confinement.net: unknown key; did you mean confinement.network\?"),
        ("[environment]\npas = []", r" environment.pas: unknown key; did you mean environment.pass\?"),
        ("[output]\nredacted = true", r" output.redacted: unknown key; did you mean output.redact\?"),
        ('[commands]\ndefault = "Deny"', r" commands.default: 'Deny' is not valid; choose 'allow', 'ask' or 'deny'"),
        ("[commands]\ndefault = true", r" commands.default: 'True' is not valid; choose 'allow'"),
        ("[commands]\nrule = 5", r" commands.rule: must be a list"),
        ("[commands]\nrule = [5]", r" commands.rule #1: must be a table"),
        ("commands = 5", r" commands: must be a table"),
        (
            "[tools]\nask = 5\n[output]\nredact = 1",
            r"ask: must be a list.*; output.redact: must be true or",
        ),
        ('[[commands.rule]]\nverdict = "deny"', r" commands.rule #1.program: is missing"),
        ('[[commands.rule]]\nprogram = ""\nverdict = "deny"', r" commands.rule #1: program is empty; name one"),
        ('[[commands.rule]]\nprogram = "x"', r" commands.rule #1.verdict: is missing; choose 'allow', 'ask', 'deny'"),
        ('[[commands.rule]]\nprogram = "git push"\nverdict = "deny"', r"one word"),
        ('[[commands.rule]]\nprogram = "./x"\nverdict = "deny"', r"a name, or an absolute path"),
        ('[[commands.rule]]\nprogram = "/a/../b"\nverdict = "deny"', r"a name, or an absolute path"),
        (f'{rule}arguments = "y"', r" commands.rule #1.arguments: must be a list"),
        (f"{rule}arguments = [5]", r" commands.rule #1.arguments #1: must be text"),
        (f'{rule}arguments = ["**", "y"]', r'"\*\*" before its end'),
        (f'{rule}arguments = ["y\\u0000"]', r" commands.rule #1.arguments #1: text must not contain a NUL character"),
        ('[confinement]\nrequire = "strong"', r"require: 'strong' is not valid; choose 'full', 'landlock' or 'none'"),
        ('[confinement]\nallow_unconfined = "yes"', r"allow_unconfined: must be true or false"),
        ('[confinement]\nreadable = ["relative"]', r" confinement.readable: 'relative': write absolute paths"),
        ("[confinement]\nmemory_bytes = 0", r" confinement: memory_bytes must be above 0"),
        ("[confinement]\nprocesses = true", r" confinement.processes: must be a whole number"),
        ("[confinement]\nfile_bytes = 1.5", r" confinement.file_bytes: must be a whole number"),
        (f"[confinement]\nfile_bytes = {'1' * 5_000}", r"not valid TOML"),
        (f"[confinement]\nfile_bytes = 0x{'f' * 5_000}", r" confinement.file_bytes: integers of TOML have 64 bits"),
        (f"[tools]\nask = {'[' * 200}{']' * 200}", r" tools.ask #1: tables and lists are nested more than 32 levels"),
        ("\n".join(f"k{number} = 1" for number in range(5_000)), r"; k9: unknown key .*; and 4990 more$"),
        ("[commands", r"not valid TOML"),
        ("x = " + "[" * 5_000, r"not valid TOML"),
    ):
        with pytest.raises(BadSetting, match=sentence) as refused:
            parsed(text)
        assert str(refused.value).startswith("policy.toml: "), (text, sentence)


def test_the_flag_overrides_the_variable_and_both_the_default_path(tmp_path: Path) -> None:
    """policy-13: XDG_CONFIG_HOME, else ~/.config; only what exists there."""
    usual = tmp_path / "coretools" / "policy.toml"
    here = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert policy_path(None, here) is None
    usual.parent.mkdir()
    usual.write_text("")
    assert policy_path(None, here) == str(usual)
    assert policy_path(None, {**here, "CORETOOLS_POLICY": "/v.toml"}) == "/v.toml"
    assert policy_path("/f.toml", {**here, "CORETOOLS_POLICY": "/v.toml"}) == "/f.toml"
    assert policy_path("~/f.toml", {"HOME": "/home/ada"}) == "/home/ada/f.toml"
    assert policy_path(None, {"XDG_CONFIG_HOME": "relative"}) is None
    home = tmp_path / "home"
    (home / ".config").mkdir(parents=True)
    (home / ".config" / "coretools").symlink_to(usual.parent)
    assert policy_path(None, {"HOME": str(home)}) == str(home / ".config" / "coretools" / "policy.toml")


def test_the_file_is_a_setting_that_flags_override(file: Path, tmp_path: Path) -> None:
    """policy-16: the flag, then the variable, then the file."""
    file.write_text(WHOLE)
    flag = f"--policy={file}"
    home = str(tmp_path)
    read = settings(flag, HOME=home)
    assert (read.policy.confinement.network, read.policy.confinement.require) == ("allow", "landlock")
    assert (read.policy.redact_output, read.redact_output, read.policy.source) == (True, True, str(file))
    assert read.pass_environment == ("CI", "GOFLAGS")
    changed = settings(
        flag, "--network=deny", "--require-tier=full", "--pass-env=X", HOME=home, CORETOOLS_ALLOW_UNCONFINED="0"
    )
    confinement = changed.policy.confinement
    assert (confinement.network, confinement.require, confinement.allow_unconfined) == ("deny", "full", False)
    assert changed.pass_environment == ("CI", "GOFLAGS", "X")
    assert not settings(flag, HOME=home, CORETOOLS_REDACT_OUTPUT="no").redact_output
    assert settings("--allow-unconfined").policy.confinement.allow_unconfined
    assert read.policy.files.changes_settings
    assert not settings(flag, HOME=home, CORETOOLS_ALLOW_EDITOR_SETTINGS="0").policy.files.changes_settings
    assert settings("--allow-editor-settings").policy.files.changes_settings
    assert read.policy.files.refuses_syntax_errors
    assert not settings(flag, HOME=home, CORETOOLS_REFUSE_SYNTAX_ERRORS="0").policy.files.refuses_syntax_errors
    assert settings("--refuse-syntax-errors").policy.files.refuses_syntax_errors
    assert read.policy.git.above
    assert not settings(flag, HOME=home, CORETOOLS_GIT_ABOVE="0").policy.git.above
    assert settings("--git-above").policy.git.above
    assert settings(CORETOOLS_NETWORK="allow").policy.confinement.network == "allow"
    with pytest.raises(BadSetting, match="CORETOOLS_NETWORK=yes: choose allow or deny"):
        settings(CORETOOLS_NETWORK="yes")


@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("true", "allow"),
        ("false", "deny"),
        ("'allow'", "allow"),
        ("[]", "deny"),
        ("['pypi', 'GitHub.com']", ("pypi", "GitHub.com")),
        ("'pypi'", 'must be true, false, or a list of hosts, such as \\["pypi", "github.com"\\]'),
        ("1", "must be true, false, or a list"),
        ("['pypi', 1]", "must be true, false, or a list"),
        ("['pipy']", "'pipy': no set of this name; did you mean pypi"),
        ("['127.1']", "not an address in its usual spelling"),
    ],
)
def test_the_network_is_a_switch_or_a_list_of_hosts(file: Path, text: str, access: str | tuple[str, ...]) -> None:
    """network-1, network-15: in the file."""
    file.write_text(f"[confinement]\nnetwork = {text}\n")
    if access in ("allow", "deny") or isinstance(access, tuple):
        assert settings(f"--policy={file}", HOME="/").policy.confinement.network == access
        return
    with pytest.raises(BadSetting, match=f"confinement.network: .*{access}"):
        settings(f"--policy={file}", HOME="/")


def test_a_list_of_hosts_can_be_given_by_flag_and_variable() -> None:
    """network-15: with commas; the flag wins."""
    hosts = settings(CORETOOLS_NETWORK="pypi, example.com:8443").policy.confinement.network
    assert hosts == ("pypi", "example.com:8443")
    assert network_text(hosts) == "pypi,example.com:8443"
    assert settings("--network=npm", CORETOOLS_NETWORK="pypi").policy.confinement.network == ("npm",)
    for words, variables in ((["--network=pipy"], {}), ([], {"CORETOOLS_NETWORK": "pypi,,npm"})):
        with pytest.raises(BadSetting, match="choose allow or deny, or list hosts"):
            settings(*words, **variables)


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """policy-13: a server must not start without the configured rules."""
    with pytest.raises(BadSetting, match="cannot be read: No such file"):
        settings(CORETOOLS_POLICY=str(tmp_path / "missing.toml"))


@pytest.mark.parametrize("way", ["beneath", "link", "linked-directory", "link-in-root", "own-writable", "flag-rw"])
def test_a_file_that_tools_could_change_is_refused(file: Path, tmp_path: Path, way: str) -> None:
    """policy-15: by its real path and by each link on the way, below a root or a writable directory of its own."""
    root = tmp_path / "root"
    root.mkdir()
    inside, path, roots = root / "p.toml", file, [str(root)]
    inside.write_text("")
    inside.chmod(0o644)
    if way in ("beneath", "flag-rw"):
        path, roots = inside, [f"{root}:rw"] if way == "flag-rw" else roots
    elif way == "link":  # the file outside is a link to one inside
        path = tmp_path / "link.toml"
        path.symlink_to(inside)
    elif way == "linked-directory":  # a directory link in the root leads out to the file
        (root / "conf").symlink_to(file.parent)
        path = root / "conf" / "policy.toml"
    elif way == "link-in-root":  # a link outside leads through a link inside
        (root / "way").symlink_to(file)
        path = tmp_path / "link.toml"
        path.symlink_to(root / "way")
    else:
        file.write_text(f'[confinement]\nwritable = ["{tmp_path}"]\n')
    with pytest.raises(BadSetting, match="can be changed by tools or commands"):
        settings(f"--policy={path}", roots=tuple(roots))


def test_a_read_only_root_may_contain_the_file(file: Path) -> None:
    """policy-15: nothing is written there."""
    assert settings(f"--policy={file}", roots=(f"{file.parent}:ro",)).policy.commands.default == "deny"
    assert settings(f"--policy={file}", "--read-only", roots=(str(file.parent),)).policy.commands.default == "deny"


@pytest.mark.parametrize(
    ("mode", "directory_mode", "sentence"),
    [
        (0o664, 0o755, "others may write the policy file; run chmod go-w"),
        (0o646, 0o755, "others may write the policy file; run chmod go-w"),
        (0o644, 0o775, "others may change its directory .*; run chmod go-w"),
        (0o644, 0o757, "others may change its directory .*; run chmod go-w"),
    ],
)
def test_a_file_that_other_users_could_change_is_refused(
    file: Path, mode: int, directory_mode: int, sentence: str
) -> None:
    """policy-15: the file, and every directory on its way."""
    file.chmod(mode)
    file.parent.chmod(directory_mode)
    with pytest.raises(BadSetting, match=sentence):
        read_policy(str(file), {})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    """policy-15: their file, or their directory."""
    os.chown(file, 65534, 65534)
    with pytest.raises(BadSetting, match="belongs to another user; copy it"):
        read_policy(str(file), {})
    os.chown(file, 0, 0)
    os.chown(file.parent, 65534, 65534)
    with pytest.raises(BadSetting, match="belongs to another user; move the file"):
        read_policy(str(file), {})


def test_what_is_not_a_regular_file_is_refused_without_blocking(file: Path, tmp_path: Path) -> None:
    """policy-15: no blocking on a FIFO, no link loop, no huge file."""
    os.mkfifo(tmp_path / "fifo", 0o644)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "huge").write_bytes(b"#" * (1024 * 1024 + 1))
    (tmp_path / "bytes").write_bytes(b'x = "\xff"')
    for path, sentence in [
        ("fifo", "not a regular file"),
        ("", "not a regular file"),
        ("loop", "links form a loop"),
        ("huge", "larger than 1048576 bytes"),
        ("bytes", "not UTF-8 text"),
        ("etc/policy.toml/x", "Not a directory"),
    ]:
        with pytest.raises(BadSetting, match=sentence):
            read_policy(str(tmp_path / path).rstrip("/"), {})
