"""The roots that the operator names, and which files beneath them are denied."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from coretools.config.agent_reach import require_state_out_of_grants, split_root
from coretools.config.settings import Settings
from coretools.errors import BadSetting
from coretools.own_state import own_directories, state_path
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.write import remove_temporary
from coretools.roots.write_notes import WriteNotes


def root_specs(settings: Settings) -> list[RootSpec]:
    """Parse the roots given by the operator: `PATH`, `PATH:ro` or `PATH:rw`."""
    return [
        RootSpec(path, writable=is_writable and not settings.read_only)
        for path, is_writable in map(split_root, settings.roots)
    ]


def open_roots(settings: Settings, environment: Mapping[str, str]) -> Roots:
    """Open the roots, with the operator's rules about files in them and without our own state.

    Raises:
        BadSetting: a root can't be used, or contains our own state that can't be denied.
    """
    default = DEFAULT_DENY if settings.default_deny else ()
    deny = DenyRules([*default, *settings.deny], by_content=settings.default_deny)
    own = own_directories(environment)
    require_state_out_of_grants(own, settings.policy.confinement)
    changes = settings.policy.files.changes_settings
    roots = Roots(root_specs(settings), deny=deny, own=own, changes_settings=changes)
    with suppress(BadSetting):  # a state directory that others could change
        roots.write_notes = WriteNotes(state_path(environment, "writes"))
        roots.write_notes.remove_leftovers(partial(remove_temporary, roots))
    roots.open_repositories(above=settings.policy.git.above)
    return roots
