"""The token file: hash, owner and expiry of each bearer token. `coretools token` writes it.

Tokens themselves are not stored. A token has 256 random bits, so a plain SHA-256 can't be reversed by guessing; slow
hashes are for passwords that people choose. This module needs neither the protocol nor a web framework.
"""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from coretools.config.commit_author import Author, read_author
from coretools.errors import BadSetting, InvalidArguments, NotFound
from coretools.operations.call import LOCAL
from coretools.regular_file import read_regular, replacing, write_all
from coretools.roots.file_version import Version, version_of

PREFIX = "ct_"
"""Prefix of every token, so that people and secret scanners recognize it."""

TOKEN_BYTES = 32
ID_BYTES = 4
LONGEST = 1024 * 1024
"""Largest token file accepted, in bytes: about four thousand tokens."""

PRIVATE = 0o600
WRITE_BY_OTHERS = 0o022
READ_BY_OTHERS = 0o044

_ID = re.compile(r"[0-9a-f]{8}")

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
"""Name of a principal or a role. Principals of an authorization server have a `:`, so the two kinds never collide."""


def _checked_author(text: str) -> str:
    try:
        return str(read_author(text, "author"))
    except BadSetting as error:
        raise ValueError(str(error)) from error


class TokenRecord(BaseModel):
    """The record of one token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
    """Identifies the token in lists and logs; not derived from the token."""
    name: Name
    """Name of the principal; it may have several tokens."""
    role: Name
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created: AwareDatetime
    expires: AwareDatetime | None = None
    author: Annotated[str, AfterValidator(_checked_author)] | None = None
    """Author of the owner's commits, as git writes it."""

    @property
    def commits_as(self) -> Author | None:
        """The author, parsed."""
        return read_author(self.author, "author") if self.author else None


class _TokenFileContent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    tokens: tuple[TokenRecord, ...] = ()


