"""Which parts of /etc every command may read (docs/specs/confinement.md)."""

import os

import pytest

from coretools.confinement.allowed_paths import etc_grants, is_granted, system_grants
from coretools.confinement.landlock import READ_DIRECTORY


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/coretools/tokens", "/etc/coretools/secrets/ci", "/etc/shadow", "/etc/ssh/ssh_host_ed25519_key"),
        *("/etc/ssl/private/server.key", "/etc/pki/tls/private/server.key", "/etc/letsencrypt/live/a/privkey.pem"),
        *("/etc/haproxy/haproxy.cfg", "/etc/redis/redis.conf", "/run/secrets/token", "/home/a/.ssh/id", "/root/x"),
    ],
)
def test_paths_with_secrets_are_not_granted(path: str) -> None:
    """confinement-3: whether it exists or not, although a server of user 0 could read it."""
    assert not is_granted(path)


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/hostname", "/usr/bin/env", "/etc/ssl/openssl.cnf"])
def test_what_programs_need_is_granted(path: str) -> None:
    """confinement-3: public configuration and programs."""
    if not os.path.exists(path):
        pytest.skip(f"no {path} on this machine")
    assert is_granted(path)


def test_the_directory_of_certificates_is_granted_entry_by_entry() -> None:
    """confinement-3: a grant applies to everything beneath, so no parent of a private directory is granted."""
    granted = {grant.path for grant in (*etc_grants(), *system_grants()) if grant.rights != READ_DIRECTORY}
    assert granted.isdisjoint({"/etc", "/etc/ssl", "/etc/pki", "/etc/pki/tls", "/"})
    for above in ("/etc/ssl", "/etc/pki/tls"):
        names = set(os.listdir(above)) if os.path.isdir(above) else set()
        assert {f"{above}/{name}" for name in names - {"private"}} <= granted
        assert f"{above}/private" not in granted
