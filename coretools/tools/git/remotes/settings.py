"""Settings of git for transfers, and those that a repository may not change. Pure."""

from collections.abc import Mapping

_STRICT = (
    *("emptyName", "hasDot", "hasDotdot", "hasDotgit", "fullPathname", "duplicateEntries", "treeNotSorted"),
    *("gitmodulesMissing", "gitmodulesName", "gitmodulesSymlink", "gitmodulesUrl", "gitmodulesPath"),
    "gitmodulesUpdate",
)
"""Faults of received objects that would matter in a work tree; a repository may not declare them harmless."""

_OLD = (
    *("zeroPaddedFilemode", "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "badTimezone", "badDateOverflow"),
    *("missingEmail", "missingNameBeforeEmail", "zeroPaddedDate", "badFilemode", "missingTaggerEntry", "badTagName"),
    *("multipleAuthors", "badEmail", "badName", "gitmodulesParse"),
)
"""Faults that old versions of programs left in histories which are in use."""


def _words(settings: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for key, value in settings.items() for word in ("-c", f"{key}={value}"))


def _checks(section: str) -> dict[str, str]:
    faults = {f"{section}.fsck.{name}": "error" for name in _STRICT}
    return {f"{section}.fsckObjects": "true", **faults, **{f"{section}.fsck.{name}": "ignore" for name in _OLD}}


FETCH_SETTINGS = _words(
    {
        **_checks("fetch"),
        "fetch.unpackLimit": "1",  # always a pack, which is kept or dropped as a whole
        "transfer.unpackLimit": "1",
        "fetch.prune": "false",
        "fetch.pruneTags": "false",
        "fetch.writeCommitGraph": "false",
        "fetch.showForcedUpdates": "false",
        "fetch.recurseSubmodules": "false",
        "fetch.bundleURI": "",
        "transfer.bundleURI": "false",
        "transfer.advertiseSID": "false",
        "protocol.version": "2",
        "submodule.propagateBranches": "false",
    }
)

PUSH_SETTINGS = _words(
    {
        "core.abbrev": "no",
        "push.followTags": "false",
        "push.gpgSign": "false",
        "push.recurseSubmodules": "no",
        "push.negotiate": "false",
        "push.useForceIfIncludes": "false",
        "push.pushOption": "",
        "transfer.advertiseSID": "false",
        "protocol.version": "2",
    }
)

SEND_SETTINGS = _words(
    {
        "safe.directory": "*",  # the operator named the repository, whoever owns it
        "uploadpack.allowFilter": "false",
        "uploadpack.advertiseBundleURIs": "false",
    }
)

RECEIVE_SETTINGS = _words(
    {
        "safe.directory": "*",
        **_checks("receive"),
        "receive.autogc": "false",
        "receive.updateServerInfo": "false",
        "receive.denyCurrentBranch": "refuse",
        "receive.denyDeleteCurrent": "refuse",
        "receive.advertisePushOptions": "false",
        "receive.certNonceSeed": "",
    }
)
