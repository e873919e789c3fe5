"""The image and its manifests as files: what they contain, and that they agree (docs/specs/containers.md).

test_container_start.py tests the behaviour of an image.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coretools.config.commit_author import read_author
from coretools.config.limits import Limits
from coretools.config.options import settings_from
from coretools.confinement import allowed_paths
from coretools.redaction.redactor import secret_values
from coretools.web.auth.exposure_checks import require_safe
from coretools.web.auth.hashed_tokens import create_token, read_tokens
from coretools.web.common.config import CONFIG_VARIABLE, VARIABLES, Config, read_config
from coretools.web.service import END_SECONDS
from tests.image import (
    COMPOSE,
    DOCKERFILE,
    KUBERNETES,
    TREE,
    arguments,
    compose,
    environment_of,
    filled,
    last,
    lineage,
    manifests,
    pod,
    stages,
    steps_of,
    user,
)
from tests.web.plans import options_of

HOME = "/opt/coretools"
"""The directory of the server and its packages."""

TARGETS = {"http": "coretools-http", "workstation": "coretools-workstation"}
OURS = ("http", "replica-1", "replica-2", "replica-3")
EXCEPTIONS = [line[1:] for line in (TREE / ".dockerignore").read_text().splitlines() if line.startswith("!")]


def copied() -> list[str]:
    """The files copied from the build context."""
    steps = [step for stage in stages() for step in stage.steps if step.cmd == "COPY"]
    return [source for step in steps if not step.flags for source in step.value[:-1]]


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def config_of(variables: Mapping[str, str]) -> Config:
    """The configuration that a server of the image reads with these variables, and with the file that they name."""
    found = {**environment_of("http"), **variables}
    if CONFIG_VARIABLE in found:
        found[CONFIG_VARIABLE] = str(here(found[CONFIG_VARIABLE]))
    return read_config(None, found, {})


def here(path: str) -> Path:
    """The file of the tree that compose mounts at a path of the container."""
    (volume,) = [one for one in compose()["services"]["http"]["volumes"] if path.startswith(f"{one['target']}/")]
    return COMPOSE.parent / volume["source"] / Path(path).relative_to(volume["target"])


def config_of_pod(directory: Path) -> Config:
    """The configuration that the server in a pod reads, from the variable and the mount that name it."""
    container = pod()["containers"][0]
    variables = {one["name"]: one["value"] for one in container["env"]}
    path = Path(variables["CORETOOLS_HTTP_CONFIG"])
    mount = next(one for one in container["volumeMounts"] if one["mountPath"] == str(path.parent))
    volume = next(one for one in pod()["volumes"] if one["name"] == mount["name"])
    assert volume["configMap"]["name"] == manifests()["ConfigMap"]["metadata"]["name"]
    file = directory / path.name
    file.write_text(manifests()["ConfigMap"]["data"][path.name])
    return read_config(str(file), {**environment_of("http"), **variables, "CORETOOLS_HTTP_CONFIG": str(file)}, {})


def test_there_are_two_targets_and_the_last_stage_is_the_http_server() -> None:
    """container-1."""
    assert stages()[-1].name == "http"
    programs = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["scripts"]
    for target, program in TARGETS.items():
        entry = last(target, "ENTRYPOINT")
        assert entry.json, "a shell would stand between the signals and the server"
        assert entry.value == ("/usr/bin/tini", "--", f"{HOME}/bin/{program}")
        assert program in programs
        assert [step for step in steps_of(target) if step.cmd == "CMD"] == []
    assert {stage.name for stage in lineage("http")} & {stage.name for stage in lineage("workstation")} == {"runtime"}


def test_what_is_copied_is_there_and_nothing_else_reaches_the_builder() -> None:
    """container-2: the builder gets the listed files, not everything in the directory."""
    assert copied()
    assert [source for source in copied() if not (TREE / source).exists()] == []
    assert (TREE / ".dockerignore").read_text().splitlines()[1] == "*"
    assert sorted(copied()) == sorted(EXCEPTIONS)
    assert [step for stage in stages() for step in stage.steps if step.cmd == "ADD"] == []


def test_packages_come_by_hash_and_nothing_is_fetched_after_that() -> None:
    """container-3."""
    build = stages()[0]
    installs = [text for (text,) in build.values("RUN") if re.search(r"\bpip\b.*\b(install|download)\b", text)]
    assert len(installs) == 2
    download, install = installs
    assert "--require-hashes" in download
    assert "--no-deps" in download
    assert "constraints.txt" in download
    assert "--no-index" in install
    later = [part for stage in stages()[1:] for (text,) in stage.values("RUN") for part in text.split("&&")]
    assert any("-perm /6000" in part and "chmod a-s" in part for part in later)
    of_debian = [part for part in later if "apt-get install" in part]
    assert len(of_debian) == 1
    fetching = r"\bpip\b.* (install|download)\b|\bcurl\b|\bwget\b"
    assert [part for part in later if part not in of_debian and re.search(fetching, part)] == []


@pytest.mark.parametrize("target", TARGETS)
def test_the_user_is_a_number_and_not_root(target: str) -> None:
    """container-4: Kubernetes cannot tell that a user name is not root (runAsNonRoot)."""
    users = [filled(step.value[0]) for step in steps_of(target) if step.cmd == "USER"]
    assert users == ["10001:10001"]
    assert last(target, "WORKDIR").value == ("/work",)


@pytest.mark.parametrize("target", TARGETS)
def test_no_program_of_the_server_is_on_the_path_of_commands(target: str) -> None:
    """container-17: `python` is Debian's there, with pip and venv; the base image's own programs are removed."""
    assert HOME not in environment_of(target)["PATH"]
    (installed,) = [text for stage in lineage(target) for (text,) in stage.values("RUN") if "apt-get install" in text]
    words = filled(installed).split()
    for package in ("python3", "python3-pip", "python3-venv", "python-is-python3"):
        assert package in words
    assert "find /usr/local/bin ( -name 'python*'".replace("(", r"\(") in installed
    assert "--copies" in str(stages()[0].values("RUN")), "its interpreter would be a link to what is taken away"


def test_the_usual_command_line_tools_are_installed_and_more_can_be() -> None:
    """container-18."""
    (installed,) = [text for stage in lineage("http") for (text,) in stage.values("RUN") if "apt-get install" in text]
    usual = (
        "bzip2 curl diffutils file git jq less make openssh-client patch procps ripgrep rsync tree unzip xz-utils zip"
    )
    assert set(usual.split()) <= set(installed.split())
    assert "${EXTRAS}" in installed.split()


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_secret_is_in_the_image(target: str) -> None:
    """container-5."""
    assert secret_values(environment_of(target)) == secret_values({})
    assert set(arguments()) == {"EXTRAS", "USER_ID", "GROUP_ID", "VERSION"}


def test_the_check_and_the_signal_are_those_of_the_server() -> None:
    """container-6."""
    check = last("http", "HEALTHCHECK")
    assert check.json
    command, *words = check.value
    assert command == "CMD"
    assert words[:3] == [f"{HOME}/bin/python", "-P", "-m"]
    assert importlib.util.find_spec(words[3]) is not None
    healthcheck = importlib.import_module(words[3])
    flags = dict(flag.removeprefix("--").split("=") for flag in check.flags)
    assert seconds(flags["timeout"]) > healthcheck.ANSWER_SECONDS
    assert last("workstation", "HEALTHCHECK").value == ("NONE",)
    assert last("http", "STOPSIGNAL").value == ("SIGTERM",)


def test_the_port_is_the_same_everywhere() -> None:
    """container-7."""
    (port,) = last("http", "EXPOSE").value
    assert config_of({}).server.port == int(port)
    assert compose()["services"]["http"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    container = pod()["containers"][0]
    assert [one["containerPort"] for one in container["ports"]] == [int(port)]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]


def test_an_image_without_configuration_does_not_serve() -> None:
    """container-8: it listens for other machines, so it requires tokens, names and TLS."""
    server = config_of({}).server
    assert server.host == "0.0.0.0"
    with pytest.raises(Exception, match=r"auth\.tokens.*server\.hosts.*plain text"):
        require_safe(config_of({}), has_auth=False)


@pytest.mark.parametrize("service", OURS)
def test_the_compose_file_is_understood_and_safe(service: str) -> None:
    """container-9: every variable is a configuration key or one of the flags, and the server would start."""
    variables = compose()["services"][service]["environment"]
    known = (TREE / "coretools" / "config" / "options.py").read_text()
    assert {n for n in variables if not n.startswith(VARIABLES) and f'"{n}"' not in known} == set()
    config = config_of(variables)
    assert config.auth.tokens
    require_safe(config, has_auth=True)


def test_the_compose_file_has_two_roles_a_policy_limits_a_network_by_choice_and_an_author(tmp_path: Path) -> None:
    """container-20: as a start reads it, with the variables that `.env` may set."""
    given = {"CORETOOLS_NETWORK": "allow", "CORETOOLS_AUTHOR": "Ada <ada@example.com>", "CORETOOLS_UMASK": "002"}
    for given_variables, network, author, umask in (
        (given, "allow", "Ada <ada@example.com>", 0o002),
        ({}, "deny", None, 0o022),
    ):
        variables = compose(given_variables)["services"]["http"]["environment"]
        policy = tmp_path / "policy.toml"
        policy.write_text(here(variables["CORETOOLS_POLICY"]).read_text())
        policy.chmod(0o644)
        config = here(variables[CONFIG_VARIABLE]).read_text()
        settings = settings_from(options_of(), ["/work"], {**variables, "CORETOOLS_POLICY": str(policy)}, None)
        assert (settings.policy.confinement.network, settings.umask) == (network, umask)
        assert str(settings.author or "") == (author or "")
        assert settings.limits != Limits()
        assert [rule.verdict for rule in settings.policy.commands.rule] == ["deny"]
        assert settings.policy.confinement.require == "landlock"
        roles = tomllib.loads(config)["roles"]
        assert {name: role["profile"] for name, role in roles.items()} == {"dev": "dev", "review": "read"}
        assert roles["review"]["read_only"] is True
        assert read_author(roles["dev"]["author"], "roles.dev.author")


def test_every_variable_of_the_compose_file_is_explained() -> None:
    """container-20: in env.example, or beside the replicas; and env.example has no other variable."""
    named = set(re.findall(r"\$\{(\w+):-", COMPOSE.read_text()))
    explained = set(re.findall(r"^(\w+)=", (COMPOSE.parent / "env.example").read_text(), re.MULTILINE))
    places = {"CORETOOLS_WORK", "CORETOOLS_SECRETS", "CORETOOLS_CONFIG", "CORETOOLS_NAME", "CORETOOLS_CERTIFICATE"}
    places |= {"CORETOOLS_REDIS_DATA", "CORETOOLS_NATS_DATA", "CORETOOLS_SERVICES"}
    assert named == explained | places
    pages = (COMPOSE.parent / "containers.md").read_text()
    assert [name for name in sorted(places) if name not in pages] == []


@pytest.mark.parametrize("target", TARGETS)
def test_variables_of_the_image_are_known_ones(target: str) -> None:
    """container-9."""
    known = (TREE / "coretools" / "config" / "options.py").read_text()
    ours = {name for name in environment_of(target) if name.startswith("CORETOOLS_")}
    assert {name for name in ours if not name.startswith(VARIABLES) and f'"{name}"' not in known} == set()
    assert "CORETOOLS_ROOTS" in known or target == "http"


def test_the_manifest_is_understood_and_safe(tmp_path: Path) -> None:
    """container-9: and the probes call the server by one of its names."""
    config = config_of_pod(tmp_path)
    require_safe(config, has_auth=True)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        (header,) = pod()["containers"][0][probe]["httpGet"]["httpHeaders"]
        assert header["name"] == "Host"
        assert header["value"] in config.server.hosts


@pytest.mark.parametrize("service", ["http", "replica-1", "redis", "nats", "haproxy"])
def test_containers_of_compose_have_no_unneeded_privileges(service: str) -> None:
    """container-10."""
    found = compose()["services"][service]
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert found["pids_limit"] > 0
    assert found["mem_limit"]
    assert "privileged" not in found
    assert "docker.sock" not in str(found)
    if service in OURS:
        assert found["user"] == user()
        places = {place: set(flags.split(",")) for place, _, flags in (one.partition(":") for one in found["tmpfs"])}
        assert set(places) == {environment_of("http")["TMPDIR"], "/run/coretools"}
        assert all({"exec", "mode=1777"} <= flags for flags in places.values())


def test_the_pod_has_no_unneeded_privileges() -> None:
    """container-10."""
    uid, gid = (int(one) for one in user().split(":"))
    security = pod()["securityContext"]
    assert security["runAsNonRoot"] is True
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (uid, gid, gid)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod()["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["enableServiceLinks"] is False
    for shared in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        assert shared not in pod()
    assert "namespace" not in {key for one in manifests().values() for key in one["metadata"]}


def test_the_pod_and_the_container_of_compose_have_the_same_writable_mounts() -> None:
    """container-21: the work tree, and in memory, with the same sizes, temporary files of the server and of
    commands."""
    service = compose()["services"]["http"]
    tmpfs = {path: options for path, _, options in (entry.partition(":") for entry in service["tmpfs"])}
    wanted = {path: re.search(r"size=(\d+)g", options)[1] for path, options in tmpfs.items()}  # type: ignore[index]
    wanted["/dev/shm"] = service["shm_size"].removesuffix("g")
    volumes = {one["name"]: one for one in pod()["volumes"]}
    mounts = {one["mountPath"]: volumes[one["name"]] for one in pod()["containers"][0]["volumeMounts"]}
    memory = {path: one["emptyDir"] for path, one in mounts.items() if "emptyDir" in one}
    assert memory == {path: {"medium": "Memory", "sizeLimit": f"{size}Gi"} for path, size in wanted.items()}
    written = {one["target"] for one in service["volumes"] if not one.get("read_only")}
    read = {one["mountPath"] for one in pod()["containers"][0]["volumeMounts"] if one.get("readOnly")}
    assert set(mounts) - set(memory) - read == written
    assert all("subPath" not in one for one in pod()["containers"][0]["volumeMounts"])


def test_secrets_lie_where_no_command_can_read() -> None:
    """container-11: commands may read `/etc` and the system's programs."""
    read = [
        *allowed_paths.SYSTEM,
        *allowed_paths.KERNEL,
        allowed_paths.ETC,
        "/work",
        environment_of("http")["TMPDIR"],
    ]
    targets = [one["target"] for service in OURS for one in compose()["services"][service]["volumes"]]
    mounts = [one["mountPath"] for one in pod()["containers"][0]["volumeMounts"] if one["name"] in ("tokens", "config")]
    secret = [target for target in targets if "secrets" in target] + mounts
    assert len(secret) == len(OURS) + 2
    assert [path for path in secret if any(f"{path}/".startswith(f"{one}/") for one in read)] == []


