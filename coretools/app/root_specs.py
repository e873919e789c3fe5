"""The roots that the operator gives, as text."""

from coretools.config.settings import Settings
from coretools.roots.root import RootSpec


def root_specs(settings: Settings) -> list[RootSpec]:
    """Parse the roots given by the operator: `PATH`, `PATH:ro` or `PATH:rw`."""
    return [_spec(text, read_only=settings.read_only) for text in settings.roots]


def _spec(text: str, *, read_only: bool) -> RootSpec:
    path, colon, rights = text.rpartition(":")
    if not colon or rights not in ("ro", "rw"):
        path, rights = text, "rw"
    return RootSpec(path, writable=rights == "rw" and not read_only)
