"""Read the operator's policy file, and refuse one that anybody else could have written.

`policy_schema` parses its content; `operator_policy` has the values and their defaults.
"""

import os
import stat
from collections.abc import Mapping

from coretools.config.operator_policy import OperatorPolicy, expand_home
from coretools.errors import BadSetting
from coretools.own_state import configuration_path
from coretools.reach import looked_up
from coretools.regular_file import read_regular

VARIABLE = "CORETOOLS_POLICY"


def policy_path(flag: str | None, environment: Mapping[str, str]) -> str | None:
    """The path of the policy file: from the flag, the variable, or the default location if it exists."""
    named = flag or environment.get(VARIABLE)
    if named:
        return os.path.abspath(expand_home(named, environment))
    usual = usual_path(environment)
    return usual if usual is not None and os.path.lexists(usual) else None


def usual_path(environment: Mapping[str, str]) -> str | None:
    """The default location of the policy file, whether it exists or not; None without a home."""
    return configuration_path(environment, "policy.toml")


def read_policy(path: str, environment: Mapping[str, str]) -> OperatorPolicy:
    """The policy in the file `path`. Whether agents could change it depends on the roots (`config.agent_reach`).

    Raises:
        BadSetting: missing, writable by others, not TOML, or with an unknown key or an unusable value.
    """
    # Imported here: most servers have no policy file, and `coretools --help` does not need pydantic.
    from coretools.config.policy_schema import parse_policy

    return parse_policy(read_own_file(path), path, environment)


def read_own_file(path: str) -> bytes:
    """Read a policy file that nobody but root and the user of this process could have written.

    Raises:
        BadSetting: missing, not a regular file, or writable by others, itself or a directory on its path.
    """
    places = _places(path)
    for place in places:
        _require_own_directory(path, os.path.dirname(place))
    return _content(path, places[-1])


def _places(path: str) -> list[str]:
    """Every path that is looked up to reach a file, links followed one by one; the file itself is last.

    Raises:
        BadSetting: a component is missing or not a directory, or the links form a loop.
    """
    try:
        names = looked_up(path)
        os.lstat(names[-1].path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"{path}: cannot be read: {reason}") from error
    return [name.path for name in names]


def _require_own_directory(path: str, directory: str) -> None:
    """Refuse a directory in which another user could replace the policy file."""
    status = os.stat(directory)
    is_sticky = bool(status.st_mode & stat.S_ISVTX)  # like /tmp: only its owner may rename a file (inode(7))
    if status.st_mode & 0o022 and not is_sticky:
        raise BadSetting(f"{path}: others may change its directory {directory}; run chmod go-w {directory}")
    if status.st_uid not in (0, os.geteuid()):
        raise BadSetting(f"{path}: its directory {directory} belongs to another user; move the file to one of your own")


def _content(path: str, place: str) -> bytes:
    """Read the file at `place`, which is no link."""
    from coretools.config.toml_file import LONGEST  # imported here, as above

    try:
        data, status = read_regular(place, LONGEST)
    except OSError as error:
        raise BadSetting(f"{path}: cannot be read: {error.strerror}") from error
    if status.st_mode & 0o022:
        raise BadSetting(f"{path}: others may write the policy file; run chmod go-w {path}")
    if status.st_uid not in (0, os.geteuid()):
        raise BadSetting(f"{path}: the policy file belongs to another user; copy it to a file of your own")
    return data