def test_token_files_lie_in_what_is_mounted_as_a_directory(tmp_path: Path) -> None:
    """container-11: a mount of the file itself would keep showing tokens that have been revoked."""
    for service in OURS:
        found = compose()["services"][service]
        path = Path(config_of(found["environment"]).auth.tokens)
        mount = next(one for one in found["volumes"] if one["target"] == str(path.parent))
        assert mount["read_only"] is True
    path = Path(config_of_pod(tmp_path).auth.tokens)
    mount = next(one for one in pod()["containers"][0]["volumeMounts"] if one["mountPath"] == str(path.parent))
    assert "subPath" not in mount
    volume = next(one for one in pod()["volumes"] if one["name"] == mount["name"])
    assert volume["secret"]["defaultMode"] == 0o440


@pytest.mark.skipif(os.geteuid() != 0, reason="a secret in a pod is a file of root")
def test_a_token_file_as_a_pod_has_it_is_taken(tmp_path: Path) -> None:
    """container-11: a link to a link to a file of root, in directories created by the kubelet; also after an update."""
    group = int(user().partition(":")[2])
    for version, name in enumerate(("ada", "bob")):
        directory = tmp_path / f"..{version}"
        directory.mkdir()
        create_token(str(directory / "tokens"), name=name, role="default")
        os.chown(directory / "tokens", 0, group)
        (directory / "tokens").chmod(0o440)
        os.chown(directory, 0, group)
        directory.chmod(0o2755)
        (tmp_path / "..data").unlink(missing_ok=True)
        (tmp_path / "..data").symlink_to(directory.name)
        if not version:
            (tmp_path / "tokens").symlink_to("..data/tokens")
            os.chown(tmp_path, 0, group)
            tmp_path.chmod(0o3777)
        entries, _ = read_tokens(str(tmp_path / "tokens"))
        assert [entry.name for entry in entries] == [name]


