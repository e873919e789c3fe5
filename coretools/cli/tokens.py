"""`coretools token`: create, list and revoke the bearer tokens in the file of an HTTP server, without the server."""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from coretools.cli.common.terminal import aligned, print_error, print_text
from coretools.config.commit_author import read_author
from coretools.errors import BadSetting, InputOutput, InvalidArguments
from coretools.web.auth.hashed_tokens import TokenRecord, create_token, read_tokens, revoke_tokens

FILE_VARIABLE = "CORETOOLS_HTTP_AUTH__TOKENS"
"""The server's own variable."""

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhdw])")


def token(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run the action; return the exit code.

    Raises:
        BadSetting: the file is not named or can't be used; the author is invalid. InvalidArguments: a name, a role or
            a duration is invalid, or the name has another role. NotFound: there is no such token.
    """
    path = options.file or environment.get(FILE_VARIABLE)
    if not path:
        raise BadSetting(f"no token file given; use --file FILE or {FILE_VARIABLE}")
    if options.action == "create":
        return _create(path, options)
    if options.action == "revoke":
        gone = revoke_tokens(path, options.which)
        print_error(f"revoked {', '.join(f'{entry.id} of {entry.name}' for entry in gone)}")
        return 0
    entries, _ = read_tokens(path)
    if options.json:
        return print_text(
            json.dumps([entry.model_dump(mode="json", exclude={"sha256"}) for entry in entries], indent=2)
        )
    return print_text(_table(entries)) if entries else 0


def _create(path: str, options: argparse.Namespace) -> int:
    expires = expiry(options.expires, datetime.now(UTC)) if options.expires else None
    author = read_author(options.author, "--author") if options.author else None
    entry, text = create_token(path, name=options.name, role=options.role, expires=expires, author=author)
    until = f"until {entry.expires:%Y-%m-%d %H:%M} UTC" if entry.expires else "until it is revoked"
    print_error(f"token {entry.id} of {entry.name}, role {entry.role}, {until}; it is shown only once")
    code = print_text(text)
    if code:
        revoke_tokens(path, entry.id)
        print_error(f"token {entry.id} is revoked, because it could not be printed")
        return InputOutput.exit_code
    return 0


def expiry(duration: str, now: datetime) -> datetime:
    """Return when a duration such as `90d` ends.

    Raises:
        InvalidArguments: it is not a duration.
    """
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise InvalidArguments(f"--expires {duration}: write a number and m, h, d or w, such as 90d")
    try:
        return now.replace(microsecond=0) + timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise InvalidArguments(f"--expires {duration}: beyond the last date; omit it to never expire") from None


def _table(entries: Sequence[TokenRecord]) -> str:
    rows = [("id", "name", "role", "created", "expires", "author")]
    rows += [(one.id, one.name, one.role, _day(one.created), _expires(one), one.author or "") for one in entries]
    return "\n".join(aligned(rows))


def _expires(entry: TokenRecord) -> str:
    if entry.expires is None:
        return "never"
    return _day(entry.expires) + (" (expired)" if entry.expires <= datetime.now(UTC) else "")


def _day(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"
