"""The Dockerfile as BuildKit's own parser reads it; the compose file and the Kubernetes manifest."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.checkout import TREE

DOCKERFILE = TREE / "Dockerfile"
COMPOSE = TREE / "docs" / "deploy" / "compose.yaml"
KUBERNETES = TREE / "docs" / "deploy" / "kubernetes.yaml"


@dataclass
class Stage:
    name: str
    base: str
    steps: list[Any] = field(default_factory=list)
    """The parser's instructions: `cmd`, `value`, `flags`, and `json` for a list of words."""

    def values(self, command: str) -> list[tuple[str, ...]]:
        return [step.value for step in self.steps if step.cmd == command]


def stages() -> list[Stage]:
    parser = pytest.importorskip("dockerfile", reason="BuildKit's parser of Dockerfiles is not installed")
    found: list[Stage] = []
    for step in parser.parse_file(str(DOCKERFILE)):
        if step.cmd == "FROM":
            base, _, name = step.value
            found.append(Stage(name, base))
        elif found:
            found[-1].steps.append(step)
    return found


def arguments() -> dict[str, str]:
    """The arguments of the build with their defaults."""
    steps = [step for stage in stages() for step in stage.steps if step.cmd == "ARG"]
    return {name: value.strip('"') for name, _, value in (step.value[0].partition("=") for step in steps)}


def filled(text: str) -> str:
    """A text of the Dockerfile with its arguments replaced by their defaults."""
    return re.sub(r"\$\{(\w+)\}", lambda found: arguments()[found[1]], text)


def user() -> str:
    """The user of the image, unless it is built or run for another one."""
    return filled(str(last("http", "USER").value[0]))


def lineage(target: str) -> list[Stage]:
    """The stages that a target is built from, the first one first."""
    by_name = {stage.name: stage for stage in stages()}
    stage = by_name.get(target)
    line: list[Stage] = []
    while stage is not None:
        line.insert(0, stage)
        stage = by_name.get(stage.base)
    return line


def steps_of(target: str) -> list[Any]:
    return [step for stage in lineage(target) for step in stage.steps]


def environment_of(target: str) -> dict[str, str]:
    words = [word for step in steps_of(target) if step.cmd == "ENV" for word in step.value]
    return {name: value.strip('"') for name, value in zip(words[::2], words[1::2], strict=True)}


def last(target: str, command: str) -> Any:
    return [step for step in steps_of(target) if step.cmd == command][-1]


def compose(given: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The compose file with its variables replaced by the given values or their defaults."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    loaded: dict[str, Any] = _interpolated(yaml.safe_load(COMPOSE.read_text()), given or {})
    return loaded


def _interpolated(value: Any, given: Mapping[str, str]) -> Any:
    """Replace variables as Compose does: in the parsed document, so that a value keeps its type."""
    if isinstance(value, dict):
        return {key: _interpolated(inner, given) for key, inner in value.items()}
    if isinstance(value, list):
        return [_interpolated(inner, given) for inner in value]
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: given.get(found[1]) or found[2], value)
    return value


def manifests() -> dict[str, Any]:
    """The objects of the manifest, by kind."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return {one["kind"]: one for one in yaml.safe_load_all(KUBERNETES.read_text())}


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifests()["Deployment"]["spec"]["template"]["spec"]
    return found
