"""Settings by which git starts programs, reads other files or reaches other places. Pure."""

import re
from functools import cache

from coretools.roots.git_config import Setting

_NETWORK = "fetch, pull, push"
CONVERTS = "checkout, switch, merge, reset, restore, stash"
MERGES = "merge, rebase, cherry-pick, revert, stash apply"
SHOWS = "diff, log -p, show, blame"
_COMMITS = "commit, merge, rebase"
_FILES = r"core\.(excludesfile|attributesfile)|commit\.template|mailmap\.(file|blob)|blame\.ignorerevsfile"
# The layout of vimdiff becomes part of a line that the shell evaluates (git's mergetools/vimdiff).
_TOOLS = (
    r"(merge|diff|gui)tool\..+\.(cmd|path|layout)|(merge|diff)\.(gui)?tool|(man|browser)\..+\.(cmd|path)|man\.viewer"
)
_BROWSERS = r"web\.browser|help\.(browser|htmlpath)|instaweb\..+"
_LISTS = r"(fetch\.|receive\.)?fsck\.skiplist|format\.(signaturefile|outputdirectory)"
_NAMED_REMOTES = r"branch\..+\.(remote|pushremote)|remote\.pushdefault|remotes\..+"
_STRATEGIES = r"pull\.(twohead|octopus)"

_SETTINGS: tuple[tuple[str, str, str], ...] = (
    (r"core\.fsmonitor", "program", "status, add, commit, diff and all that read the index"),
    (r"core\.hookspath", "hooks", "commit, merge, checkout, rebase, push"),
    (r"hook\..+", "hook", "what its event names"),
    (r"core\.(sshcommand|gitproxy)|ssh\.variant", "program", _NETWORK),
    (r"core\.askpass|credential\.(.+\.)?helper", "credential helper", f"{_NETWORK} over HTTP"),
    (r"core\.pager|pager\..+", "pager", "log, diff, show, branch on a terminal"),
    (r"core\.editor|sequence\.editor", "editor", "commit, merge, rebase --interactive"),
    (r"core\.alternaterefscommand", "program", "fetch, push"),
    (rf"{_FILES}|diff\.orderfile|gpg\.ssh\.(allowedsignersfile|revocationfile)", "file", "status, commit, log, blame"),
    (r"attr\.tree", "file", "checkout, diff, merge and all that read attributes"),
    (r"extensions\.worktreeconfig", "file", "every command"),
    (r"core\.worktree|extensions\.refstorage", "location", "every command"),
    (r"(maintenance|scalar)\.repo", "location", "maintenance run, for-each-repo, scalar"),
    (r"alias\..+", "alias", "git with its name"),
    (r"diff\.external|diff\..+\.command", "diff driver", SHOWS),
    (r"diff\..+\.textconv", "text conversion", SHOWS),
    (r"interactive\.difffilter", "program", "add --patch"),
    (r"filter\..+\.smudge", "filter", CONVERTS),
    (r"filter\..+\.process", "filter", f"add, status, diff, {CONVERTS}"),
    (r"filter\..+\.clean", "filter", "add, commit --all, status, diff"),
    (r"merge\..+\.driver", "merge driver", MERGES),
    (_TOOLS, "program", "mergetool, difftool, gui, help"),
    (_BROWSERS, "program", "help --web, web--browse, instaweb"),
    (_STRATEGIES, "program", "pull, merge"),
    (r"branch\..+\.mergeoptions", "program", "merge, pull"),
    (r"gc\.recentobjectshook", "program", "gc, prune, repack"),
    (r"gitcvs\.dbdriver", "program", "cvsserver"),
    (r"gitcvs\.(dbname|logfile)|gui\.spellingdictionary", "file", "cvsserver, gui"),
    (r"init\.templatedir", "hooks", "init, clone"),
    (_LISTS, "file", "fsck, fetch, format-patch"),
    (r"fsmonitor\.socketdir", "location", "status and all that read the index"),
    (
        r"gpg\.(.+\.)?program|gpg\.ssh\.defaultkeycommand",
        "program",
        "commit --gpg-sign, tag --sign, log --show-signature",
    ),
    (r"commit\.gpgsign|user\.signingkey", "signing", _COMMITS),
    (r"(tag|push)\.gpgsign|log\.showsignature|merge\.verifysignatures", "signing", "tag, push, log, merge"),
    (r"include\.path|includeif\..+\.path", "include", "every command"),
    (
        r"remote\..+\.(promisor|partialclonefilter)|extensions\.partialclone|promisor\.acceptfromserver",
        "promisor",
        "all that miss an object",
    ),
    (r"remote\..+\.(vcs|uploadpack|receivepack)", "program", _NETWORK),
    (rf"remote\..+\.(url|pushurl|proxy)|{_NAMED_REMOTES}", "remote", _NETWORK),
    (r"url\..+\.(insteadof|pushinsteadof)", "address", f"{_NETWORK}, submodule update"),
    (r"(fetch|transfer|bundle)\.(.+\.)?(bundle)?uri", "address", "fetch, clone"),
    (r"submodule\..+\.(url|update)", "submodule", "submodule update, clone --recurse-submodules"),
    (r"(http|protocol)\..+", "network", f"{_NETWORK} over HTTP"),
    (r"trailer\..+\.(command|cmd)", "program", "commit --trailer, interpret-trailers"),
    (r"tar\..+\.command", "program", "archive"),
    (r"(receive|uploadpack)\..*(hook|procreceiverefs)", "program", "push or fetch from this repository"),
    (r"(sendemail|imap)\..+", "program", "send-email, imap-send"),
    (r"lfs\..+", "lfs", "git lfs, filter lfs"),
)
_PROGRAM = (
    "cmd|command|program|prog|hook|helper|editor|pager|driver|viewer|browser|clean|smudge|process|textconv|mergeoptions|update"
    "|uploadpack|receivepack|vcs|x?funcname|required"
)
_LATER = (
    (rf"[^.]+\.(.+\.)?[a-z-]*({_PROGRAM})", "program", "not known"),
    (r"(?!(.+\.)?fsck\.)[^.]+\.(.+\.)?[a-z-]*(file|path|dir|directory|template)", "file", "not known"),
    (r"[^.]+\.(.+\.)?[a-z-]*(url|uri|proxy|tunnel)", "address", "not known"),
)
"""Names that git uses for programs, files and addresses: keys of other versions, and of programs beside git."""

