"""`coretools mcp login` and `logout`: the tokens of a remote server that wants OAuth."""

import webbrowser
from functools import partial

from anyio import to_thread

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.line import Line, confirm, connected
from coretools.cli.mcp.output import in_line
from coretools.client.common.failures import origin_of
from coretools.client.configuration.launch import RemoteLaunch, launch_of
from coretools.client.configuration.oauth_settings import OAuthClient
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.options import State
from coretools.errors import BadSetting, CoreError, DeadlinePassed, InvalidArguments

LOGIN_SECONDS = 300.0
"""For a person to log in; --connect-timeout may say otherwise."""


async def login(line: Line) -> int:
    """Let a person log in to a server, and keep the tokens."""
    # Imported late: other actions do not need it, and it takes 60 ms.
    from coretools.client.authorization.credentials import ServerAuthorization

    entry = line.startable(line.options.words[0])
    if entry.settings is not None and entry.settings.transport == "stdio":
        raise InvalidArguments(f"server {entry.name!r} is a local program; only remote servers have a login")
    seconds = line.options.connect_seconds or LOGIN_SECONDS
    authorizations: list[ServerAuthorization] = []

    def authorize(entry: ServerEntry, launch: RemoteLaunch) -> ServerAuthorization:
        client = _login_client(entry, launch)
        show = partial(_show_address, line, entry, seconds)
        authorizations.append(ServerAuthorization(entry.words, launch.url, client, line.environment, show))
        return authorizations[0]

    async with connected(line, [entry], authorization=authorize, connect_seconds=seconds) as connections:
        connection = connections[entry.name]
        if await connection.wait_settled() is State.READY and not authorizations[0].waits_for_person:
            await connection.tools()  # some servers let anybody connect
            if not authorizations[0].waits_for_person:
                await authorizations[0].log_in()  # and some want a token for calls alone
        if connection.error is not None:
            is_waiting = any(one.waits_for_person and not one.has_logged_in for one in authorizations)
            if is_waiting and isinstance(connection.error, DeadlinePassed):
                raise DeadlinePassed(f"server {entry.name!r}: nobody logged in within {seconds:g} s")
            raise connection.error
    authorization = authorizations[0]
    if authorization.failure is not None:
        raise authorization.failure  # the server has accepted the token, but it could not be kept
    done = "logged in to" if authorization.has_logged_in else "no login is needed for"
    return print_text(in_line(f"{done} {entry.name}"))


def _login_client(entry: ServerEntry, launch: RemoteLaunch) -> OAuthClient:
    if launch.oauth is None:
        raise BadSetting(f"{entry.place.path} gives it an Authorization header, or switches `oauth` off")
    if launch.oauth.grant == "client_credentials":
        raise BadSetting(f"{entry.place.path} gives it client credentials: it needs no login")
    return launch.oauth


async def _show_address(line: Line, entry: ServerEntry, seconds: float, address: str) -> None:
    """Open the login page in the browser after confirmation at the terminal; otherwise print its URL."""
    print_error(in_line(f"server {entry.name!r} wants a login at {origin_of(address)}"))
    if line.terminal.can_ask:
        # Some browsers return when they are closed: the login ends before.
        browse = partial(webbrowser.open, address)
        is_meant = await confirm(line, "open", "Open it in the browser?", default=True)
        if is_meant and await to_thread.run_sync(browse, abandon_on_cancel=True):
            return
    print_error(f"open this address in a browser on this machine, within {seconds:g} s:\n{in_line(address)}")


async def logout(line: Line) -> int:
    """Delete the tokens of a server, and have them revoked."""
    from coretools.client.authorization.credentials import ServerAuthorization

    entry = line.entry(line.options.words[0])
    launch = launch_of(entry, line.environment, line.options.inputs)
    if not isinstance(launch, RemoteLaunch) or launch.oauth is None:
        raise InvalidArguments(f"server {entry.name!r} has no login: it is local, or has credentials in its entry")
    authorization = ServerAuthorization(entry.words, launch.url, launch.oauth, line.environment)
    try:
        was_there = await authorization.log_out()
    except CoreError as error:
        print_error(in_line(f"server {entry.name!r}: the tokens are deleted, but not revoked: {error}"))
        was_there = True
    return print_text(in_line(f"logged out of {entry.name}" if was_there else f"not logged in to {entry.name}"))
