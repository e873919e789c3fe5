"""The author and committer of a commit.

They come from the caller's token, else from the operator's settings, else from the operator's git configuration.
"""

from coretools.errors import GitRefused
from coretools.tools.git.repository.open_repository import OpenRepository

_IDENTITY = r"^(user|author|committer)\.(name|email)$"
_ROLES = ("author", "committer")
_PARTS = ("name", "email")


async def identity(repository: OpenRepository) -> tuple[str, ...]:
    """Return options with the identity that git would take from its configuration here, if the environment has none.

    It is read for each repository: many people include another address by directory (`includeIf "gitdir:~/work/"`), and
    the wrong address in a commit can't be undone.
    """
    environment = repository.git.identity
    unknown = [(role, part) for role in _ROLES for part in _PARTS if not environment.get(f"GIT_{role}_{part}".upper())]
    if not unknown:
        return ()  # git prefers the environment to any configuration
    settings = await repository.settings(_IDENTITY)
    for role, part in unknown:
        if not settings.get(f"user.{part}") and not settings.get(f"{role}.{part}"):
            raise no_identity(part)
    return tuple(word for key, value in settings.items() for word in ("-c", f"{key}={value}"))


def no_identity(part: str) -> GitRefused:
    """Return the error where no name or email of an author is known."""
    return GitRefused(
        f"no {part} to commit under is known; the operator names one with `--author 'NAME <ADDRESS>'` "
        "(CORETOOLS_AUTHOR) for the server, with `[roles.NAME] author` for a role, with `coretools token "
        f"create --author` for a token, or with `git config --global user.{part} ...`"
    )
