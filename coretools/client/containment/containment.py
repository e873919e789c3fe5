"""Which local servers run with the user's rights, and which are confined like a command.

A server that a file of the project names is confined. One of the user runs with the user's rights, in the home, unless
tools or commands could change what it runs: then it is confined too. The user decides otherwise by name.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from coretools.client.configuration.launch import LocalLaunch
from coretools.client.configuration.places import is_project, widest_project
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.containment.reachable_code import CodeCheck, program_of
from coretools.config.agent_reach import split_root
from coretools.config.operator_policy import network_access
from coretools.errors import BadSetting, InputOutput
from coretools.own_state import server_directory
from coretools.process.environment import HANDED_ON, NAMES, OFFLINE_ENVIRONMENT
from coretools.reach import NO_REACH, Place, Reach, is_beneath

CONFINE_VARIABLE = "CORETOOLS_CONFINE"
"""`NAME` or `NAME=ACCESS`, separated by semicolons, as for the option."""

UNCONFINED_VARIABLE = "CORETOOLS_UNCONFINED"
"""Names, separated by semicolons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """What the user and the operator decided about the servers of a process."""

    confined: Mapping[str, str] = field(default_factory=dict)
    """The network of a server that is to be confined, as `--network` takes it, by name."""
    unconfined: frozenset[str] = frozenset()
    """Servers that may run with all rights of the user, whatever they are."""
    reach: Reach = NO_REACH
    """What tools and commands may change, besides the project."""
    trusted: tuple[str, ...] = ()
    """Paths in the project that the operator vouches for."""
    roots: tuple[str, ...] = ()
    """What confined servers may use, each as `--root` takes it; none: the project."""
    options: tuple[str, ...] = ()
    """Further options of `coretools confine`."""
    named_by_options: frozenset[str] = frozenset()
    """Servers that a line names, all of which must be there; a variable may name those of other lines."""

    @classmethod
    def of(
        cls, confined: Sequence[str] | None, unconfined: Sequence[str] | None, environment: Mapping[str, str]
    ) -> "Containment":
        """Parse `--confine` and `--unconfined`, or else their variables.

        Raises:
            BadSetting: a network is invalid, or a server is named by both.
        """
        by_variables = _listed(environment, CONFINE_VARIABLE), _listed(environment, UNCONFINED_VARIABLE)
        networks = dict(_network_of(text) for text in confined or by_variables[0])
        names = frozenset(unconfined or by_variables[1])
        if both := sorted(names & networks.keys()):
            raise BadSetting(f"--confine {both[0]} and --unconfined {both[0]} (or their variables): keep one")
        named = {text.partition("=")[0] for text in {*(confined or ()), *(unconfined or ())}.difference(*by_variables)}
        return cls(confined=networks, unconfined=names, named_by_options=frozenset(named))

    def choice(self, name: str) -> str | None:
        """Return the choice for a server; None if there is none."""
        if name in self.unconfined:
            return "unconfined"
        return f"confined={self.confined[name]}" if name in self.confined else None

    def summary(self, entry: ServerEntry, environment: Mapping[str, str]) -> str:
        """Return how a server of the project will run."""
        if entry.name in self.unconfined:
            return "runs with all your rights (--unconfined)"
        network = self.confined.get(entry.name, "deny")
        roots = [root.removesuffix(":rw") for root in self._roots_for(entry, environment)]
        return f"runs confined to {', '.join(roots)}, network: {network}"

    def applied(self, entry: ServerEntry, launch: LocalLaunch) -> LocalLaunch:
        """Return how a server is started.

        Raises:
            BadSetting: it would have to be confined, and there is no directory for it.
        """
        if entry.name in self.unconfined:
            return launch
        if entry.name in self.confined:
            return self._confined(entry, launch, "as --confine says")
        if entry.place.scope == "project":
            return self._confined(entry, launch, f"because {entry.place.path} belongs to the project")
        check = self.check(entry.project, launch.user_environment)
        names_directory = entry.settings is not None and entry.settings.cwd is not None
        safe = check.without_reachable(launch if names_directory else check.outside(launch))
        program = program_of(safe)
        if reason := check.why(safe) or check.reason(entry.place.path) or check.why_passed_over(safe, launch):
            return self._confined(entry, launch, f"because of what its entry names: {reason}")
        return replace(safe, argv=(program or safe.argv[0], *safe.argv[1:]))

    def check(self, project: str, environment: Mapping[str, str]) -> CodeCheck:
        """Return what examines programs that are started outside the sandbox; a home is no project."""
        home = environment.get("HOME", "")
        places = [Place(widest_project(project, home), "the project")] if is_project(project, home) else []
        return CodeCheck((self.reach, Reach(places, trusted=self.trusted)))

    def _confined(self, entry: ServerEntry, launch: LocalLaunch, why: str) -> LocalLaunch:
        network = self.confined.get(entry.name, "deny")
        roots = self._roots_for(entry, launch.user_environment)
        first, *_ = directories = [split_root(root)[0] for root in roots]
        is_inside = any(is_beneath(os.path.realpath(launch.cwd), os.path.realpath(one)) for one in directories)
        at = launch.cwd if entry.place.scope == "project" or is_inside else first
        words = [word for root in roots for word in ("--root", root)]
        options = (*words, "--directory", at, "--network", network, *self.options)
        argv = (sys.executable, "-P", "-m", "coretools.cli.main", "confine", *options, "--", *launch.argv)
        inherited = launch.user_environment
        # Not as variables of that process, which is not confined: one could load code into it.
        given = {
            name: value
            for name, value in launch.environment.items()
            if name not in NAMES or inherited.get(name) != value
        }
        offline = OFFLINE_ENVIRONMENT if network == "deny" else {}
        remark = (
            f"it runs confined, {why}; it can't use your home, network: {network}. --unconfined {entry.name} gives it"
            f" all your rights (for every line: {UNCONFINED_VARIABLE}); --confine {entry.name}=ACCESS gives it a"
            " network (hosts, such as npm or pypi, or allow)"
        )
        environment = {**inherited, HANDED_ON: json.dumps({**offline, **given})}
        return replace(launch, argv=argv, environment=environment, cwd="/", confinement=remark)

    def _roots_for(self, entry: ServerEntry, environment: Mapping[str, str]) -> tuple[str, ...]:
        if self.roots:
            return self.roots
        is_there = is_project(entry.project, environment.get("HOME", ""))
        directory = entry.project if is_there else _own_directory(entry, environment)
        return (f"{directory}:rw",)  # a directory may be named `x:ro`, which would be read as the root `x`


NO_CHOICES = Containment()


def _own_directory(entry: ServerEntry, environment: Mapping[str, str]) -> str:
    """Return a directory for a confined server where there is no project.

    Raises:
        BadSetting: there is no home. InputOutput: it can't be made.
    """
    path = server_directory(environment, re.sub(r"[^A-Za-z0-9_-]", "_", entry.name))
    if path is None:
        raise BadSetting(f"server {entry.name!r}: no project, no HOME and no XDG_DATA_HOME: nowhere to confine it to")
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    except OSError as error:
        raise InputOutput(f"{path}: cannot be made: {error.strerror}") from error
    return path


def _network_of(text: str) -> tuple[str, str]:
    name, _, access = text.partition("=")
    access = access or "deny"
    if access not in ("allow", "deny"):
        try:
            network_access([entry.strip() for entry in access.split(",")])
        except ValueError as error:
            raise BadSetting(f"--confine {text[:200]}: after = comes allow, deny, or hosts: {error}") from error
    return name, access


def _listed(environment: Mapping[str, str], name: str) -> list[str]:
    return [item.strip() for item in environment.get(name, "").split(";") if item.strip()]
