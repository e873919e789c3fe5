"""The commands of docs/ci.md, run as the pipelines would (docs/specs/pipelines.md)."""

import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from coretools.cli.main import main
from tests.checkout import TREE
from tests.cli.test_mcp_reports import assert_junit
from tests.pipelines.github_runner import commands, outputs
from tests.variables import variables

PAGE = TREE / "docs" / "ci.md"
INSTALL = 'pip install "$CORETOOLS"'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the files of the page, as runners make it: writable for everybody."""
    folder = tmp_path / "checkout"
    (folder / ".git").mkdir(parents=True)
    for text in re.findall(r"```(?:python|json|toml|yaml)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        name, _, content = text.partition("\n")
        path = folder / name.removeprefix("# ").removeprefix("// ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o666)
    folder.chmod(0o777)
    return folder


def loaded(checkout: Path, name: str) -> Any:
    return yaml.safe_load((checkout / name).read_text())


@contextmanager
def runner(checkout: Path, **more: str) -> Iterator[None]:
    """The environment of a runner: no home to speak of, and Python on the PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    of_others = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME"))
    with variables(PATH=path, HOME=str(checkout.parent), **of_others, **more), chdir(checkout):
        yield


def ran(line: str) -> int:
    """Run a line of the page as a shell would split it, in this process."""
    program, *words = shlex.split(line)
    assert program == "coretools"
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_step_of_github_actions_runs(checkout: Path) -> None:
    """pipelines-20: in a shell, installation aside, with its outputs, its summary and its reports."""
    job = loaded(checkout, ".github/workflows/notes.yml")["jobs"]["notes"]
    install, step, use = [one for one in job["steps"] if "run" in one]
    assert install["run"] == INSTALL
    files = {name: str(checkout.parent / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]
    with runner(checkout, PYTHONPATH=str(TREE), **files):
        done = subprocess.run([*shell, step["run"]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [name for name, _, _ in commands(done.stdout)] == ["group", "stop-commands", "endgroup"]
    assert outputs(Path(files["GITHUB_OUTPUT"]).read_text()) == {"title": "Buy milk"}
    assert "| passed | The note is there |" in Path(files["GITHUB_STEP_SUMMARY"]).read_text()
    assert_junit(ET.fromstring((checkout / "notes.xml").read_text()), tests=1, failures=0, errors=0)
    assert use["env"]["TITLE"] == f"${{{{ steps.{step['id']}.outputs.title }}}}"


def test_the_job_of_gitlab_and_the_single_commands_run(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """pipelines-20: and what the policy does not allow, and a failure, are told in full."""
    job = loaded(checkout, ".gitlab-ci.yml")["notes"]
    install, check, run = job["script"]
    assert install == INSTALL
    page = PAGE.read_text(encoding="utf-8")
    call, record, replay = re.findall(r"`(coretools (?:mcp call|run)\s[^`]*(?:milk\"'|--record|--replay)[^`]*)`", page)
    trusted = " --trust-project --policy mcp-policy.toml"
    with runner(checkout):
        assert ran(check) == 0
        assert ran(check.replace("--trust-project", "")) == 77  # nobody has approved the server
        assert ran(run) == 0
        assert_junit(
            ET.fromstring(Path(job["artifacts"]["reports"]["junit"]).read_text()), tests=1, failures=0, errors=0
        )
        assert ran(call + trusted) == 0
        assert ran(record + trusted) == 0
        assert ran(f"{replay} --offline") == 0
        script = Path("steps.yaml").read_text()
        Path("steps.yaml").write_text(script.replace("milk|plants", "wine"))
        capfd.readouterr()
        assert ran(f"{replay} --offline --output github") == 3
        name, place, message = commands(capfd.readouterr().out)[-1]
        line = script.splitlines().index("  - id: note") + 1
        assert (name, place["file"], place["line"]) == ("error", "steps.yaml", str(line))
        assert "server 'notes': tool 'get_note': expected search($.data.title, \"wine\"), but" in message
        assert 'is "Buy milk"' in message
        assert ran(call.replace("number=1", "number=10") + trusted) == 77
        assert "'notes: get_note' is refused by policy: no rule of" in capfd.readouterr().err