def test_there_is_time_to_end(tmp_path: Path) -> None:
    """container-12: between TERM and KILL, current calls may finish and be cleaned up."""
    for service in OURS:
        found = compose()["services"][service]
        server = config_of(found["environment"]).server
        needed = server.lame_duck_seconds + server.drain_seconds + END_SECONDS
        assert seconds(found["stop_grace_period"]) > needed
    ahead = pod()["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    needed = ahead + config_of_pod(tmp_path).server.drain_seconds + END_SECONDS
    assert pod()["terminationGracePeriodSeconds"] > needed


def test_a_replica_serves_until_the_balancer_knows_that_it_ends() -> None:
    """container-22: the balancer's check fails within the time in which the replica still serves."""
    inter, fall = re.findall(r"check inter (\d+)s fall (\d+)", (COMPOSE.parent / "haproxy.cfg").read_text())[0]
    for service in OURS[1:]:
        server = config_of(compose()["services"][service]["environment"]).server
        assert server.lame_duck_seconds >= int(inter) * (int(fall) + 2)


def test_replicas_trust_the_balancer_and_redis_is_not_published() -> None:
    """container-13, services-6: and Redis writes what commands share to a volume before it answers."""
    services = compose()["services"]
    balanced = (COMPOSE.parent / "haproxy.cfg").read_text()
    for service in OURS[1:]:
        config = config_of(services[service]["environment"])
        assert config.server.proxies == (services["haproxy"]["networks"]["front"]["ipv4_address"],)
        assert config.redis.url.startswith("redis://redis:")
        assert config.services.url.startswith("redis://redis:")
        assert "ports" not in services[service]
        at = f"{services[service]['networks']['front']['ipv4_address']}:{config.server.port}"
        assert re.search(rf"^ +server \w+ {re.escape(at)}$", balanced, re.MULTILINE)
        (checked,) = re.findall(r"hdr Host (\S+)", balanced)
        assert checked in config.server.hosts
    for store in ("redis", "nats"):
        assert services[store]["networks"] == ["back"]
        assert "ports" not in services[store]
    words = " ".join(services["redis"]["command"])
    assert "--appendonly yes --appendfsync always" in words
    assert "--maxmemory-policy noeviction" in words
    assert [one["target"] for one in services["redis"]["volumes"]] == ["/data"]
    assert compose()["networks"]["back"]["internal"] is True
    assert set(services["haproxy"]["depends_on"]) == set(OURS[1:])
    mounted = {one["target"] for one in services["haproxy"]["volumes"]}
    assert set(re.findall(r"\bcrt (\S+)", balanced)) <= mounted


def test_files_that_compose_mounts_are_here() -> None:
    """container-13: variables name those that the operator must create."""
    named = re.findall(r"^\s+source: (\./.*)$", COMPOSE.read_text(), re.MULTILINE)
    assert named
    assert [path for path in named if not (COMPOSE.parent / path).is_file()] == []


def test_the_compose_file_fits_the_schema_of_its_specification() -> None:
    """container-14."""
    pytest.importorskip("check_jsonschema", reason="check-jsonschema, which has the schema, is not installed")
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_manifest_fits_the_schema_of_kubernetes() -> None:
    """container-14: strictly, so that a misspelt key is found, which a server would ignore."""
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate, which has it, is not installed")
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    found: list[Any] = list(yaml.safe_load_all(KUBERNETES.read_text()))
    for one in found:
        schemas.validate(one, schemas.latest_version(), strict=True)
    selector = manifests()["Deployment"]["spec"]["selector"]["matchLabels"]
    assert manifests()["Service"]["spec"]["selector"] == selector
    assert manifests()["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == selector
    assert manifests()["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == selector


def test_the_page_shows_the_commands_that_the_files_are_made_for() -> None:
    """container-1: the targets and files that docs/deploy/containers.md names exist."""
    text = (COMPOSE.parent / "containers.md").read_text()
    assert set(re.findall(r"--target (\w+)", text)) <= {stage.name for stage in stages()}
    for name in set(re.findall(r"docs/deploy/[\w.-]+", text)):
        assert (TREE / name).is_file(), name
    assert str(DOCKERFILE.name) in text
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    words = json.loads(example)["mcpServers"]["coretools"]["args"]
    assert words[words.index("-v") + 1].endswith(f":{words[-1]}")
    assert words[-2:] == ["coretools-workstation", environment_of("workstation")["CORETOOLS_ROOTS"]]
    assert words[words.index("--tmpfs") + 1].startswith(f"{environment_of('workstation')['TMPDIR']}:exec,")
