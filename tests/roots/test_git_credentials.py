"""Which files that git reads are hidden from tools, by place and by content."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coretools.errors import WrongType
from coretools.roots.git_config import Setting, parse
from coretools.roots.git_credentials import HOLDS_CREDENTIAL, credentials_in, without_credentials
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.nonblocking_read import read_nonblocking
from coretools.roots.read import open_file
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.secret_check import UNDECIDED
from coretools.roots.secret_formats import MAX_BYTES
from tests.roots.test_secret_check import why
from tests.roots.world import PLENTY, World, descriptors

TOKEN = "c4n4ry00Zz0123456789abcdef"
ADDRESS = f"https://u:{TOKEN}@host.example/x"
CONFIGURATION = f'[remote "o"]\n\turl = {ADDRESS}\n'.encode()

CREDENTIALS = [
    f'[remote "o"]\nurl = {ADDRESS}',
    f'[remote "o"]\npushurl = ssh://git:{TOKEN}@h/x',
    f'[remote "o"]\nurl = https://{TOKEN}@h/x',
    f'[remote "o"]\nurl = https://{TOKEN}:@h/x',
    f'[http]\nproxy = "http://me:two words {TOKEN}@proxy"',
    f'[http "https://h/"]\nextraHeader = AUTHORIZATION: basic {TOKEN}',
    f"[http]\nextraheader = X: {TOKEN}",
    f'[credential]\nhelper = "!f() {{ echo password={TOKEN}; }}; f"',
    f'[url "{ADDRESS}"]\ninsteadOf = h:',
    f"[sendemail]\nsmtpPass = {TOKEN}",
    f"[mine]\ntoken = {TOKEN}",
    f"[alias]\nx = \"!curl -H 'Authorization: Bearer {TOKEN}' h\"",
    f"# {ADDRESS}\n[core]",
    f"[broken {ADDRESS}",
    f"[core]\n\0 = {ADDRESS}",
    ADDRESS,
    f"URL: {ADDRESS}\nPull: x",
    f"[core]\nsshCommand = sshpass -v -P word -p {TOKEN} ssh -p 22",
    f"[core]\nsshCommand = sshpass -p'{TOKEN}' ssh",
    f"[core]\nsshCommand = TortoisePlink.exe -batch -pw {TOKEN}",
    f"[credential]\nusername = {TOKEN}",
    f"# Netscape HTTP Cookie File\n.host.example\tTRUE\t/\tTRUE\t0\to\t{TOKEN}",
    f"Set-Cookie: o={TOKEN}; secure",
]
NO_CREDENTIALS = [
    "",
    "[core]\nbare = false",
    '[remote "o"]\nurl = https://bob@bitbucket.org/x\npushurl = git@github.com:x/y',
    '[remote "o"]\nurl = https://my-long-organisation-name@dev.azure.com/x',
    '[remote "o"]\nurl = https://$USER:$PASSWORD@h/x\nfetch = +refs/heads/*:refs/remotes/o/*',
    '[credential "https://h"]\nhelper = store --file x\nusername = bob\nuseHttpPath = true',
    "[core]\nsshCommand = sshpass -e ssh -p 2222",
    "[core]\nsshCommand = sshpass -f file ssh -p 2222 -i x",
    '[core]\nsshCommand = sshpass -p \\"$PASSWORD\\" ssh',
    "[credential]\nusername = bob",
    "# Netscape HTTP Cookie File\n",
    "[user]\nsigningKey = 3AA5C34371567BD2",
    "[http]\nsslKey = /home/x/key.pem\ncookieFile = /home/x/cookies\nextraheader =",
    '[branch "token"]\nremote = o\n[submodule "password"]\nurl = https://h/x',
    "ref: refs/heads/main",
]


@pytest.mark.parametrize("text", CREDENTIALS)
def test_a_credential_is_found(text: str) -> None:
    """secret-files-10: and what is shown of it, or in place of the file, does not contain it."""
    found = credentials_in(text.encode())
    assert found is not None
    assert TOKEN not in str(found)
    if found:
        assert TOKEN not in str(without_credentials(parse(text.encode(), "config")))


@pytest.mark.parametrize("text", NO_CREDENTIALS)
def test_what_only_looks_like_a_credential_hides_nothing(text: str) -> None:
    """secret-files-10"""
    assert credentials_in(text.encode()) is None


@pytest.mark.parametrize(
    "unit", ["a", "://", "a:", "x@", "A1-", "http://u:p", "sshpass -f ", "plink -p ", "a\tTRUE\t", '[url "', "\\\n"]
)
def test_a_long_value_takes_no_long_time(unit: str) -> None:
    """secret-files-2: the work is linear; with a quadratic expression this would take minutes."""
    value = unit * (256 * 1024 // len(unit))
    credentials_in(value.encode())
    without_credentials([Setting("a.b", value)])


def _bare(world: World) -> Path:
    top = world.root / "store"
    for name in ("objects", "refs", "remotes", "logs"):
        (top / name).mkdir(parents=True)
    (top / "HEAD").write_text("ref: refs/heads/main\n")
    return top


def _written(path: Path, data: bytes = CONFIGURATION) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _by_link(world: World) -> Path:
    _written(_bare(world) / "config")
    world.link("way", "store")
    return world.root / "way" / "config"


def _hard_link(world: World) -> Path:
    os.link(_written(world.root / ".git" / "config"), world.root / "other.txt")
    return world.root / "other.txt"


def _inside(world: World) -> Path:
    """A file of the only root, which lies in a git directory."""
    return _written(world.root / "src" / ".git" / "info" / "deep" / "note", ADDRESS.encode())


HIDDEN: dict[str, Callable[[World], Path]] = {
    "a backup": lambda world: _written(world.root / ".git" / "config.bak"),
    "another case": lambda world: _written(world.root / ".GIT" / "CONFIG.BAK"),
    "an 8.3 name": lambda world: _written(world.root / "git~1" / "config.bak"),
    "any name": lambda world: _written(world.root / ".git" / "x"),
    "deep": _inside,
    "half a file": lambda world: _written(world.root / ".git" / "config.lock", CONFIGURATION + b"[unfin"),
    "a NUL": lambda world: _written(world.root / ".git" / "config.lock", CONFIGURATION + b"\0"),
    "a byte order mark": lambda world: _written(world.root / "a.inc", b"\xef\xbb\xbf" + CONFIGURATION),
    "CRLF": lambda world: _written(world.root / "a.inc", CONFIGURATION.replace(b"\n", b"\r\n")),
    "it includes itself": lambda world: _written(world.root / "a.inc", b"[include]\npath = a.inc\n" + CONFIGURATION),
    "bare": lambda world: _written(_bare(world) / "config"),
    "bare, a reflog": lambda world: _written(_bare(world) / "logs" / "HEAD", ADDRESS.encode()),
    "bare, a remote": lambda world: _written(_bare(world) / "remotes" / "o", ADDRESS.encode()),
    "bare, what was fetched": lambda world: _written(_bare(world) / "FETCH_HEAD", ADDRESS.encode()),
    "through a link": _by_link,
    "a hard link": _hard_link,
    "included": lambda world: _written(world.root / "team.inc"),
    "the user's": lambda world: _written(world.root / ".gitconfig.old", f"[mine]\ntoken = {TOKEN}\n".encode()),
    "submodules": lambda world: _written(world.root / ".gitmodules"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_no_tool_reads_a_file_of_git_with_a_credential(world: World, name: str) -> None:
    """secret-files-10"""
    path = str(HIDDEN[name](world).relative_to(world.root))
    before = descriptors()
    assert why(world.roots, path) == HOLDS_CREDENTIAL
    assert read_nonblocking(world.roots, path, limit_bytes=PLENTY) is None
    assert descriptors() == before


READABLE: dict[str, bytes] = {
    ".git/HEAD": b"ref: refs/heads/main\n",
    ".git/config.sample": b"[core]\n\tbare = false\n",
    "package.json": f'{{"repository": "{ADDRESS}"}}'.encode(),
    "pyproject.toml": f'[project]\nname = "x"\n[http]\nbase_url = "{ADDRESS}"\n'.encode(),
    "notes.md": f'# [http]\n\nwrite [remote "o"] url = {ADDRESS}\n'.encode(),
    "setup.cfg": f"[metadata]\nurl = {ADDRESS}\n".encode(),
    "config/config.py": f"URL = '{ADDRESS}'\n".encode(),
    "logs/server.log": f"GET {ADDRESS}\n".encode(),
    ".gitmodules": b'[submodule "x"]\n\turl = https://host.example/x\n',
}


@pytest.mark.parametrize("name", READABLE)
def test_what_git_does_not_read_stays_readable(world: World, name: str) -> None:
    """secret-files-10"""
    _written(world.root / name, READABLE[name])
    assert world.read(name) == READABLE[name]


def test_files_that_can_not_be_decided(world: World) -> None:
    """secret-files-2, secret-files-10: too long, and those that are no files."""
    (world.root / ".git").mkdir()
    _written(world.root / ".git" / "config.bak", b"#\n" * MAX_BYTES)
    assert why(world.roots, ".git/config.bak") == UNDECIDED
    _written(world.root / "large.inc", CONFIGURATION + b"#\n" * MAX_BYTES)
    assert why(world.roots, "large.inc") == HOLDS_CREDENTIAL
    _written(world.root / "large.txt", b"[http]\n\n" + b"= no configuration\n" * 100_000)
    assert why(world.roots, "large.txt") == ""
    os.mkfifo(world.root / "fifo.inc")
    with pytest.raises(WrongType):
        open_file(world.roots, "fifo.inc")


def test_the_operator_opens_a_file_with_a_credential_of_git(world: World, resolver: str) -> None:
    """secret-files-7, secret-files-10: by a glob, or all of them."""
    _written(world.root / ".git" / "config.bak")
    _written(world.root / "team.inc")
    specs = [RootSpec(str(world.root))]
    one = DenyRules([*DEFAULT_DENY, "!config.bak", "!team.inc"])
    for deny in (one, DenyRules([], by_content=False)):
        with Roots(specs, deny=deny, resolver=resolver) as roots:
            for name in (".git/config.bak", "team.inc"):
                with open_file(roots, name) as file:
                    assert file.read(PLENTY) == CONFIGURATION


def test_a_root_in_a_git_directory_is_part_of_it(world: World, resolver: str) -> None:
    """secret-files-10"""
    top = world.root / "p" / ".git"
    _written(top / "x", ADDRESS.encode())
    with Roots([RootSpec(str(top))], deny=DenyRules(DEFAULT_DENY), resolver=resolver) as roots:
        assert why(roots, "x") == HOLDS_CREDENTIAL
