"""The roots that the operator gives, as text."""

from coretools.config.agent_reach import split_root
from coretools.config.settings import Settings
from coretools.roots.root import RootSpec


def root_specs(settings: Settings) -> list[RootSpec]:
    """Parse the roots given by the operator: `PATH`, `PATH:ro` or `PATH:rw`."""
    return [
        RootSpec(path, writable=is_writable and not settings.read_only)
        for path, is_writable in map(split_root, settings.roots)
    ]
