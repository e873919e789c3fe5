"""`coretools mcp trust`: approve what files of the project start, after showing it."""

import re
from collections.abc import Iterator

from coretools.cli.common.terminal import print_error
from coretools.cli.mcp.line import Line, confirm
from coretools.cli.mcp.output import in_line
from coretools.client.approval.decisions import server_digest
from coretools.client.common.errors import NotTrusted
from coretools.client.common.secret_values import is_secret, secret_parts, secret_words
from coretools.client.configuration.oauth_settings import OAuthSettings
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.configuration.settings_schema import ServerSettings
from coretools.client.configuration.variables import names_in
from coretools.errors import InvalidArguments, NotFound
from coretools.redaction.argv import redacted_command_line
from coretools.redaction.redactor import Redactor


async def trust(line: Line) -> int:
    """Approve entries of the project, after showing what they start; with `--revoke`, no longer."""
    return _revoke(line) if line.options.revoke else await _approve(line)


async def _approve(line: Line) -> int:
    chosen = [line.entry(word) for word in line.options.words] or list(line.configuration.effective)
    new = [(one, one.settings) for one in chosen if one.settings is not None and not line.trust.covers(one)]
    for entry, settings in new:
        print_error(_summary(entry, settings, line))
        if not line.options.yes:
            if not line.terminal.can_ask:
                raise NotTrusted("nobody can be asked here; look at the entries above and give --yes")
            if not await confirm(line, "trust", f"Start {in_line(entry.name)} when it is used?"):
                continue
        line.decisions.add(
            "trusted_servers", {server_digest(entry, line.environment): f"{entry.name} in {entry.place.path}"}
        )
        print_error(f"trusted: {in_line(entry.name)}")
    if not new:
        print_error("nothing to approve: every usable entry is trusted")
    return 0


def _revoke(line: Line) -> int:
    """Forget what was decided about the servers that are named, also about older versions of their entries.

    Raises:
        InvalidArguments: none is named. NotFound: one was never trusted.
    """
    if not line.options.words:
        raise InvalidArguments("mcp trust --revoke: name the servers; `coretools mcp approvals` lists them")
    trusted = line.decisions.all()["trusted_servers"]
    for word in line.options.words:
        digests = [digest for digest, text in trusted.items() if str(text).partition(" in ")[0] == word]
        if not digests:
            raise NotFound(f"server {word!r} is not trusted; `coretools mcp approvals` lists those that are")
        line.decisions.remove(digests)
        print_error(f"revoked: {in_line(word)}")
    return 0


def _summary(entry: ServerEntry, settings: ServerSettings, line: Line) -> str:
    """Return what an entry starts, before its variables are replaced, without secrets; no text forges a line."""
    is_local = settings.transport == "stdio"
    lines = [*(_local(settings) if is_local else _remote(settings))]
    if is_local:
        lines.append(line.containment.summary(entry, line.environment))
    if named := names_in(entry):
        lines.append(f"with the values of {', '.join(named)}")
    if any(mark in text for text in lines for mark in ("[redacted:", "[... ")):
        lines.append("not all of it is shown; read the file before you answer")
    return "\n".join([in_line(f"{entry.name}, from {entry.place.path}:"), *(f"  {in_line(text)}" for text in lines)])


def _local(settings: ServerSettings) -> Iterator[str]:
    argv = [settings.command or "", *settings.args]
    yield f"runs {redacted_command_line(argv, Redactor(secret_words(argv)))}"
    if settings.cwd:
        yield f"in {settings.cwd}"
    for name, value in settings.env.items():
        shown = "[redacted:value]" if is_secret(name, value or "") else value
        yield f"with {redacted_command_line([f'{name}={shown}'])}"
    for name in settings.env_vars:
        yield f"with the variable {name}"
    if settings.env_file:
        yield f"with the variables in {settings.env_file}"


def _remote(settings: ServerSettings) -> Iterator[str]:
    yield f"connects to {redacted_command_line([settings.address], Redactor(secret_parts(settings.address)))}"
    for name in settings.headers or ():
        yield f"with the header {name}"
    for variable in (*settings.env_http_headers.values(), settings.bearer_token_env_var):
        if variable:
            yield f"with the variable {variable} in a header"
    if settings.oauth is not None:
        yield from _oauth(settings.oauth)


def _oauth(settings: OAuthSettings) -> Iterator[str]:
    for secret in (settings.client_secret, settings.private_key):
        if secret:
            names = ", ".join(re.findall(r"\$\{((?:env:|input:)?[A-Za-z0-9_-]+)", secret))
            yield f"with the OAuth credentials {names}" if names else "with OAuth credentials"
    for url in (settings.issuer, settings.metadata_url, settings.authorization_url, settings.token_url):
        if url:
            yield f"with a login at {redacted_command_line([url])}"