def token_digest(token: str) -> str:
    """Return the digest that the file stores for a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def find_record(entries: Sequence[TokenRecord], token: str) -> TokenRecord | None:
    """Find the record of a token. Compares with every record, each in constant time."""
    digest = token_digest(token)
    record = None
    for entry in entries:
        if hmac.compare_digest(entry.sha256, digest):
            record = entry
    return record


def read_tokens(path: str) -> tuple[tuple[TokenRecord, ...], Version]:
    """Read the records of a file and its version.

    Raises:
        BadSetting: it can't be read, other users could have written it, or it is not a token file.
    """
    if not os.path.lexists(path):
        raise BadSetting(f"{path}: there is no token file; coretools token create --file {path} --name NAME makes it")
    _require_own_directories(path)
    try:
        data, status = read_regular(path, LONGEST, follow=True)
    except OSError as error:
        raise BadSetting(f"{path}: the token file can't be read: {error.strerror}") from error
    _require_own(path, status, is_editing=False)
    return _parsed(path, data), version_of(status)


def create_token(
    path: str, *, name: str, role: str, expires: datetime | None = None, author: Author | None = None
) -> tuple[TokenRecord, str]:
    """Add a token for a principal to a file, which is created if missing. Only this call returns the token.

    Raises:
        BadSetting: the file can't be used. InvalidArguments: an invalid name or role, or the
            principal has tokens of another role.
    """
    token = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    entry = _new_record(token, name=name, role=role, expires=expires)
    entry = entry.model_copy(update={"author": str(author) if author else None})
    added: list[TokenRecord] = []

    def add(entries: tuple[TokenRecord, ...]) -> tuple[TokenRecord, ...]:
        others = {one.role for one in entries if one.name == name} - {role}
        if others:
            raise InvalidArguments(
                f"{name} has the role {others.pop()} already; revoke its tokens first, or take another name"
            )
        taken = {one.id for one in entries}
        added.append(entry.model_copy(update={"id": next(one for one in _ids() if one not in taken)}))
        return (*entries, *added)

    _change(path, add, flags=os.O_RDWR | os.O_CREAT)
    return added[0], token


def revoke_tokens(path: str, which: str) -> tuple[TokenRecord, ...]:
    """Remove the token with this id, or all tokens of the principal with this name; return the removed ones.

    Raises:
        BadSetting: the file can't be used. NotFound: no token matches.
    """
    removed: list[TokenRecord] = []

    def remove(entries: tuple[TokenRecord, ...]) -> tuple[TokenRecord, ...]:
        removed.extend(entry for entry in entries if which in (entry.id, entry.name))
        if not removed:
            raise NotFound(f"{which}: no token has this id, and none is of a principal of this name")
        return tuple(entry for entry in entries if entry not in removed)

    _change(path, remove, flags=os.O_RDWR)
    return tuple(removed)


def _ids() -> Iterator[str]:
    while True:
        yield secrets.token_hex(ID_BYTES)


def _new_record(token: str, *, name: str, role: str, expires: datetime | None) -> TokenRecord:
    """Create a record with a new id.

    Raises:
        InvalidArguments: an invalid name or role.
    """
    if name == LOCAL:
        raise InvalidArguments(f"{LOCAL} is whoever is not asked for a token; take another name")
    if _ID.fullmatch(name):
        raise InvalidArguments(f"{name}: looks like the id of a token; take another name")
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        return TokenRecord(
            id=next(_ids()), name=name, role=role, sha256=token_digest(token), created=now, expires=expires
        )
    except ValidationError as error:
        where = error.errors()[0]["loc"][0]
        why = "at most 64 of letters, digits and ._@-, a letter or digit first"
        raise InvalidArguments(f"{where}: {why}") from error


def _parsed(path: str, data: bytes) -> tuple[TokenRecord, ...]:
    if len(data) > LONGEST:
        raise BadSetting(f"{path}: over {LONGEST} bytes; that is no token file")
    if not data:
        return ()  # just created by the writer
    try:
        entries = _TokenFileContent.model_validate_json(data).tokens
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadSetting(f"{path}: no token file: {where or 'JSON'}: {first['msg'][:200]}") from error
    _require_unambiguous(path, entries)
    return entries


def _require_unambiguous(path: str, entries: tuple[TokenRecord, ...]) -> None:
    roles: dict[str, str] = {}
    for entry in entries:
        if entry.name == LOCAL:
            raise BadSetting(f"{path}: {entry.id}: {LOCAL} is whoever is not asked for a token")
        if roles.setdefault(entry.name, entry.role) != entry.role:
            raise BadSetting(f"{path}: {entry.name} has two roles, {roles[entry.name]} and {entry.role}")
    if len({entry.id for entry in entries}) < len(entries):
        raise BadSetting(f"{path}: two tokens have one id")


def _change(path: str, change: Callable[[tuple[TokenRecord, ...]], tuple[TokenRecord, ...]], *, flags: int) -> None:
    """Replace the content of a file atomically; a lock makes concurrent writers wait."""
    path = os.path.realpath(path)
    _require_own_directories(path)
    try:
        with _locked(path, flags) as descriptor:
            status = os.fstat(descriptor)
            _require_own(path, status, is_editing=True)
            with os.fdopen(os.dup(descriptor), "rb") as file:
                entries = change(_parsed(path, file.read(LONGEST + 1)))
            text = _TokenFileContent(tokens=entries).model_dump_json(indent=2, exclude_none=True)
            _replace(path, f"{text}\n".encode(), status)
    except OSError as error:
        raise BadSetting(f"{path}: the token file can't be written: {error.strerror}") from error


@contextmanager
def _locked(path: str, flags: int) -> Iterator[int]:
    while True:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The previous holder of the lock replaced the file, so this lock is on the old one.
            if _is_at(path, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _replace(path: str, data: bytes, before: os.stat_result) -> None:
    """Replace the file by a new one with the same owner and mode."""
    with replacing(path, mode=PRIVATE) as descriptor:
        write_all(descriptor, data)
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, before.st_uid, before.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _require_own(path: str, status: os.stat_result, *, is_editing: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BadSetting(f"{path}: the token file is no regular file")
    # root may edit the file of the server's user; a server that runs as root does not trust that user's file.
    if status.st_uid not in (0, os.geteuid()) and not (is_editing and os.geteuid() == 0):
        raise BadSetting(f"{path}: the token file belongs to another user")
    # Containers get secrets as files of root that the group of their user may read.
    readable = READ_BY_OTHERS & (0o007 if status.st_uid == 0 else 0o077)
    if status.st_mode & (WRITE_BY_OTHERS | readable):
        raise BadSetting(f"{path}: others may read or write the token file; run chmod 600 {path}")


def _require_own_directories(path: str) -> None:
    """Refuse a directory in which another user could replace this file."""
    for directory in {os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))}:
        try:
            status = os.stat(directory)
        except OSError as error:
            raise BadSetting(f"{path}: its directory can't be read: {error.strerror}") from error
        is_sticky = bool(status.st_mode & stat.S_ISVTX)  # like /tmp: only its owner may rename a file (inode(7))
        if status.st_mode & WRITE_BY_OTHERS and not is_sticky:
            raise BadSetting(f"{path}: others may change its directory; run chmod go-w {directory}")
