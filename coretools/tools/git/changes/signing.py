"""Sign the last commit with the key of the server's user, where the operator grants it.

git commits without a signature. The user's own program (gpg, ssh-keygen or gpgsm) then gets the text of the commit on
its standard input, and git stores the signed commit. Neither git nor a command has the key or the agent's socket.
"""

import re
from collections.abc import Sequence

from coretools.errors import CoreError, GitRefused
from coretools.git_remotes.ssh import top_directory
from coretools.process.run import RunOptions
from coretools.tools.git.repository.open_repository import Git, OpenRepository, failure_message

SIGN_SECONDS = 60.0
"""Longest wait for a signature: a person may have to unlock the key."""

SIGNATURE_BYTES = 64 * 1024

_PROGRAMS = {"openpgp": "gpg", "x509": "gpgsm", "ssh": "ssh-keygen"}
_KEYS = r"^(user\.signingkey|gpg\.format)$"
_LITERAL = re.compile(r"(?:key::)?(?P<key>(?:ssh|ecdsa|sk)-\S+ \S.*)|key::(?P<other>.+)")
"""A public key in place of the name of its file (git-config(1), user.signingKey)."""


async def sign_head(repository: OpenRepository, *, before: str | None) -> str:
    """Replace the last commit by a signed one, where that is granted; return its name, or "" where it is not.

    `before` is what HEAD named before that commit (empty: nothing), and names it again if signing fails; with None the
    unsigned commit stays.

    Raises:
        GitRefused: the key can't be used.
    """
    if not repository.checkout.grants.signing:
        return ""
    [commit] = await repository.resolved("HEAD")
    try:
        data = await repository.output("cat-file", "commit", commit)
        signature = await _signature(repository, data)
    except CoreError as error:
        kept = await _restore(repository, commit, before)
        raise GitRefused(f"the commit could not be signed: {error}; {kept}") from error
    name = "gpgsig" if len(commit) == len("0" * 40) else "gpgsig-sha256"
    headers, blank, message = data.partition(b"\n\n")
    lines = signature.strip().replace(b"\r", b"").replace(b"\n", b"\n ")
    signed = headers + b"\n" + name.encode() + b" " + lines + blank + message
    output = await repository.output("hash-object", "-t", "commit", "-w", "--stdin", stdin=signed)
    new = output.decode("ascii").strip()
    await repository.output("update-ref", "-m", "commit: signed", "HEAD", new, commit)
    return new


async def _restore(repository: OpenRepository, commit: str, before: str | None) -> str:
    """Take the unsigned commit back; return what became of it."""
    if before is None:
        return f"{commit[:10]} stays without a signature"
    words = ("-m", "reset: not signed", "HEAD", before, commit) if before else ("-d", "HEAD", commit)
    await repository.output("update-ref", *words)
    return "nothing was committed, and what was staged still is"


async def _signature(repository: OpenRepository, data: bytes) -> bytes:
    # Only the user's own configuration chooses the key: a repository must not choose another one of the user's.
    git = repository.git
    settings = await repository.settings(_KEYS, only_user=True)
    kind = settings.get("gpg.format", "openpgp").lower()
    if kind not in _PROGRAMS:
        raise GitRefused(f"gpg.format = {kind} in the configuration of the user: choose openpgp, x509 or ssh")
    _require_own_settings(git, kind)
    program = git.user_git.signers.get(kind) or _PROGRAMS[kind]
    words = _key_words(git, kind, settings.get("user.signingkey", ""), _committer(data))
    options = RunOptions(
        timeout_seconds=SIGN_SECONDS,
        stdin=data,
        environment={**git.setup.signing_environment, "PATH": git.tool_path, "LC_ALL": "C"},
        inherit=False,
        keep_bytes=SIGNATURE_BYTES,
    )
    # Not in the work tree: a program may look for modules and settings in its working directory.
    with top_directory() as top:
        completed = await git.runner.run((program, *words), cwd=top, options=options)
    output = completed.stdout.head + completed.stdout.tail
    if completed.timed_out:
        raise GitRefused(f"{program} gave no signature within {SIGN_SECONDS:g} s; unlock the key, and try again")
    if not completed.ok or not output.lstrip().startswith(b"-----BEGIN "):
        raise GitRefused(f"{program}: {failure_message(completed)}")
    return output


def _require_own_settings(git: Git, kind: str) -> None:
    """Refuse to start gpg with files that agents can change: its configuration names further programs (gpg(1))."""
    own = git.setup.signing_environment
    home = own.get("GNUPGHOME") or f"{own.get('HOME', '')}/.gnupg"
    if kind != "ssh" and (reason := git.runner.reach.reason(home)):
        raise GitRefused(f"{reason}, so gpg is not started; set GNUPGHOME to a directory elsewhere")


def _committer(data: bytes) -> str:
    """Return the name and address of the committer: without another choice gpg looks for a key of theirs."""
    match = re.search(rb"^committer (.*>) [0-9]+ [+-][0-9]+$", data, re.MULTILINE)
    return "" if match is None else match[1].decode("utf-8", "replace")


def _key_words(git: Git, kind: str, key: str, committer: str) -> Sequence[str]:
    """Return the arguments that choose the key."""
    if kind != "ssh":
        return ("--status-fd=2", "-bsa", f"--local-user={key or committer}")
    if not key:
        raise GitRefused("user.signingKey is not set; name the file of the public key there")
    literal = _LITERAL.fullmatch(key)
    if literal is not None:
        file = git.user_git.public_key_file(literal["key"] or literal["other"])
        return ("-Y", "sign", "-n", "git", "-f", file, "-U")
    home = git.setup.signing_environment.get("HOME", "")
    return ("-Y", "sign", "-n", "git", "-f", home + key[1:] if key.startswith("~/") else key)
