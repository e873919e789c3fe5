"""Tokens of remote servers, in files of mode 0600 in the state directory: one file for each server.

A file is named by a hash of the server's URL and of the OAuth client that the entry configures, so that what was issued
for one server or client is never found for another.
"""

import fcntl
import hashlib
import json
import math
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ConfigDict, ValidationError

from coretools.client.common.state_files import is_own_file, open_lock, read_state_file, replace_state_file
from coretools.client.configuration.oauth_settings import OAuthClient
from coretools.errors import BadSetting, InputOutput
from coretools.own_state import state_path

FRESH_SECONDS = 30.0
"""A token is renewed this long before it expires, or after three quarters of a short life."""

LOCK_PAUSE_SECONDS = 0.05
"""Between attempts to lock a file that another process has locked while it renews its token."""


class Credentials(BaseModel):
    """What is known of one server."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tokens: OAuthToken | None = None
    expires_at: float | None = None
    registration: OAuthClientInformationFull | None = None
    """The client as the authorization server registered it; None if the entry names a client."""
    authorization_server: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    missing_scope: str | None = None
    """Scopes that a call lacked: the next login asks for them too."""

    @property
    def is_fresh(self) -> bool:
        """Whether there is a token that has not expired, and does not expire at once."""
        if self.tokens is None:
            return False
        life = self.tokens.expires_in or math.inf
        return self.expires_at is None or time.time() < self.expires_at - min(FRESH_SECONDS, life / 4)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no message may contain."""
        tokens, registration = self.tokens, self.registration
        values = (
            tokens and tokens.access_token,
            tokens and tokens.refresh_token,
            registration and registration.client_secret,
        )
        return tuple(value for value in values if value)


class CredentialStore:
    """The file of one server."""

    def __init__(self, environment: Mapping[str, str], url: str, client: OAuthClient) -> None:
        """Without a home, nothing is kept."""
        identity = [url, client.client_id, client.issuer, client.authorization_url, client.token_url]
        name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        self.path = state_path(environment, f"mcp-credentials/{name}.json")

    def read(self) -> Credentials:
        """Return what is stored.

        Raises:
            BadSetting: the file is damaged, a newer version wrote it, or others can read it.
        """
        if self.path is None:
            return Credentials()
        try:
            data, status = read_state_file(self.path)
            credentials = Credentials.model_validate_json(data)
        except FileNotFoundError:
            return Credentials()
        except (OSError, ValidationError) as error:
            reason = error.strerror if isinstance(error, OSError) else _fault(error)
            raise BadSetting(f"{self.path}: cannot be read ({reason}); delete it and log in again") from error
        if not is_own_file(status, hidden_bits=0o077):
            raise BadSetting(
                f"{self.path}: others can read the tokens in it, or it has another name; delete it and log in again"
            )
        return credentials

    def write(self, credentials: Credentials) -> None:
        """Replace what is stored.

        Raises:
            BadSetting: there is no home. InputOutput: the file can't be written.
        """
        if self.path is None:
            raise BadSetting("no HOME and no XDG_STATE_HOME: tokens can't be kept")
        try:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            replace_state_file(self.path, credentials.model_dump_json(exclude_none=True).encode())
        except OSError as error:
            raise InputOutput(f"{self.path}: cannot be written: {error.strerror}") from error

    def delete(self) -> bool:
        """Delete what is stored; return whether there was anything.

        Raises:
            InputOutput: it can't be deleted.
        """
        try:
            if self.path is not None:
                os.unlink(self.path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise InputOutput(f"{self.path}: cannot be deleted: {error.strerror}") from error
        return self.path is not None

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Exclude other processes that renew the same token.

        Raises:
            InputOutput: the file can't be locked.
        """
        if self.path is None:
            yield
            return
        try:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            handle = open_lock(f"{self.path}.lock")
        except OSError as error:
            raise InputOutput(f"{self.path}.lock: cannot be opened: {error.strerror}") from error
        try:
            # Not a blocking lock in a thread: a thread that waits can't be cancelled.
            while True:
                if _lock(handle):
                    break
                await anyio.sleep(LOCK_PAUSE_SECONDS)
            yield
        finally:
            os.close(handle)


def _fault(error: ValidationError) -> str:
    """Say why the content is no credentials: an unknown field is one of a newer version."""
    unknown = [one["loc"][0] for one in error.errors() if one["type"] == "extra_forbidden"]
    return f"a newer version of coretools wrote it: it has {str(unknown[0])[:80]!r}" if unknown else "is damaged"


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
