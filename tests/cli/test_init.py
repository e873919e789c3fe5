"""`coretools init`, and what `coretools doctor` says of toolchains (docs/specs/toolchains.md)."""

import os
from pathlib import Path

import pytest

from coretools.cli.init import ECOSYSTEMS, ecosystems_in, init
from coretools.cli.main import main
from coretools.cli.toolchain_report import toolchain_report
from coretools.config.policy_file import read_policy
from coretools.config.settings import Settings
from coretools.confinement.caches import CACHES
from coretools.egress.host_sets import HOST_SETS
from coretools.errors import AlreadyExists, BadSetting
from tests.protocol.peer import peer


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a toolchain that is not on PATH, and a project of several ecosystems."""
    home = tmp_path / "home"
    (home / "project" / "web").mkdir(parents=True)
    for name in ("pyproject.toml", "uv.lock", "web/package.json", "go.mod"):
        (home / "project" / name).touch()
    node = home / ".nvm/versions/node/v22.1.0/bin/node"
    node.parent.mkdir(parents=True)
    node.write_text("#!/bin/sh\necho v22.1.0\n")
    node.chmod(0o755)
    return home


def settings(home: Path) -> Settings:
    return Settings(roots=(str(home / "project"),), profile="all")


def test_init_writes_a_policy_that_a_server_accepts(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """toolchains-17, toolchains-18: for what is there, with what will not work; never over another file."""
    policy = home / ".config" / "coretools" / "policy.toml"
    environment = {"HOME": str(home), "PATH": f"{home}/none"}
    assert init(settings(home), environment, None) == 0
    said = capsys.readouterr().out
    found = read_policy(str(policy), environment)
    assert set(found.confinement.caches) == {"pip", "uv", "npm", "go"}
    assert found.confinement.network == "deny"
    assert policy.stat().st_mode & 0o777 == 0o600
    text = policy.read_text()
    assert f"#   nvm: {home}/.nvm" in text
    assert ('network = ["pypi", "npm", "go"]' in text) is ("in tier full" in text)
    assert f"node: v22.1.0 ({home}/.nvm/versions/node/v22.1.0/bin/node)" in said
    assert "will not work: uv: not found in PATH" in said
    assert f"added for commands: {home}/.nvm/versions/node/v22.1.0/bin" in said
    with pytest.raises(AlreadyExists, match="left as it is"):
        init(settings(home), environment, None)
    with pytest.raises(SystemExit) as ended:
        main(["init", "--root", str(home / "project"), "--policy", str(policy)])
    assert ended.value.code == AlreadyExists.exit_code
    assert policy.read_text() == text


def test_init_writes_nothing_where_tools_could_change_it(home: Path) -> None:
    """toolchains-18: not in the project, not through a link, and not over a dangling one."""
    environment = {"HOME": str(home), "PATH": "/bin"}
    (home / "linked").symlink_to(home / "project")
    for path in (home / "project" / "policy.toml", home / "linked" / "new" / "policy.toml"):
        with pytest.raises(BadSetting, match="lies in the writable root"):
            init(settings(home), environment, str(path))
    (home / "dangling").symlink_to(home / "absent")
    with pytest.raises(AlreadyExists):
        init(settings(home), environment, str(home / "dangling"))
    with pytest.raises(BadSetting, match="no HOME"):
        init(settings(home), {}, None)
    assert sorted(os.listdir(home / "project")) == ["go.mod", "pyproject.toml", "uv.lock", "web"]
    assert not (home / "absent").exists()


def test_init_proposes_no_cache_that_would_keep_a_server_from_starting(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """toolchains-17: where a root contains the home, its caches would lie in the root."""
    policy = tmp_path / "policy.toml"
    chosen = Settings(roots=(str(home),), profile="all")
    assert init(chosen, {"HOME": str(home), "PATH": f"{home}/none"}, str(policy)) == 0
    assert "will not work: caches: " in capsys.readouterr().out
    assert "\n# caches = [" in policy.read_text()
    with peer(home, "--policy", policy, environment={"HOME": str(home)}) as client:
        client.start_session()
        assert client.end() == 0


def test_what_init_proposes_for_an_ecosystem_is_known() -> None:
    """toolchains-17: the commented line for the network too."""
    hosts = {name for one in ECOSYSTEMS for name in one.hosts}
    caches = {name for one in ECOSYSTEMS for name in one.caches}
    assert hosts <= HOST_SETS.keys()
    assert caches <= CACHES.keys()


def test_files_of_an_ecosystem_are_found_in_subdirectories_but_not_in_dependencies(tmp_path: Path) -> None:
    """toolchains-17: one level deep."""
    for name in ("a/Cargo.toml", "node_modules/pom.xml", ".hidden/go.mod", "b/c/composer.json", "x.csproj"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {name for one in ecosystems_in([str(tmp_path)]) for name in one.caches}
    assert found == {"cargo", "nuget"}


async def test_a_program_that_does_not_answer_is_named(home: Path) -> None:
    """toolchains-16: the versions are those that commands get, each with a reason if there is none."""
    for name, text in (("cargo", "exit 3"), ("ruby", "echo 'ruby 3.4.1'"), ("php", "no-such-interpreter")):
        path = home / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n" if text != "no-such-interpreter" else "#!/no/such/interpreter\n")
        path.chmod(0o755)
    report = await toolchain_report(settings(home), {"HOME": str(home), "PATH": f"{home}/bin"})
    assert report.versions["node"] == "v22.1.0"
    assert report.versions["ruby"] == "ruby 3.4.1"
    assert report.versions["cargo"] == "fails: exit code 3"
    assert report.versions["php"].startswith("can't be run: ")
