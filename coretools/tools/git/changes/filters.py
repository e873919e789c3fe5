"""Files that a configured filter (git-lfs and the like) converts, where the operator does not grant it."""

from collections.abc import Sequence

from coretools.errors import GitRefused
from coretools.tools.git.repository.checkout import display_paths
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import read_records, terminated
from coretools.tools.git.repository.results import listed


def required_filters(repository: OpenRepository) -> list[str]:
    """Return options with which git itself refuses to store files that a filter should convert.

    A filter that is required and has no command is an error (gitattributes(5)).
    """
    # Unlike `-c`, this option is split at its last `=`: the name of a filter may contain one. The variable is "1".
    names = sorted(_known_filters(repository))
    return [f"--config-env=filter.{name}.required=GIT_CONFIG_NOSYSTEM" for name in names]


async def refuse_filtered(repository: OpenRepository, names: Sequence[bytes]) -> None:
    """Refuse files that a filter should convert: without git-lfs the file itself would be stored, not a pointer.

    Raises:
        GitRefused: names them and their filter.
    """
    known = _known_filters(repository)
    if not known:
        return
    output = await repository.output("check-attr", "-z", "--stdin", "filter", stdin=terminated(names))
    wanted = {
        bytes(name): value.decode("utf-8", "replace")
        for name, _, value in read_records(output, 3)
        if value not in (b"unspecified", b"unset", b"set")
    }
    filtered = [name for name, driver in wanted.items() if driver in known]
    if filtered:
        drivers = ", ".join(sorted({wanted[name] for name in filtered}))
        files = listed(display_paths(repository.checkout, filtered))
        raise GitRefused(
            f"{files}: need the filter {drivers}, and filters are not run here; "
            "nothing was changed; use git itself for these files"
        )


def _known_filters(repository: OpenRepository) -> set[str]:
    """Return the filters of the user and of the repository that are not granted.

    Those of the repository are among the settings that every call overrides.
    """
    keys = (word.partition("=")[0] for word in repository.checkout.policy.overrides)
    parts = [(key.removeprefix("filter.").rpartition("."), key) for key in keys if key.startswith("filter.")]
    own = {name for (name, _, variable), _ in parts if variable in ("clean", "process")}
    return (own | set(repository.git.user_git.filters)) - repository.checkout.grants.filters
