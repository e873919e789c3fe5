"""Which variables of the server's environment a child gets (docs/specs/process.md)."""

import os

import pytest

from coretools.config.limits import Limits
from coretools.errors import BadSetting
from coretools.process.environment import child_environment
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.roots.root import Directory

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "planted-1",
    "GITHUB_TOKEN": "planted-2",
    "ANTHROPIC_API_KEY": "planted-3",
    "CORETOOLS_TOKEN": "planted-4",
    "CARGO_REGISTRY_TOKEN": "planted-5",
    "NVM_AUTH_HEADER": "planted-6",
    "XDG_SESSION_TOKEN": "planted-7",
    "GOPROXY": "https://user:planted-8@proxy",
    "LC": "planted-9",
    "path": "planted-10",
    "LC_GITHUB_TOKEN": "planted-11",
}
TAKEOVERS = {
    "LD_PRELOAD": "/planted.so",
    "LD_LIBRARY_PATH": "/planted",
    "DYLD_INSERT_LIBRARIES": "/planted.dylib",
    "PYTHONSTARTUP": "/planted.py",
    "PYTHONPATH": "/planted",
    "PYTHONHOME": "/planted",
    "GIT_DIR": "/planted",
    "GIT_EXTERNAL_DIFF": "/planted",
    "GIT_SSH_COMMAND": "/planted",
    "NODE_OPTIONS": "--require /planted.js",
    "GOFLAGS": "-toolexec=/planted",
    "JAVA_TOOL_OPTIONS": "-javaagent:/planted",
    "BASH_ENV": "/planted",
    "ENV": "/planted",
    "SSH_AUTH_SOCK": "/planted",
    "XDG_RUNTIME_DIR": "/planted",
}
USEFUL = {
    "PATH": os.environ["PATH"],
    "HOME": "/home/someone",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "LC_TIME": "C",
    "TZ": "UTC",
    "CARGO_HOME": "/cargo",
    "JAVA_HOME": "/java",
    "VIRTUAL_ENV": "/venv",
    "XDG_CACHE_HOME": "/cache",
}


def test_only_the_allow_list_passes() -> None:
    """process-3: no secret and no hook of the server reaches a child."""
    assert child_environment({**SECRETS, **TAKEOVERS, **USEFUL}, passed=()) == USEFUL


async def test_a_real_child_sees_nothing_planted(here: Directory) -> None:
    """process-3: checked by effect, with a real child."""
    runner = Runner(Limits(), child_environment({**SECRETS, **TAKEOVERS, **USEFUL}, passed=()))
    completed = await runner.run(["env"], cwd=here)
    await runner.close()
    assert "planted" not in completed.stdout.text()
    assert "CARGO_HOME=/cargo" in completed.stdout.text().splitlines()


def test_what_the_operator_names_passes() -> None:
    """process-3: by exact name, whatever the name."""
    environment = child_environment({**SECRETS, **USEFUL}, passed=["GITHUB_TOKEN", "ABSENT"])
    assert environment == {**USEFUL, "GITHUB_TOKEN": "planted-2"}


@pytest.mark.parametrize("name", ["", "A=1", "A\0B"])
def test_a_name_that_is_none_is_refused_at_start(name: str) -> None:
    """process-3: the error names the option."""
    with pytest.raises(BadSetting):
        child_environment({}, passed=[name])


@pytest.mark.parametrize(
    ("inherited", "passed_on"),
    [
        ("/usr/bin:/bin", "/usr/bin:/bin"),
        (":/usr/bin::/bin:", "/usr/bin:/bin"),
        (".:/usr/bin:node_modules/.bin:/bin", "/usr/bin:/bin"),
        ("", ""),
    ],
)
def test_entries_of_path_that_depend_on_the_working_directory_are_left_out(inherited: str, passed_on: str) -> None:
    """process-4: a hostile repository cannot place a program in the search path."""
    assert child_environment({"PATH": inherited}, passed=()) == {"PATH": passed_on}


async def test_variables_of_a_run_are_added_and_win(here: Directory) -> None:
    """process-5: one run can add or override variables."""
    runner = Runner(Limits(), {"PATH": os.environ["PATH"], "A": "old", "B": "kept"})
    options = RunOptions(environment={"A": "new", "C": "added"})
    completed = await runner.run(["sh", "-c", "echo $A $B $C"], cwd=here, options=options)
    await runner.close()
    assert completed.stdout.text() == "new kept added\n"


async def test_a_run_may_set_its_whole_environment(here: Directory) -> None:
    """process-5: nothing is inherited except the marker by which the child's descendants are found."""
    runner = Runner(Limits(), {"PATH": os.environ["PATH"], "A": "old"})
    options = RunOptions(environment={"PATH": "/usr/bin:/bin", "B": "x"}, inherit=False)
    completed = await runner.run(["env"], cwd=here, options=options)
    await runner.close()
    names = {line.partition("=")[0] for line in completed.stdout.text().splitlines()}
    assert names == {"PATH", "B", "CORETOOLS_PROCESS_MARKER"}
