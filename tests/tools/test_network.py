"""A denied network is reported in every place that matters (docs/specs/ci.md)."""

import getpass
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coretools.tools.failure_explanations import CommandOutcome
from coretools.tools.network_policy import NetworkPolicy
from tests.docker_profile import under_profile
from tests.protocol.peer import HANDSHAKE, Peer, peer

OPTION = "the operator allows it with --network allow"
DENIED = f"[the network is denied to commands; {OPTION}"


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.fixture(scope="module", params=["full", "landlock"])
def client(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Peer]:
    """A server with the default options, which deny the network."""
    tier = request.param
    with peer(tmp_path_factory.mktemp("root"), before=under_profile() if tier == "landlock" else ()) as one:
        one.start_session()
        if f"commands are confined in tier: {tier}\nnetwork: denied" not in text_of(one.call("get_diagnostics")):
            pytest.skip(f"tier {tier} is not available here")
        yield one


FETCH = 'import urllib.request; urllib.request.urlopen("http://nowhere.example")'
PROGRAMS = {
    "curl-name": "curl -sS https://nowhere.example/",
    "curl-address": "curl -sS http://192.0.2.1/",
    "wget": "wget -nv --tries=1 http://nowhere.example/",
    "git-clone": "git clone https://nowhere.example/x.git",
    "git-ls-remote": "git ls-remote https://192.0.2.1/x.git",
    "python-name": f"python3 -c '{FETCH}'",
    "python-address": "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80))'",
    "pip": "python3 -m pip download --no-cache-dir --retries 0 --index-url https://nowhere.example/simple six",
    "npm": "npm view left-pad --fetch-retries=0 --registry=https://nowhere.example/",
    "npm-offline": "npm install left-pad --offline --no-save",
    "node": 'node -e \'require("http").get("http://nowhere.example")\'',
    "node-fetch": "node -e 'fetch(\"http://192.0.2.1\")'",
    "cargo": "cargo install nothing-of-this-name --root made --config net.retry=0",
    "java": "java Fetch.java",
    "a shell that ends well": "sh -c 'curl -sS http://nowhere.example/ 2>&1 | tail -n 1'",
}