_OFF = frozenset({"", "false", "no", "off", "0"})
_SWITCHES = re.compile(
    r"core\.fsmonitor|extensions\.worktreeconfig|.+\.(gpgsign|showsignature|verifysignatures|promisor)"
)
"""Settings that mean nothing if they are off."""
_ONLY_SHELL = re.compile(r"alias\..+|submodule\..+\.update")
"""Settings that start a program only if the value begins with `!`."""
_ONLY_URL = re.compile(rf"{_NAMED_REMOTES}|extensions\.refstorage")
"""Settings that name a remote or a format, or have an address in its place."""
_ONLY_OTHER = re.compile(_STRATEGIES)
_BUILT_IN_STRATEGIES = frozenset({"ort", "recursive", "resolve", "octopus", "ours", "subtree"})
_NO_NAME = re.compile(r"true|false|yes|no|on|off|[0-9]*", re.IGNORECASE)
"""Values that name no program, file or address."""

RUNS_OR_REDIRECTS = frozenset(
    {"program", "hooks", "hook", "credential helper", "pager", "editor", "alias", "diff driver", "text conversion"}
    | {"filter", "merge driver", "include", "location", "address", "network"}
)
"""Kinds of settings that let somebody else decide what git starts or where it connects."""


@cache
def _compiled() -> list[tuple[re.Pattern[str], str, str]]:
    """The patterns. Compiling them takes 20 ms, and most lines of `coretools` need none."""
    return [(re.compile(keys), kind, commands) for keys, kind, commands in (*_SETTINGS, *_LATER)]


def kind_of(setting: Setting) -> tuple[str, str] | None:
    """Return the kind of what a setting would run or reach, and the git commands; None for a harmless one."""
    entry = next(((kind, commands) for keys, kind, commands in _compiled() if keys.fullmatch(setting.key)), None)
    return None if entry is None or _is_idle(setting) else entry


def _is_idle(setting: Setting) -> bool:
    value = "true" if setting.value is None else setting.value
    if _SWITCHES.fullmatch(setting.key):
        return value.lower() in _OFF
    if _ONLY_URL.fullmatch(setting.key):
        return not set(value) & set(":/")
    if _ONLY_OTHER.fullmatch(setting.key):
        return _BUILT_IN_STRATEGIES.issuperset(value.split())
    if any(keys.fullmatch(setting.key) for keys, _, _ in _compiled()[-len(_LATER) :]) and _NO_NAME.fullmatch(value):
        return True
    return bool(_ONLY_SHELL.fullmatch(setting.key)) and not value.startswith("!")