@pytest.mark.parametrize("command", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_that_wants_the_network_is_answered_with_the_cause(client: Peer, command: str) -> None:
    """ci-19: real programs with their own messages."""
    if shutil.which(command.split(maxsplit=1)[0]) is None:
        pytest.skip(f"needs {command.split(maxsplit=1)[0]}")
    client.call("write_file", path="Fetch.java", content=JAVA)
    result = client.call("run_command", command=command, timeout_seconds=60)
    if "No module named pip" in text_of(result) or "rustup" in text_of(result):
        pytest.skip("the program is incompletely installed here")
    assert DENIED in text_of(result), text_of(result)
    assert any(OPTION in note for note in result["_meta"]["coretools/facts"]["notes"])


JAVA = """\
public class Fetch {
    public static void main(String[] words) throws Exception {
        new java.net.URL("http://nowhere.example").openStream();
    }
}
"""


def test_a_run_reports_it_at_its_end_and_when_it_is_read(client: Peer) -> None:
    """ci-19: wait_run and read_run too."""
    started = client.call("run_command", command=f"python3 -c '{FETCH}'", wait_seconds=0)
    run = started["_meta"]["coretools/facts"].get("run")
    if run is None:
        assert DENIED in text_of(started)
        return
    assert DENIED in text_of(client.call("wait_run", run=run))
    assert DENIED in text_of(client.call("read_run", run=run))


def test_a_program_that_waited_for_the_network_until_its_deadline_is_answered_with_the_cause(client: Peer) -> None:
    """network-14, ci-19: it printed nothing of it; a program that fetches nothing gets no remark."""
    npm = "npm() { tail -f /dev/null; }; npm install 2>&1 | tail -n 5"
    waited = text_of(client.call("run_command", command=npm, timeout_seconds=1))
    assert "timed out" in waited
    assert "[it may have waited for the network, which is denied to commands; the operator allows it" in waited
    assert "network" not in text_of(client.call("run_command", command="tail -f /dev/null | cat", timeout_seconds=1))


QUIET = {
    "a program that ends well": "echo Temporary failure in name resolution",
    "a server on loopback that is not there": "curl -sS http://127.0.0.1:9/",
    "any other failure": "ls nothing",
    "a module that is not there": "python3 -c 'import nothing_of_this_name'",
}


@pytest.mark.parametrize("command", QUIET.values(), ids=QUIET)
def test_other_failures_get_no_remark(client: Peer, command: str) -> None:
    """ci-19: only failures to resolve a name or to connect get one."""
    result = client.call("run_command", command=command)
    assert "network" not in text_of(result)
    assert "notes" not in result["_meta"]["coretools/facts"]


def test_the_tests_of_a_project_say_it(client: Peer) -> None:
    """ci-19: in the ci tools too, structured result and text."""
    result = client.call("ci_test", command=f"python3 -c '{FETCH}'")
    assert DENIED in text_of(result)
    result = client.call("ci_build", command=f"python3 -c '{FETCH}'")
    assert DENIED in text_of(result)


@pytest.mark.parametrize(
    ("words", "instruction", "state"),
    [
        ((), "Commands, builds and tests have no network", f"network: denied to commands; {OPTION}"),
        (("--network", "allow"), "may use the network", "network: allowed to commands, by the operator"),
    ],
    ids=["denied", "allowed"],
)
def test_a_denied_network_is_reported_before_anything_fails(
    tmp_path: Path, words: tuple[str, ...], instruction: str, state: str
) -> None:
    """ci-19: in the instructions, the diagnostics and the log at start, denied and allowed; each failure is logged."""
    with peer(tmp_path, *words) as client:
        answer = client.ask("initialize", HANDSHAKE)
        client.notify("notifications/initialized")
        assert instruction in answer["result"]["instructions"]
        text = text_of(client.call("get_diagnostics"))
        if "tier: none" in text:
            pytest.skip("nothing confines commands here")
        assert state in text
        if not words:
            client.call("run_command", command="git ls-remote https://192.0.2.1:1/x.git")
        client.end()
        assert client.process.stderr is not None
        log = client.process.stderr.read().decode()
        assert state in log
        assert ("refused: git: the network is denied to commands" in log) == (not words)


SENTENCES = {
    "go": 'go: example.com/m@v1: Get "https://proxy.golang.org/": dial tcp: lookup proxy.golang.org: no such host',
    "go-off": "go: example.com/m@v1.0.0: module lookup disabled by GOPROXY=off",
    "rust": "error sending request: dns error: failed to lookup address information: Temporary failure in name",
    "uv": "error: Failed to fetch: `https://index.example/simple/six/` dns error: failed to lookup address information",
    "maven": "Could not transfer artifact x from/to central: repo.maven.apache.org: Unknown host repo.maven.apache.org",
    "maven without its plugins": "[ERROR] No plugin found for prefix 'dependency' in the current project",
    "gradle": "> Could not resolve x. > No cached version of a:b:1 available for offline mode.",
    "dotnet": "error NU1301: Name or service not known (api.nuget.org:443)",
    "apt": "Err:1 http://mirror.example Temporary failure resolving 'mirror.example'",
    "ssh": "ssh: Could not resolve hostname github.com: Temporary failure in name resolution",
    "yarn": "Request to 'https://registry.yarnpkg.com/x' has been blocked: getaddrinfo EAI_AGAIN registry.yarnpkg.com",
}
"""Messages of programs that may not be installed here."""


@pytest.mark.parametrize("output", SENTENCES.values(), ids=SENTENCES)
def test_messages_of_missing_programs_are_recognised(output: str) -> None:
    """ci-19: parsed only, not run."""
    ending = CommandOutcome(argv=("x",), tier="full", failed=True, output=output)
    assert NetworkPolicy("deny").explanation(ending) is not None
    assert NetworkPolicy("allow").explanation(ending) is None


def test_the_variables_of_commands_are_named_and_have_a_user(tmp_path: Path) -> None:
    """ci-18, process-3: variables that are not passed are reported, with the option that passes them; USER is set even
    without a login."""
    given = {"EDITOR": "planted-editor", "NODE_ENV": "production", "GIVEN": "planted-value"}
    with peer(tmp_path, "--pass-env", "GIVEN", environment=given) as client:
        client.start_session()
        text = text_of(client.call("get_diagnostics"))
        line = next(line for line in text.split("\n") if line.startswith("variables that commands have: "))
        names = line.removeprefix("variables that commands have: ").partition(";")[0].split(", ")
        assert {"GIVEN", "PATH", "USER", "LOGNAME"} <= set(names)
        assert "EDITOR" not in names
        assert "NODE_ENV" not in names
        assert "--pass-env" in line
        assert "planted" not in text
        result = text_of(client.call("run_command", command="sh -c 'echo $USER-$LOGNAME-$NODE_ENV-$GIVEN'"))
    name = os.environ.get("USER") or getpass.getuser()
    assert result == f"{name}-{os.environ.get('LOGNAME') or name}--planted-value"


@pytest.mark.parametrize("tier", ["full", "landlock"])
def test_a_list_of_hosts_holds_in_tier_full_and_is_no_network_in_tier_landlock(tmp_path: Path, tier: str) -> None:
    """network-11, network-14: said in the instructions, the diagnostics and the result, by effect."""
    before = under_profile() if tier == "landlock" else ()
    with peer(tmp_path, "--network", "pypi,git.example", before=before) as client:
        assert client.process.stderr is not None
        log = next(line for line in client.process.stderr if b" network: " in line).decode()
        instructions = client.ask("initialize", HANDSHAKE)["result"]["instructions"]
        client.notify("notifications/initialized")
        state = text_of(client.call("get_diagnostics"))
        if f"commands are confined in tier: {tier}" not in state:
            pytest.skip(f"tier {tier} can't be had here")
        result = client.call("run_command", command="curl -sS http://unlisted.example/ http://192.0.2.1/")
        text = text_of(result)
        client.end()
    if tier == "full":
        assert "\nnetwork: commands reach only pypi, git.example, through a proxy" in state
        assert "Commands, builds and tests reach only pypi, git.example" in instructions
        assert "network: commands reach only pypi, git.example" in log
        assert (
            "[network: not in the operator's list of hosts: unlisted.example:80, 192.0.2.1:80; the operator allows them"
            ' with network = [..., "unlisted.example", "192.0.2.1"] and a restart of the server'
        ) in text
    else:
        assert "\nnetwork: denied to commands (the operator's list of hosts needs tier full" in state
        assert "the operator's list of hosts needs tier full" in text
        assert "have no network: what must be fetched fails" in instructions
        assert "network: denied to commands (the operator's list of hosts needs tier full" in log


def test_a_list_of_hosts_is_described_for_every_tier() -> None:
    """network-14"""
    listed = NetworkPolicy(("pypi", *(f"h{number}.example" for number in range(30))))
    assert [listed.is_denied(tier) for tier in ("full", "landlock", "none", None)] == [False, True, False, False]
    assert "and 11 more" in listed.state("full")
    assert "nothing confines them here (the operator's list" in listed.state("none")
    assert "no network" in listed.instruction("landlock")
    assert "none in tier landlock; in tier full they reach only pypi" in listed.instruction(None)
    assert "no network (unless get_diagnostics names tier none)" in NetworkPolicy("deny").instruction(None)
    ending = CommandOutcome(argv=("x",), tier="full", failed=True, output="Could not resolve host: a.example")
    assert "a program that does not use the proxy" in str(listed.explanation(ending))
